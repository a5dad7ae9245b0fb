"""A stack from `up` to `down`, and its processes one at a time: kill, start again, add a worker."""

from __future__ import annotations

import dataclasses
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from towpath.stack import mongod, plan, processes, ready, state
from towpath.stack.archives import with_archives
from towpath.stack.errors import FolderUnusable, NotReady, OptionsDiffer, PortInUse, StackError
from towpath.stack.options import Stack, StackOptions, bootstrap, controller_of
from towpath.stack.parts import Parts, parts
from towpath.stack.plan import FOLDERS, broker_file, log, processes_of, write_files
from towpath.stack.processes import Process
from towpath.stack.security import Security
from towpath.stack.state import State

Progress = Callable[[str], None]

_GRACE_S = 20.0
_LEAST_FREE_BYTES = 1 << 30
_FIXED = ("source_nodes", "destination_nodes", "kafka_brokers", "port_base")  # the data on disk rests on these


def silent(words: str) -> None:
    """Progress that nobody wants to see."""


def up(options: StackOptions, progress: Progress = silent) -> Stack:
    """Start the stack, or what of it does not run, and return it once all services answer.

    A stack that was started before keeps its data and its ports. Whatever goes wrong, all that this call started is
    stopped again. Raises the `StackError` tree.
    """
    options = dataclasses.replace(options, directory=options.directory.resolve())
    place = options.directory
    state.prepare(place, *FOLDERS)
    with state.held(place, progress):
        known = _adopted(state.read_if_any(place))
        if known is not None:
            _require_same(options, known)
            if all(process.running for process in known.processes.values()):
                progress(f"the stack in {place} is up already")
                return Stack.of(place, known)
        _require_room(place)
        found = with_archives(parts(progress), progress)
        if known is not None:
            return _start_missing(options, known, found, progress)
        return _start_new(options, found, progress)


def down(directory: Path, progress: Progress = silent) -> list[str]:
    """Stop every process of the stack: SIGTERM, after 20 s SIGKILL. Returns the names of those that ran.

    Data and logs stay. A folder without a stack has nothing to stop.
    """
    place = directory.resolve()
    if not (place / state.FILE).exists():
        return []
    with state.held(place, progress):
        known = _adopted(state.read(place))
        if known is None:
            return []
        every = known.processes.values()
        # workers first: without a broker they would hang on saying goodbye to it
        stopped = processes.stop([it for it in every if it.kind == "connect"], _GRACE_S)
        return stopped + processes.stop([it for it in every if it.kind != "connect"], _GRACE_S)


def status(directory: Path) -> Stack:
    """The stack in the folder; each of its processes tells whether it runs. Raises `NoStack`."""
    place = directory.resolve()
    return Stack.of(place, state.read(place))


def options_of(directory: Path) -> StackOptions | None:
    """The options that the stack in the folder was last started with; None when there is no stack."""
    place = directory.resolve()
    known = state.read_if_any(place)
    return None if known is None else StackOptions.of(place, known)


def _start_new(options: StackOptions, found: Parts, progress: Progress) -> Stack:
    chosen = state.choose_ports(options.port_names, options.port_base)
    try:
        return _start(options, chosen, {}, found, progress)
    except PortInUse as error:
        if options.port_base is not None:
            raise
        progress(f"{str(error).splitlines()[0]}; trying other ports")
    for name in FOLDERS[:2]:  # what was prepared for the old ports; nobody has stored anything yet
        shutil.rmtree(options.directory / name, ignore_errors=True)
    state.prepare(options.directory, *FOLDERS)
    return _start(options, state.choose_ports(options.port_names, None), {}, found, progress)


def _start_missing(options: StackOptions, known: State, found: Parts, progress: Progress) -> Stack:
    chosen = state.complete_ports(known.settings["ports"], options.port_names, options.port_base)
    running = {name: it for name, it in known.processes.items() if it.running}
    return _start(options, chosen, running, found, progress)


def _start(
    options: StackOptions,
    chosen: Mapping[str, int],
    running: Mapping[str, processes.Process],
    found: Parts,
    progress: Progress,
) -> Stack:
    """Start what does not run, the replica sets, workers and broker all at once, and wait for all of it."""
    place, planned = options.directory, processes_of(options, chosen, found)
    missing = [process for name, process in planned.items() if name not in running]
    needed = {it.name: it.port for it in missing}
    controllers = [controller_of(it.name) for it in missing if it.kind == "kafka"]
    state.require_free_ports(needed | {name: chosen[name] for name in controllers})
    write_files(options, chosen, found)
    current = State({"options": options.written(), "ports": dict(chosen)}, {**planned, **running})
    state.write(place, current)
    progress(f"starting {', '.join(sorted(needed))}")
    try:
        workers = [process for process in missing if process.kind == "connect"]
        others = [process for process in missing if process.kind != "connect"]
        # at a secured broker a worker's user has to be there before it; else all start at once
        for wave in (others, workers) if options.secured else (missing,):
            for process in wave:
                if process.kind == "kafka":
                    _format_broker(place, process.name, found)
                current = current.with_process(processes.spawn(process))
                state.write(place, current)
            if options.secured and wave is others:
                servers = [it for it in current.processes.values() if it.kind != "connect"]
                ready.wait(_checks(options, current, workers=False), servers, options.timeout_s, progress)
                _make_users(options, chosen)
        ready.wait(_checks(options, current), current.processes.values(), options.timeout_s, progress)
    except BaseException:
        processes.stop([processes.adopted(current.processes[it.name]) for it in missing], grace_s=5)
        raise
    return Stack.of(place, current)


def _format_broker(place: Path, name: str, found: Parts) -> None:
    if not (place / "data" / name / "meta.properties").exists():
        command = plan.format_command(found, broker_file(place, name))
        processes.run_to_end("kafka's StorageTool", command, log(place, name))


def _checks(options: StackOptions, current: State, *, workers: bool = True) -> dict[str, ready.Check]:
    sets = {
        side: mongod.replica_set_check(side, [current.processes[name].port for name in names], options.secured)
        for side, names in options.nodes.items()
    }
    others = (it for it in current.processes.values() if it.kind != "mongod" and (workers or it.kind != "connect"))
    return sets | {it.name: ready.check_for(it, options.secured) for it in others}


def _make_users(options: StackOptions, chosen: Mapping[str, int]) -> None:
    if options.secured:
        for names in options.nodes.values():
            mongod.create_root([chosen[name] for name in names], options.secured)
        options.secured.make_kafka_users(bootstrap(options, chosen))


def _adopted(known: State | None) -> State | None:
    if known is None:
        return None
    return State(known.settings, {name: processes.adopted(it) for name, it in known.processes.items()})


def _require_same(options: StackOptions, known: State) -> None:
    before, now = StackOptions.of(options.directory, known).written(), options.written()
    running = any(process.running for process in known.processes.values())
    differing = [name for name in now if now[name] != before[name] and (running or name in _FIXED)]
    if differing:
        found = ", ".join(f"{name} is {before[name]}, not {now[name]}" for name in differing)
        cure = "stop it first, or use another folder" if running else "use another folder, or remove this one"
        raise OptionsDiffer(f"the stack in {options.directory} was started with other options: {found}; {cure}")


def _require_room(place: Path) -> None:
    free = shutil.disk_usage(place).free
    if free < _LEAST_FREE_BYTES:
        raise FolderUnusable(
            f"cannot start a stack in {place}: {free >> 20} MB are free on its disk, at least "
            f"{_LEAST_FREE_BYTES >> 20} are needed"
        )


_TIMEOUT_S = 120.0
_FATAL = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def kill(directory: Path, name: str, number: signal.Signals = signal.SIGKILL, *, timeout_s: float = 30.0) -> None:
    """Send a signal to one process; return, if it is one that ends processes, once it has ended.

    Raises `NoStack`, `StackError` when the process does not run, `NotReady` when it has not ended in time.
    """
    process = state.read(directory.resolve()).process(name)
    if not processes.send(process, number):
        raise StackError(f"cannot send {number.name} to {name} (pid {process.pid}): it does not run")
    if number in _FATAL and not processes.await_end([process], timeout_s):
        raise NotReady(f"{name} (pid {process.pid}) still runs {timeout_s:.0f} s after {number.name}")


def start(directory: Path, name: str, *, await_ready: bool = True, timeout_s: float = _TIMEOUT_S) -> Process:
    """Start one process that does not run: same command line, port and data. Returns once it answers.

    A mongod is ready when it is primary or secondary; a worker needs the broker, so start that first, or do without
    `await_ready`. Raises `StackError` when it runs already, `ProcessDied`, `PortInUse`, `NotReady`.
    """
    place = directory.resolve()
    with state.held(place, lambda words: None):
        known = state.read(place)
        process = known.process(name)
        if process.running:
            raise StackError(f"cannot start {name}: it runs already (pid {process.pid})")
        state.require_free_ports({name: process.port})
        started = processes.spawn(dataclasses.replace(process, pid=None, created=None))
        state.write(place, known.with_process(started))
    if await_ready:
        secured = _secured(place, known)
        ready.wait({name: ready.check_for(started, secured)}, [started], timeout_s, lambda words: None)
    return started


def _secured(place: Path, known: state.State) -> Security | None:
    return StackOptions.of(place, known).secured if "options" in known.settings else None


def restart(directory: Path, name: str, number: signal.Signals = signal.SIGTERM) -> Process:
    """Kill one process with a signal, if it runs, and start it again."""
    if state.read(directory.resolve()).process(name).running:
        kill(directory, name, number)
    return start(directory, name)


def add_worker(directory: Path, progress: Callable[[str], None] = lambda words: None) -> Stack:
    """Start one more Connect worker of the same group; it is part of the stack from then on."""
    place = directory.resolve()
    with state.held(place, progress):
        known = state.read(place)
        before = StackOptions.of(place, known)
        options = dataclasses.replace(before, connect_workers=before.connect_workers + 1)
        name, found = options.workers[-1], with_archives(parts(progress), progress)
        chosen = state.complete_ports(known.settings["ports"], options.port_names, options.port_base)
        state.require_free_ports({name: chosen[name]})
        plan.write_worker_file(name, options, chosen, found)
        process = plan.worker(name, options, chosen, found)
        settings = {**known.settings, "options": options.written(), "ports": chosen}
        known = state.State(settings, {**known.processes, name: process})
        state.write(place, known)
        known = known.with_process(processes.spawn(process))
        state.write(place, known)
    ready.wait(
        {name: ready.check_for(known.process(name), options.secured)}, [known.process(name)], _TIMEOUT_S, progress
    )
    return Stack.of(place, known)
