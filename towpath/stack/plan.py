"""The processes of a stack: their command lines, and the configuration files that they read."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import javaproperties

from towpath.clients.kafka.client import LARGEST_RECORD
from towpath.stack import mongod, prometheus, state
from towpath.stack.errors import FolderUnusable
from towpath.stack.options import StackOptions, bootstrap, controller_of, metrics_of, sasl_bootstrap
from towpath.stack.parts import Parts
from towpath.stack.processes import Process
from towpath.stack.security import SASL
from towpath.stack.state import HOST

FOLDERS = ("conf", "data", "logs", "secrets")
BROKER, WORKER = "kafka.Kafka", "org.apache.kafka.connect.cli.ConnectDistributed"
"""The main classes."""
_STORAGE_TOOL = "kafka.tools.StorageTool"


def processes_of(options: StackOptions, ports: Mapping[str, int], parts: Parts) -> dict[str, Process]:
    """Every process of the stack, not started. Connect comes before the broker, whose folder is prepared first."""
    place = options.directory
    nodes = [
        Process(name, "mongod", _mongod(name, side, options, ports, parts), ports[name], log(place, name))
        for side, names in options.nodes.items()
        for name in names
    ]
    workers = [worker(name, options, ports, parts) for name in options.workers]
    brokers = [_broker(name, options, ports, parts) for name in options.brokers]
    monitors = [_prometheus(options, ports)] if options.monitor else []
    return {process.name: process for process in (*nodes, *workers, *brokers, *monitors)}


def write_files(options: StackOptions, ports: Mapping[str, int], parts: Parts) -> None:
    """Write the configuration files of brokers, workers and Prometheus, and create the folders of the mongods."""
    place = options.directory
    state.prepare(place, *(f"data/{name}" for names in options.nodes.values() for name in names))
    controllers = [ports[controller_of(name)] for name in options.brokers]
    for node, name in enumerate(options.brokers, 1):
        broker = broker_properties(place / "data" / name, ports[name], controllers, node)
        if options.secured:
            broker |= options.secured.broker(ports[name], ports[SASL.format(name)], ports[controller_of(name)])
        write_properties(properties_file(place, name), {**broker, **options.broker})
    for name in options.workers:
        write_worker_file(name, options, ports, parts)
    if options.monitor:
        names = {"connect": options.workers, "kafka": options.brokers}
        jobs = {job: {name: ports[metrics_of(name)] for name in processes} for job, processes in names.items()}
        prometheus.write_configuration(place / "conf" / "prometheus.json", jobs)


def _prometheus(options: StackOptions, ports: Mapping[str, int]) -> Process:
    name, place = prometheus.NAME, options.directory
    command = prometheus.command(place / "conf" / "prometheus.json", place / "data" / name, ports[name])
    return Process(name, "prometheus", command, ports[name], log(place, name))


def _broker(name: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> Process:
    main = (BROKER, str(properties_file(options.directory, name)))
    command = java_command(parts, options.kafka_heap_mb, *main, metrics_port=_metrics_port(name, options, ports))
    return Process(name, "kafka", command, ports[name], log(options.directory, name))


def worker(name: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> Process:
    """One Connect worker, not started."""
    main = (WORKER, str(properties_file(options.directory, name)))
    system = options.secured.worker_system(options.directory / "conf") if options.secured else {}
    metrics = _metrics_port(name, options, ports)
    command = java_command(parts, options.connect_heap_mb, *main, metrics_port=metrics, system=system)
    return Process(name, "connect", command, ports[name], log(options.directory, name))


def _metrics_port(name: str, options: StackOptions, ports: Mapping[str, int]) -> int | None:
    return ports[metrics_of(name)] if name in options.shown else None


def write_worker_file(name: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> None:
    brokers = bootstrap(options, ports)
    values = worker_properties(options.directory, brokers, ports[name], parts.plugins, len(options.brokers))
    if options.secured:
        options.secured.write_jaas(options.directory / "conf")
        values |= options.secured.worker(ports[name], sasl_bootstrap(options, ports))
    write_properties(properties_file(options.directory, name), values)


def properties_file(directory: Path, process: str) -> Path:
    """The configuration of a broker or worker."""
    return directory / "conf" / f"{process}.properties"


def log(directory: Path, name: str) -> Path:
    return directory / "logs" / f"{name}.log"


def _mongod(name: str, side: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> tuple[str, ...]:
    folder, program = options.directory / "data" / name, options.mongods[side] or parts.mongod
    words = mongod.command(program, folder, ports[name], options.mongod_cache_gb, options.mongod)
    words += ("--replSet", side, "--oplogSize", str(options.oplog_mb))
    return words + (options.secured.mongod(side) if options.secured else ())


_LOGGING = Path(__file__).parent / "log4j2.yaml"


def java_command(
    parts: Parts,
    heap_mb: int,
    main: str,
    *arguments: str,
    metrics_port: int | None = None,
    system: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """A JVM that runs a main class with the jars of Kafka and Connect, and shows its metrics on that port, if given.

    `system` are its system properties beyond the usual ones. Most of what a worker allocates lives as long as one
    batch, so new objects get half of its heap; the largest documents need the rest (docs/benchmarks/README.md, "What a
    worker needs").
    """
    shared = archive(parts.archives, BROKER if main == _STORAGE_TOOL else main) if parts.archives else None
    agent = (
        [] if metrics_port is None else [f"-javaagent:{parts.agent}={HOST}:{metrics_port}:{prometheus.WORKER_RULES}"]
    )
    return (
        str(parts.java),
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        *([f"-Xmn{heap_mb // 2}m"] if main == WORKER else []),
        *([f"-XX:SharedArchiveFile={shared}", "-Xlog:cds=off"] if shared and shared.exists() else []),
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_LOGGING}",
        *(f"-D{name}={value}" for name, value in (system or {}).items()),
        *agent,
        "-cp",
        f"{parts.libs}/*",
        main,
        *arguments,
    )


def archive(folder: Path, main: str) -> Path:
    """The archive of the classes that a main class loads."""
    return folder / f"{main}.jsa"


def broker_properties(folder: Path, port: int, controller_ports: Sequence[int], node: int = 1) -> dict[str, str]:
    """One of the brokers, each of which votes for the controller, for records of up to `LARGEST_RECORD` bytes."""
    voters = [f"{number}@{HOST}:{controller}" for number, controller in enumerate(controller_ports, 1)]
    copies, controller_port = replicas(len(controller_ports)), controller_ports[node - 1]
    replicated = {"default.replication.factor": str(copies), "min.insync.replicas": "2"} if copies > 1 else {}
    return replicated | {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(folder),
        "message.max.bytes": str(LARGEST_RECORD),
        "replica.fetch.max.bytes": str(LARGEST_RECORD),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": str(copies),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(min(copies, 2)),
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(min(copies, 2)),
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
        "metadata.max.idle.interval.ms": "5000",  # a broker at rest wakes up less often
    }


def replicas(brokers: int) -> int:
    """How many brokers have a copy of each topic."""
    return min(brokers, 3)


def format_command(parts: Parts, configuration: Path) -> tuple[str, ...]:
    """The command that prepares the folder of a new broker; leaves a prepared one as it is."""
    # one for all brokers of a stack, whose configurations lie in one folder
    cluster = base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_URL, str(configuration.parent)).bytes).decode()
    words = [
        "format",
        f"--cluster-id={cluster.rstrip('=')}",  # one word: an id may begin with -
        "--config",
        str(configuration),
        "--ignore-formatted",
    ]
    return java_command(parts, 256, _STORAGE_TOOL, *words)


def worker_properties(directory: Path, bootstrap: str, port: int, plugins: Path, brokers: int = 1) -> dict[str, str]:
    """A Connect worker of the stack's one group. Its rebalances are quick, so that restarts are."""
    topics = {f"{kind}.storage.topic": f"connect-{kind}s" for kind in ("config", "offset")}
    topics |= {f"{kind}.storage.replication.factor": str(replicas(brokers)) for kind in ("config", "offset", "status")}
    return topics | {
        "status.storage.topic": "connect-status",
        "bootstrap.servers": bootstrap,
        "group.id": "towpath-stack",
        "offset.storage.partitions": "4",
        "status.storage.partitions": "2",
        "listeners": f"http://{HOST}:{port}",
        "rest.advertised.host.name": HOST,
        "rest.advertised.port": str(port),
        "plugin.path": str(plugins),
        "plugin.discovery": "service_load",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "1000",
        "topic.creation.enable": "true",
        "connector.client.config.override.policy": "All",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(directory / "secrets"),
        "scheduled.rebalance.max.delay.ms": "3000",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "2000",
        "worker.sync.timeout.ms": "20000",
        "fetch.max.wait.ms": "5000",  # of the consumers of the three topics; what comes is sent at once
    }


def write_properties(file: Path, values: Mapping[str, str]) -> Path:
    """Write a Java properties file. Raises `FolderUnusable`."""
    try:
        file.write_text(javaproperties.dumps(values, timestamp=None), encoding="ascii")
    except OSError as error:
        raise FolderUnusable(f"cannot write {file}: {error.strerror}") from error
    return file
