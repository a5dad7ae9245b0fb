"""A replay: a sink of its own reads a pipeline's topics from the beginning and writes them to another destination.

Its plan lies in the connector's configuration, so that the connector's being there is the replay's being there, and
whoever asks next knows what it was begun with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from connectors.configs import definitions
from connectors.rest import Connect
from towpath.deploy import credentials
from towpath.deploy.inventory import DESTINATION_SET
from towpath.deploy.other_pipelines import REPLAY_OF
from towpath.errors import Refused, TowpathError
from towpath.kafka.topics import Place, Topic, Topics
from towpath.mongo.client import ReplicaSet
from towpath.namespaces import Selection, namespace_of
from towpath.pipeline import ClusterTime, Pipeline, cluster_time

PLAN = "towpath.replay"
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,31}")
#: An ordinal that no cluster time has: a moment with it stands for the whole second.
END_OF_SECOND = 2**31 - 1
_TAKEN = ("sink", "source", "source-whole")  # `<pipeline>-replay-sink` is the sink of a pipeline of that name

#: Of each partition: the first offset, and the end.
Log = Mapping[Place, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a replay was begun with."""

    only: tuple[str, ...]
    """Patterns of namespaces, the source's names; none for all of the pipeline."""
    until: ClusterTime | None
    follow: bool
    forced: bool
    """Whether it was begun although the log is not whole."""
    began: float
    """Seconds since the epoch."""
    letters: int
    """The end of its dead-letter topic then."""
    log: Log
    """Where the log began and ended then."""

    def is_asked(self, only: Iterable[str], until: ClusterTime | None, *, follow: bool) -> bool:
        """Whether the same is asked for again."""
        return (set(self.only), self.until, self.follow) == (set(only), until, follow)

    @property
    def words(self) -> str:
        """What it was asked for, as options."""
        options = [f"--only {pattern}" for pattern in self.only]
        options += [f"--until {self.until}"] if self.until else []
        return " ".join(options + (["--follow"] if self.follow else [])) or "no options"

    def as_json(self) -> dict[str, Any]:
        return {
            "only": list(self.only),
            "until": str(self.until) if self.until else None,
            "follow": self.follow,
            "forced": self.forced,
            "began": self.began,
            "letters": self.letters,
            "log": [[topic, partition, *bounds] for (topic, partition), bounds in sorted(self.log.items())],
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Plan:
        return cls(
            only=tuple(told["only"]),
            until=cluster_time(told["until"]) if told["until"] else None,
            follow=bool(told["follow"]),
            forced=bool(told["forced"]),
            began=float(told["began"]),
            letters=int(told["letters"]),
            log={(topic, partition): (first, end) for topic, partition, first, end in told["log"]},
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
        """Of its connector; its positions are kept under it as well."""
        return name_of(self.pipeline, self.label)

    @property
    def secrets(self) -> Path:
        return secrets_of(self.pipeline, self.label)

    @property
    def dead_letter_topic(self) -> str:
        return self.sink.dead_letter_topic

    @property
    def sink(self) -> Pipeline:
        """The pipeline with the replay's name, secrets and destination: what its sink and its positions go by."""
        return replace(
            self.pipeline, name=self.name, secrets=self.secrets, destination_uri=self.uri or "", whole_documents=()
        )

    @property
    def selection(self) -> Selection:
        return chosen(self.pipeline, self.plan.only)

    @property
    def group(self) -> str:
        """Its consumer group, as Connect names it."""
        return f"connect-{self.name}"


def name_of(pipeline: Pipeline, label: str) -> str:
    return f"{pipeline.name}-replay-{label}"


def secrets_of(pipeline: Pipeline, label: str) -> Path:
    return pipeline.secrets.with_name(f"{name_of(pipeline, label)}.properties")


def default_label(destination: ReplicaSet) -> str:
    """The same for the same replica set."""
    return hashlib.sha256(str(destination).encode()).hexdigest()[:8]


def refuse_label(label: str) -> None:
    if not LABEL.fullmatch(label) or label in _TAKEN:
        raise Refused(
            f"{label!r} cannot be the label of a replay: letters, digits and '-', 32 of them at most, and none of"
            f" {', '.join(_TAKEN)}"
        )


def chosen(pipeline: Pipeline, only: Iterable[str]) -> Selection:
    """The namespaces of the pipeline, or those of them that match one of the patterns."""
    return replace(pipeline.selection, only=tuple(only))


def late_starts(log: Log) -> dict[Place, int]:
    """The partitions of a stretch of the log whose beginning was gone when it was looked at, and where they began."""
    return {place: first for place, (first, _) in log.items() if first > 0}


def change_topics(pipeline: Pipeline, only: Iterable[str], existing: Mapping[str, Topic]) -> list[Topic]:
    """The topics of these namespaces, by name."""
    pattern = chosen(pipeline, only).topic_regex(pipeline.name)
    return [existing[name] for name in sorted(existing) if re.fullmatch(pattern, name)]


def namespaces(pipeline: Pipeline, log: Log) -> list[str]:
    """The source's names of all namespaces in a stretch of the log."""
    return sorted({namespace_of(pipeline.name, topic) for topic, _ in log})


def definition(replay: Replay) -> dict[str, str]:
    """The configuration of the replay's connector: the pipeline's sink, with what is its own."""
    sink, plan = replay.sink, replay.plan
    config = definitions(sink)[sink.sink_connector]
    config["database"] = replay.pipeline.database
    if plan.follow:  # collections that come in later come in here as well
        config["topics.regex"] = replay.selection.topic_regex(replay.pipeline.name)
    else:
        del config["topics.regex"]
        config["topics"] = ",".join(dict.fromkeys(topic for topic, _ in sorted(plan.log)))
    return config | {
        "towpath.until": str(plan.until) if plan.until else "",
        DESTINATION_SET: str(replay.destination),
        REPLAY_OF: replay.pipeline.name,
        PLAN: json.dumps(plan.as_json(), separators=(",", ":")),
    }


def find(connect: Connect, pipeline: Pipeline, label: str) -> Replay | None:
    """The replay of that label, if there is one."""
    config = connect.config(name_of(pipeline, label))
    return None if config is None else _replay(pipeline, label, config)


def every(connect: Connect, pipeline: Pipeline) -> tuple[Replay, ...]:
    """All replays of a pipeline that are there."""
    prefix = name_of(pipeline, "")
    found = {name: connect.config(name) for name in connect.names() if name.startswith(prefix)}
    return tuple(
        _replay(pipeline, name.removeprefix(prefix), config)
        for name, config in found.items()
        if config is not None and config.get(REPLAY_OF) == pipeline.name
    )


def _replay(pipeline: Pipeline, label: str, config: Mapping[str, str]) -> Replay:
    try:
        plan = Plan.of(json.loads(config[PLAN]))
        destination = ReplicaSet.parse(config[DESTINATION_SET])
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise TowpathError(
            f"the connector {name_of(pipeline, label)} is not a replay's, or was not made by this version of Towpath"
            f" ({error!r}); delete it in Kafka Connect, or choose another --name"
        ) from error
    return Replay(pipeline, label, destination, credentials.read_destination(secrets_of(pipeline, label)), plan)


def left_behind(topics: Topics, pipeline: Pipeline, label: str) -> Replay | None:
    """What there is of a replay without its connector: dead letters that were kept, or a removal that was killed."""
    plan = Plan((), None, follow=False, forced=False, began=0.0, letters=0, log={})
    uri = credentials.read_destination(secrets_of(pipeline, label))
    found = Replay(pipeline, label, ReplicaSet("", ()), uri, plan)
    return found if uri is not None or found.dead_letter_topic in topics.all() else None
