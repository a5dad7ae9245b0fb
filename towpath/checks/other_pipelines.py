"""Other pipelines on the same Connect cluster: sinks that write the same namespaces, and replication loops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from towpath.checks.facts import DESTINATION_SET, SOURCE_SET, Facts
from towpath.checks.rule import Finding, error, require, rules
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config.namespaces import namespace_of, renames_of, topic_of
from towpath.config.text import first_few
from towpath.log.source_offsets import SELECTION
from towpath.session import Session

#: The key in the configuration of a replay's sink that names the pipeline whose log it reads.
REPLAY_OF = "towpath.replay.of"

Configurations = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Writer:
    """A sink connector that writes some of the namespaces in question."""

    connector: str
    replay_of: str
    """The pipeline whose log it replays; empty for a pipeline's own sink."""
    namespaces: tuple[str, ...]

    @property
    def listed(self) -> str:
        """The first three namespaces, for a message."""
        return first_few(self.namespaces, 3)

    @property
    def label(self) -> str:
        """The name of a replay."""
        return self.connector.removeprefix(f"{self.replay_of}-replay-")


def writers(
    configurations: Configurations, destination: ReplicaSet, targets: Iterable[str], except_for: str
) -> Iterator[Writer]:
    """The sinks, except one, that write any of these namespaces (destination's names) to this replica set."""
    names = sorted(targets)
    for name, config in configurations.items():
        mark = config.get(DESTINATION_SET)
        if name == except_for or mark is None or not ReplicaSet.parse(mark).is_same(destination):
            continue
        replay_of = config.get(REPLAY_OF, "")
        prefix = replay_of or name.removesuffix("-sink")
        written = tuple(target for target in names if is_written(config, prefix, target))
        if written:
            yield Writer(name, replay_of, written)


def is_written(config: Mapping[str, str], prefix: str, target: str) -> bool:
    """Whether a sink with this configuration, which reads topics `<prefix>.…`, writes the namespace `target`."""
    renames = renames_of(config)
    names = [old for old, new in renames.items() if new == target] + ([] if target in renames else [target])
    listed, pattern = config.get("topics", "").split(","), config.get("topics.regex")
    topics = [topic_of(prefix, name) for name in names]
    return any(re.fullmatch(pattern, topic) if pattern else topic in listed for topic in topics)


def loops(facts: Facts, source: ReplicaSet, destination: ReplicaSet, namespaces: Iterable[str]) -> Iterator[Finding]:
    """An error for each pipeline that replicates what this one writes back to where this one captures it.

    `namespaces`: what this pipeline captures, by the source's names. A pipeline whose sink is STOPPED does not count.
    """
    pipeline, configurations = facts.pipeline, facts.configurations
    written = {pipeline.renamed(name): name for name in namespaces}
    for sink, config in configurations.items():
        mark = config.get(DESTINATION_SET)
        if sink == pipeline.sink_connector or mark is None or REPLAY_OF in config:
            continue
        if not ReplicaSet.parse(mark).is_same(source):
            continue
        other, renames = sink.removesuffix("-sink"), renames_of(config)
        round_trip = [
            target
            for target in _captured(configurations, other, destination, written)
            if renames.get(target, target) == written[target]
        ]
        if round_trip and facts.state(sink) != "STOPPED":
            yield error(
                f"{pipeline.name} writes {round_trip[0]}, and the pipeline {other} brings that back to"
                f" {written[round_trip[0]]}, where {pipeline.name} captures it: each change would circulate forever",
                f"`towpath remove` {other} first, or stop its sink",
            )


def _captured(configurations: Configurations, other: str, source: ReplicaSet, namespaces: Iterable[str]) -> list[str]:
    """The `namespaces` of the replica set `source` that the pipeline `other` captures."""
    configs = [configurations.get(f"{other}-source", {}), configurations.get(f"{other}-source-whole", {})]
    patterns = [
        config[SELECTION]
        for config in configs
        if SOURCE_SET in config and ReplicaSet.parse(config[SOURCE_SET]).is_same(source)
    ]
    return [name for name in namespaces if any(re.fullmatch(pattern, name) for pattern in patterns)]


def refuse_loop_on_resuming(session: Session) -> None:
    """Raise `Refused` for a loop, judging by the deployed connectors and the log, without the MongoDB clusters."""
    require(rules("deploy", _deployed_loops), Facts(session))


def _deployed_loops(facts: Facts) -> Iterator[Finding]:
    pipeline = facts.pipeline
    source, sink = (facts.deployed[name] or {} for name in (pipeline.source_connector, pipeline.sink_connector))
    if SOURCE_SET in source and DESTINATION_SET in sink:
        names = [namespace_of(pipeline.name, topic.name) for topic in facts.log]
        yield from loops(facts, ReplicaSet.parse(source[SOURCE_SET]), ReplicaSet.parse(sink[DESTINATION_SET]), names)
