"""The preconditions of a replay or a rebuild, and what they read: each part once, before anything is changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from towpath.checks.change import writers
from towpath.checks.destination import kind
from towpath.checks.facts import Facts, Side
from towpath.checks.rule import Finding, Rule, error, rules, warning
from towpath.checks.target import others
from towpath.clients.kafka.topics import Topic
from towpath.clients.mongo.client import REPLAY, Client, ClusterTime
from towpath.clients.mongo.replica_set import ReplicaSet, collections, holds_documents, replay_set
from towpath.config.namespaces import namespace_of, unmatched
from towpath.config.pipeline import Pipeline
from towpath.config.text import first_few
from towpath.errors import MongoUnreachable, NotYet, TopicError
from towpath.history.plan import (
    Log,
    Options,
    change_topics,
    chosen,
    format_time,
    namespaces,
    refuse_label,
    sink_of,
)
from towpath.log.definitions import DESTINATION_SET, SOURCE_SET, transaction_timeout
from towpath.log.field_rules import only_of
from towpath.log.lag import TIMEOUTS, Ends, committed_ends, refuse_hanging_transactions
from towpath.log.source_offsets import SELECTION, Refill, SourceState, source_state
from towpath.session import Session
from towpath.store import schema_changes
from towpath.store.writers import Registration, read_all

_SHOWN = 5
_PAUSE_S = 0.5  # between two readings while a transaction is open
_LATE_S = 3.0  # until a message says that it is waited for
#: The subject of what is found about a point in time.
UNTIL = "--until"


class ReplayFacts:
    """What a replay or a rebuild needs to know; each part is read at its first use."""

    def __init__(self, session: Session, options: Options) -> None:
        self.session, self.pipeline, self.options = session, session.pipeline, options
        self.deployed = Facts(session)
        self.cluster = session.destination if options.uri is None else session.replay_destination(options.uri)
        self.target = self.deployed.destination if options.uri is None else Side(REPLAY[0], self.cluster, replay_set)
        """The cluster that is written to."""

    @property
    def is_replay(self) -> bool:
        return self.options.uri is not None

    @property
    def is_rebuild(self) -> bool:
        return not self.is_replay and not self.options.only_log

    @property
    def label(self) -> str:
        """By default, one that is the same for the same replica set."""
        return self.options.label or hashlib.sha256(str(self.target.replica_set).encode()).hexdigest()[:8]

    @property
    def sink(self) -> Pipeline:
        """The pipeline that the sink belongs to."""
        return sink_of(self.pipeline, self.label, self.options.uri) if self.options.uri else self.pipeline

    @property
    def connector(self) -> str:
        return self.sink.name if self.is_replay else self.pipeline.sink_connector

    @cached_property
    def sources(self) -> Mapping[str, SourceState]:
        """What the source connectors have committed; empty unless all exist."""
        found = {name: self.deployed.offsets(name) for name in self.pipeline.source_connectors}
        states = {name: source_state(offsets) for name, offsets in found.items() if offsets is not None}
        return states if len(states) == len(found) else {}

    @property
    def copied(self) -> ClusterTime | None:
        """The largest cluster time of all that was copied; None if it is not known."""
        times = [state.copied for state in self.sources.values() if state.copied is not None]
        if self.sources and self.pipeline.copy_method == "none":
            times.append(ClusterTime(0, 0))
        return max(times, default=None)

    @cached_property
    def log(self) -> Log:
        """The range of the log to apply. Raises `TopicError` for a transaction that stays open: it hides the rest."""
        _ = self.sources  # first: the log then holds all that was copied by then
        chosen = change_topics(self.pipeline, self.options.only, self.deployed.existing)
        longest = TIMEOUTS * transaction_timeout(self.pipeline, len(self.deployed.log))
        return committed_ends(self.session.topics, chosen, _ended(self.session, chosen, longest))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The namespaces to write, by the destination's names."""
        return tuple(self.pipeline.renamed(name) for name in namespaces(self.pipeline, self.log))

    @cached_property
    def counts(self) -> dict[str, int]:
        return self.target.ask(partial(document_counts, targets=self.targets))


def _ended(session: Session, log: Collection[Topic], longest: float) -> Callable[[Callable[[], Ends]], Ends]:
    """The wait of `committed_ends`. Raises `TopicError` for a transaction that is open for more than `longest` s."""

    def until(committed: Callable[[], Ends]) -> Ends:
        start, is_said = time.monotonic(), False
        while True:
            try:
                return committed()
            except NotYet as open_one:
                topics, waited = session.topics, time.monotonic() - start
                refuse_hanging_transactions(session.pipeline, topics, topics.ends(log), longest, topics.written(log))
                if waited > longest:
                    raise TopicError(f"{open_one.what} in {longest:.0f} s", where=open_one.where) from open_one
                if not is_said and waited > _LATE_S:
                    session.say(f"waiting: {open_one.what}")
                    is_said = True
            time.sleep(_PAUSE_S)

    return until


def exactly_once(facts: ReplayFacts) -> Iterator[Finding]:
    if not facts.pipeline.exactly_once:
        yield error(
            f'{facts.pipeline.name} has mode = "plain": its log may contain changes twice, and applying those again'
            " does not lead to the same documents, so nothing can be rebuilt from it",
            'the log of mode = "exactly-once" can be replayed',
        )


def valid_label(facts: ReplayFacts) -> Iterator[Finding]:
    refuse_label(facts.label)
    return iter(())


def selected(facts: ReplayFacts) -> Iterator[Finding]:
    """There is a log, and every pattern of --only matches a namespace of it."""
    pipeline = facts.pipeline
    names = [namespace_of(pipeline.name, topic.name) for topic in facts.deployed.log]
    if not names:
        yield error(
            f"there is no topic {pipeline.name}.* of the pipeline's collections at {pipeline.kafka.bootstrap}, and so"
            " no log to replay",
            "has the pipeline been deployed, and is its name the same?",
        )
        return
    for pattern in unmatched(facts.options.only, names):
        yield error(
            f"--only {pattern}: the log holds no such namespace (use the source's names)",
            f"there are: {first_few(names, _SHOWN)}",
        )


def elsewhere(facts: ReplayFacts) -> Iterator[Finding]:
    """The destination is not a cluster of the pipeline: documents rebuilt at its source would be captured again."""
    pipeline, deployed, destination = facts.pipeline, facts.deployed, facts.target.replica_set
    for cluster, connector, key, harm, advice in (
        (
            deployed.source,
            pipeline.source_connector,
            SOURCE_SET,
            "what is replayed there would be captured again",
            "give another replica set with --destination",
        ),
        (
            deployed.destination,
            pipeline.sink_connector,
            DESTINATION_SET,
            "two sinks on one namespace overtake each other",
            "`towpath replay PIPELINE --rebuild` empties it and applies the log again",
        ),
    ):
        mark = deployed.configurations.get(connector, {}).get(key)
        known = [ReplicaSet.parse(mark)] if mark else []
        try:
            known.append(cluster.replica_set)  # tells a server also under another name
        except MongoUnreachable as failure:  # a lost source is a reason for a replay, and cannot be its destination
            if not mark:
                unproven = f"cannot check that this is not the pipeline's {cluster.side}"
                yield warning(f"{unproven}: {failure}", "")
        if any(one.is_same(destination) for one in known):
            place = f"the destination is the replica set {destination.name} of the pipeline's {cluster.side}"
            yield error(f"{place}: {harm}", advice)


def renamed(facts: ReplayFacts) -> Iterator[Finding]:
    """Both names of a rename are rebuilt, as the partitions of both wait for one another."""
    pipeline = facts.pipeline
    if not facts.options.only or not pipeline.exactly_once:
        return
    renames = [
        set(names)
        for names in facts.target.ask(partial(schema_changes.renames, pipeline=pipeline))
        if all(map(pipeline.selection.matches, names))
    ]
    named = set(namespaces(pipeline, facts.log))
    joined = set(named)
    while more := {name for names in renames if names & joined for name in names} - joined:
        joined |= more
    if lacking := sorted(joined - named):
        yield error(
            f"the log has renames between what --only names and {', '.join(lacking)}: a rebuild of one name would wait"
            " for the other forever",
            f"add {' '.join(f'--only {name}' for name in lacking)}, or rebuild everything",
        )


def copied(facts: ReplayFacts) -> Iterator[Finding]:
    if facts.pipeline.copy_method == "none" and not facts.options.force:
        yield error(
            f'{facts.pipeline.name} has [capture] copy = "none": its log lacks what the source held when it began,'
            " and so would a destination rebuilt from it",
            "--force rebuilds the rest",
        )


def without_gap(facts: ReplayFacts) -> Iterator[Finding]:
    gap = min((state.gap for state in facts.sources.values() if state.gap is not None), default=None)
    if gap is not None and not facts.options.follow:
        yield error(
            f"changes since {format_time(gap)} are missing in the log, and the resnapshot that replaces them is not"
            " finished: documents deleted since are still in the log",
            "`towpath resnapshot PIPELINE` continues it",
        )


def copy_over(facts: ReplayFacts) -> Iterator[Finding]:
    """A copy that is still running would be rebuilt in part. (A replay with --follow applies the rest later.)"""
    if facts.options.follow:
        return
    pattern, configs = chosen(facts.pipeline, facts.options.only), facts.deployed.configurations
    copies = (copy.namespace for state in facts.sources.values() for copy in state.copying)
    copying = sorted(filter(pattern.matches, copies))
    is_over = all(
        state.phase == "stream" and state.selection == configs.get(name, {}).get(SELECTION)
        for name, state in facts.sources.items()
    )
    if copying or not is_over:
        names = f" ({first_few(copying, _SHOWN)})" if copying else ""
        yield error(
            f"the initial copy of the pipeline is still running{names}, so the log is not complete yet",
            "wait until `towpath status` reports the copy as done, or replay with --follow, which applies the rest as"
            " it comes",
        )


def point_in_time(facts: ReplayFacts) -> Iterator[Finding]:
    """The log is known to be complete up to --until."""
    until, positions = facts.options.until, [state.position for state in facts.sources.values()]
    if until is None:
        return
    passed = min((position.time for position in positions if position is not None), default=None)
    if passed is None or None in positions:
        yield error(
            "--until needs the pipeline's source connector, which reports how far the log is complete, and there is"
            f" none at {facts.pipeline.connect.url}",
            "`towpath deploy` the pipeline, or replay without --until",
        )
    elif until >= passed:
        yield error(
            f"--until {format_time(until)} is beyond what has been captured: everything before"
            f" {format_time(passed)} is in the log so far",
            "give an earlier point in time, or wait",
        )
    else:
        yield from _looked_up(until, facts)
        yield from _selected(until, facts)
        yield from _within_refills(until, facts)


def _looked_up(until: ClusterTime, facts: ReplayFacts) -> Iterator[Finding]:
    """The record of an update is what a lookup found, which may be later than --until."""
    whole = facts.pipeline.captured_whole
    names = [name for name in namespaces(facts.pipeline, facts.log) if whole and whole.matches(name)]
    if names:
        yield error(
            f"--until {format_time(until)}: the log has no point in time of {first_few(names, _SHOWN)}, which"
            " [capture] whole_documents names: each update is there as the document that was looked up, maybe later",
            "replay the other collections with --only, or everything without --until",
        )


def _selected(until: ClusterTime, facts: ReplayFacts) -> Iterator[Finding]:
    """A record of a collection of which only some documents leave has the document as of the end of a batch."""
    names = [name for name in namespaces(facts.pipeline, facts.log) if only_of(facts.pipeline, name)]
    if names:
        yield warning(
            f"--until {format_time(until)}: of {first_few(names, _SHOWN)}, whose rules have `only`, the log has the"
            " state at the end of each batch of changes: the result may lack the last changes before --until, and more"
            " of them where capture lagged",
            "give a point in time at which nothing was written to them, or compare with the source",
        )


def _within_refills(until: ClusterTime, facts: ReplayFacts) -> Iterator[Finding]:
    """At --until, the log has all rows of each collection that was renamed or replaced."""
    pattern = chosen(facts.pipeline, facts.options.only)
    for refill in (refill for state in facts.sources.values() if state.schema for refill in state.schema.refills):
        is_chosen = not refill.namespace or pattern.matches(refill.namespace)
        if is_chosen and refill.start <= until and (refill.end is None or until < refill.end):
            or_later = f", or {format_time(refill.end)} or a later one" if refill.end else ""
            yield error(
                f"--until {format_time(until)}: {_of_refill(refill)}",
                f"give a point in time before {format_time(refill.start)}{or_later}",
            )


def _of_refill(refill: Refill) -> str:
    """Why a point in time within it cannot be rebuilt."""
    if refill.changes > 1:
        return (
            f"{refill.namespace or 'some collections'}: {refill.changes:,} renames or replacements between"
            f" {format_time(refill.start)} and {refill.end}; at which times between these the log has all documents is"
            " no longer known"
        )
    end = "they are not all there yet" if refill.end is None else f"they are all there at {refill.end}"
    return (
        f"{refill.namespace} was renamed or replaced at {format_time(refill.start)}, and its documents follow in the"
        f" log; {end}"
    )


def one_writer(facts: ReplayFacts) -> Iterator[Finding]:
    """No other sink writes these namespaces at the destination."""
    configurations = facts.deployed.configurations
    found = list(writers(configurations, facts.target.replica_set, facts.targets, except_for=facts.sink.name))
    for writer in found:
        replay = f"the replay {writer.label} of {writer.replay_of}"
        yield error(
            f"{replay if writer.replay_of else f'the connector {writer.connector}'} already writes {writer.listed}"
            " there, and two sinks on one namespace overtake each other",
            "give another destination, or other namespaces with --only"
            if writer.replay_of != facts.pipeline.name
            else f"to continue it, give --name {writer.label} and the options that it was started with; to give it up:"
            f" towpath remove PIPELINE --replay {writer.label}",
        )
    connectors = {writer.connector.removesuffix("-sink") for writer in found} | {writer.connector for writer in found}
    registered = {other: theirs for other, theirs in facts.target.ask(read_all).items() if other not in connectors}
    yield from others(registration(facts), registered, facts.targets)


def registration(facts: ReplayFacts) -> Registration:
    """What the replay is known by at its destination."""
    pipeline, deployed = facts.pipeline, facts.deployed
    source = deployed.configurations.get(pipeline.source_connector, {}).get(SOURCE_SET, pipeline.name)
    return Registration.of(facts.sink, deployed.kafka_cluster, source, facts.options.only)


def writable(facts: ReplayFacts) -> Iterator[Finding]:
    """No view and no time-series collection is in the place of a collection.

    With [ddl] the log also has views, and the sink finds out what is in their place.
    """
    databases = sorted({target.partition(".")[0] for target in facts.targets})
    kinds = ("collection", "view") if facts.pipeline.ddl.apply else ("collection",)
    for collection in facts.target.ask(partial(collections, databases=databases)):
        if collection.namespace in facts.targets and collection.kind not in kinds:
            yield from kind(collection, facts.pipeline)


def empty_namespaces(facts: ReplayFacts) -> Iterator[Finding]:
    if facts.counts and not facts.options.empty:
        yield error(
            "the destination holds documents already, and a replay needs empty namespaces:"
            f" {format_counts(facts.counts)}",
            "pass --empty to delete them first (indexes and options stay), or replay other namespaces with --only",
        )


def _of_replay(
    *checks: Callable[[ReplayFacts], Iterator[Finding]], name: str = "replay"
) -> tuple[Rule[ReplayFacts], ...]:
    return tuple(Rule(name, check, applies=lambda facts: facts.is_replay) for check in checks)


#: Of the command: also when it continues a replay or a rebuild.
OF_COMMAND: Sequence[Rule[ReplayFacts]] = (*rules("replay", exactly_once), *_of_replay(valid_label))
#: Those of a point in time in the log, whatever the destination.
OF_LOG: Sequence[Rule[ReplayFacts]] = (
    *rules("replay", exactly_once, selected, copied, without_gap, copy_over),
    *rules(UNTIL, point_in_time),
)
#: Before a new replay or rebuild begins.
OF_BEGINNING: Sequence[Rule[ReplayFacts]] = (
    *rules("replay", selected),
    *_of_replay(elsewhere),
    *rules("replay", copied),
    *_of_replay(without_gap, copy_over),
    *_of_replay(point_in_time, name=UNTIL),
    *_of_replay(one_writer),
    *rules("replay", writable),
    *_of_replay(empty_namespaces),
    Rule("replay", renamed, applies=lambda facts: not facts.is_replay),
)


def document_counts(client: Client, targets: Iterable[str]) -> dict[str, int]:
    """Namespace → its number of documents, where not 0; views have none."""
    counts: dict[str, int] = {}
    targets = tuple(targets)
    existing = collections(client, sorted({target.partition(".")[0] for target in targets}))
    views = {collection.namespace for collection in existing if collection.kind == "view"}
    for target in (target for target in targets if target not in views):
        if holds_documents(client, target):
            database, collection = target.split(".", 1)
            counts[target] = max(1, client[database][collection].estimated_document_count())
    return counts


def format_counts(counts: Mapping[str, int]) -> str:
    """Namespaces with their numbers of documents; the first few."""
    return first_few([f"{name} ({count:,})" for name, count in counts.items()], _SHOWN)
