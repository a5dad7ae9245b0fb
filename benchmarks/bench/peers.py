"""Other tools that copy collections from one replica set to another: those of them that are on the PATH."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from pymongo import MongoClient

from benchmarks.bench.measured import await_fact
from benchmarks.bench.sides import DATABASE
from towpath.stack.processes import free_ports

DUMP, CLUSTERSYNC = "mongodump to mongorestore", "ClusterSync"
_ENDS_S = 30
#: What ClusterSync keeps at the destination.
_STATE = "percona_clustersync_mongodb"

Begin = Callable[[], None]
#: (URI of the source, URI of the destination) → starts the copy of all of `DATABASE`; on exit, the tool has ended.
Peer = Callable[[str, str], AbstractContextManager[Begin]]


def present() -> dict[str, Peer]:
    """The tools whose programs are on the PATH, by the name of their side."""
    programs = {
        DUMP: (("mongodump", "mongorestore"), _dump),
        CLUSTERSYNC: (("pcsm",), _clustersync),
    }
    return {name: peer for name, (needed, peer) in programs.items() if all(map(shutil.which, needed))}


def versions() -> Iterator[str]:
    """A line on each tool that is on the PATH: its version, and how it is started."""
    started = {
        DUMP: ("mongodump", "both tools with their default options, `--archive` between them"),
        CLUSTERSYNC: ("pcsm", "running before the time begins; its defaults, `start --include-namespaces`"),
    }
    for name in present():
        program, how = started[name]
        options = ["version"] if name == CLUSTERSYNC else ["--version"]
        said = subprocess.run([program, *options], capture_output=True, text=True, check=True)
        yield f"{name}: {(said.stdout or said.stderr).splitlines()[0].strip()}; {how}."


def processor_of_children() -> float:
    """Seconds of processor time that processes have used which this one has started and which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _dump(source: str, destination: str) -> Iterator[Begin]:
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        dump = ["mongodump", f"--uri={source}", f"--db={DATABASE}", "--archive", "--quiet"]
        started.append(subprocess.Popen(dump, stdout=subprocess.PIPE))
        restore = ["mongorestore", f"--uri={destination}", "--archive", "--quiet"]
        started.append(subprocess.Popen(restore, stdin=started[0].stdout))
        started[0].stdout.close()  # type: ignore[union-attr]

    with _ended(started):
        yield begin
        _require_end(started)


@contextmanager
def _clustersync(source: str, destination: str) -> Iterator[Begin]:
    """It continues to replicate after the copy, until it is ended."""
    (port,) = free_ports(1)
    with TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as log:
        command = ["pcsm", f"--source={source}", f"--target={destination}", f"--port={port}"]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        with _ended([server]), httpx.Client(base_url=f"http://localhost:{port}") as client:

            def is_idle() -> bool:
                try:
                    return bool(client.get("/status").json()["state"] == "idle")
                except httpx.TransportError:
                    return False

            def begin() -> None:
                answer = client.post("/start", json={"includeNamespaces": [f"{DATABASE}.*"]}).json()
                if not answer["ok"]:
                    raise ValueError(f"ClusterSync does not start: {answer}")

            await_fact("ClusterSync to answer", is_idle, timeout=_ENDS_S)
            yield begin
            await_fact("the end of ClusterSync's copy", lambda: _is_copied(client), timeout=_ENDS_S)
    with MongoClient[dict[str, object]](destination) as left:
        left.drop_database(_STATE)


def _is_copied(client: httpx.Client) -> bool:
    return bool(client.get("/status").json()["initialSync"]["completed"])


@contextmanager
def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """End what still runs of them."""
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        end = time.monotonic() + _ENDS_S
        for process in processes:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _require_end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.wait(_ENDS_S):
            raise ValueError(f"{process.args} ended with {process.returncode}")  # type: ignore[str-bytes-safe]
