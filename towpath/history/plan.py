"""What a replay or a rebuild was started with, and the connector of a replay.

A replay is a sink that reads a pipeline's topics from the beginning and writes them to another destination. The
connector's configuration stores the plan: the replay exists exactly while its connector exists, and every later command
can read the options that it was started with. The plan of a rebuild is stored at the destination.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self

from towpath.checks.change import REPLAY_OF
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Place, Topic, Topics
from towpath.clients.mongo.client import ClusterTime, cluster_time
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config.namespaces import Selection, namespace_of
from towpath.config.pipeline import Pipeline
from towpath.errors import Refused, TowpathError
from towpath.log.definitions import COPY, DDL_ENDS, DDL_REPLAY, DESTINATION_SET, definitions
from towpath.store import credentials

PLAN = "towpath.replay"
#: An ordinal that no cluster time has: a point in time with it means the end of that second.
END_OF_SECOND = 2**31 - 1

#: The label of the replay of `takeover --drill`.
DRILL = "drill"

#: Of each partition: the first offset, and the end.
Log = Mapping[Place, tuple[int, int]]


@dataclass(frozen=True, slots=True, repr=False)
class Options:
    """Of the command. `timeout` is in seconds without progress."""

    only: tuple[str, ...]
    force: bool
    timeout: float
    uri: str | None = None
    """Of the destination of a replay, which may contain a password; None for a rebuild, and to check only the log."""
    label: str | None = None
    """By default it is derived from the destination."""
    until: ClusterTime | None = None
    follow: bool = False
    empty: bool = False
    only_log: bool = False
    """Of a dry run that has no destination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a replay or a rebuild was started with, and the state of the log when it started."""

    only: tuple[str, ...]
    """Patterns of source namespaces; empty for all of the pipeline."""
    until: ClusterTime | None = None
    follow: bool = False
    forced: bool
    """Whether it started although the log is not whole."""
    began: float
    """Seconds since the epoch."""
    letters: int
    """The end offset of the sink's dead-letter topic."""
    log: Log
    """Where the log began and ended."""
    phase: Literal["emptying", "applying"] = "applying"
    """Of a rebuild: whether the namespaces are being emptied or the log is being applied."""

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.log})

    @property
    def offsets(self) -> int:
        """How many there are to apply: records, transaction markers, and those that compaction has removed."""
        return sum(end - first for first, end in self.log.values())

    @property
    def late(self) -> dict[Place, int]:
        """The partitions whose beginning was gone, with their first offset."""
        return {place: first for place, (first, _) in self.log.items() if first > 0}

    def matches(self, options: Options) -> bool:
        """Whether these are the options that it was started with."""
        theirs = set(options.only), options.until, options.follow
        return (set(self.only), self.until, self.follow) == theirs

    @property
    def words(self) -> str:
        """Its options, as on the command line."""
        options = [f"--only {pattern}" for pattern in self.only]
        options += [f"--until {self.until}"] if self.until else []
        return " ".join(options + (["--follow"] if self.follow else [])) or "no options"

    def as_json(self) -> dict[str, Any]:
        log = [[topic, partition, *bounds] for (topic, partition), bounds in sorted(self.log.items())]
        until = str(self.until) if self.until else None
        return asdict(replace(self, log={})) | {"only": list(self.only), "until": until, "log": log}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            only=tuple(value["only"]),
            until=cluster_time(value["until"]) if value["until"] else None,
            follow=bool(value["follow"]),
            forced=bool(value["forced"]),
            began=float(value["began"]),
            letters=int(value["letters"]),
            log={(topic, partition): (first, end) for topic, partition, first, end in value["log"]},
            phase=value["phase"],
        )


@dataclass(frozen=True, slots=True, repr=False)
class Replay:
    """One replay of a pipeline."""

    pipeline: Pipeline
    label: str
    destination: ReplicaSet
    uri: str | None
    """It may hold a password; None where it cannot be read from here."""
    plan: Plan

    @property
    def sink(self) -> Pipeline:
        """The pipeline with the replay's name, secrets file and destination, for its sink and its positions."""
        return sink_of(self.pipeline, self.label, self.uri or "")

    @property
    def name(self) -> str:
        """The name of its connector; its positions are stored under it as well."""
        return self.sink.name


def refuse_label(label: str) -> None:
    """Raise `Refused` for a label that no replay has: it is a part of names of a connector, a topic and a file."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,31}", label):
        raise Refused(f"{label!r} cannot be the label of a replay", "use at most 32 letters, digits and '-'")


def sink_of(pipeline: Pipeline, label: str, uri: str = "") -> Pipeline:
    return pipeline.changed(
        name=f"{pipeline.name}-replay-{label}", destination={"uri": uri}, capture={"whole_documents": ()}
    )


def chosen(pipeline: Pipeline, only: Iterable[str]) -> Selection:
    """The namespaces of the pipeline; with patterns, those that match one of them."""
    return replace(pipeline.selection, only=tuple(only))


def point_in_time(text: str, option: str = "--until", *, ordinal: int = END_OF_SECOND) -> ClusterTime:
    """Parse a cluster time `seconds:ordinal`, or an ISO 8601 time to the second, UTC if it has no zone.

    An ISO 8601 time means the end of that second, or this `ordinal` in it. Raises `TowpathError` for any other text.
    """
    if re.fullmatch(r"\d{1,10}:\d{1,10}", text):
        time = cluster_time(text)
        if time.seconds < 2**32 and time.ordinal < END_OF_SECOND + 1:
            return time
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _bad_time(option, text, "neither a time nor a cluster time") from None
    if not re.search(r"[T ]\d\d:?\d\d:?\d\d", text):
        raise _bad_time(option, text, "the time of day or its seconds are missing")
    if moment.microsecond:
        raise _bad_time(option, text, "cluster times are whole seconds")
    seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    if not 0 < seconds < 2**32:
        raise _bad_time(option, text, "it is out of range")
    return ClusterTime(seconds, ordinal)


def _bad_time(option: str, text: str, why: str) -> TowpathError:
    return TowpathError(
        f"{option} {text!r}: {why}",
        "give a time in ISO 8601 to the second, such as 2026-11-21T18:00:00Z, or a cluster time as seconds:ordinal",
    )


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
    pipeline, sink, plan = replay.pipeline, replay.sink, replay.plan
    config = definitions(sink)[sink.sink_connector]
    config["database"] = pipeline.database
    if plan.follow:  # also replicates collections that are created later
        config["topics.regex"] = chosen(pipeline, plan.only).topic_regex(pipeline.name)
    else:
        del config["topics.regex"]
        ends: dict[str, list[int]] = {}
        for (topic, _), (_, end) in sorted(plan.log.items()):
            ends.setdefault(topic, []).append(end)
        config |= {"topics": ",".join(ends), DDL_ENDS: json.dumps(ends, separators=(",", ":"))}
    if plan.forced:  # the verdict reports updates without their document
        config[COPY] = "none"
    return config | {
        "towpath.until": str(plan.until) if plan.until else "",
        DDL_REPLAY: "true",
        DESTINATION_SET: str(replay.destination),
        REPLAY_OF: pipeline.name,
        PLAN: json.dumps(plan.as_json(), separators=(",", ":")),
    }


def find(connect: Connect, pipeline: Pipeline, label: str) -> Replay | None:
    """The replay with this label; None if there is none."""
    config = connect.config(sink_of(pipeline, label).name)
    return None if config is None else _replay(pipeline, label, config)


def find_all(connect: Connect, pipeline: Pipeline) -> tuple[Replay, ...]:
    """All existing replays of a pipeline."""
    prefix = sink_of(pipeline, "").name
    configs = {name: connect.config(name) for name in connect.names() if name.startswith(prefix)}
    return tuple(
        _replay(pipeline, name.removeprefix(prefix), config)
        for name, config in configs.items()
        if config is not None and config.get(REPLAY_OF) == pipeline.name
    )


def find_interrupted(connect: Connect, topics: Topics, pipeline: Pipeline) -> tuple[Replay, ...]:
    """What is left of replays whose removal was interrupted: the connector is gone, the file of secrets is here.

    None whose name may be that of another pipeline's, such as of `a-replay-b`, whose connectors may be elsewhere.
    """
    prefix = sink_of(pipeline, "").name
    files = sorted(pipeline.secrets_file.parent.glob("*.properties"))
    labels = [
        file.stem.removeprefix(prefix)
        for file in files
        if file.stem.startswith(prefix) and credentials.is_of_replay(file)
    ]
    labels = [label for label in labels if "-replay-" not in f"-{label}"]
    left = (find_leftovers(topics, pipeline, label) for label in labels if connect.config(prefix + label) is None)
    return tuple(replay for replay in left if replay is not None)


def _replay(pipeline: Pipeline, label: str, config: Mapping[str, str]) -> Replay:
    sink = sink_of(pipeline, label)
    try:
        plan = Plan.from_json(json.loads(config[PLAN]))
        destination = ReplicaSet.parse(config[DESTINATION_SET])
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise TowpathError(
            f"the connector {sink.name} is not a replay, or another version of Towpath created it ({error!r})",
            "delete it in Kafka Connect, or choose another --name",
        ) from error
    return Replay(pipeline, label, destination, credentials.read_destination(sink.secrets_file), plan)


def find_leftovers(topics: Topics, pipeline: Pipeline, label: str) -> Replay | None:
    """What is left of a replay without its connector: dead letters that were kept, or the rest of a killed removal."""
    plan = Plan(only=(), forced=False, began=0.0, letters=0, log={})
    sink = sink_of(pipeline, label)
    uri = credentials.read_destination(sink.secrets_file)
    exists = uri is not None or sink.dead_letter_topic in topics.all()
    return Replay(pipeline, label, ReplicaSet("", ()), uri, plan) if exists else None
