"""A stack that is to be broken, and where its parts are: who is primary, where the brokers are, what has failed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.support import control, raw, rest
from tests.support.awaited import until
from tests.support.clock import Clock
from tests.support.pipeline import Addresses, Pipeline, Settings
from tests.support.proxy import HOST, Proxy
from tests.support.shapes import Shape
from towpath import stack as embedded
from towpath.stack.record import DESTINATION, SOURCE

#: What an election waits for a silent primary, and how often members look for each other, in ms.
ELECTION_MS, HEARTBEAT_MS = 3000, 500
_PLAIN = Settings()


@dataclass(frozen=True, slots=True)
class Site:
    """A running stack. `proxies` is empty unless the shape has them."""

    shape: Shape
    directory: Path
    addresses: Addresses
    source: raw.Client
    destination: raw.Client
    proxies: dict[str, Proxy]

    @property
    def processes(self) -> dict[str, embedded.Process]:
        return dict(embedded.status(self.directory).processes)

    @property
    def workers(self) -> list[str]:
        return [name for name in self.processes if name.startswith("connect-")]

    @property
    def brokers(self) -> list[str]:
        return [name for name, it in self.processes.items() if it.kind == "kafka"]

    def nodes(self, side: str) -> list[str]:
        return [name for name in self.processes if name.startswith(f"{side}-")]

    def port(self, name: str) -> int:
        return self.processes[name].port

    def primary(self, side: str, without: str = "") -> str:
        """The primary of a side, once there is one; `without` is a node that is not asked."""
        return until(f"primary of the {side}", partial(self._primary, side, without), 60, 0.05)

    def _primary(self, side: str, without: str) -> str | None:
        for name in self.nodes(side):
            if name != without and self.hello(name).get("isWritablePrimary"):
                return name
        return None

    def hello(self, name: str) -> dict[str, Any]:
        """A node's answer to `hello`; empty when it gives none within a second."""
        try:
            with self.direct(name, 1000) as client:
                found: dict[str, Any] = client.admin.command("hello")
                return found
        except PyMongoError:
            return {}

    def direct(self, name: str, timeout_ms: int = 10_000) -> raw.Client:
        return MongoClient(
            HOST,
            self.port(name),
            directConnection=True,
            serverSelectionTimeoutMS=timeout_ms,
            socketTimeoutMS=timeout_ms,
            connectTimeoutMS=timeout_ms,
        )

    def url(self, without: str = "") -> str:
        """A worker's address, not that of `without`."""
        return next(f"http://{HOST}:{self.port(name)}" for name in self.workers if name != without)

    def tasks(self, connector: str, without: str = "") -> list[dict[str, Any]]:
        """The tasks of a connector, as a worker sees them; none while the workers share out their work."""
        try:
            answer = rest.get(f"{self.url(without)}/connectors/{connector}/status", timeout=10)
        except httpx.HTTPError:
            return []
        if answer.status_code != 200:
            return []
        found: list[dict[str, Any]] = answer.json()["tasks"]
        return found

    def wait_whole(self) -> None:
        """Until what was broken before is itself again: all members, all replicas, all workers."""
        for side in (SOURCE, DESTINATION):
            until(f"all members of the {side}", partial(self._are_members, side), 60, 0.1)
        until("all replicas in sync", self._are_in_sync, 60, 0.2)
        until("answers of all workers", self._do_workers_answer, 60, 0.2)

    def _are_members(self, side: str) -> bool:
        found = [self.hello(name) for name in self.nodes(side)]
        return all(it.get("isWritablePrimary") or it.get("secondary") for it in found) and any(
            it.get("isWritablePrimary") for it in found
        )

    def _are_in_sync(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.addresses.bootstrap, "log_level": 0})
        try:
            topics = admin.list_topics(timeout=10).topics.values()
        except KafkaException:
            return False
        return all(set(it.isrs) == set(it.replicas) for topic in topics for it in topic.partitions.values())

    def _do_workers_answer(self) -> bool:
        try:
            answers = [rest.get(f"http://{HOST}:{self.port(name)}/connectors", timeout=5) for name in self.workers]
        except httpx.HTTPError:
            return False
        return all(it.status_code == httpx.codes.OK for it in answers)

    @contextmanager
    def deployed(self, folder: Path, documents: int = 100, settings: Settings = _PLAIN) -> Iterator[Pipeline]:
        """A pipeline of `docs` with so many documents, deployed a moment ago; removed if all goes well."""
        name = f"f{time.monotonic_ns():x}"
        pipeline = Pipeline(name, folder / f"{name}.toml", self.addresses, self.source, self.destination, settings)
        pipeline.source("docs").insert_many([{"_id": number} for number in range(documents)])
        pipeline.deploy()
        yield pipeline
        pipeline.remove()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        control.kill(self.directory, name, number)

    def start(self, name: str) -> None:
        control.start(self.directory, name)


@contextmanager
def site(shape: Shape, directory: Path, plugins: Path | None = None) -> Iterator[Site]:
    """A stack of this shape in a folder, from entry to exit of a `with`, whatever happens in between.

    `plugins` is a folder for Connect's `plugin.path` instead of this checkout's.
    """
    with ExitStack() as parts:
        proxies = {name: _proxy(parts, directory, name) for name in _PROXIED} if shape.proxied else {}
        broker = {"advertised.listeners": f"PLAINTEXT://{HOST}:{proxies['kafka'].port}"} if proxies else {}
        parts.callback(control.end, directory)
        stack = embedded.up(replace(shape.options(directory, broker), plugins=plugins), print)
        for side in (SOURCE, DESTINATION):
            _configure(stack, side, proxies.get(f"{side}-0"))
        uris = {side: _uri(getattr(stack, side), side, proxies) for side in (SOURCE, DESTINATION)}
        bootstrap = f"{HOST}:{proxies['kafka'].port}" if proxies else stack.bootstrap
        secrets = stack.directory.resolve() / "secrets"
        addresses = Addresses(uris[SOURCE], uris[DESTINATION], bootstrap, stack.connect, secrets)
        # directly, past the proxies: the writer's and the order checker's way is not broken
        clients = [
            parts.enter_context(MongoClient[dict[str, Any]](getattr(stack, side), directConnection=bool(proxies)))
            for side in (SOURCE, DESTINATION)
        ]
        parts.enter_context(Clock(addresses.source))
        yield Site(shape, directory, addresses, clients[0], clients[1], proxies)


_PROXIED = (f"{SOURCE}-0", f"{DESTINATION}-0", "kafka")


def _proxy(parts: ExitStack, directory: Path, name: str) -> Proxy:
    return parts.enter_context(Proxy(lambda: embedded.status(directory).processes[name].port))


def _uri(uri: str, side: str, proxies: dict[str, Proxy]) -> str:
    return f"mongodb://{HOST}:{proxies[f'{side}-0'].port}/?replicaSet={side}" if proxies else uri


def _configure(stack: embedded.Stack, side: str, proxy: Proxy | None) -> None:
    """Quick elections; and members known by their proxies."""
    with MongoClient[dict[str, Any]](getattr(stack, side)) as client:
        known = client.admin.command("replSetGetConfig")["config"]
        known["version"] += 1
        known["settings"] |= {"electionTimeoutMillis": ELECTION_MS, "heartbeatIntervalMillis": HEARTBEAT_MS}
        if proxy is not None:
            known["members"][0]["host"] = f"{HOST}:{proxy.port}"
        client.admin.command("replSetReconfig", known)
