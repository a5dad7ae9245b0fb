"""Two pipelines that write to one another's source, the same documents: each change would go round without end."""

from __future__ import annotations

import re
from collections.abc import Iterable

from connectors.control import statuses
from connectors.rest import Connect
from towpath.deploy.preconditions import DESTINATION_SET, REPLAY_OF, SOURCE_SET
from towpath.errors import Refused
from towpath.kafka.topics import Topics
from towpath.log.source_offsets import SELECTION
from towpath.mongo.client import ReplicaSet
from towpath.namespaces import namespace_of, renames_of
from towpath.pipeline import Pipeline


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
