"""The processes of a stack, and the configuration files that they read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stack import jvm, mongod, state
from stack.options import CONTROLLER, StackOptions, metrics_of
from stack.parts import Parts
from stack.ports import HOST
from stack.processes import Process

FOLDERS = ("conf", "data", "logs", "secrets")


def plan(options: StackOptions, ports: Mapping[str, int], parts: Parts) -> dict[str, Process]:
    """Every process of the stack, none started. Connect comes before the broker, which has to be prepared first."""
    place = options.directory
    nodes = [
        Process(name, "mongod", _mongod(name, side, options, ports, parts), ports[name], log(place, name))
        for side, names in options.nodes.items()
        for name in names
    ]
    workers = [worker(name, options, ports, parts) for name in options.workers]
    broker = ("kafka.Kafka", str(broker_file(place)))
    kafka = jvm.java_command(parts, options.kafka_heap_mb, *broker, metrics_port=_metrics_port("kafka", options, ports))
    planned = [*nodes, *workers, Process("kafka", "kafka", kafka, ports["kafka"], log(place, "kafka"))]
    return {process.name: process for process in planned}


def write_files(options: StackOptions, ports: Mapping[str, int], parts: Parts) -> None:
    """Write the configuration files of broker and workers, and create the folders of the mongods."""
    place = options.directory
    state.prepare(place, *(f"data/{name}" for names in options.nodes.values() for name in names))
    broker = jvm.broker_properties(place / "data" / "kafka", ports["kafka"], ports[CONTROLLER])
    jvm.write_properties(broker_file(place), {**broker, **options.broker})
    for name in options.workers:
        write_worker_file(name, options, ports, parts)


def worker(name: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> Process:
    """One Connect worker, not started."""
    main = ("org.apache.kafka.connect.cli.ConnectDistributed", str(_worker_file(options.directory, name)))
    command = jvm.java_command(parts, options.connect_heap_mb, *main, metrics_port=_metrics_port(name, options, ports))
    return Process(name, "connect", command, ports[name], log(options.directory, name))


def _metrics_port(name: str, options: StackOptions, ports: Mapping[str, int]) -> int | None:
    return ports[metrics_of(name)] if options.metrics else None


def write_worker_file(name: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> None:
    plugins = options.plugins or parts.plugins
    bootstrap = f"{HOST}:{ports['kafka']}"
    values = jvm.worker_properties(options.directory, bootstrap, ports[name], plugins)
    jvm.write_properties(_worker_file(options.directory, name), values)


def broker_file(directory: Path) -> Path:
    return directory / "conf" / "kafka.properties"


def log(directory: Path, name: str) -> Path:
    return directory / "logs" / f"{name}.log"


def _worker_file(directory: Path, name: str) -> Path:
    return directory / "conf" / f"{name}.properties"


def _mongod(name: str, side: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> tuple[str, ...]:
    return mongod.command(parts.mongod, options.directory / "data" / name, ports[name], side, options.sizes)
