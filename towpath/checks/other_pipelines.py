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
    listed: str
    """The first of the namespaces, for a message."""

    @property
    def label(self) -> str:
        """The name of a replay."""
        return self.connector.removeprefix(f"{self.replay_of}-replay-")


def _at(configurations: Configurations, key: str, cluster: ReplicaSet) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Name and configuration of Towpath's connectors that read (`SOURCE_SET`) or write (`DESTINATION_SET`) there."""
    for name, config in configurations.items():
        if key in config and ReplicaSet.parse(config[key]).is_same(cluster):
            yield name, config


def writers(
    configurations: Configurations, destination: ReplicaSet, targets: Iterable[str], except_for: str
) -> Iterator[Writer]:
    """The sinks, except one, that write any of these namespaces (destination's names) to this replica set."""
    names = sorted(targets)
    for name, config in _at(configurations, DESTINATION_SET, destination):
        replay_of = config.get(REPLAY_OF, "")
        prefix = replay_of or name.removesuffix("-sink")
        written = [target for target in names if name != except_for and is_written(config, prefix, target)]
        if written:
            yield Writer(name, replay_of, first_few(written, 3))


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
    for sink, config in _at(configurations, DESTINATION_SET, source):
        if sink == pipeline.sink_connector or REPLAY_OF in config:
            continue
        other, renames = sink.removesuffix("-sink"), renames_of(config)
        sources = (f"{other}-source", f"{other}-source-whole")
        captured = [it[SELECTION] for name, it in _at(configurations, SOURCE_SET, destination) if name in sources]
        round_trip = [
            (target, name)
            for target, name in written.items()
            if renames.get(target, target) == name and any(re.fullmatch(pattern, target) for pattern in captured)
        ]
        if round_trip and facts.state(sink) != "STOPPED":
            target, name = round_trip[0]
            yield error(
                f"{pipeline.name} writes {target}, and the pipeline {other} brings that back to {name}, where"
                f" {pipeline.name} captures it: each change would circulate forever",
                f"`towpath remove` {other} first, or stop its sink",
            )


def refuse_loop_on_resuming(session: Session) -> None:
    """Raise `Refused` for a loop, judging by the deployed connectors and the log, without the MongoDB clusters."""
    require(rules("deploy", _deployed_loops), Facts(session))


def _deployed_loops(facts: Facts) -> Iterator[Finding]:
    pipeline = facts.pipeline
    source, sink = (facts.deployed[name] or {} for name in (pipeline.source_connector, pipeline.sink_connector))
    if SOURCE_SET in source and DESTINATION_SET in sink:
        names = [namespace_of(pipeline.name, topic.name) for topic in facts.log]
        yield from loops(facts, ReplicaSet.parse(source[SOURCE_SET]), ReplicaSet.parse(sink[DESTINATION_SET]), names)
