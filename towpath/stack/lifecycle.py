"""A stack from `up` to `down`, and waits until its services answer."""

from __future__ import annotations

import dataclasses
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from towpath.errors import NoStack, StackError
from towpath.stack import plan, processes, record, tools
from towpath.stack.parts import Parts, Progress, parts
from towpath.stack.processes import HOST, Kind, Process, accepts, ports_for, require_free_ports
from towpath.stack.record import Stack, StackOptions, controller_of

_FOLDERS = ("conf", "data", "logs", "secrets")
_GRACE_S, _READY_S = 20.0, 180.0
_LEAST_FREE_BYTES = 1 << 30
_FIXED = ("source_nodes", "destination_nodes", "kafka_brokers", "port_base")  # the data on disk depends on these

Check = Callable[[], str]
"""Queries a service: an empty string when it is ready, else why it is not."""

_ALREADY_INITIALIZED = 23
_POLL_S = 0.1
_SILENT = logging.getLogger("stack.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def up(options: StackOptions, progress: Progress = lambda words: None) -> Stack:
    """Start the processes of the stack that do not run, and return the stack once all services answer.

    A stack that was started before keeps its data and its ports; one that runs may get more workers. If anything fails,
    all that this call has started is stopped again. Raises `StackError`.
    """
    options = dataclasses.replace(options, directory=options.directory.resolve())
    directory = options.directory
    record.prepare(directory, *_FOLDERS)
    with record.held(directory, progress):
        known = _read(directory)
        if known is not None:
            _require_same(options, known)
            if known.running and known.processes.keys() >= set(options.workers):
                progress(f"the stack in {directory} is up already")
                return known
        _require_free_space(directory)
        if options.monitor:
            tools.prometheus()  # reports what is missing before anything is fetched
        installed = parts(progress, options.kafka, options.plugins)
        ports = ports_for(options.port_names, options.port_base, known.ports if known else {})
        before = known.processes.items() if known else ()
        running = {name: process for name, process in before if process.running}
        return _start(options, ports, running, installed, progress)


def down(directory: Path, progress: Progress = lambda words: None) -> list[str]:
    """Stop every process of the stack: SIGTERM, after 20 s SIGKILL. Returns the names of those that ran.

    Data and logs stay. In a folder without a stack there is nothing to stop.
    """
    directory = directory.resolve()
    if not (directory / record.FILE).exists():
        return []
    with record.held(directory, progress):
        known = _read(directory)
        every = known.processes.values() if known else ()
        # workers first: they would hang while they leave a broker that is gone
        stopped = processes.stop([process for process in every if process.kind == "connect"], _GRACE_S)
        return stopped + processes.stop([process for process in every if process.kind != "connect"], _GRACE_S)


def status(directory: Path) -> Stack:
    """The stack in the folder; its processes know whether they run. Raises `NoStack`."""
    return record.read(directory.resolve())


def options_of(directory: Path) -> StackOptions | None:
    """The options that the stack in the folder was last started with; None when there is no stack."""
    known = _read(directory.resolve())
    return known.options if known else None


def _read(directory: Path) -> Stack | None:
    """The recorded stack, with the pids of processes that were started but not recorded; None without a stack."""
    try:
        known = record.read(directory)
    except NoStack:
        return None
    return dataclasses.replace(
        known, processes={name: processes.adopted(process) for name, process in known.processes.items()}
    )


def _start(
    options: StackOptions,
    ports: Mapping[str, int],
    running: Mapping[str, Process],
    installed: Parts,
    progress: Progress,
) -> Stack:
    """Start what does not run: the replica sets, workers and brokers, all at once. Wait until all are ready."""
    planned = plan.processes_of(options, ports, installed)
    missing = [process for name, process in planned.items() if name not in running]
    needed = {process.name: process.port for process in missing}
    controllers = [controller_of(process.name) for process in missing if process.kind == "kafka"]
    require_free_ports(needed | {name: ports[name] for name in controllers})
    record.prepare(options.directory, *(f"data/{name}" for names in options.nodes.values() for name in names))
    plan.write_files(options, ports, installed)
    current = Stack.of(options, ports, {**planned, **running})
    record.write(current)
    progress(f"starting {', '.join(sorted(needed))}")
    try:
        for process in missing:
            if process.kind == "kafka" and not (options.data(process.name) / "meta.properties").exists():
                tools.run("format the broker", plan.format_command(installed, options.configuration(process.name)))
            current = current.with_process(processes.spawn(process))
            record.write(current)
        sets = {side: replica_set_check(side, [ports[name] for name in names]) for side, names in options.nodes.items()}
        others = {name: check_for(it) for name, it in current.processes.items() if it.kind != "mongod"}
        await_ready(sets | others, current.processes.values(), _READY_S, progress)
    except BaseException:
        processes.stop([processes.adopted(current.processes[process.name]) for process in missing], grace_s=5)
        raise
    return current


def _require_same(options: StackOptions, known: Stack) -> None:
    running = any(process.running for process in known.processes.values())
    before, now = (dataclasses.asdict(it) | {"directory": ""} for it in (known.options, options))
    if running and now["connect_workers"] > before["connect_workers"]:
        before["connect_workers"] = now["connect_workers"]
    differing = [name for name in now if now[name] != before[name] and (running or name in _FIXED)]
    if differing:
        listed = ", ".join(f"{name} is {before[name]}, not {now[name]}" for name in differing)
        cure = "stop it first, or use another folder" if running else "use another folder, or remove this one"
        raise StackError(f"the stack in {options.directory} was started with other options: {listed}", cure)


def _require_free_space(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < _LEAST_FREE_BYTES:
        raise StackError(
            f"cannot start a stack in {directory}: {free >> 20} MB are free on its disk, at least "
            f"{_LEAST_FREE_BYTES >> 20} are needed"
        )


def await_ready(
    checks: Mapping[str, Check], processes: Iterable[Process], timeout_s: float, progress: Callable[[str], None]
) -> None:
    """Return when every check has reported once that its service is ready.

    Raises `StackError` as soon as one of the processes ends, and after the timeout.
    """
    start, waiting, reasons = time.monotonic(), dict(checks), dict[str, str]()
    watched = list(processes)
    while waiting:
        for name, check in list(waiting.items()):
            reasons[name] = check()
            if not reasons[name]:
                del waiting[name]
                progress(f"{name} is ready after {time.monotonic() - start:.1f} s")
        for process in watched:
            if not process.running:
                raise process.death()
        if waiting and time.monotonic() > start + timeout_s:
            why = "; ".join(f"{name}: {reasons[name]}" for name in waiting)
            raise StackError(f"not ready after {timeout_s:.0f} s: {why}; see the logs next to {watched[0].log}")
        time.sleep(_POLL_S if waiting else 0)


def check_for(process: Process) -> Check:
    """The check of one process that is no mongod."""
    checks: dict[Kind, Callable[[int], str]] = {
        "kafka": _kafka,
        # once the worker has joined its group
        "connect": lambda port: _answers(port, "/health") or _answers(port, "/connector-plugins"),
        # once it has read what it has stored
        "prometheus": lambda port: _answers(port, "/-/ready"),
    }
    return lambda: checks[process.kind](process.port)


def hello(port: int) -> dict[str, object] | str:
    """A mongod's answer to `hello`, or why there is none."""
    if not accepts(port):
        return f"no process listens on port {port}"
    try:
        with direct(port) as client:
            answer: dict[str, object] = client.admin.command("hello")
            return answer
    except PyMongoError as error:
        return f"hello: {error}"


def direct(port: int) -> MongoClient[dict[str, object]]:
    """A client of one node, whatever its state."""
    return MongoClient(HOST, port, directConnection=True, serverSelectionTimeoutMS=2000, socketTimeoutMS=10_000)


def replica_set_check(name: str, ports: Sequence[int]) -> Check:
    """Ready when one node is primary and all others are secondaries; initiates a new set."""

    def check() -> str:
        hellos = []
        for answer in map(hello, ports):
            if isinstance(answer, str):
                return answer
            hellos.append(answer)
        if not any("setName" in answer for answer in hellos):
            return _initiate(name, ports)
        if sum(bool(answer.get("isWritablePrimary")) for answer in hellos) != 1:
            return "no primary yet"
        waiting = sum(not (answer.get("isWritablePrimary") or answer.get("secondary")) for answer in hellos)
        return f"{waiting} nodes are not secondaries yet" if waiting else ""

    return check


def _initiate(name: str, ports: Sequence[int]) -> str:
    members = [{"_id": number, "host": f"{HOST}:{port}"} for number, port in enumerate(ports)]
    try:
        with direct(ports[0]) as client:
            client.admin.command("replSetInitiate", {"_id": name, "members": members})
    except OperationFailure as error:
        if error.code != _ALREADY_INITIALIZED:
            raise StackError(f"cannot initiate the replica set {name} on ports {list(ports)}: {error}") from error
    except PyMongoError as error:
        return f"replSetInitiate: {error}"
    return "just initiated"


def _kafka(port: int) -> str:
    """Ready when the broker lists its topics, itself among the brokers."""
    if not accepts(port):
        return f"no process listens on port {port}"
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0}, logger=_SILENT)
    try:
        return "" if admin.list_topics(timeout=2).brokers else "the broker is not registered yet"
    except KafkaException as error:
        return f"listing topics: {error.args[0].str()}"


def _answers(port: int, path: str) -> str:
    url = f"http://{HOST}:{port}{path}"
    try:
        answer = httpx.get(url, timeout=5, verify=False)
        return "" if answer.is_success else f"GET {url}: {answer.status_code}: {answer.text[:200]}"
    except httpx.HTTPError as error:
        return f"GET {url}: {error}"
