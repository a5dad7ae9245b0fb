"""A stack from `up` to `down`."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

from towpath.errors import NoStack, StackError
from towpath.stack import plan, processes, record, startup, tools
from towpath.stack.parts import Parts, Progress, parts
from towpath.stack.processes import Process, ports_for, require_free_ports
from towpath.stack.ready import await_ready, check_for, replica_set_check
from towpath.stack.record import Stack, StackOptions, controller_of

_FOLDERS = ("conf", "data", "logs", "secrets")
_GRACE_S, _READY_S = 20.0, 180.0
_LEAST_FREE_BYTES = 1 << 30
_FIXED = ("source_nodes", "destination_nodes", "kafka_brokers", "port_base")  # the data on disk depends on these


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
        if not options.shown:  # Java takes no cache with an agent
            installed = startup.with_caches(installed, progress)
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
