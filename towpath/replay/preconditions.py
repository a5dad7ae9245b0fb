"""What a replay or a rebuild refuses before anything is touched."""

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
            f'{pipeline.name} has mode = "plain": its log may hold stretches of changes twice, and applying those again'
            ' does not end in the same documents, so that nothing can be rebuilt from it; mode = "exactly-once" keeps a'
            " log that can be replayed"
        )


def selected(pipeline: Pipeline, only: Sequence[str], existing: Mapping[str, Topic]) -> list[Topic]:
    """The topics to replay. Raises `Refused` for a pattern that takes in none, and when there are none at all."""
    everything = {namespace_of(pipeline.name, t.name): t for t in change_topics(pipeline, (), existing)}
    if not everything:
        raise Refused(
            f"there is no topic {pipeline.name}.* of the pipeline's collections at {pipeline.bootstrap}, and so no log"
            " to replay; has the pipeline been deployed, and is its name the same?"
        )
    for pattern in only:
        if not any(chosen(pipeline, (pattern,)).matches(name) for name in everything):
            names = ", ".join(sorted(everything)[:_SHOWN]) + (", …" if len(everything) > _SHOWN else "")
            raise Refused(
                f"--only {pattern}: the log holds no such namespace (it goes by the source's names); there are: {names}"
            )
    return change_topics(pipeline, only, existing)


@dataclass(frozen=True, slots=True)
class Captured:
    """What the pipeline's source connectors tell; None where there is none."""

    passed: ClusterTime | None
    """Everything before this moment is in the log."""
    copied: ClusterTime | None
    """The largest cluster time of all that was copied."""
    copying: tuple[str, ...]
    """Namespaces that are being copied."""
    copy_over: bool
    """Whether the first copy is over, and all that came into the pipeline later was taken up."""
    gap: ClusterTime | None = None
    """Since when changes are missing for which a resnapshot that is not over makes up."""


def captured(pipeline: Pipeline, connect: Connect) -> Captured:
    """How far capture is, of all source connectors together."""
    found: list[SourceState] = []
    selections: list[str | None] = []
    for name in pipeline.source_connectors:
        try:
            found.append(read_state(connect, name))
            selections.append((connect.config(name) or {}).get(SELECTION))
        except NoSuchConnector:
            return Captured(None, None, (), True)
    times = [state.position.time for state in found if state.position is not None]
    none = [ClusterTime(0, 0)] if pipeline.copy.method == "none" else []
    copied = none + [state.copied for state in found if state.copied is not None]
    return Captured(
        passed=min(times) if len(times) == len(found) else None,
        copied=max(copied) if copied else None,
        copying=tuple(sorted(copy.namespace for state in found for copy in state.copying)),
        copy_over=all(
            state.phase == "stream" and state.selection == selection
            for state, selection in zip(found, selections, strict=True)
        ),
        gap=min((state.gap for state in found if state.gap is not None), default=None),
    )


def refuse_uncopied(pipeline: Pipeline, *, force: bool) -> None:
    if pipeline.copy.method == "none" and not force:
        raise Refused(
            f'{pipeline.name} has [capture] copy = "none": its log never had what the source held when it began, so'
            " that a destination rebuilt from it lacks that; --force rebuilds the rest"
        )


def refuse_copying(pipeline: Pipeline, now: Captured, only: Sequence[str]) -> None:
    """What is still being copied would be rebuilt in part. (A replay that follows takes the rest as it comes.)"""
    _refuse_gap(now)
    pattern = chosen(pipeline, only)
    copying = [name for name in now.copying if pattern.matches(name)]
    if copying or not now.copy_over:
        names = f" ({', '.join(copying[:_SHOWN])})" if copying else ""
        raise Refused(
            f"the pipeline is still copying what the source holds{names}: the log does not hold all of it yet. Wait"
            " until `towpath status` says that the copy is done, or replay with --follow, which takes the rest as it"
            " comes"
        )


def _refuse_gap(now: Captured) -> None:
    if now.gap is not None:
        raise Refused(
            f"changes since {shown(now.gap)} are missing in the log, and the resnapshot that makes up for them is not"
            " over: documents that were deleted since are still in it; `towpath resnapshot PIPELINE` goes on with it"
        )


def refuse_moment(pipeline: Pipeline, until: ClusterTime, now: Captured) -> None:
    """Raise `Refused` for a moment up to which the log is not known to be complete."""
    _refuse_gap(now)
    if now.passed is None:
        raise Refused(
            f"--until needs the pipeline's source connector, which tells how far the log is complete, and there is none"
            f" at {pipeline.connect_url}; `towpath deploy` the pipeline, or replay without --until"
        )
    if now.copied is None:
        raise Refused(
            "--until: it is not known when the copy of what was there at the start was over, as an older version of"
            " Towpath made it; replay without --until"
        )
    if until >= now.passed:
        raise Refused(
            f"--until {shown(until)} is beyond what has been captured: everything before {shown(now.passed)} is in the"
            " log so far; name an earlier moment, or wait"
        )


def refuse_too_early(until: ClusterTime, earliest: ClusterTime | None) -> None:
    """Raise `Refused` for a moment that the log cannot tell of, with the earliest that it can."""
    if earliest is not None and until < earliest:
        whole = datetime.fromtimestamp(earliest.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise Refused(
            f"--until {shown(until)} is before the earliest moment that can be rebuilt: {earliest}, or {whole}. Until"
            " then the log does not tell every state: the copy was not over, or Kafka's cleaner has been there"
        )


def shown(moment: ClusterTime) -> str:
    """A moment for people: a whole second, or cluster time and its second."""
    second = datetime.fromtimestamp(moment.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return second if moment.ordinal == END_OF_SECOND else f"{moment} ({second})"


def refuse_source(i: Inventory, destination: ReplicaSet, say: Callable[[str], None]) -> None:
    """Documents rebuilt at the source would be captured again, or overwrite what they come from."""
    try:
        found = _known(i.configurations, i.pipeline.source_connector, SOURCE_SET) or i.source.replica_set
    except MongoUnreachable as error:  # a dead source is a reason for a replay, and is no destination
        say(f"cannot make sure that the destination is not the source: {error}")
        return
    if found.is_same(destination):
        raise Refused(
            f"the destination is the replica set {found.name} of the pipeline's source: what is replayed there would be"
            " captured again; name another replica set with --destination"
        )


def refuse_own_destination(i: Inventory, destination: ReplicaSet, say: Callable[[str], None]) -> None:
    try:
        found = _known(i.configurations, i.pipeline.sink_connector, DESTINATION_SET) or i.destination.replica_set
    except MongoUnreachable as error:
        say(f"cannot make sure that this is not the pipeline's own destination: {error}")
        return
    if found.is_same(destination):
        raise Refused(
            f"the destination is the replica set {found.name} of the pipeline's own destination, and two sinks on one"
            " namespace overtake each other; `towpath replay PIPELINE --rebuild` empties it and applies the log anew"
        )


def _known(configurations: Configurations, connector: str, key: str) -> ReplicaSet | None:
    """The replica set that a connector was deployed with."""
    mark = configurations.get(connector, {}).get(key)
    return ReplicaSet.parse(mark) if mark else None


def refuse_written(i: Inventory, label: str, destination: ReplicaSet, targets: Iterable[str]) -> None:
    for one in writers(i.configurations, destination, targets, except_for=name_of(i.pipeline, label)):
        if one.replay_of == i.pipeline.name:
            raise Refused(
                f"the replay {one.label} already writes {one.listed} there; to go on with it, give --name {one.label}"
                f" and the options that it was begun with; to give it up: towpath remove PIPELINE --replay {one.label}"
            )
        whose = f"the replay {one.label} of {one.replay_of}" if one.replay_of else f"the connector {one.connector}"
        raise Refused(
            f"{whose} already writes {one.listed} there, and two sinks on one namespace overtake each other; name"
            " another destination, or other namespaces with --only"
        )


def refuse_name_taken(pipeline: Pipeline, label: str, existing: Mapping[str, Topic]) -> None:
    """A pipeline of that name would keep its positions in the same place."""
    name = name_of(pipeline, label)
    if f"{name}.requests" in existing:
        raise Refused(f"there is a pipeline called {name}; choose another label with --name")


def holding(client: Client, targets: Iterable[str]) -> dict[str, int]:
    """How many documents each of these namespaces holds, if any. Raises `Refused` for what is no collection."""
    found: dict[str, int] = {}
    for target in targets:
        database, collection = target.split(".", 1)
        for info in client[database].list_collections(filter={"name": collection}):
            if info["type"] != "collection":
                raise Refused(f"{target} is a {info['type']} at the {REPLAY_SIDE}: documents cannot be written to it")
        documents = client[database][collection]
        if documents.find_one({}, {"_id": 1}) is not None:
            found[target] = max(1, documents.estimated_document_count())
    return found


def refuse_filled(filled: Mapping[str, int]) -> None:
    """Raise `Refused` for namespaces that hold documents: a rebuild begins at nothing."""
    if filled:
        raise Refused(
            f"the destination holds documents already, and a replay begins at nothing: {listed(filled)}. Pass --empty"
            " to have them deleted first (indexes and options stay), or replay other namespaces with --only"
        )


def listed(filled: Mapping[str, int]) -> str:
    """Namespaces with the number of their documents, for people."""
    first = [f"{name} ({count:,})" for name, count in list(filled.items())[:_SHOWN]]
    return ", ".join(first) + (f" and {len(filled) - _SHOWN} more" if len(filled) > _SHOWN else "")
