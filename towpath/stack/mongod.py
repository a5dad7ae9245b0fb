"""MongoDB servers: replica sets for the stack, and single servers or sets, with users if wanted, for tests."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pymongo.errors import OperationFailure, PyMongoError

from towpath.stack import parts, processes, ready, state
from towpath.stack.errors import StackError
from towpath.stack.processes import Process
from towpath.stack.security import Security
from towpath.stack.state import HOST

_ALREADY_INITIALIZED, _UNAUTHORISED = 23, 13


@dataclass(frozen=True, slots=True)
class MongodSizes:
    """Cache of WiredTiger (GB) and first size of the oplog (MB) of one mongod."""

    cache_gb: float = 0.5
    oplog_mb: int = 1024


@dataclass(frozen=True, slots=True)
class Root:
    """A user with the role `root`; servers started with one demand that clients log in."""

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


def command(
    program: Path,
    folder: Path,
    port: int,
    replica_set: str | None,
    sizes: MongodSizes,
    key_file: Path | None = None,
    *,
    parameters: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """The command line of one mongod that keeps its files in `folder`, with more of its parameters if given."""
    values = {
        "periodicNoopIntervalSecs": "1",  # change streams and the times in them go on when nobody writes
        "diagnosticDataCollectionEnabled": "false",
        "shutdownTimeoutMillisForSignaledShutdown": "100",  # nobody else to hand over to
    }
    words = [str(program), "--dbpath", str(folder), "--port", str(port), "--bind_ip", HOST, "--nounixsocket"]
    words += ["--wiredTigerCacheSizeGB", str(sizes.cache_gb)]
    for name, value in {**values, **(parameters or {})}.items():
        words += ["--setParameter", f"{name}={value}"]
    if replica_set is not None:
        words += ["--replSet", replica_set, "--oplogSize", str(sizes.oplog_mb)]
    if key_file is not None:
        words += ["--keyFile", str(key_file)]
    return tuple(words)


def uri(nodes: Sequence[int], replica_set: str | None, root: Root | None = None) -> str:
    """The URI of the servers on these ports."""
    login = f"{quote(root.user, '')}:{quote(root.password, '')}@" if root else ""
    options = [f"replicaSet={replica_set}"] if replica_set else ["directConnection=true"]
    options += ["authSource=admin"] if root else []
    return f"mongodb://{login}{','.join(f'{HOST}:{port}' for port in nodes)}/?{'&'.join(options)}"


def replica_set_check(name: str, nodes: Sequence[int], secured: Security | None = None) -> ready.Check:
    """Ready when one node takes writes and all others are secondaries; initiates a set that never was."""

    def check() -> str:
        answers = [ready.hello(port, secured) for port in nodes]
        silent = [answer for answer in answers if isinstance(answer, str)]
        if silent:
            return silent[0]
        found = [answer for answer in answers if not isinstance(answer, str)]
        if not any("setName" in answer for answer in found):
            return _initiate(name, nodes, secured)
        states = [bool(answer.get("isWritablePrimary")) for answer in found]
        if sum(states) != 1:
            return "no primary yet"
        waiting = sum(not (it.get("isWritablePrimary") or it.get("secondary")) for it in found)
        return f"{waiting} nodes are not secondaries yet" if waiting else ""

    return check


def _initiate(name: str, nodes: Sequence[int], secured: Security | None) -> str:
    members = [{"_id": place, "host": f"{HOST}:{port}"} for place, port in enumerate(nodes)]
    try:
        with ready.direct(nodes[0], secured) as client:
            client.admin.command("replSetInitiate", {"_id": name, "members": members})
    except OperationFailure as error:
        if error.code != _ALREADY_INITIALIZED:
            raise StackError(f"cannot initiate the replica set {name} on ports {list(nodes)}: {error}") from error
    except PyMongoError as error:
        return f"replSetInitiate: {error}"
    return "just initiated"


def start_replica_set(
    directory: Path,
    *,
    name: str = "rs0",
    nodes: int = 1,
    root: Root | None = None,
    sizes: MongodSizes = MongodSizes(),
    options: Sequence[str] = (),
    progress: Callable[[str], None] = lambda words: None,
) -> Servers:
    """Start a replica set in a folder, on free ports, and return it once all of its nodes are primary or secondary.

    `options` are more words of each node's command line.
    """
    chosen, names = state.free_ports(nodes), [f"{name}-{n}" for n in range(nodes)]
    check = replica_set_check(name, chosen)
    return _start(directory, names, chosen, name, check, root, sizes, options, progress)


def start_standalone(
    directory: Path,
    *,
    root: Root | None = None,
    sizes: MongodSizes = MongodSizes(),
    progress: Callable[[str], None] = lambda words: None,
) -> Servers:
    """Start a mongod that is no replica set in a folder, on a free port, and return it once it takes writes."""
    chosen = state.free_ports(1)
    return _start(directory, ["mongod"], chosen, None, lambda: ready.mongod(chosen[0]), root, sizes, (), progress)


def _start(
    directory: Path,
    names: Sequence[str],
    chosen: Sequence[int],
    replica_set: str | None,
    check: ready.Check,
    root: Root | None,
    sizes: MongodSizes,
    options: Sequence[str],
    progress: Callable[[str], None],
) -> Servers:
    place = directory.resolve()
    state.prepare(place, "logs", *(f"data/{name}" for name in names))
    program = parts.mongod(progress)
    key_file = _key_file(place) if root and replica_set else None
    planned = {
        name: Process(
            name,
            "mongod",
            command(program, place / "data" / name, port, replica_set, sizes, key_file)
            + (("--auth",) if root and not key_file else ())
            + tuple(options),
            port,
            place / "logs" / f"{name}.log",
        )
        for name, port in zip(names, chosen, strict=True)
    }
    settings = {"uri": uri(chosen, replica_set)}
    state.write(place, state.State(settings, planned))
    started: dict[str, Process] = {}
    try:
        for process in planned.values():
            started[process.name] = processes.spawn(process)
            state.write(place, state.State(settings, {**planned, **started}))
        ready.wait({", ".join(names): check}, started.values(), 60, progress)
        if root:
            _create(root, chosen)
    except BaseException:
        processes.stop(started.values(), grace_s=5)
        raise
    return Servers(place, uri(chosen, replica_set, root), started)


def _key_file(directory: Path) -> Path:
    """The secret by which the nodes of a set with users know each other."""
    file = directory / "key"
    file.touch(mode=0o600)
    file.write_text(base64.b64encode(secrets.token_bytes(96)).decode())
    return file


def create_root(nodes: Sequence[int], secured: Security) -> None:
    """Create the user `root` of a secured set that has no users yet."""
    try:
        _create(Root("root", secured.root_password), nodes, secured)
    except OperationFailure as error:
        if error.code != _UNAUTHORISED:  # told once there are users
            raise StackError(f"cannot create the first user on ports {list(nodes)}: {error}") from error


def _create(root: Root, nodes: Sequence[int], secured: Security | None = None) -> None:
    """Create the first user, which a server without users allows from its own machine."""
    primary = next(port for port in nodes if _takes_writes(port, secured))
    with ready.direct(primary, secured) as client:
        client.admin.command("createUser", root.user, pwd=root.password, roles=["root"])


def _takes_writes(port: int, secured: Security | None) -> bool:
    found = ready.hello(port, secured)
    return not isinstance(found, str) and bool(found.get("isWritablePrimary"))
