"""The preconditions of a replay or a rebuild, checked before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo import MongoClient

from connectors.rest import Connect
from towpath.deploy.inventory import DESTINATION_SET, SOURCE_SET, Inventory
from towpath.deploy.other_pipelines import Configurations, writers
from towpath.errors import MongoUnreachable, NoSuchConnector, Refused
from towpath.kafka.topics import Topic
from towpath.log.source_offsets import SELECTION, SourceState, read_state
from towpath.mongo.client import REPLAY_SIDE, ReplicaSet
from towpath.namespaces import namespace_of
from towpath.pipeline import ClusterTime, Pipeline
from towpath.replay.plan import END_OF_SECOND, change_topics, chosen, name_of

Client = MongoClient[dict[str, Any]]
_SHOWN = 5


def refuse_plain(pipeline: Pipeline) -> None:
    if not pipeline.exactly_once:
        raise Refused(
            f'{pipeline.name} has mode = "plain": its log may contain changes twice, and applying those again does not'
            ' lead to the same documents, so nothing can be rebuilt from it; the log of mode = "exactly-once" can be'
            " replayed"
        )


def selected(pipeline: Pipeline, only: Sequence[str], existing: Mapping[str, Topic]) -> list[Topic]:
    """The topics to replay. Raises `Refused` for a pattern that matches none, and when there are none at all."""
    topics = {namespace_of(pipeline.name, t.name): t for t in change_topics(pipeline, (), existing)}
    if not topics:
        raise Refused(
            f"there is no topic {pipeline.name}.* of the pipeline's collections at {pipeline.bootstrap}, and so no log"
            " to replay; has the pipeline been deployed, and is its name the same?"
        )
    for pattern in only:
        if not any(chosen(pipeline, (pattern,)).matches(name) for name in topics):
            names = ", ".join(sorted(topics)[:_SHOWN]) + (", …" if len(topics) > _SHOWN else "")
            raise Refused(
                f"--only {pattern}: the log holds no such namespace (use the source's names); there are: {names}"
            )
    return change_topics(pipeline, only, existing)


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
    copied = [ClusterTime(0, 0)] if pipeline.copy.method == "none" else []
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
    )


def refuse_uncopied(pipeline: Pipeline, *, force: bool) -> None:
    if pipeline.copy.method == "none" and not force:
        raise Refused(
            f'{pipeline.name} has [capture] copy = "none": its log lacks what the source held when it began, and so'
            " would a destination rebuilt from it; --force rebuilds the rest"
        )


def refuse_copying(pipeline: Pipeline, capture: CaptureState, only: Sequence[str]) -> None:
    """A copy that is still running would be rebuilt in part. (A replay with --follow applies the rest later.)"""
    _refuse_gap(capture)
    pattern = chosen(pipeline, only)
    copying = [name for name in capture.copying if pattern.matches(name)]
    if copying or not capture.copy_over:
        names = f" ({', '.join(copying[:_SHOWN])})" if copying else ""
        raise Refused(
            f"the initial copy of the pipeline is still running{names}, so the log is not complete yet. Wait until"
            " `towpath status` reports the copy as done, or replay with --follow, which applies the rest as it comes"
        )


def _refuse_gap(capture: CaptureState) -> None:
    if capture.gap is not None:
        raise Refused(
            f"changes since {format_time(capture.gap)} are missing in the log, and the resnapshot that replaces them is"
            " not finished: documents deleted since are still in the log; `towpath resnapshot PIPELINE` continues it"
        )


def refuse_until(pipeline: Pipeline, until: ClusterTime, capture: CaptureState) -> None:
    """Raise `Refused` for a point in time up to which the log is not known to be complete."""
    _refuse_gap(capture)
    if capture.passed is None:
        raise Refused(
            f"--until needs the pipeline's source connector, which reports how far the log is complete, and there is"
            f" none at {pipeline.connect_url}; `towpath deploy` the pipeline, or replay without --until"
        )
    if capture.copied is None:
        raise Refused(
            "--until: an older version of Towpath made the initial copy, and did not record when it was done; replay"
            " without --until"
        )
    if until >= capture.passed:
        raise Refused(
            f"--until {format_time(until)} is beyond what has been captured: everything before"
            f" {format_time(capture.passed)} is in the log so far; give an earlier point in time, or wait"
        )


def refuse_too_early(until: ClusterTime, earliest: ClusterTime | None) -> None:
    """Raise `Refused` for a point in time that the log cannot rebuild, with the earliest that it can."""
    if earliest is not None and until < earliest:
        second = datetime.fromtimestamp(earliest.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise Refused(
            f"--until {format_time(until)} is before the earliest point in time that can be rebuilt: {earliest},"
            f" or {second}. Before it, the log does not hold every state: the copy was not done, or Kafka compacted"
            " the log"
        )


def format_time(time: ClusterTime) -> str:
    """A point in time: a whole second, or the cluster time and its second."""
    second = datetime.fromtimestamp(time.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return second if time.ordinal == END_OF_SECOND else f"{time} ({second})"


def refuse_source(inventory: Inventory, destination: ReplicaSet, say: Callable[[str], None]) -> None:
    """Documents rebuilt at the source would be captured again, or overwrite the originals."""
    try:
        known = (
            _replica_set(inventory.configurations, inventory.pipeline.source_connector, SOURCE_SET)
            or inventory.source.replica_set
        )
    except MongoUnreachable as error:  # a lost source is a reason for a replay, and cannot be its destination
        say(f"cannot check that the destination is not the source: {error}")
        return
    if known.is_same(destination):
        raise Refused(
            f"the destination is the replica set {known.name} of the pipeline's source: what is replayed there would be"
            " captured again; give another replica set with --destination"
        )


def refuse_own_destination(inventory: Inventory, destination: ReplicaSet, say: Callable[[str], None]) -> None:
    try:
        known = (
            _replica_set(inventory.configurations, inventory.pipeline.sink_connector, DESTINATION_SET)
            or inventory.destination.replica_set
        )
    except MongoUnreachable as error:
        say(f"cannot check that this is not the pipeline's own destination: {error}")
        return
    if known.is_same(destination):
        raise Refused(
            f"the destination is the replica set {known.name} of the pipeline's own destination, and two sinks on one"
            " namespace overtake each other; `towpath replay PIPELINE --rebuild` empties it and applies the log anew"
        )


def _replica_set(configurations: Configurations, connector: str, key: str) -> ReplicaSet | None:
    """The replica set that a connector was deployed with."""
    mark = configurations.get(connector, {}).get(key)
    return ReplicaSet.parse(mark) if mark else None


def refuse_written(inventory: Inventory, label: str, destination: ReplicaSet, targets: Iterable[str]) -> None:
    for writer in writers(
        inventory.configurations, destination, targets, except_for=name_of(inventory.pipeline, label)
    ):
        if writer.replay_of == inventory.pipeline.name:
            raise Refused(
                f"the replay {writer.label} already writes {writer.listed} there; to continue it, give --name"
                f" {writer.label} and the options that it was started with; to give it up:"
                f" towpath remove PIPELINE --replay {writer.label}"
            )
        whose = (
            f"the replay {writer.label} of {writer.replay_of}"
            if writer.replay_of
            else f"the connector {writer.connector}"
        )
        raise Refused(
            f"{whose} already writes {writer.listed} there, and two sinks on one namespace overtake each other; give"
            " another destination, or other namespaces with --only"
        )


def refuse_name_taken(pipeline: Pipeline, label: str, existing: Mapping[str, Topic]) -> None:
    """A pipeline of that name would store its positions in the same place."""
    name = name_of(pipeline, label)
    if f"{name}.requests" in existing:
        raise Refused(f"there is a pipeline called {name}; choose another label with --name")


def document_counts(client: Client, targets: Iterable[str]) -> dict[str, int]:
    """Namespace → its number of documents, where not 0. Raises `Refused` for a view or time series collection."""
    counts: dict[str, int] = {}
    for target in targets:
        database, collection = target.split(".", 1)
        for info in client[database].list_collections(filter={"name": collection}):
            if info["type"] != "collection":
                raise Refused(f"{target} is a {info['type']} at the {REPLAY_SIDE}: documents cannot be written to it")
        documents = client[database][collection]
        if documents.find_one({}, {"_id": 1}) is not None:
            counts[target] = max(1, documents.estimated_document_count())
    return counts


def refuse_documents(counts: Mapping[str, int]) -> None:
    """Raise `Refused` for namespaces that hold documents: a replay starts with empty namespaces."""
    if counts:
        raise Refused(
            f"the destination holds documents already, and a replay needs empty namespaces: {format_counts(counts)}."
            " Pass --empty to delete them first (indexes and options stay), or replay other namespaces with --only"
        )


def format_counts(counts: Mapping[str, int]) -> str:
    """Namespaces with their numbers of documents; the first few."""
    first = [f"{name} ({count:,})" for name, count in list(counts.items())[:_SHOWN]]
    return ", ".join(first) + (f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else "")
