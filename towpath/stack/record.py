"""The options of a stack, and the record of a stack: a JSON file in its folder."""

from __future__ import annotations

import dataclasses
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from towpath.errors import NoStack, StackError
from towpath.files import replacing
from towpath.stack.processes import HOST, Process
from towpath.stack.tools import file_errors

FILE = "stack.json"
SOURCE, DESTINATION = "source", "destination"
PROMETHEUS = "prometheus"


def controller_of(broker: str) -> str:
    """The name of the port on which a broker takes part in electing the controller."""
    return f"{broker}-controller"


def metrics_of(process: str) -> str:
    """The name of the port on which a process shows its metrics."""
    return f"{process}-metrics"


@dataclass(frozen=True, slots=True)
class StackOptions:
    """A stack in a folder. Heaps in MB; `port_base` None means free ports, chosen once and then kept.

    `plugins`: a folder for Connect's `plugin.path` instead of Towpath's own. `kafka`: a folder with the jars of Kafka
    instead of those that Maven brings. `metrics`: brokers and workers show their metrics over HTTP. `monitor`: a
    Prometheus scrapes these and `towpath run --listen`. `broker`: additional settings of Kafka; `mongod`: parameters of
    every mongod (`--setParameter`). `source_mongod`, `destination_mongod`: programs of other versions. With three
    brokers or more all topics have three replicas, two of which must have a record; each of an odd number of them votes
    for the controller.
    """

    directory: Path
    source_nodes: int = 1
    destination_nodes: int = 1
    kafka_brokers: int = 1
    connect_workers: int = 1
    port_base: int | None = None
    kafka_heap_mb: int = 768
    connect_heap_mb: int = 1024
    mongod_cache_gb: float = 0.5
    oplog_mb: int = 1024
    plugins: Path | None = None
    kafka: Path | None = None
    metrics: bool = False
    monitor: bool = False
    broker: Mapping[str, str] = field(default_factory=dict)
    mongod: Mapping[str, str] = field(default_factory=dict)
    source_mongod: Path | None = None
    destination_mongod: Path | None = None

    @property
    def nodes(self) -> dict[str, list[str]]:
        """The processes of each replica set, by the set's name."""
        counts = {SOURCE: self.source_nodes, DESTINATION: self.destination_nodes}
        return {side: [f"{side}-{place}" for place in range(count)] for side, count in counts.items()}

    @property
    def brokers(self) -> list[str]:
        return ["kafka", *(f"kafka-{place}" for place in range(1, self.kafka_brokers))]

    @property
    def workers(self) -> list[str]:
        return [f"connect-{place}" for place in range(self.connect_workers)]

    @property
    def shown(self) -> list[str]:
        """The processes that show their metrics."""
        return [*self.brokers, *self.workers] if self.metrics or self.monitor else []

    @property
    def port_names(self) -> list[str]:
        """The names of all ports, in the order in which `port_base` counts them."""
        brokers = [port for name in self.brokers for port in (name, controller_of(name))]
        names = [*self.nodes[SOURCE], *self.nodes[DESTINATION], *brokers, *self.workers]
        return [*names, *map(metrics_of, self.shown), *([PROMETHEUS] if self.monitor else [])]

    @property
    def secrets(self) -> Path:
        """The folder that Connect's workers read secrets from."""
        return self.directory / "secrets"

    def configuration(self, process: str) -> Path:
        """The configuration file of a broker, a worker or Prometheus."""
        return self.directory / "conf" / (f"{process}.json" if process == PROMETHEUS else f"{process}.properties")

    def data(self, process: str) -> Path:
        return self.directory / "data" / process

    def log(self, process: str) -> Path:
        return self.directory / "logs" / f"{process}.log"


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack as its folder records it: addresses, and processes in the order in which they start."""

    options: StackOptions
    ports: Mapping[str, int]
    processes: Mapping[str, Process]
    source: str
    """URI, as of the destination."""
    destination: str = ""
    bootstrap: str = ""
    connect_urls: tuple[str, ...] = ()
    metrics_urls: Mapping[str, str] = field(default_factory=dict)
    """Process → URL of its metrics, in Prometheus' text format; empty unless the options enable them."""
    prometheus: str = ""
    """URL of Prometheus; empty unless the options enable it."""

    @classmethod
    def of(cls, options: StackOptions, ports: Mapping[str, int], processes: Mapping[str, Process]) -> Stack:
        """The stack with these ports."""
        source, destination = (
            f"mongodb://{','.join(f'{HOST}:{ports[name]}' for name in names)}/?replicaSet={side}"
            for side, names in options.nodes.items()
        )
        return cls(
            options,
            ports,
            processes,
            source,
            destination,
            ",".join(f"{HOST}:{ports[name]}" for name in options.brokers),
            tuple(f"http://{HOST}:{ports[name]}" for name in options.workers),
            {name: f"http://{HOST}:{ports[metrics_of(name)]}/metrics" for name in options.shown},
            f"http://{HOST}:{ports[PROMETHEUS]}" if options.monitor else "",
        )

    @property
    def directory(self) -> Path:
        return self.options.directory

    @property
    def connect(self) -> str:
        return self.connect_urls[0]

    @property
    def running(self) -> bool:
        """Whether every process runs now."""
        return all(process.running for process in self.processes.values())

    def with_process(self, process: Process) -> Stack:
        return dataclasses.replace(self, processes={**self.processes, process.name: process})

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "destination": self.destination,
            "bootstrap": self.bootstrap,
            "connect": self.connect,
            "processes": {name: {"pid": p.pid, "log": str(p.log)} for name, p in self.processes.items()},
        } | ({"prometheus": self.prometheus} if self.prometheus else {})


_RECORD = TypeAdapter(Stack)


def read(directory: Path) -> Stack:
    """The stack in the folder. Raises `NoStack` without one, `StackError` for a damaged record."""
    file = directory / FILE
    try:
        stack = _RECORD.validate_json(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise NoStack(f"there is no stack in {directory}; `towpath stack up --dir {directory}` starts one") from None
    except OSError as error:
        raise StackError(f"cannot read {file}: {error.strerror}") from error
    except ValidationError as error:
        raise StackError(
            f"{file} is damaged, or of another version of Towpath: {error.errors()[0]['msg']}",
            "end what still runs by hand and remove the folder",
        ) from error
    return dataclasses.replace(stack, options=dataclasses.replace(stack.options, directory=directory))


def write(stack: Stack) -> None:
    """Replace the record atomically."""
    place = stack.directory / FILE
    with file_errors(f"write {place}"), replacing(place) as file:
        file.write(_RECORD.dump_json(stack, indent=1).decode())


def prepare(directory: Path, *folders: str) -> None:
    """Create the folder, and folders in it, that only this user may read. Raises `StackError`."""
    with file_errors(f"create {directory}", "name another folder"):
        for place in (directory, *(directory / folder for folder in folders)):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StackError(f"cannot write to {directory}: permission denied", "name another folder")


@contextmanager
def held(directory: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Lock the stack in this folder against other commands that change it; wait for one that holds the lock."""
    try:
        lock = (directory / "lock").open("w", encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise NoStack(f"there is no stack in {directory}") from None
    except OSError as error:
        raise StackError(f"cannot write to {directory}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another command that is starting or stopping the stack in {directory}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
