"""The MongoDB servers of a stack: command line, URI, and the initiation of a replica set and of its first user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pymongo.errors import OperationFailure, PyMongoError

from towpath.stack import ready
from towpath.stack.errors import StackError
from towpath.stack.security import Security
from towpath.stack.state import HOST

_ALREADY_INITIALIZED, _UNAUTHORISED = 23, 13


def command(
    program: Path, folder: Path, port: int, cache_gb: float, parameters: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The command line of one mongod that keeps its files in `folder`. `parameters`: for --setParameter."""
    values = {
        "periodicNoopIntervalSecs": "1",  # change streams and their times advance without writes
        "diagnosticDataCollectionEnabled": "false",
        "shutdownTimeoutMillisForSignaledShutdown": "100",  # there is no other node to hand over to
        **(parameters or {}),
    }
    words = [str(program), "--dbpath", str(folder), "--port", str(port), "--bind_ip", HOST, "--nounixsocket"]
    words += ["--wiredTigerCacheSizeGB", str(cache_gb)]
    for name, value in values.items():
        words += ["--setParameter", f"{name}={value}"]
    return tuple(words)


def uri(ports: Sequence[int], replica_set: str) -> str:
    """The URI of the replica set on these ports."""
    return f"mongodb://{','.join(f'{HOST}:{port}' for port in ports)}/?replicaSet={replica_set}"


def replica_set_check(name: str, ports: Sequence[int], secured: Security | None = None) -> ready.Check:
    """Ready when one node is primary and all others are secondaries; initiates a new set."""

    def check() -> str:
        hellos = []
        for hello in (ready.hello(port, secured) for port in ports):
            if isinstance(hello, str):
                return hello
            hellos.append(hello)
        if not any("setName" in hello for hello in hellos):
            return _initiate(name, ports, secured)
        if sum(bool(hello.get("isWritablePrimary")) for hello in hellos) != 1:
            return "no primary yet"
        waiting = sum(not (hello.get("isWritablePrimary") or hello.get("secondary")) for hello in hellos)
        return f"{waiting} nodes are not secondaries yet" if waiting else ""

    return check


def _initiate(name: str, ports: Sequence[int], secured: Security | None) -> str:
    members = [{"_id": number, "host": f"{HOST}:{port}"} for number, port in enumerate(ports)]
    try:
        with ready.direct(ports[0], secured) as client:
            client.admin.command("replSetInitiate", {"_id": name, "members": members})
    except OperationFailure as error:
        if error.code != _ALREADY_INITIALIZED:
            raise StackError(f"cannot initiate the replica set {name} on ports {list(ports)}: {error}") from error
    except PyMongoError as error:
        return f"replSetInitiate: {error}"
    return "just initiated"


def create_root(ports: Sequence[int], secured: Security) -> None:
    """Create the user `root` of a secured set without users, which allows that from its own machine."""
    hellos = {port: ready.hello(port, secured) for port in ports}
    primary = next(port for port, hello in hellos.items() if isinstance(hello, dict) and hello.get("isWritablePrimary"))
    try:
        with ready.direct(primary, secured) as client:
            client.admin.command("createUser", "root", pwd=secured.root_password, roles=["root"])
    except OperationFailure as error:
        if error.code != _UNAUTHORISED:  # which means that the set has users already
            raise StackError(f"cannot create the first user on ports {list(ports)}: {error}") from error
