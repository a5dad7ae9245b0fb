"""The options of a stack, and the addresses of a stack that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from towpath.stack import mongod, prometheus
from towpath.stack.errors import StackError
from towpath.stack.processes import Process
from towpath.stack.security import SASL, Security
from towpath.stack.state import HOST, State

SOURCE, DESTINATION = "source", "destination"


_PATHS = ("plugins", "kafka", "security", "source_mongod", "destination_mongod")


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
    instead of those that Maven brings. `metrics`: brokers and workers show their
    metrics over HTTP. `monitor`: a Prometheus scrapes these and `towpath run --listen`. `broker`: additional settings
    of Kafka; `mongod`: parameters of every mongod (`--setParameter`). `source_mongod`, `destination_mongod`: programs
    of other versions. `security`: a folder of certificates and passwords, see `towpath.stack.security`. With three
    brokers or more all topics have three replicas, two of which must have a record. Raises `StackError` for counts that
    are not possible.
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
    security: Path | None = None
    source_mongod: Path | None = None
    destination_mongod: Path | None = None
    timeout_s: float = 180.0

    def __post_init__(self) -> None:
        for side, count in ((SOURCE, self.source_nodes), (DESTINATION, self.destination_nodes)):
            if not 1 <= count <= 7:
                raise StackError(f"the {side} cannot have {count} nodes: a replica set has 1 to 7 voting members")
        if self.kafka_brokers not in (1, 3, 5):
            raise StackError(
                f"the stack cannot have {self.kafka_brokers} Kafka brokers: 1, 3 or 5, as each of them votes for the"
                " controller"
            )
        if self.connect_workers < 1:
            raise StackError(f"the stack cannot have {self.connect_workers} Connect workers: at least 1")

    @property
    def nodes(self) -> dict[str, list[str]]:
        """The processes of each replica set, by the set's name."""
        counts = {SOURCE: self.source_nodes, DESTINATION: self.destination_nodes}
        return {side: [f"{side}-{place}" for place in range(count)] for side, count in counts.items()}

    @property
    def mongods(self) -> dict[str, Path | None]:
        """The program of each replica set, by the set's name; None stands for the pinned version."""
        return {SOURCE: self.source_mongod, DESTINATION: self.destination_mongod}

    @property
    def brokers(self) -> list[str]:
        return ["kafka", *(f"kafka-{place}" for place in range(1, self.kafka_brokers))]

    @property
    def workers(self) -> list[str]:
        return [f"connect-{place}" for place in range(self.connect_workers)]

    @property
    def port_names(self) -> list[str]:
        """The names of all ports, in the order in which `port_base` counts them."""
        brokers = [port for name in self.brokers for port in (name, controller_of(name))]
        names = [*self.nodes[SOURCE], *self.nodes[DESTINATION], *brokers, *self.workers]
        names += [SASL.format(name) for name in self.brokers if self.security]
        names += [metrics_of(name) for name in self.shown]
        return names + ([prometheus.NAME] if self.monitor else [])

    @property
    def shown(self) -> list[str]:
        """The processes that show their metrics."""
        return [*self.brokers, *self.workers] if self.metrics or self.monitor else []

    def written(self) -> dict[str, Any]:
        """The options as JSON values, without the folder and the timeout."""
        values = asdict(self)
        del values["directory"], values["timeout_s"]
        return values | {name: str(values[name]) if values[name] else None for name in _PATHS}

    @classmethod
    def of(cls, directory: Path, state: State) -> StackOptions:
        """The recorded options."""
        if "options" not in state.settings:
            raise StackError(f"{directory} holds MongoDB servers only, no whole stack")
        values = dict(state.settings["options"])
        return cls(directory, **values | {name: Path(values[name]) for name in _PATHS if values.get(name)})

    @property
    def secured(self) -> Security | None:
        return Security(self.security.resolve()) if self.security else None


@dataclass(frozen=True, slots=True)
class Stack:
    """The addresses and processes of a stack: URIs of MongoDB, `bootstrap` of Kafka, URLs of the Connect workers."""

    directory: Path
    source: str
    destination: str
    bootstrap: str
    connect_urls: tuple[str, ...]
    processes: Mapping[str, Process]
    metrics_urls: Mapping[str, str] = field(default_factory=dict)
    """Process → URL of its metrics, in Prometheus' text format; empty unless the options enable them."""
    sasl_bootstrap: str = ""
    """Where a secured Kafka accepts passwords; at `bootstrap` it accepts certificates."""
    prometheus: str = ""
    """URL of Prometheus; empty unless the options enable it."""

    @property
    def connect(self) -> str:
        return self.connect_urls[0]

    @property
    def running(self) -> bool:
        """Whether every process runs now."""
        return all(process.running for process in self.processes.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "destination": self.destination,
            "bootstrap": self.bootstrap,
            "connect": self.connect,
            "processes": {name: {"pid": p.pid, "log": str(p.log)} for name, p in self.processes.items()},
        } | ({"prometheus": self.prometheus} if self.prometheus else {})

    @classmethod
    def of(cls, directory: Path, state: State) -> Stack:
        """The recorded stack."""
        options, ports = StackOptions.of(directory, state), state.settings["ports"]
        source, destination = (mongod.uri([ports[n] for n in names], side) for side, names in options.nodes.items())
        scheme, sasl = "http", ""
        if options.secured:
            source, destination = (f"{uri}&{options.secured.options}" for uri in (source, destination))
            scheme, sasl = "https", sasl_bootstrap(options, ports)
        urls = tuple(f"{scheme}://{HOST}:{ports[name]}" for name in options.workers)
        metrics = {name: f"http://{HOST}:{ports[metrics_of(name)]}/metrics" for name in options.shown}
        monitor = f"http://{HOST}:{ports[prometheus.NAME]}" if options.monitor else ""
        brokers = bootstrap(options, ports)
        return cls(directory, source, destination, brokers, urls, state.processes, metrics, sasl, monitor)


def bootstrap(options: StackOptions, ports: Mapping[str, int]) -> str:
    """The brokers' addresses for clients."""
    return ",".join(f"{HOST}:{ports[name]}" for name in options.brokers)


def sasl_bootstrap(options: StackOptions, ports: Mapping[str, int]) -> str:
    """The brokers' addresses for users with passwords."""
    return ",".join(f"{HOST}:{ports[SASL.format(name)]}" for name in options.brokers)
