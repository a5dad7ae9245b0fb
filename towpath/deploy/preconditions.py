"""What must hold before a deployment, so that no record is lost and none is out of order.

One of the preconditions: no two pipelines replicate the same documents in both directions, or each change would go
round without end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from connectors.configs import plugins
from connectors.control import statuses
from connectors.rest import Connect
from towpath.deploy.inventory import Servers
from towpath.errors import NoSuchConnector, Refused
from towpath.kafka.topics import Topic, Topics
from towpath.log.source_offsets import SELECTION
from towpath.mongo.client import ReplicaSet
from towpath.namespaces import namespace_of, renames_of, topic_of
from towpath.pipeline import Pipeline

#: Keys in the configuration of a source and of a sink connector that say which replica set it works on.
SOURCE_SET, DESTINATION_SET = "towpath.source", "towpath.destination"
#: The key in the configuration of a replay's sink that names the pipeline whose log it reads.
REPLAY_OF = "towpath.replay.of"
_REMOVE = "`towpath remove --topics` the pipeline and deploy it again"

Configurations = Mapping[str, dict[str, str] | None]


def refuse_missing_plugins(pipeline: Pipeline, connect: Connect) -> None:
    present = connect.plugins()
    missing = [plugin for plugin in plugins(pipeline) if plugin not in present]
    if missing:
        raise Refused(
            f"Kafka Connect at {connect.url} lacks {', '.join(missing)}",
            "put Towpath's plugin folder on the plugin.path of every worker and restart the workers",
        )


def refuse_second_writer(pipeline: Pipeline, servers: Servers, connect: Connect) -> None:
    """Two pipelines that write one namespace overtake each other; also what a renamed pipeline looks like."""
    targets = {pipeline.renames.destination(name) for name in servers.namespaces}
    for one in writers(connect, servers.destination, targets, but=pipeline.sink_connector):
        if one.replay_of:
            raise Refused(
                f"the replay {one.connector} of the pipeline {one.replay_of} already writes {one.some} to this"
                " destination, and two sinks on one namespace overtake each other",
                f"end it first: `towpath remove … --replay {one.label}` with that pipeline's file",
            )
        raise Refused(
            f"the connector {one.connector} already writes {one.some} to this destination, and two pipelines on"
            " one namespace overtake each other. If you renamed the pipeline: its log and its position stay with"
            f" the old name ({one.connector.removesuffix('-sink')})",
            "keep that, or `towpath remove` the old pipeline first",
        )


@dataclass(frozen=True, slots=True)
class Writer:
    """A sink connector and what it writes of the namespaces that were asked for."""

    connector: str
    replay_of: str
    """The pipeline whose log it replays; empty for a pipeline's own sink."""
    namespaces: tuple[str, ...]

    @property
    def some(self) -> str:
        more = len(self.namespaces) - 3
        return ", ".join(self.namespaces[:3]) + (f" and {more} more" if more > 0 else "")

    @property
    def label(self) -> str:
        """Of a replay."""
        return self.connector.removeprefix(f"{self.replay_of}-replay-")


def writers(connect: Connect, destination: ReplicaSet, targets: Iterable[str], but: str) -> Iterator[Writer]:
    """The sinks besides `but` that write one of these namespaces (destination's names) to this replica set."""
    wanted = sorted(targets)
    for name in connect.names():
        config = connect.config(name) if name != but else None
        mark = (config or {}).get(DESTINATION_SET)
        if config is None or mark is None or not ReplicaSet.parse(mark).is_same(destination):
            continue
        replay_of = config.get(REPLAY_OF, "")
        prefix = replay_of or name.removesuffix("-sink")
        taken = tuple(target for target in wanted if is_written(config, prefix, target))
        if taken:
            yield Writer(name, replay_of, taken)


def is_written(config: Mapping[str, str], prefix: str, target: str) -> bool:
    """Whether a sink of this configuration, which reads topics `<prefix>.…`, writes the namespace `target`."""
    renames = renames_of(config)
    names = [old for old, new in renames.items() if new == target] + ([] if target in renames else [target])
    listed, pattern = config.get("topics", "").split(","), config.get("topics.regex")
    topics = [topic_of(prefix, name) for name in names]
    return any(re.fullmatch(pattern, topic) if pattern else topic in listed for topic in topics)


def refuse_moved_cluster(servers: Servers, present: Configurations) -> None:
    """A position in one replica set means nothing in another."""
    for name, config in present.items():
        for side, key, now in (
            ("source", SOURCE_SET, servers.source),
            ("destination", DESTINATION_SET, servers.destination),
        ):
            before = (config or {}).get(key)
            if before and not ReplicaSet.parse(before).is_same(now):
                raise Refused(
                    f"{name} was deployed with the {side} {before}, and the file now names {now}: its position means"
                    f" nothing there",
                    f"set [{side}] uri back, or {_REMOVE}, or give the new pipeline a name of its own",
                )


def refuse_changed_mode(
    pipeline: Pipeline, wanted: Configurations, present: Configurations, existing: Mapping[str, Topic]
) -> None:
    """Positions of one sink or source mean nothing to another; the topics tell even when no connector is there."""
    same_sink = _was(wanted, present, pipeline.sink_connector, ("connector.class",))
    if same_sink is None and _has_log(pipeline, existing):
        same_sink = (pipeline.dead_letter_topic in existing) == pipeline.exactly_once
    if same_sink is False:
        other = "plain" if pipeline.exactly_once else "exactly-once"
        raise Refused(
            f'{pipeline.name} was deployed with mode = "{other}", and the file now says "{pipeline.mode}": the two'
            f" sinks keep their positions in different places, and the log of one is not the history that the other"
            f" needs",
            f'set mode = "{other}" again, or empty the destination\'s namespaces and {_REMOVE}',
        )
    keys = ("connector.class", "towpath.copy", "snapshot.mode")
    same = _was(wanted, present, pipeline.source_connector, keys)
    if same is None and _has_log(pipeline, existing):
        same = (pipeline.request_topic in existing) == pipeline.has_own_source
    if same is False:
        raise Refused(
            f'{pipeline.name} was deployed with another [capture] copy, and the file now says "{pipeline.copy.way}":'
            " what was copied, and up to when, means nothing to another way of copying",
            f"set it back, or empty the destination's namespaces and {_REMOVE}",
        )


def _was(wanted: Configurations, present: Configurations, name: str, keys: Iterable[str]) -> bool | None:
    """Whether the connector that is there agrees in these settings with the one wanted; None when none is there."""
    before, after = present.get(name), wanted.get(name) or {}
    return None if before is None else all(before.get(key) == after.get(key) for key in keys)


def _has_log(pipeline: Pipeline, existing: Mapping[str, Topic]) -> bool:
    pattern = pipeline.selection.topic_regex(pipeline.name)
    return any(re.fullmatch(pattern, name) for name in existing)


def refuse_changed_capture(wanted: Configurations, present: Configurations, servers: Servers) -> None:
    """Between the end of one connector's capture and the beginning of another's, deletes would be lost."""
    for namespace in servers.namespaces:
        before = _captured_by(present, namespace)
        after = _captured_by(wanted, namespace)
        if before and after and before != after:
            raise Refused(
                f"{namespace} is captured by {before} and would be by {after}: a collection cannot change its way of"
                f" capture on the way",
                f"leave [capture] whole_documents as it was for it, or {_REMOVE}",
            )


def _captured_by(configurations: Configurations, namespace: str) -> str | None:
    for name, config in configurations.items():
        pattern = (config or {}).get(SELECTION)
        if pattern is not None and re.fullmatch(pattern, namespace):
            return name
    return None


def refuse_uncopied(pipeline: Pipeline, wanted: Configurations, servers: Servers, late: Late) -> None:
    """Debezium copies at its first start only: what a collection taken in later holds would never be copied."""
    if pipeline.copy.way != "debezium":
        return
    for namespace in sorted(servers.filled):
        after = late.newly_captured(wanted, namespace)
        if after is not None and _has_position(late.connect, after):
            raise Refused(
                f"{namespace} holds documents and was not captured by {after} when it started: they would not be"
                f" copied",
                f"give it a pipeline of its own, or {_REMOVE}",
            )


def refuse_taken_in_again(
    pipeline: Pipeline, wanted: Configurations, servers: Servers, late: Late, topics: Topics
) -> None:
    """What happened to a collection while it was out is not in the log, deletes above all, and no copy tells them."""
    if not pipeline.has_own_source:
        return
    existing = topics.all()
    names = {topic_of(pipeline.name, ns): ns for ns in servers.namespaces if late.newly_captured(wanted, ns)}
    ends = topics.ends(existing[topic] for topic in names if topic in existing)
    for (topic, _), (_, end) in sorted(ends.items()):
        if end > 0:
            raise Refused(
                f"{names[topic]} was in this pipeline before, and was taken out: its topic {topic} holds records, and"
                " what was deleted at the source since then would stay at the destination for ever",
                f"give it a pipeline of its own (and empty it at the destination), or {_REMOVE}",
            )


@dataclass(frozen=True, slots=True)
class Late:
    """Collections that come into a pipeline which is deployed already."""

    present: Configurations
    connect: Connect

    def newly_captured(self, wanted: Configurations, namespace: str) -> str | None:
        """The connector that is there and would capture it, when none does so far."""
        after = _captured_by(wanted, namespace)
        if after is None or self.present.get(after) is None or _captured_by(self.present, namespace) is not None:
            return None
        return after


def _has_position(connect: Connect, name: str) -> bool:
    try:
        return bool(connect.offsets(name))
    except NoSuchConnector:
        return False


def refuse_lost_whole_documents(pipeline: Pipeline, present: Configurations) -> None:
    name = pipeline.whole_source_connector
    if name not in pipeline.connectors and present.get(name) is not None:
        raise Refused(
            f"the connector {name} looks up whole documents, and the file no longer names any: a collection cannot"
            f" change its way of capture on the way",
            f"name it again in [capture] whole_documents, or {_REMOVE}",
        )


def refuse_partition_count(topic: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise Refused(
            f"the topic {topic} has {found} partitions and the file says {wanted}: with another count a document's"
            f" changes would be on two partitions, out of order",
            f"set [kafka] partitions = {found}",
        )


def refuse_partitioned(topic: Topic) -> None:
    """Requests and dead letters lie on one partition."""
    if topic.partitions != 1:
        raise Refused(
            f"the topic {topic.name} has {topic.partitions} partitions and must have one: it was not made by Towpath",
            "delete it, and deploy makes it anew",
        )


def refuse_ring(
    pipeline: Pipeline, connect: Connect, source: ReplicaSet, destination: ReplicaSet, namespaces: Iterable[str]
) -> None:
    """Raise `Refused` when another pipeline brings back what this one writes; not while either's sink is STOPPED.

    `namespaces`: the source's names of what this one captures.
    """
    targets = {pipeline.renames.destination(name): name for name in namespaces}
    for sink in connect.names():
        config = (connect.config(sink) or {}) if sink != pipeline.sink_connector else {}
        mark = config.get(DESTINATION_SET)
        if mark is None or REPLAY_OF in config or not ReplicaSet.parse(mark).is_same(source):
            continue
        other, renames = sink.removesuffix("-sink"), renames_of(config)
        round_trip = [
            target
            for target in _captured(connect, other, destination, targets)
            if renames.get(target, target) == targets[target]
        ]
        (state,) = (found.state for found in statuses(connect, [sink]))
        if round_trip and state != "STOPPED":
            raise Refused(
                f"{pipeline.name} writes {round_trip[0]}, and the pipeline {other} brings that back to"
                f" {targets[round_trip[0]]}, where {pipeline.name} captures it: each change would go round without end",
                f"`towpath remove` {other} first, or stop its sink",
            )


def _captured(connect: Connect, other: str, source: ReplicaSet, namespaces: Iterable[str]) -> list[str]:
    """Those of these namespaces of a replica set that a pipeline captures there."""
    configs = [connect.config(f"{other}-source") or {}, connect.config(f"{other}-source-whole") or {}]
    patterns = [
        config[SELECTION]
        for config in configs
        if SOURCE_SET in config and ReplicaSet.parse(config[SOURCE_SET]).is_same(source)
    ]
    return [name for name in namespaces if any(re.fullmatch(pattern, name) for pattern in patterns)]


def refuse_ring_on_resuming(pipeline: Pipeline, connect: Connect, topics: Topics) -> None:
    """The same for a pipeline that is deployed, by what its connectors say and its log holds."""
    source, sink = (connect.config(name) or {} for name in (pipeline.source_connector, pipeline.sink_connector))
    if SOURCE_SET not in source or DESTINATION_SET not in sink:
        return
    pattern = pipeline.selection.topic_regex(pipeline.name)
    names = [namespace_of(pipeline.name, topic) for topic in topics.all() if re.fullmatch(pattern, topic)]
    sets = ReplicaSet.parse(source[SOURCE_SET]), ReplicaSet.parse(sink[DESTINATION_SET])
    refuse_ring(pipeline, connect, *sets, names)
