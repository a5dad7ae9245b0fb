"""Connect workers beside the first: one more, one that sleeps in a transaction, one with another version of the jar."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import control, raw, rest
from tests.support.awaited import until
from towpath import stack as embedded
from towpath.stack import parts

FIRST = "connect-0"
#: The class by whose version a worker's jar is told.
TOLD_BY = "io.towpath.debezium.DebeziumToRecord"
_HELD_MICROS = 300_000  # a transaction that is open so long belongs to a worker that sleeps: others take milliseconds


@contextmanager
def one_more(directory: Path) -> Iterator[str]:
    """The name of one more worker of the stack, which runs until the end of the `with`: one that ran before, if any."""
    before = embedded.status(directory).processes
    ended = [name for name, process in before.items() if name.startswith("connect-") and not process.running]
    if ended:
        name = ended[0]
        control.start(directory, name)
    else:
        (name,) = add_worker(directory).processes.keys() - before.keys()
    try:
        yield name
    finally:
        if embedded.status(directory).processes[name].running:
            control.kill(directory, name, signal.SIGTERM)


def add_worker(directory: Path) -> embedded.Stack:
    """Start one more Connect worker of the same group; it is part of the stack from then on."""
    options = embedded.options_of(directory)
    assert options is not None
    return embedded.up(dataclasses.replace(options, connect_workers=options.connect_workers + 1), print)


def tasks(connect: str, connector: str, port: int) -> list[int]:
    """The running tasks of a connector that are on the worker of that port."""
    found = rest.get(f"{connect}/connectors/{connector}/status", timeout=30).raise_for_status().json()["tasks"]
    return [it["id"] for it in found if it["state"] == "RUNNING" and it["worker_id"].endswith(f":{port}")]


@contextmanager
def asleep_in_a_transaction(directory: Path, name: str, destination: raw.Client) -> Iterator[dict[str, Any]]:
    """Stop the worker (SIGSTOP) while it has a transaction open at the destination; let it continue at the end."""
    pid = embedded.status(directory).processes[name].pid
    assert pid is not None, f"{name} does not run"
    try:
        yield until("transaction that the worker leaves open", lambda: _caught(pid, destination), every=0.0)
    finally:
        os.kill(pid, signal.SIGCONT)


def _caught(pid: int, destination: raw.Client) -> dict[str, Any] | None:
    until("open transaction at the destination", lambda: _transactions(destination, 0), every=0.001)
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + 3 * _HELD_MICROS / 1e6
    while time.monotonic() < end:
        if held := _transactions(destination, _HELD_MICROS):
            return held[0]
        if not _transactions(destination, 0):
            break
    os.kill(pid, signal.SIGCONT)
    return None


def _transactions(destination: raw.Client, micros: int) -> list[dict[str, Any]]:
    """Transactions of the sink that are open, for that long at least."""
    open_so_long = {"transaction.timeOpenMicros": {"$gt": micros}, "lsid": {"$exists": True}}
    stages: list[dict[str, Any]] = [{"$currentOp": {"allUsers": True, "idleSessions": True}}, {"$match": open_so_long}]
    return list(destination.admin.aggregate(stages))


def is_open(destination: raw.Client, transaction: dict[str, Any]) -> bool:
    number = transaction["transaction"]["parameters"]["txnNumber"]
    return any(
        it["lsid"]["id"] == transaction["lsid"]["id"] and it["transaction"]["parameters"]["txnNumber"] == number
        for it in _transactions(destination, 0)
    )


def version(connect: str) -> str:
    """The version of Towpath's jar that the worker has."""
    plugins = rest.get(f"{connect}/connector-plugins?connectorsOnly=false", timeout=30).raise_for_status().json()
    (found,) = [it["version"] for it in plugins if it["class"] == TOLD_BY]
    return str(found)


def plugins_of_version(wanted: str, place: Path) -> Path:
    """A plugin folder like the stack's, its jar rewritten to tell another version."""
    shutil.copytree(parts.plugins(print), place)
    (jar,) = place.rglob("towpath-transforms-*.jar")
    with zipfile.ZipFile(jar) as old, zipfile.ZipFile(jar.parent / "towpath-transforms-other.jar", "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == "META-INF/MANIFEST.MF":
                kept = [line for line in content.decode().splitlines() if line and "Implementation-V" not in line]
                content = "\r\n".join([*kept, f"Implementation-Version: {wanted}", "", ""]).encode()
            new.writestr(entry.filename, content)
    jar.unlink()
    return place


@contextmanager
def plugin_path(directory: Path, name: str, plugins: Path) -> Iterator[None]:
    """The worker's configuration names another plugin folder: what it takes when it starts the next time."""
    file = directory / "conf" / f"{name}.properties"
    before = file.read_text()
    lines = [f"plugin.path={plugins}" if line.startswith("plugin.path=") else line for line in before.splitlines()]
    file.write_text("\n".join([*lines, ""]))
    try:
        yield
    finally:
        file.write_text(before)
