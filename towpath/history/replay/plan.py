"""A replay: a sink of its own reads a pipeline's topics from the beginning and writes them to another destination.

The connector's configuration stores the plan: the replay exists exactly while its connector exists, and every later
command can read the options that it was started with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from towpath.checks.facts import DESTINATION_SET
from towpath.checks.other_pipelines import REPLAY_OF
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Place, Topic, Topics
from towpath.clients.mongo.client import ClusterTime, cluster_time
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config.namespaces import Selection, namespace_of
from towpath.config.pipeline import Pipeline
from towpath.errors import TowpathError
from towpath.log.definitions import COPY, DDL_ENDS, DDL_REPLAY, definitions
from towpath.store import credentials

PLAN = "towpath.replay"
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,31}")
#: An ordinal that no cluster time has: a point in time with it means the end of that second.
END_OF_SECOND = 2**31 - 1
RESERVED = ("sink", "source", "source-whole")  # `<pipeline>-replay-sink` is the sink of a pipeline of that name

#: Of each partition: the first offset, and the end.
Log = Mapping[Place, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """`timeout` is in seconds without progress."""

    only: tuple[str, ...]
    force: bool
    timeout: float


@dataclass(frozen=True, slots=True, repr=False)
class ReplayOptions(RebuildOptions):
    """`uri` may contain a password; without a `label`, it is derived from the destination."""

    uri: str
    label: str | None
    until: ClusterTime | None
    follow: bool
    empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The options of a replay or a rebuild, and the state of the log when it started."""

    only: tuple[str, ...]
    """Patterns of source namespaces; empty for all of the pipeline."""
    forced: bool
    """Whether it started although the log is not whole."""
    began: float
    """Seconds since the epoch."""
    letters: int
    """The end offset of the sink's dead-letter topic."""
    log: Log
    """Where the log began and ended."""

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.log})

    @property
    def ends(self) -> dict[str, list[int]]:
        """Topic → the ends of its partitions, in their order."""
        ends: dict[str, list[int]] = {}
        for (topic, _), (_, end) in sorted(self.log.items()):
            ends.setdefault(topic, []).append(end)
        return ends

    @property
    def offsets(self) -> int:
        """How many there are to apply: records, transaction markers, and those that compaction has removed."""
        return sum(end - first for first, end in self.log.values())

    @property
    def late(self) -> dict[Place, int]:
        """The partitions whose beginning was gone, with their first offset."""
        return {place: first for place, (first, _) in self.log.items() if first > 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Start):
    until: ClusterTime | None
    follow: bool

    def matches(self, only: Iterable[str], until: ClusterTime | None, *, follow: bool) -> bool:
        """Whether these are the options that it was started with."""
        return (set(self.only), self.until, self.follow) == (set(only), until, follow)

    @property
    def words(self) -> str:
        """Its options, as on the command line."""
        options = [f"--only {pattern}" for pattern in self.only]
        options += [f"--until {self.until}"] if self.until else []
        return " ".join(options + (["--follow"] if self.follow else [])) or "no options"

    def as_json(self) -> dict[str, Any]:
        log = [[topic, partition, *bounds] for (topic, partition), bounds in sorted(self.log.items())]
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"only": list(self.only), "until": str(self.until) if self.until else None, "log": log}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Plan:
        return cls(
            only=tuple(value["only"]),
            until=cluster_time(value["until"]) if value["until"] else None,
            follow=bool(value["follow"]),
            forced=bool(value["forced"]),
            began=float(value["began"]),
            letters=int(value["letters"]),
            log={(topic, partition): (first, end) for topic, partition, first, end in value["log"]},
        )


@dataclass(frozen=True, slots=True, repr=False)
class Replay:
    """One replay of a pipeline. `uri`, which may hold a password, is None where it cannot be read from here."""

    pipeline: Pipeline
    label: str
    destination: ReplicaSet
    uri: str | None
    plan: Plan

    @property
    def name(self) -> str:
        """The name of its connector; its positions are stored under it as well."""
        return name_of(self.pipeline, self.label)

    @property
    def secrets(self) -> Path:
        return secrets_of(self.pipeline, self.label)

    @property
    def sink(self) -> Pipeline:
        """The pipeline with the replay's name, secrets and destination, for its sink and its positions."""
        return self.pipeline.changed(
            name=self.name, destination={"uri": self.uri or ""}, capture={"whole_documents": ()}
        )


def name_of(pipeline: Pipeline, label: str) -> str:
    return f"{pipeline.name}-replay-{label}"


def secrets_of(pipeline: Pipeline, label: str) -> Path:
    return pipeline.secrets_file.with_name(f"{name_of(pipeline, label)}.properties")


def default_label(destination: ReplicaSet) -> str:
    """A label that is the same for the same replica set."""
    return hashlib.sha256(str(destination).encode()).hexdigest()[:8]


def chosen(pipeline: Pipeline, only: Iterable[str]) -> Selection:
    """The namespaces of the pipeline; with patterns, those that match one of them."""
    return replace(pipeline.selection, only=tuple(only))


def format_time(time: ClusterTime) -> str:
    """A point in time: a whole second, or the cluster time and its second."""
    second = datetime.fromtimestamp(time.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return second if time.ordinal == END_OF_SECOND else f"{time} ({second})"


def change_topics(pipeline: Pipeline, only: Iterable[str], existing: Mapping[str, Topic]) -> list[Topic]:
    """The topics of these namespaces, by name."""
    pattern = chosen(pipeline, only).topic_regex(pipeline.name)
    return [existing[name] for name in sorted(existing) if re.fullmatch(pattern, name)]


def namespaces(pipeline: Pipeline, log: Log) -> list[str]:
    """All source namespaces in a range of the log."""
    return sorted({namespace_of(pipeline.name, topic) for topic, _ in log})


def definition(replay: Replay) -> dict[str, str]:
    """The configuration of the replay's connector: the pipeline's sink, with the replay's own settings."""
    sink, plan = replay.sink, replay.plan
    config = definitions(sink)[sink.sink_connector]
    config["database"] = replay.pipeline.database
    if plan.follow:  # also replicates collections that are created later
        config["topics.regex"] = chosen(replay.pipeline, plan.only).topic_regex(replay.pipeline.name)
    else:
        del config["topics.regex"]
        config["topics"] = ",".join(plan.topics)
        config[DDL_ENDS] = json.dumps(plan.ends, separators=(",", ":"))
    if plan.forced:  # the verdict reports updates without their document
        config[COPY] = "none"
    return config | {
        "towpath.until": str(plan.until) if plan.until else "",
        DDL_REPLAY: "true",
        DESTINATION_SET: str(replay.destination),
        REPLAY_OF: replay.pipeline.name,
        PLAN: json.dumps(plan.as_json(), separators=(",", ":")),
    }


def find(connect: Connect, pipeline: Pipeline, label: str) -> Replay | None:
    """The replay with this label; None if there is none."""
    config = connect.config(name_of(pipeline, label))
    return None if config is None else _replay(pipeline, label, config)


def find_all(connect: Connect, pipeline: Pipeline) -> tuple[Replay, ...]:
    """All existing replays of a pipeline."""
    prefix = name_of(pipeline, "")
    configs = {name: connect.config(name) for name in connect.names() if name.startswith(prefix)}
    return tuple(
        _replay(pipeline, name.removeprefix(prefix), config)
        for name, config in configs.items()
        if config is not None and config.get(REPLAY_OF) == pipeline.name
    )


def _replay(pipeline: Pipeline, label: str, config: Mapping[str, str]) -> Replay:
    try:
        plan = Plan.from_json(json.loads(config[PLAN]))
        destination = ReplicaSet.parse(config[DESTINATION_SET])
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise TowpathError(
            f"the connector {name_of(pipeline, label)} is not a replay, or another version of Towpath created it"
            f" ({error!r}); delete it in Kafka Connect, or choose another --name"
        ) from error
    return Replay(pipeline, label, destination, credentials.read_destination(secrets_of(pipeline, label)), plan)


def find_leftovers(topics: Topics, pipeline: Pipeline, label: str) -> Replay | None:
    """What is left of a replay without its connector: dead letters that were kept, or the rest of a killed removal."""
    plan = Plan(only=(), until=None, follow=False, forced=False, began=0.0, letters=0, log={})
    uri = credentials.read_destination(secrets_of(pipeline, label))
    replay = Replay(pipeline, label, ReplicaSet("", ()), uri, plan)
    return replay if uri is not None or replay.sink.dead_letter_topic in topics.all() else None
