"""The ways from source to destination that are compared.

`towpath` is a pipeline in exactly-once mode and `plain` one in plain mode, both as `towpath deploy` makes them. `stock`
is Debezium's connector and mongo-kafka's sink as their own documentation joins them, without a class of ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from benchmarks.bench.measured import await_fact
from tests.support.checkout import Checkout
from towpath import stack as embedded
from towpath.checks.facts import Facts
from towpath.clients.connect.control import statuses
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Place, Topics
from towpath.clients.mongo.client import ClusterTime
from towpath.deploy.deployment import plan, remove
from towpath.errors import NoSuchConnector
from towpath.log.definitions import TOPIC_SETTINGS
from towpath.log.lag import applied, gaps, peek
from towpath.log.source_offsets import read_state
from towpath.session import Session, opened

DATABASE, COLLECTION = "bench", "documents"
NAMESPACE = f"{DATABASE}.{COLLECTION}"
PARTITIONS = 4
Side = Literal["towpath", "plain", "stock"]
_MODES = {"towpath": "exactly-once", "plain": "plain"}
_HERE = Path(__file__).parent
COMMAND = Path(sys.executable).parent / "towpath"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run asks of its side; `sink` is added to the sink connector's configuration as it is.

    `capture`: more of `[capture]`; `collections`: more of `[collections]`, with values as TOML has them. `checkout`:
    another version, whose `towpath deploy` makes the pipeline; it also creates the connectors. `topics`: the namespaces
    that have one, where patterns are among `namespaces`.
    """

    namespaces: Sequence[str] = (NAMESPACE,)
    topics: Sequence[str] = ()
    partitions: int = PARTITIONS
    copy: bool = True
    threads: int = 4
    tasks: int = 2
    concern: str = "majority"
    schemas: bool = False
    sink: Mapping[str, str] = field(default_factory=dict)
    capture: Mapping[str, Any] = field(default_factory=dict)
    collections: Mapping[str, str] = field(default_factory=dict)
    checkout: Checkout | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """A side that is made up to its connectors: `source` and `sink` name them, `definitions` is what they will be.

    `applied` tells (topic, partition) → the offset up to which the sink has written.
    """

    side: Side
    connect: Connect
    topics: Topics
    source: str
    sink: str
    names: tuple[str, ...]
    definitions: Mapping[str, dict[str, str]]
    applied: Callable[[], dict[Place, int]]

    def start(self, *connectors: str) -> None:
        """Create connectors; return once they and their tasks run."""
        for name in connectors:
            self.connect.put(name, self.definitions[name])
        await_fact(
            f"{' and '.join(connectors)} to run", lambda: all(is_state(self.connect, n, "RUNNING") for n in connectors)
        )

    def stop_source(self) -> None:
        """Stop capture, so that what is written from now on is a backlog in the source's oplog."""
        self.connect.stop(self.source)
        await_fact(f"{self.source} to stop", lambda: not self.connect.status(self.source).tasks)

    def pause_sink(self) -> None:
        """Have what comes into the log from now on wait there."""
        self.connect.pause(self.sink)
        await_fact(f"{self.sink} to pause", lambda: is_state(self.connect, self.sink, "PAUSED"))

    def ends(self) -> dict[Place, tuple[int, int]]:
        """(topic, partition) → (first offset, end) of the change topics."""
        known = self.topics.all()
        return self.topics.ends(known[name] for name in self.names)

    def await_captured(self, moment: ClusterTime) -> None:
        """Return once everything up to that moment of the source is in the log."""

        def captured() -> bool:
            is_state(self.connect, self.source, "RUNNING")
            position = read_state(self.connect, self.source).position
            return position is not None and position.has_passed(moment)

        await_fact("the last change in the log", captured, pause=0.25)

    def await_applied(self) -> None:
        """Return once everything that is in the log now is at the destination."""
        ends = self.ends()

        def is_done() -> bool:
            is_state(self.connect, self.sink, "RUNNING")
            left = gaps(ends, self.applied())
            return not any(found.records for found in peek(self.topics, left, limit=0).values())

        await_fact("the last record at the destination", is_done, pause=0.25)


def is_state(connect: Connect, name: str, state: str) -> bool:
    """Whether the connector and all of its tasks are in that state. Raises ValueError when one has failed."""
    (found,) = statuses(connect, [name])
    if found.failures:
        raise ValueError(f"{name} failed: {found.reasons[0]}")
    return found.state == state and bool(found.tasks) and all(task.state == state for task in found.tasks)


def is_streaming(connect: Connect, name: str) -> bool:
    """Whether what was there has been copied by a source connector, and the stream has begun."""
    try:
        found = read_state(connect, name)
    except NoSuchConnector:
        return False
    streaming = found.position is not None and not found.position.snapshot_running
    return streaming and not found.is_initial and not found.copying


@contextmanager
def way(stack: embedded.Stack, name: str, side: Side, settings: Settings = Settings()) -> Iterator[Way]:
    """A side with its topics, no connector created yet; all of it is removed at the end."""
    made = _stock(stack, name, settings) if side == "stock" else _ours(stack, name, side, settings)
    with made as it:
        it.definitions[it.sink].update(settings.sink)
        yield it


@contextmanager
def _ours(stack: embedded.Stack, name: str, side: Side, settings: Settings) -> Iterator[Way]:
    file = write_file(stack, name, side, settings)
    with opened(file) as it:
        try:
            with applied(it) as done:
                definitions = _deployed(it, settings.checkout, file) if settings.checkout else _prepared(it)
                names = tuple(f"{it.pipeline.name}.{namespace}" for namespace in settings.topics or settings.namespaces)
                source, sink = it.pipeline.source_connector, it.pipeline.sink_connector
                yield Way(side, it.connect, it.topics, source, sink, names, definitions, done)
        finally:
            remove(it, log=True, say=lambda words: None)


def _prepared(it: Session) -> Mapping[str, dict[str, str]]:
    """Do what `towpath deploy` does before the connectors; their definitions."""
    facts = Facts(it, allow_missing=True)
    for change in plan(facts):
        if not change.description.startswith("create connector "):
            change.apply()
    return facts.desired


def _deployed(it: Session, checkout: Checkout, file: Path) -> Mapping[str, dict[str, str]]:
    """Have another version deploy the pipeline; the connectors' definitions."""
    checkout("deploy", file)
    names = (it.pipeline.source_connector, it.pipeline.sink_connector)
    return {name: config for name in names if (config := it.connect.config(name)) is not None}


def pipeline_file(stack: embedded.Stack, name: str) -> Path:
    """Where the pipeline file of a run is."""
    return stack.directory / f"{name}.toml"


def write_file(stack: embedded.Stack, name: str, side: Side, settings: Settings) -> Path:
    """The pipeline file of one run."""
    copy = ([] if settings.copy else ['copy = "none"']) if side == "plain" or not settings.copy else []
    lines = [
        f"name = {json.dumps(name)}",
        f"mode = {json.dumps(_MODES[side])}",
        f"source.uri = {json.dumps(stack.source)}",
        f"destination.uri = {json.dumps(stack.destination)}",
        f"collections.include = {json.dumps(list(settings.namespaces))}",
        *(f"collections.{key} = {text}" for key, text in settings.collections.items()),
        f"kafka.bootstrap = {json.dumps(stack.bootstrap)}",
        f"kafka.partitions = {settings.partitions}",
        f"connect.url = {json.dumps(stack.connect)}",
        f"connect.secrets = {json.dumps(str(stack.directory.resolve() / 'secrets'))}",
        "[capture]",
        *copy,
        *([f"copy_threads = {settings.threads}"] if side == "towpath" else []),
        *(f"{key} = {json.dumps(value)}" for key, value in settings.capture.items()),
        "[write]",
        f"tasks = {settings.tasks}",
        f"concern = {json.dumps(settings.concern)}",
    ]
    file = pipeline_file(stack, name)
    file.write_text("\n".join([*lines, ""]))
    file.chmod(0o600)
    return file


@contextmanager
def _stock(stack: embedded.Stack, name: str, settings: Settings) -> Iterator[Way]:
    topics, source, sink = Topics(stack.bootstrap), f"{name}-source", f"{name}-sink"
    names = tuple(f"{name}.{namespace}" for namespace in settings.namespaces)
    topics.create(list(names), PARTITIONS, -1, TOPIC_SETTINGS)
    values = {
        "name": name,
        "source": stack.source,
        "destination": stack.destination,
        "namespaces": ",".join(settings.namespaces),
        "topics": ",".join(names),
        "database": DATABASE,
        "tasks": settings.tasks,
        "snapshot": "initial" if settings.copy else "no_data",
        "schemas": str(settings.schemas).lower(),
    }
    collections = {
        f"topic.override.{topic}.collection": namespace.partition(".")[2]
        for topic, namespace in zip(names, settings.namespaces, strict=True)
    }
    wanted = {source: _filled("stock-source.json", values), sink: _filled("stock-sink.json", values) | collections}
    with Connect(stack.connect) as connect:
        try:
            yield Way(
                "stock", connect, topics, source, sink, names, wanted, partial(topics.committed, f"connect-{sink}")
            )
        finally:
            for connector in (sink, source):
                _remove(connect, connector)
            topics.delete([*names, *(n for n in topics.all() if n == f"__debezium-heartbeat.{name}")])


def _filled(file: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {key: text % values for key, text in json.loads((_HERE / file).read_text()).items()}


def _remove(connect: Connect, name: str) -> None:
    """Remove a connector, and what it has committed if it is a source: a sink's offsets go with the topics."""
    if connect.config(name) is None:
        return
    if name.endswith("-source"):
        connect.stop(name)
        await_fact(f"{name} to stop", lambda: not connect.status(name).tasks)
        connect.forget_offsets(name)
    connect.delete(name)
