"""One process at a time: kill it, start it again, add a Connect worker."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable
from pathlib import Path

from towpath.stack import plan, ports, processes, ready, state
from towpath.stack.errors import NotReady, StackError
from towpath.stack.options import Stack, StackOptions
from towpath.stack.parts import parts
from towpath.stack.processes import Process
from towpath.stack.security import Security

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
        ports.require_free({name: process.port})
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
        name, found = options.workers[-1], parts(progress)
        chosen = ports.complete(known.settings["ports"], options.port_names, options.port_base)
        ports.require_free({name: chosen[name]})
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
