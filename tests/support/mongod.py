"""MongoDB servers for tests: single servers and replica sets, with users if wanted."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from towpath.stack import Stack, StackOptions, parts, processes, ready, record
from towpath.stack.plan import mongod_command
from towpath.stack.processes import HOST, Process, free_ports


@dataclass(frozen=True, slots=True)
class MongodSizes:
    """WiredTiger's cache (GB) and the initial size of the oplog (MB) of one mongod."""

    cache_gb: float = 0.5
    oplog_mb: int = 1024


@dataclass(frozen=True, slots=True)
class Root:
    """A user with the role `root`; servers started with one require a login."""

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class Servers:
    """One or more running mongods in one folder. `stack.kill`, `stack.start` and `stack.down` work on that folder."""

    directory: Path
    uri: str
    processes: Mapping[str, Process]

    def stop(self) -> None:
        processes.stop(self.processes.values(), grace_s=15)

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def start_replica_set(
    directory: Path,
    *,
    name: str = "rs0",
    nodes: int = 1,
    root: Root | None = None,
    sizes: MongodSizes = MongodSizes(),
    options: Sequence[str] = (),
    program: Path | None = None,
    progress: Callable[[str], None] = lambda words: None,
) -> Servers:
    """Start a replica set in a folder, on free ports, and return it once all of its nodes are primary or secondary.

    `options` are added to each node's command line. `program`: a mongod of another version than the stack's.
    """
    ports, names = free_ports(nodes), [f"{name}-{n}" for n in range(nodes)]
    check = ready.replica_set_check(name, ports)
    words = ("--replSet", name, "--oplogSize", str(sizes.oplog_mb), *options)
    return _start(program or parts.mongod(progress), directory, names, ports, name, check, root, sizes, words, progress)


def start_standalone(
    directory: Path,
    *,
    root: Root | None = None,
    sizes: MongodSizes = MongodSizes(),
    progress: Callable[[str], None] = lambda words: None,
) -> Servers:
    """Start a standalone mongod in a folder, on a free port, and return it once it accepts writes."""
    ports = free_ports(1)
    program, names = parts.mongod(progress), ["mongod"]
    return _start(program, directory, names, ports, None, lambda: mongod_check(ports[0]), root, sizes, (), progress)


def _start(
    program: Path,
    directory: Path,
    names: Sequence[str],
    ports: Sequence[int],
    replica_set: str | None,
    check: ready.Check,
    root: Root | None,
    sizes: MongodSizes,
    options: Sequence[str],
    progress: Callable[[str], None],
) -> Servers:
    place = directory.resolve()
    record.prepare(place, "logs", *(f"data/{name}" for name in names))
    if root:
        options = (*options, *(("--keyFile", str(_key_file(place))) if replica_set else ("--auth",)))
    planned = {
        name: Process(
            name,
            "mongod",
            (*mongod_command(program, place / "data" / name, port, sizes.cache_gb), *options),
            port,
            place / "logs" / f"{name}.log",
        )
        for name, port in zip(names, ports, strict=True)
    }
    stack = Stack(StackOptions(place), {}, planned, _uri(ports, replica_set))
    record.write(stack)
    started: dict[str, Process] = {}
    try:
        for process in planned.values():
            started[process.name] = processes.spawn(process)
            stack = stack.with_process(started[process.name])
            record.write(stack)
        ready.await_ready({", ".join(names): check}, started.values(), 60, progress)
        if root:
            _create(root, ports)
    except BaseException:
        processes.stop(started.values(), grace_s=5)
        raise
    return Servers(place, _uri(ports, replica_set, root), started)


def mongod_check(port: int) -> str:
    """Ready when the node is primary or secondary."""
    answer = ready.hello(port)
    if isinstance(answer, str):
        return answer
    return "" if answer.get("isWritablePrimary") or answer.get("secondary") else "neither primary nor secondary yet"


def _uri(ports: Sequence[int], replica_set: str | None, root: Root | None = None) -> str:
    login = f"{quote(root.user, '')}:{quote(root.password, '')}@" if root else ""
    options = [f"replicaSet={replica_set}"] if replica_set else ["directConnection=true"]
    options += ["authSource=admin"] if root else []
    return f"mongodb://{login}{','.join(f'{HOST}:{port}' for port in ports)}/?{'&'.join(options)}"


def _key_file(directory: Path) -> Path:
    """The secret with which the nodes of a set with users authenticate each other."""
    file = directory / "key"
    file.touch(mode=0o600)
    file.write_text(base64.b64encode(secrets.token_bytes(96)).decode())
    return file


def _create(root: Root, ports: Sequence[int]) -> None:
    """Create the first user, which a server without users allows from its own machine."""
    hellos = {port: ready.hello(port) for port in ports}
    primary = next(port for port, hello in hellos.items() if isinstance(hello, dict) and hello.get("isWritablePrimary"))
    with ready.direct(primary) as client:
        client.admin.command("createUser", root.user, pwd=root.password, roles=["root"])
