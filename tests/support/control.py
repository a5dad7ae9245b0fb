"""The processes of a stack one at a time: kill and start again."""

from __future__ import annotations

import dataclasses
import signal
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.mongod import mongod_check
from towpath import stack as embedded
from towpath.errors import StackError
from towpath.stack import processes, ready, record
from towpath.stack.processes import Process, require_free_ports

_TIMEOUT_S = 120.0
_FATAL = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def kill(directory: Path, name: str, number: signal.Signals = signal.SIGKILL, *, timeout_s: float = 30.0) -> None:
    """Send a signal to one process; if the signal ends processes, return once this one has ended.

    Raises `NoStack`; `StackError` when the process does not run, or has not ended in time.
    """
    process = _process(embedded.status(directory), name)
    if not send(process, number):
        raise StackError(f"cannot send {number.name} to {name} (pid {process.pid}): it does not run")
    if number in _FATAL and not processes.await_end([process], timeout_s):
        raise StackError(f"{name} (pid {process.pid}) still runs {timeout_s:.0f} s after {number.name}")


def send(process: Process, number: signal.Signals) -> bool:
    """Send a signal; False if the process does not run."""
    handle = process.handle()
    if handle is not None:
        with suppress(psutil.NoSuchProcess):
            handle.send_signal(number)
    return handle is not None


def start(directory: Path, name: str, *, await_ready: bool = True, timeout_s: float = _TIMEOUT_S) -> Process:
    """Start one process that does not run, with its command line, port and data. Returns once it answers.

    A mongod is ready when it is primary or secondary; a worker needs the broker: start that first, or pass
    `await_ready=False`. Raises `StackError`, also when it runs already.
    """
    directory = directory.resolve()
    with record.held(directory, _silent):
        known = record.read(directory)
        process = _process(known, name)
        if process.running:
            raise StackError(f"cannot start {name}: it runs already (pid {process.pid})")
        require_free_ports({name: process.port})
        started = processes.spawn(dataclasses.replace(process, pid=None, created=None))
        record.write(known.with_process(started))
    if await_ready:
        ready.await_ready({name: check_for(started)}, [started], timeout_s, _silent)
    return started


def check_for(process: Process) -> ready.Check:
    """The check of one process, independent of the others."""
    is_mongod = process.kind == "mongod"
    return (lambda: mongod_check(process.port)) if is_mongod else ready.check_for(process)


def restart(directory: Path, name: str, number: signal.Signals = signal.SIGTERM) -> Process:
    """Kill one process with a signal, if it runs, and start it again."""
    if _process(embedded.status(directory), name).running:
        kill(directory, name, number)
    return start(directory, name)


def _process(stack: embedded.Stack, name: str) -> Process:
    try:
        return stack.processes[name]
    except KeyError:
        raise StackError(f"the stack has no process {name!r}; it has {', '.join(stack.processes)}") from None


def _silent(words: str) -> None:
    pass


def end(directory: Path) -> None:
    """Kill what a stack has running, of which nothing is used again: that takes a second, and an orderly end ten."""
    with suppress(embedded.NoStack):
        processes.stop(embedded.status(directory).processes.values(), 0)
