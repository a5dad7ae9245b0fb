"""Waits until the services of a stack answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from towpath.errors import StackError
from towpath.stack.processes import HOST, Kind, Process, accepts

Check = Callable[[], str]
"""Queries a service: an empty string when it is ready, else why it is not."""

_ALREADY_INITIALIZED = 23
_POLL_S = 0.1
_SILENT = logging.getLogger("stack.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def await_ready(
    checks: Mapping[str, Check], processes: Iterable[Process], timeout_s: float, progress: Callable[[str], None]
) -> None:
    """Return when every check has reported once that its service is ready.

    Raises `StackError` as soon as one of the processes ends, and after the timeout.
    """
    start, waiting, reasons = time.monotonic(), dict(checks), dict[str, str]()
    watched = list(processes)
    while waiting:
        for name, check in list(waiting.items()):
            reasons[name] = check()
            if not reasons[name]:
                del waiting[name]
                progress(f"{name} is ready after {time.monotonic() - start:.1f} s")
        for process in watched:
            if not process.running:
                raise process.death()
        if waiting and time.monotonic() > start + timeout_s:
            why = "; ".join(f"{name}: {reasons[name]}" for name in waiting)
            raise StackError(f"not ready after {timeout_s:.0f} s: {why}; see the logs next to {watched[0].log}")
        time.sleep(_POLL_S if waiting else 0)


def check_for(process: Process) -> Check:
    """The check of one process that is no mongod."""
    checks: dict[Kind, Callable[[int], str]] = {
        "kafka": _kafka,
        # once the worker has joined its group
        "connect": lambda port: _answers(port, "/health") or _answers(port, "/connector-plugins"),
        # once it has read what it has stored
        "prometheus": lambda port: _answers(port, "/-/ready"),
    }
    return lambda: checks[process.kind](process.port)


def hello(port: int) -> dict[str, object] | str:
    """A mongod's answer to `hello`, or why there is none."""
    if not accepts(port):
        return f"no process listens on port {port}"
    try:
        with direct(port) as client:
            answer: dict[str, object] = client.admin.command("hello")
            return answer
    except PyMongoError as error:
        return f"hello: {error}"


def direct(port: int) -> MongoClient[dict[str, object]]:
    """A client of one node, whatever its state."""
    return MongoClient(HOST, port, directConnection=True, serverSelectionTimeoutMS=2000, socketTimeoutMS=10_000)


def replica_set_check(name: str, ports: Sequence[int]) -> Check:
    """Ready when one node is primary and all others are secondaries; initiates a new set."""

    def check() -> str:
        hellos = []
        for answer in map(hello, ports):
            if isinstance(answer, str):
                return answer
            hellos.append(answer)
        if not any("setName" in answer for answer in hellos):
            return _initiate(name, ports)
        if sum(bool(answer.get("isWritablePrimary")) for answer in hellos) != 1:
            return "no primary yet"
        waiting = sum(not (answer.get("isWritablePrimary") or answer.get("secondary")) for answer in hellos)
        return f"{waiting} nodes are not secondaries yet" if waiting else ""

    return check


def _initiate(name: str, ports: Sequence[int]) -> str:
    members = [{"_id": number, "host": f"{HOST}:{port}"} for number, port in enumerate(ports)]
    try:
        with direct(ports[0]) as client:
            client.admin.command("replSetInitiate", {"_id": name, "members": members})
    except OperationFailure as error:
        if error.code != _ALREADY_INITIALIZED:
            raise StackError(f"cannot initiate the replica set {name} on ports {list(ports)}: {error}") from error
    except PyMongoError as error:
        return f"replSetInitiate: {error}"
    return "just initiated"


def _kafka(port: int) -> str:
    """Ready when the broker lists its topics, itself among the brokers."""
    if not accepts(port):
        return f"no process listens on port {port}"
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0}, logger=_SILENT)
    try:
        return "" if admin.list_topics(timeout=2).brokers else "the broker is not registered yet"
    except KafkaException as error:
        return f"listing topics: {error.args[0].str()}"


def _answers(port: int, path: str) -> str:
    url = f"http://{HOST}:{port}{path}"
    try:
        answer = httpx.get(url, timeout=5, verify=False)
        return "" if answer.is_success else f"GET {url}: {answer.status_code}: {answer.text[:200]}"
    except httpx.HTTPError as error:
        return f"GET {url}: {error}"
