"""Waits until services answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from towpath.stack.errors import NotReady
from towpath.stack.processes import Process
from towpath.stack.security import Security
from towpath.stack.state import HOST, accepts

Check = Callable[[], str]
"""Queries a service: an empty string when it is ready, else why it is not."""

_POLL_S = 0.1
_SILENT = logging.getLogger("stack.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def wait(
    checks: Mapping[str, Check], processes: Iterable[Process], timeout_s: float, progress: Callable[[str], None]
) -> None:
    """Return when every check has reported once that its service is ready.

    Raises `ProcessDied` or `PortInUse` as soon as one of the processes ends, `NotReady` after the timeout.
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
            raise NotReady(f"not ready after {timeout_s:.0f} s: {why}; see the logs next to {watched[0].log}")
        time.sleep(_POLL_S if waiting else 0)


def check_for(process: Process, secured: Security | None = None) -> Check:
    """The check of one process, independent of the others."""
    checks = {"mongod": mongod, "kafka": kafka, "connect": connect, "prometheus": prometheus}
    return lambda: checks[process.kind](process.port, secured)


def mongod(port: int, secured: Security | None = None) -> str:
    """Ready when the node is primary or secondary."""
    answer = hello(port, secured)
    if isinstance(answer, str):
        return answer
    return "" if answer.get("isWritablePrimary") or answer.get("secondary") else "neither primary nor secondary yet"


def hello(port: int, secured: Security | None = None) -> dict[str, object] | str:
    """A mongod's answer to `hello`, or why there is none."""
    if not accepts(port):
        return f"nobody listens on port {port}"
    try:
        with direct(port, secured) as client:
            answer: dict[str, object] = client.admin.command("hello")
            return answer
    except PyMongoError as error:
        return f"hello: {error}"


def direct(port: int, secured: Security | None = None) -> MongoClient[dict[str, object]]:
    """A client of one node, whatever its state."""
    tls = secured.for_pymongo() if secured else {}
    return MongoClient(HOST, port, directConnection=True, serverSelectionTimeoutMS=2000, socketTimeoutMS=10_000, **tls)


def kafka(port: int, secured: Security | None = None) -> str:
    """Ready when the broker lists its topics, itself among the brokers."""
    if not accepts(port):
        return f"nobody listens on port {port}"
    ssl = secured.for_librdkafka() if secured else {}
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0, **ssl}, logger=_SILENT)
    try:
        return "" if admin.list_topics(timeout=2).brokers else "the broker is not registered yet"
    except KafkaException as error:
        return f"listing topics: {error.args[0].str()}"


def connect(port: int, secured: Security | None = None) -> str:
    """Ready when the worker has joined its group and lists connector plugins."""
    url = f"{'https' if secured else 'http'}://{HOST}:{port}"
    try:
        with secured.for_httpx() if secured else httpx.Client(verify=False) as client:
            health = client.get(f"{url}/health", timeout=2)
            if not health.is_success:
                return f"GET {url}/health: {health.status_code}: {health.text[:200]}"
            plugins = client.get(f"{url}/connector-plugins", timeout=5)
            return "" if plugins.is_success and plugins.json() else f"GET {url}/connector-plugins: {plugins.text[:200]}"
    except httpx.HTTPError as error:
        return f"GET {url}: {error}"


def prometheus(port: int, secured: Security | None = None) -> str:
    """Ready when it has read what it has stored."""
    url = f"http://{HOST}:{port}/-/ready"
    try:
        answer = httpx.get(url, timeout=2, verify=False)
        return "" if answer.is_success else f"GET {url}: {answer.text[:200]}"
    except httpx.HTTPError as error:
        return f"GET {url}: {error}"
