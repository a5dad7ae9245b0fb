"""TCP ports on 127.0.0.1."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Mapping, Sequence

import psutil

from towpath.stack.errors import PortInUse, StackError

HOST = "127.0.0.1"
_RANGE = range(20_000, 32_768)  # below the ports that Linux hands out to outgoing connections


def choose(names: Sequence[str], first: int | None) -> dict[str, int]:
    """A port for every name: counted up from `first`, or free ones when that is None."""
    if first is None:
        return dict(zip(names, free(len(names)), strict=True))
    if not 1024 <= first <= 65_536 - len(names):
        raise StackError(f"the stack cannot have {len(names)} ports from {first} on: between 1024 and 65535, please")
    return {name: first + place for place, name in enumerate(names)}


def complete(known: Mapping[str, int], names: Sequence[str], first: int | None) -> dict[str, int]:
    """The ports that are known, and ports for those of the names that have none, as `choose` would choose them."""
    missing = [name for name in names if name not in known]
    fresh = choose(missing, None) if first is None else choose(names, first)
    return {**known, **{name: fresh[name] for name in missing}}


def free(count: int) -> list[int]:
    """Ports that nobody listens on. All are held while they are chosen, so that no two are the same."""
    held: list[socket.socket] = []
    if count == 0:
        return []
    try:
        for port in random.sample(_RANGE, len(_RANGE)):
            candidate = socket.socket()
            held.append(candidate)
            try:
                candidate.bind((HOST, port))
            except OSError:
                held.pop().close()
            if len(held) == count:
                return [it.getsockname()[1] for it in held]
    finally:
        for it in held:
            it.close()
    raise StackError(f"there are no {count} free ports between {_RANGE.start} and {_RANGE.stop - 1}")


def require_free(ports: Mapping[str, int]) -> None:
    """Raise `PortInUse`, naming port, what needs it, and who holds it, for the first port that is taken."""
    for name, port in ports.items():
        if not _is_free(port):
            raise PortInUse(
                f"{name} needs port {port} of {HOST}, which is in use{_holder(port)}; free it, or choose "
                "other ports (--port-base) and another folder"
            )


def accepts(port: int) -> bool:
    """Whether somebody listens on the port."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex((HOST, port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((HOST, port))
            candidate.listen(1)
        except OSError:
            return False
    return True


def _holder(port: int) -> str:
    try:
        pids = {it.pid for it in _listening() if it.laddr and it.laddr.port == port and it.pid is not None}
    except psutil.AccessDenied:
        return ""
    return "".join(f" by pid {pid} ({_name(pid)})" for pid in sorted(pids))


def _listening() -> Iterable[psutil._ntuples.sconn]:
    return (it for it in psutil.net_connections("tcp") if it.status == psutil.CONN_LISTEN)


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "ended"
