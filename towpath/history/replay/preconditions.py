"""The preconditions of a replay or a rebuild, and what they read: each part once, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from towpath.checks.facts import DESTINATION_SET, SOURCE_SET, Facts, Side
from towpath.checks.other_pipelines import writers
from towpath.checks.rule import Finding, Rule, error, rules, warning
from towpath.checks.target import others
from towpath.clients.connect.rest import Connect
from towpath.clients.mongo.client import REPLAY, Client, ClusterTime
from towpath.clients.mongo.replica_set import ReplicaSet, collections, replay_set
from towpath.config.namespaces import namespace_of
from towpath.config.pipeline import Pipeline
from towpath.errors import MongoUnreachable, NoSuchConnector
from towpath.history.replay.plan import (
    LABEL,
    RESERVED,
    Log,
    RebuildOptions,
    ReplayOptions,
    change_topics,
    chosen,
    default_label,
    format_time,
    name_of,
    namespaces,
)
from towpath.log.source_offsets import SELECTION, Refill, SourceState, read_state
from towpath.session import Session
from towpath.store import schema_changes
from towpath.store.writers import Registration, read_all

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class CaptureState:
    """What the pipeline's source connectors report; None where there is no connector."""

    passed: ClusterTime | None
    """Everything before this cluster time is in the log."""
    copied: ClusterTime | None
    """The largest cluster time of all that was copied."""
    copying: tuple[str, ...]
    """Namespaces that are being copied."""
    copy_over: bool
    """Whether the initial copy is done, also of namespaces that were added later."""
    gap: ClusterTime | None = None
    """Since when changes are missing, which an unfinished resnapshot will replace."""
    refills: tuple[Refill, ...] = ()
    """Collections that were renamed or replaced, whose rows came after that."""


def capture_state(pipeline: Pipeline, connect: Connect) -> CaptureState:
    """The state of capture, over all source connectors."""
    states: list[SourceState] = []
    selections: list[str | None] = []
    for name in pipeline.source_connectors:
        try:
            states.append(read_state(connect, name))
            selections.append((connect.config(name) or {}).get(SELECTION))
        except NoSuchConnector:
            return CaptureState(None, None, (), True)
    times = [state.position.time for state in states if state.position is not None]
    copied = [ClusterTime(0, 0)] if pipeline.copy_method == "none" else []
    copied += [state.copied for state in states if state.copied is not None]
    return CaptureState(
        passed=min(times) if len(times) == len(states) else None,
        copied=max(copied) if copied else None,
        copying=tuple(sorted(copy.namespace for state in states for copy in state.copying)),
        copy_over=all(
            state.phase == "stream" and state.selection == selection
            for state, selection in zip(states, selections, strict=True)
        ),
        gap=min((state.gap for state in states if state.gap is not None), default=None),
        refills=tuple(refill for state in states if state.schema for refill in state.schema.refills),
    )


class RebuildFacts:
    """What a rebuild needs to know; each part is read at its first use."""

    def __init__(self, session: Session, options: RebuildOptions) -> None:
        self.session, self.pipeline, self.options = session, session.pipeline, options
        self.deployed = Facts(session)
        self.target = self.deployed.destination
        """The cluster that is written to."""

    @cached_property
    def capture(self) -> CaptureState:
        return capture_state(self.pipeline, self.session.connect)

    @cached_property
    def log(self) -> Log:
        """The range of the log to apply."""
        _ = self.capture  # first: the log then holds all that was copied by then
        return self.session.topics.ends(change_topics(self.pipeline, self.options.only, self.deployed.existing))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The namespaces to write, by the destination's names."""
        return tuple(self.pipeline.renamed(name) for name in namespaces(self.pipeline, self.log))

    @cached_property
    def counts(self) -> dict[str, int]:
        return self.target.ask(partial(document_counts, targets=self.targets))


class ReplayFacts(RebuildFacts):
    """What a replay to another destination needs to know."""

    options: ReplayOptions

    def __init__(self, session: Session, options: ReplayOptions) -> None:
        super().__init__(session, options)
        self.target = Side(REPLAY[0], session.replay_destination(options.uri), replay_set)

    @property
    def label(self) -> str:
        return self.options.label or default_label(self.target.replica_set)


def exactly_once(facts: RebuildFacts) -> Iterator[Finding]:
    if not facts.pipeline.exactly_once:
        yield error(
            f'{facts.pipeline.name} has mode = "plain": its log may contain changes twice, and applying those again'
            " does not lead to the same documents, so nothing can be rebuilt from it",
            'the log of mode = "exactly-once" can be replayed',
        )


def valid_label(facts: ReplayFacts) -> Iterator[Finding]:
    if not LABEL.fullmatch(facts.label) or facts.label in RESERVED:
        yield error(
            f"{facts.label!r} cannot be the label of a replay",
            f"use at most 32 letters, digits and '-', and none of {', '.join(RESERVED)}",
        )


def selected(facts: RebuildFacts) -> Iterator[Finding]:
    """There is a log, and every pattern of --only matches a namespace of it."""
    pipeline = facts.pipeline
    names = sorted(
        namespace_of(pipeline.name, topic.name) for topic in change_topics(pipeline, (), facts.deployed.existing)
    )
    if not names:
        yield error(
            f"there is no topic {pipeline.name}.* of the pipeline's collections at {pipeline.kafka.bootstrap}, and so"
            " no log to replay",
            "has the pipeline been deployed, and is its name the same?",
        )
        return
    for pattern in facts.options.only:
        if not any(map(chosen(pipeline, (pattern,)).matches, names)):
            listed = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
            yield error(
                f"--only {pattern}: the log holds no such namespace (use the source's names)",
                f"there are: {listed}",
            )


def free_name(facts: ReplayFacts) -> Iterator[Finding]:
    """A pipeline of that name would store its positions in the same place."""
    name = name_of(facts.pipeline, facts.label)
    if f"{name}.requests" in facts.deployed.existing:
        yield error(f"there is a pipeline called {name}", "choose another label with --name")


def elsewhere(facts: ReplayFacts) -> Iterator[Finding]:
    """The destination is not a cluster of the pipeline: documents rebuilt at its source would be captured again."""
    pipeline, deployed, destination = facts.pipeline, facts.deployed, facts.target.replica_set
    for cluster, connector, key, unknown, finding, advice in (
        (
            deployed.source,
            pipeline.source_connector,
            SOURCE_SET,
            "the destination is not the source",
            "of the pipeline's source: what is replayed there would be captured again",
            "give another replica set with --destination",
        ),
        (
            deployed.destination,
            pipeline.sink_connector,
            DESTINATION_SET,
            "this is not the pipeline's own destination",
            "of the pipeline's own destination, and two sinks on one namespace overtake each other",
            "`towpath replay PIPELINE --rebuild` empties it and applies the log anew",
        ),
    ):
        mark = deployed.configurations.get(connector, {}).get(key)
        known = [ReplicaSet.parse(mark)] if mark else []
        try:
            known.append(cluster.replica_set)  # tells a server also under another name
        except MongoUnreachable as failure:  # a lost source is a reason for a replay, and cannot be its destination
            if not mark:
                yield warning(f"cannot check that {unknown}: {failure}", "")
        if any(one.is_same(destination) for one in known):
            yield error(f"the destination is the replica set {destination.name} {finding}", advice)


def renamed(facts: RebuildFacts) -> Iterator[Finding]:
    """Both names of a rename are rebuilt, as the partitions of both wait for one another."""
    pipeline = facts.pipeline
    if not facts.options.only or not pipeline.exactly_once:
        return
    renames = [
        set(names)
        for names in facts.target.ask(partial(schema_changes.renames, pipeline=pipeline))
        if all(map(pipeline.selection.matches, names))
    ]
    chosen_names = set(namespaces(pipeline, facts.log))
    joined = set(chosen_names)
    while more := {name for names in renames if names & joined for name in names} - joined:
        joined |= more
    if lacking := sorted(joined - chosen_names):
        yield error(
            f"the log has renames between what --only names and {', '.join(lacking)}: a rebuild of one name would wait"
            " for the other for ever",
            f"add {' '.join(f'--only {name}' for name in lacking)}, or rebuild everything",
        )


def copied(facts: RebuildFacts) -> Iterator[Finding]:
    if facts.pipeline.copy_method == "none" and not facts.options.force:
        yield error(
            f'{facts.pipeline.name} has [capture] copy = "none": its log lacks what the source held when it began,'
            " and so would a destination rebuilt from it",
            "--force rebuilds the rest",
        )


def without_gap(facts: ReplayFacts) -> Iterator[Finding]:
    gap, options = facts.capture.gap, facts.options
    if gap is not None and (options.until is not None or not options.follow):
        yield error(
            f"changes since {format_time(gap)} are missing in the log, and the resnapshot that replaces them is not"
            " finished: documents deleted since are still in the log",
            "`towpath resnapshot PIPELINE` continues it",
        )


def copy_over(facts: ReplayFacts) -> Iterator[Finding]:
    """A copy that is still running would be rebuilt in part. (A replay with --follow applies the rest later.)"""
    capture, pattern = facts.capture, chosen(facts.pipeline, facts.options.only)
    copying = [name for name in capture.copying if pattern.matches(name)]
    if (copying or not capture.copy_over) and not facts.options.follow:
        names = f" ({', '.join(copying[:_SHOWN])})" if copying else ""
        yield error(
            f"the initial copy of the pipeline is still running{names}, so the log is not complete yet",
            "wait until `towpath status` reports the copy as done, or replay with --follow, which applies the rest as"
            " it comes",
        )


def point_in_time(facts: ReplayFacts) -> Iterator[Finding]:
    """The log is known to be complete up to --until."""
    until, capture = facts.options.until, facts.capture
    if until is None:
        return
    if capture.passed is None:
        yield error(
            "--until needs the pipeline's source connector, which reports how far the log is complete, and there is"
            f" none at {facts.pipeline.connect.url}",
            "`towpath deploy` the pipeline, or replay without --until",
        )
    elif capture.copied is None:
        yield error(
            "--until: an older version of Towpath made the initial copy, and did not record when it was done",
            "replay without --until",
        )
    elif until >= capture.passed:
        yield error(
            f"--until {format_time(until)} is beyond what has been captured: everything before"
            f" {format_time(capture.passed)} is in the log so far",
            "give an earlier point in time, or wait",
        )
    else:
        yield from _looked_up(until, facts)
        yield from _within_refills(until, facts)


def _looked_up(until: ClusterTime, facts: ReplayFacts) -> Iterator[Finding]:
    """The record of an update is what a look-up found, which may be later than --until."""
    whole = facts.pipeline.captured_whole
    names = [name for name in namespaces(facts.pipeline, facts.log) if whole and whole.matches(name)]
    if names:
        yield error(
            f"--until {format_time(until)}: the log has no point in time of {', '.join(names[:_SHOWN])}, which"
            " [capture] whole_documents names: each update is there as the document that was looked up, maybe later",
            "replay the other collections with --only, or everything without --until",
        )


def _within_refills(until: ClusterTime, facts: ReplayFacts) -> Iterator[Finding]:
    """At --until, the log has all rows of each collection that was renamed or replaced."""
    pattern = chosen(facts.pipeline, facts.options.only)
    for refill in facts.capture.refills:
        if pattern.matches(refill.namespace) and refill.start <= until and (refill.end is None or until < refill.end):
            end = "they are not all there yet" if refill.end is None else f"they are all there at {refill.end}"
            or_later = f", or {format_time(refill.end)} or a later one" if refill.end else ""
            yield error(
                f"--until {format_time(until)}: {refill.namespace} was renamed or replaced at"
                f" {format_time(refill.start)}, and its documents follow in the log; {end}",
                f"give a point in time before {format_time(refill.start)}{or_later}",
            )


def one_writer(facts: ReplayFacts) -> Iterator[Finding]:
    """No other sink writes these namespaces at the destination."""
    name, configurations = name_of(facts.pipeline, facts.label), facts.deployed.configurations
    found = list(writers(configurations, facts.target.replica_set, facts.targets, except_for=name))
    for writer in found:
        if writer.replay_of == facts.pipeline.name:
            yield error(
                f"the replay {writer.label} already writes {writer.listed} there",
                f"to continue it, give --name {writer.label} and the options that it was started with; to give it up:"
                f" towpath remove PIPELINE --replay {writer.label}",
            )
            continue
        replay = f"the replay {writer.label} of {writer.replay_of}"
        yield error(
            f"{replay if writer.replay_of else f'the connector {writer.connector}'} already writes {writer.listed}"
            " there, and two sinks on one namespace overtake each other",
            "give another destination, or other namespaces with --only",
        )
    connectors = {writer.connector.removesuffix("-sink") for writer in found} | {writer.connector for writer in found}
    registered = {other: theirs for other, theirs in facts.target.ask(read_all).items() if other not in connectors}
    yield from others(registration(facts), registered, facts.targets)


def registration(facts: ReplayFacts) -> Registration:
    """What the replay is known by at its destination."""
    pipeline, deployed = facts.pipeline, facts.deployed
    source = deployed.configurations.get(pipeline.source_connector, {}).get(SOURCE_SET, pipeline.name)
    of_replay = pipeline.changed(name=name_of(pipeline, facts.label))
    return Registration.of(of_replay, deployed.kafka_cluster, source, facts.options.only)


def writable(facts: RebuildFacts) -> Iterator[Finding]:
    """No view and no time-series collection is in the place of a collection.

    With [ddl] the log has views too, and the sink sees for itself what is in their place.
    """
    databases = sorted({target.partition(".")[0] for target in facts.targets})
    for collection in facts.target.ask(partial(collections, databases=databases)):
        is_view = facts.pipeline.ddl.apply and collection.kind == "view"
        if collection.namespace in facts.targets and collection.kind != "collection" and not is_view:
            place = f"{collection.namespace} is a {collection.kind} at the {facts.target.side}"
            yield error(f"{place}: documents cannot be written to it", "")


def empty_namespaces(facts: ReplayFacts) -> Iterator[Finding]:
    if facts.counts and not facts.options.empty:
        yield error(
            "the destination holds documents already, and a replay needs empty namespaces:"
            f" {format_counts(facts.counts)}",
            "pass --empty to delete them first (indexes and options stay), or replay other namespaces with --only",
        )


#: Before a new replay or rebuild begins, and before one is continued (`OF_MODE`, `OF_LABEL`).
OF_MODE: Sequence[Rule[RebuildFacts]] = rules("replay", exactly_once)
OF_LABEL: Sequence[Rule[ReplayFacts]] = rules("replay", exactly_once, valid_label)
OF_REBUILD: Sequence[Rule[RebuildFacts]] = rules("replay", selected, copied, writable, renamed)
OF_REPLAY: Sequence[Rule[ReplayFacts]] = rules(
    "replay",
    selected,
    free_name,
    elsewhere,
    copied,
    without_gap,
    copy_over,
    point_in_time,
    one_writer,
    writable,
    empty_namespaces,
)


def document_counts(client: Client, targets: Iterable[str]) -> dict[str, int]:
    """Namespace → its number of documents, where not 0; views have none."""
    counts: dict[str, int] = {}
    targets = tuple(targets)
    existing = collections(client, sorted({target.partition(".")[0] for target in targets}))
    views = {collection.namespace for collection in existing if collection.kind == "view"}
    for target in (target for target in targets if target not in views):
        database, collection = target.split(".", 1)
        documents = client[database][collection]
        if documents.find_one({}, {"_id": 1}) is not None:
            counts[target] = max(1, documents.estimated_document_count())
    return counts


def format_counts(counts: Mapping[str, int]) -> str:
    """Namespaces with their numbers of documents; the first few."""
    first = [f"{name} ({count:,})" for name, count in list(counts.items())[:_SHOWN]]
    return ", ".join(first) + (f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else "")
