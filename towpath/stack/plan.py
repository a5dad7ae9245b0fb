"""The processes of a stack: their command lines, and the configuration files that they read."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import javaproperties

from towpath.clients.kafka.topics import LARGEST_RECORD
from towpath.files import shipped
from towpath.stack import tools
from towpath.stack.parts import MONITORING, Parts
from towpath.stack.processes import HOST, Kind, Process
from towpath.stack.record import PROMETHEUS, StackOptions, controller_of, metrics_of

WORKER_RULES = MONITORING / "workers.yaml"
ALERTS = MONITORING / "alerts.yaml"
BROKER, WORKER = "kafka.Kafka", "org.apache.kafka.connect.cli.ConnectDistributed"
"""The main classes."""
TOWPATH = f"{HOST}:9300"
"""Where Prometheus scrapes `towpath run --listen`, unless the file of targets says otherwise."""
_STORAGE_TOOL = "kafka.tools.StorageTool"
_LOGGING = Path(__file__).parent / "log4j2.yaml"


def processes_of(options: StackOptions, ports: Mapping[str, int], parts: Parts) -> dict[str, Process]:
    """Every process of the stack, not started. Connect comes before the broker, whose folder is prepared first."""

    def process(name: str, kind: Kind, command: Sequence[str]) -> Process:
        return Process(name, kind, tuple(command), ports[name], options.log(name))

    def jvm(name: str, main: str, heap_mb: int) -> tuple[str, ...]:
        configuration, metrics = str(options.configuration(name)), ports.get(metrics_of(name))
        return java_command(parts, heap_mb, main, configuration, metrics_port=metrics if options.shown else None)

    programs = {"source": options.source_mongod, "destination": options.destination_mongod}
    planned = [
        process(name, "mongod", _node(programs[side] or parts.mongod, name, side, options, ports[name]))
        for side, names in options.nodes.items()
        for name in names
    ]
    planned += [process(name, "connect", jvm(name, WORKER, options.connect_heap_mb)) for name in options.workers]
    planned += [process(name, "kafka", jvm(name, BROKER, options.kafka_heap_mb)) for name in options.brokers]
    if options.monitor:
        place, data = options.configuration(PROMETHEUS), options.data(PROMETHEUS)
        planned.append(process(PROMETHEUS, "prometheus", prometheus_command(place, data, ports[PROMETHEUS])))
    return {process.name: process for process in planned}


def write_files(options: StackOptions, ports: Mapping[str, int], parts: Parts) -> None:
    """Write the configuration files of brokers, workers and Prometheus."""
    controllers = [ports[controller_of(name)] for name in options.brokers]
    for node, name in enumerate(options.brokers, 1):
        broker = broker_properties(options.data(name), ports[name], controllers, node)
        write_properties(options.configuration(name), {**broker, **options.broker})
    brokers = ",".join(f"{HOST}:{ports[name]}" for name in options.brokers)
    for name in options.workers:
        worker = worker_properties(options.secrets, brokers, ports[name], parts.plugins, len(controllers))
        write_properties(options.configuration(name), worker)
    if options.monitor:
        names = {"connect": options.workers, "kafka": options.brokers}
        jobs = {job: {name: ports[metrics_of(name)] for name in processes} for job, processes in names.items()}
        write_prometheus(options.configuration(PROMETHEUS), jobs)


def _node(program: Path, name: str, side: str, options: StackOptions, port: int) -> tuple[str, ...]:
    words = mongod_command(program, options.data(name), port, options.mongod_cache_gb, options.mongod)
    return (*words, "--replSet", side, "--oplogSize", str(options.oplog_mb))


def mongod_command(
    program: Path, folder: Path, port: int, cache_gb: float, parameters: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The command line of one mongod that keeps its files in `folder`. `parameters`: for --setParameter."""
    values = {
        "periodicNoopIntervalSecs": "1",  # change streams and their times advance without writes
        "diagnosticDataCollectionEnabled": "false",
        "shutdownTimeoutMillisForSignaledShutdown": "100",  # there is no other node to hand over to
        **(parameters or {}),
    }
    words = [str(program), "--dbpath", str(folder), "--port", str(port), "--bind_ip", HOST, "--nounixsocket"]
    words += ["--wiredTigerCacheSizeGB", str(cache_gb)]
    for name, value in values.items():
        words += ["--setParameter", f"{name}={value}"]
    return tuple(words)


def java_command(
    parts: Parts, heap_mb: int, main: str, *arguments: str, metrics_port: int | None = None
) -> tuple[str, ...]:
    """A JVM that runs a main class with the jars of Kafka and Connect, and shows its metrics on that port, if given.

    Most of what a worker allocates lives as long as one batch, so new objects get half of its heap; the largest
    documents need the rest (docs/benchmarks/README.md, "What a worker needs").
    """
    more = []
    if metrics_port:
        more = [f"-javaagent:{parts.agent}={HOST}:{metrics_port}:{WORKER_RULES}"]
    elif parts.caches:
        more = [f"-XX:AOTCache={parts.caches / ('connect.aot' if main == WORKER else 'kafka.aot')}", "-Xlog:aot*=error"]
    return (
        str(parts.java),
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:+IgnoreUnrecognizedVMOptions",  # before Java 25
        "-XX:+UseCompactObjectHeaders",
        *([f"-Xmn{heap_mb // 2}m"] if main == WORKER else []),
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_LOGGING}",
        *more,
        "-cp",
        f"{parts.libs}/*",
        main,
        *arguments,
    )


def broker_properties(folder: Path, port: int, controller_ports: Sequence[int], node: int = 1) -> dict[str, str]:
    """One of the brokers, each of which votes for the controller, for records of up to `LARGEST_RECORD` bytes."""
    voters = [f"{number}@{HOST}:{controller}" for number, controller in enumerate(controller_ports, 1)]
    copies, controller_port = _replicas(len(controller_ports)), controller_ports[node - 1]
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


def _replicas(brokers: int) -> int:
    """How many brokers have a copy of each topic."""
    return min(brokers, 3)


def format_command(parts: Parts, configuration: Path) -> tuple[str, ...]:
    """The command that prepares the folder of a new broker; leaves a prepared one as it is."""
    # one for all brokers of a stack, whose configurations are in one folder
    cluster = base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_URL, str(configuration.parent)).bytes).decode()
    words = [
        "format",
        f"--cluster-id={cluster.rstrip('=')}",  # one word: an id may begin with -
        "--config",
        str(configuration),
        "--ignore-formatted",
    ]
    return java_command(parts, 256, _STORAGE_TOOL, *words)


def worker_properties(secrets: Path, bootstrap: str, port: int, plugins: Path, brokers: int = 1) -> dict[str, str]:
    """A Connect worker of the stack's one group: `connectors/worker.properties`, and its addresses and folders."""
    settings = javaproperties.loads((shipped("connectors") / "worker.properties").read_text(encoding="utf-8"))
    kinds = ("config", "offset", "status")
    replicated = {f"{kind}.storage.replication.factor": str(_replicas(brokers)) for kind in kinds}
    return (
        settings
        | replicated
        | {
            "bootstrap.servers": bootstrap,
            "group.id": "towpath-stack",
            "listeners": f"http://{HOST}:{port}",
            "rest.advertised.host.name": HOST,
            "rest.advertised.port": str(port),
            "plugin.path": str(plugins),
            "config.providers.file.param.allowed.paths": str(secrets),
        }
    )


def write_properties(file: Path, values: Mapping[str, str]) -> Path:
    """Write a Java properties file. Raises `StackError`."""
    _write(file, javaproperties.dumps(values, timestamp=None))
    return file


def prometheus_command(configuration: Path, data: Path, port: int) -> tuple[str, ...]:
    """A Prometheus that listens on this machine only."""
    return (
        tools.prometheus(),
        f"--config.file={configuration}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address={HOST}:{port}",
    )


def write_prometheus(
    file: Path, jobs: Mapping[str, Mapping[str, int]], rules: Path = ALERTS, interval: str = "5s"
) -> None:
    """Write the configuration, in JSON, which is YAML: job → process → port.

    The addresses of `towpath` are in a file of targets next to it, which stays as it is once it exists: Prometheus
    reads it again when it changes. Raises `StackError`.
    """
    targets = file.with_name("towpath-targets.json")
    scraped: list[dict[str, Any]] = [{"job_name": "towpath", "file_sd_configs": [{"files": [str(targets)]}]}]
    for job, processes in jobs.items():
        static = [{"targets": [f"{HOST}:{port}"], "labels": {"process": name}} for name, port in processes.items()]
        scraped.append({"job_name": job, "static_configs": static})
    configuration = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(rules)],
        "scrape_configs": scraped,
    }
    _write(file, json.dumps(configuration, indent=1))
    if not targets.exists():
        _write(targets, json.dumps([{"targets": [TOWPATH]}]))


def _write(file: Path, text: str) -> None:
    with tools.file_errors(f"write {file}"):
        file.write_text(text, encoding="utf-8")
