"""A stack from `up` to `down`, and its processes one at a time: kill and start again."""

from __future__ import annotations

import dataclasses
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from towpath.stack import mongod, plan, processes, prometheus, ready, state
from towpath.stack.archives import with_archives
from towpath.stack.errors import FolderUnusable, NotReady, OptionsDiffer, PortInUse, StackError
from towpath.stack.options import Stack, StackOptions, bootstrap, controller_of
from towpath.stack.parts import Parts, Progress, parts
from towpath.stack.plan import FOLDERS, log, processes_of, properties_file, write_files
from towpath.stack.processes import Process
from towpath.stack.state import State

_GRACE_S = 20.0
_LEAST_FREE_BYTES = 1 << 30
_FIXED = ("source_nodes", "destination_nodes", "kafka_brokers", "port_base")  # the data on disk depends on these
_TIMEOUT_S = 120.0
_FATAL = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def silent(words: str) -> None:
    """Discard a line of progress."""


def up(options: StackOptions, progress: Progress = silent) -> Stack:
    """Start the processes of the stack that do not run, and return the stack once all services answer.

    A stack that was started before keeps its data and its ports. If anything fails, all that this call has started is
    stopped again. Raises the `StackError` tree.
    """
    options = dataclasses.replace(options, directory=options.directory.resolve())
    directory = options.directory
    state.prepare(directory, *FOLDERS)
    with state.held(directory, progress):
        known = _read(directory)
        if known is not None:
            _require_same(options, known)
            if all(process.running for process in known.processes.values()):
                progress(f"the stack in {directory} is up already")
                return Stack.of(directory, known)
        _require_room(directory)
        if options.monitor:
            prometheus.program()  # reports what is missing before anything is fetched
        installed = parts(progress, options.kafka, options.plugins)
        if options.kafka is None:  # a trial would take longer to prepare quick starts than they save it
            installed = with_archives(installed, progress)
        if known is None:
            return _start_new(options, installed, progress)
        ports = state.complete_ports(known.settings["ports"], options.port_names, options.port_base)
        running = {name: process for name, process in known.processes.items() if process.running}
        return _start(options, ports, running, installed, progress)


def down(directory: Path, progress: Progress = silent) -> list[str]:
    """Stop every process of the stack: SIGTERM, after 20 s SIGKILL. Returns the names of those that ran.

    Data and logs stay. In a folder without a stack there is nothing to stop.
    """
    directory = directory.resolve()
    if not (directory / state.FILE).exists():
        return []
    with state.held(directory, progress):
        known = _read(directory)
        every = known.processes.values() if known else ()
        # workers first: they would hang while they leave a broker that is gone
        stopped = processes.stop([process for process in every if process.kind == "connect"], _GRACE_S)
        return stopped + processes.stop([process for process in every if process.kind != "connect"], _GRACE_S)


def status(directory: Path) -> Stack:
    """The stack in the folder; its processes know whether they run. Raises `NoStack`."""
    directory = directory.resolve()
    return Stack.of(directory, state.read(directory))


def options_of(directory: Path) -> StackOptions | None:
    """The options that the stack in the folder was last started with; None when there is no stack."""
    directory = directory.resolve()
    known = state.read_if_any(directory)
    return None if known is None else StackOptions.of(directory, known)


def _read(directory: Path) -> State | None:
    """The recorded stack, with the pids of processes that were started but not recorded; None without a stack."""
    known = state.read_if_any(directory)
    if known is None:
        return None
    return State(known.settings, {name: processes.adopted(process) for name, process in known.processes.items()})


def _start_new(options: StackOptions, installed: Parts, progress: Progress) -> Stack:
    ports = state.choose_ports(options.port_names, options.port_base)
    try:
        return _start(options, ports, {}, installed, progress)
    except PortInUse as error:
        if options.port_base is not None:
            raise
        progress(f"{str(error).splitlines()[0]}; trying other ports")
    for name in FOLDERS[:2]:  # files for the old ports; nothing is stored yet
        shutil.rmtree(options.directory / name, ignore_errors=True)
    state.prepare(options.directory, *FOLDERS)
    return _start(options, state.choose_ports(options.port_names, None), {}, installed, progress)


def _start(
    options: StackOptions,
    ports: Mapping[str, int],
    running: Mapping[str, Process],
    installed: Parts,
    progress: Progress,
) -> Stack:
    """Start what does not run: the replica sets, workers and brokers, all at once. Wait until all are ready."""
    directory, planned = options.directory, processes_of(options, ports, installed)
    missing = [process for name, process in planned.items() if name not in running]
    needed = {process.name: process.port for process in missing}
    controllers = [controller_of(process.name) for process in missing if process.kind == "kafka"]
    state.require_free_ports(needed | {name: ports[name] for name in controllers})
    write_files(options, ports, installed)
    current = State({"options": options.written(), "ports": dict(ports)}, {**planned, **running})
    state.write(directory, current)
    progress(f"starting {', '.join(sorted(needed))}")
    try:
        workers = [process for process in missing if process.kind == "connect"]
        others = [process for process in missing if process.kind != "connect"]
        # a secured broker must know a worker's user before the worker starts; otherwise all start at once
        for wave in (others, workers) if options.secured else (missing,):
            for process in wave:
                if process.kind == "kafka":
                    _format_broker(directory, process.name, installed)
                current = current.with_process(processes.spawn(process))
                state.write(directory, current)
            if options.secured and wave is others:
                servers = [process for process in current.processes.values() if process.kind != "connect"]
                ready.wait(_checks(options, current, workers=False), servers, options.timeout_s, progress)
                for names in options.nodes.values():
                    mongod.create_root([ports[name] for name in names], options.secured)
                options.secured.make_kafka_users(bootstrap(options, ports))
        ready.wait(_checks(options, current), current.processes.values(), options.timeout_s, progress)
    except BaseException:
        processes.stop([processes.adopted(current.processes[process.name]) for process in missing], grace_s=5)
        raise
    return Stack.of(directory, current)


def _format_broker(directory: Path, name: str, installed: Parts) -> None:
    if not (directory / "data" / name / "meta.properties").exists():
        command = plan.format_command(installed, properties_file(directory, name))
        processes.run_to_end("kafka's StorageTool", command, log(directory, name))


def _checks(options: StackOptions, current: State, *, workers: bool = True) -> dict[str, ready.Check]:
    sets = {
        side: mongod.replica_set_check(side, [current.processes[name].port for name in names], options.secured)
        for side, names in options.nodes.items()
    }
    kinds = ("kafka", "prometheus", "connect") if workers else ("kafka",)
    others = (process for process in current.processes.values() if process.kind in kinds)
    return sets | {process.name: ready.check_for(process, options.secured) for process in others}


def _require_same(options: StackOptions, known: State) -> None:
    before, now = StackOptions.of(options.directory, known).written(), options.written()
    running = any(process.running for process in known.processes.values())
    differing = [name for name in now if now[name] != before[name] and (running or name in _FIXED)]
    if differing:
        listed = ", ".join(f"{name} is {before[name]}, not {now[name]}" for name in differing)
        cure = "stop it first, or use another folder" if running else "use another folder, or remove this one"
        raise OptionsDiffer(f"the stack in {options.directory} was started with other options: {listed}; {cure}")


def _require_room(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < _LEAST_FREE_BYTES:
        raise FolderUnusable(
            f"cannot start a stack in {directory}: {free >> 20} MB are free on its disk, at least "
            f"{_LEAST_FREE_BYTES >> 20} are needed"
        )


def kill(directory: Path, name: str, number: signal.Signals = signal.SIGKILL, *, timeout_s: float = 30.0) -> None:
    """Send a signal to one process; if the signal ends processes, return once this one has ended.

    Raises `NoStack`, `StackError` when the process does not run, `NotReady` when it has not ended in time.
    """
    process = state.read(directory.resolve()).process(name)
    if not processes.send(process, number):
        raise StackError(f"cannot send {number.name} to {name} (pid {process.pid}): it does not run")
    if number in _FATAL and not processes.await_end([process], timeout_s):
        raise NotReady(f"{name} (pid {process.pid}) still runs {timeout_s:.0f} s after {number.name}")


def start(directory: Path, name: str, *, await_ready: bool = True, timeout_s: float = _TIMEOUT_S) -> Process:
    """Start one process that does not run, with its command line, port and data. Returns once it answers.

    A mongod is ready when it is primary or secondary; a worker needs the broker: start that first, or pass
    `await_ready=False`. Raises `StackError` when it runs already, `ProcessDied`, `PortInUse`, `NotReady`.
    """
    directory = directory.resolve()
    with state.held(directory, silent):
        known = state.read(directory)
        process = known.process(name)
        if process.running:
            raise StackError(f"cannot start {name}: it runs already (pid {process.pid})")
        state.require_free_ports({name: process.port})
        started = processes.spawn(dataclasses.replace(process, pid=None, created=None))
        state.write(directory, known.with_process(started))
    if await_ready:
        secured = StackOptions.of(directory, known).secured if "options" in known.settings else None
        ready.wait({name: ready.check_for(started, secured)}, [started], timeout_s, silent)
    return started


def restart(directory: Path, name: str, number: signal.Signals = signal.SIGTERM) -> Process:
    """Kill one process with a signal, if it runs, and start it again."""
    if state.read(directory.resolve()).process(name).running:
        kill(directory, name, number)
    return start(directory, name)
