"""The processes of a stack, and the configuration files that they read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from towpath.stack import jvm, mongod, state
from towpath.stack.options import StackOptions, bootstrap, controller_of, metrics_of, sasl_bootstrap
from towpath.stack.parts import Parts
from towpath.stack.processes import Process
from towpath.stack.security import SASL

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
    brokers = [_broker(name, options, ports, parts) for name in options.brokers]
    return {process.name: process for process in (*nodes, *workers, *brokers)}


def write_files(options: StackOptions, ports: Mapping[str, int], parts: Parts) -> None:
    """Write the configuration files of broker and workers, and create the folders of the mongods."""
    place = options.directory
    state.prepare(place, *(f"data/{name}" for names in options.nodes.values() for name in names))
    controllers = [ports[controller_of(name)] for name in options.brokers]
    for node, name in enumerate(options.brokers, 1):
        broker = jvm.broker_properties(place / "data" / name, ports[name], controllers, node)
        if options.secured:
            broker |= options.secured.broker(ports[name], ports[SASL.format(name)], ports[controller_of(name)])
        jvm.write_properties(broker_file(place, name), {**broker, **options.broker})
    for name in options.workers:
        write_worker_file(name, options, ports, parts)


def _broker(name: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> Process:
    main = ("kafka.Kafka", str(broker_file(options.directory, name)))
    command = jvm.java_command(parts, options.kafka_heap_mb, *main, metrics_port=_metrics_port(name, options, ports))
    return Process(name, "kafka", command, ports[name], log(options.directory, name))


def worker(name: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> Process:
    """One Connect worker, not started."""
    main = ("org.apache.kafka.connect.cli.ConnectDistributed", str(_worker_file(options.directory, name)))
    system = options.secured.worker_system(options.directory / "conf") if options.secured else {}
    metrics = _metrics_port(name, options, ports)
    command = jvm.java_command(parts, options.connect_heap_mb, *main, metrics_port=metrics, system=system)
    return Process(name, "connect", command, ports[name], log(options.directory, name))


def _metrics_port(name: str, options: StackOptions, ports: Mapping[str, int]) -> int | None:
    return ports[metrics_of(name)] if options.metrics else None


def write_worker_file(name: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> None:
    plugins = options.plugins or parts.plugins
    brokers = bootstrap(options, ports)
    values = jvm.worker_properties(options.directory, brokers, ports[name], plugins, len(options.brokers))
    if options.secured:
        options.secured.write_jaas(options.directory / "conf")
        values |= options.secured.worker(ports[name], sasl_bootstrap(options, ports))
    jvm.write_properties(_worker_file(options.directory, name), values)


def broker_file(directory: Path, name: str) -> Path:
    return directory / "conf" / f"{name}.properties"


def log(directory: Path, name: str) -> Path:
    return directory / "logs" / f"{name}.log"


def _worker_file(directory: Path, name: str) -> Path:
    return directory / "conf" / f"{name}.properties"


def _mongod(name: str, side: str, options: StackOptions, ports: Mapping[str, int], parts: Parts) -> tuple[str, ...]:
    place = options.directory / "data" / name
    words = mongod.command(parts.mongod, place, ports[name], side, options.sizes, parameters=options.mongod)
    return words + (options.secured.mongod(side) if options.secured else ())
