"""Many clients cost little, and a slow one loses updates: the server keeps nothing for it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.awaited import promised, until
from tests.support.pipeline import Pipeline
from tests.support.served import TOKEN, Served, served
from tests.support.workload import Workload
from tests.support.writer import Writer
from towpath.monitor.updates import Client, Update, Updates

CLIENTS = 50
UNREAD = 20
LONG = 30_000  # characters
WHOLE = "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"


def update(number: int, key: str = "row") -> Update:
    return Update.of(key, "row", {"n": number}, audience="page", pipeline="shop")


def test_a_client_gets_the_newest_of_each_kind() -> None:
    async def read() -> list[str]:
        updates, got = Updates(), []
        client = updates.join("page", "shop", [update(0, "head")])
        stream = updates.stream(client)
        got.append(await anext(stream))
        got.append(await anext(stream))
        for number in range(1000):
            updates.send([update(number), update(number, f"event {number}")])
        assert len(client.pending) <= 200
        assert updates.dropped > 1000
        got.append(await anext(stream))
        updates.leave(client)
        assert updates.clients == 0
        return [part.decode() for part in got]

    retry, first, newest = asyncio.run(read())
    assert retry == "retry: 1000\n\n"
    assert first == 'event: row\ndata: {"n": 0}\n\n'
    assert [json.loads(line[6:])["n"] for line in newest.splitlines() if line.startswith("data")][-2:] == [999, 999]


def test_a_client_follows_its_pipeline_and_audience() -> None:
    assert Client("page", "shop").follows(update(1))
    assert Client("page", "").follows(update(1))
    assert not Client("page", "other").follows(update(1))
    assert not Client("api", "shop").follows(update(1))


def connect(url: str, path: str, request: str = WHOLE, receive: int = 0) -> socket.socket:
    """A connection that has sent a request, or that part of it; `receive`: bytes that its kernel keeps, if not 0."""
    parts = urlsplit(url)
    connection = socket.socket()
    if receive:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    connection.connect((parts.hostname or "", parts.port or 0))
    connection.sendall(request.format(path=path, token=TOKEN).encode())
    return connection


@pytest.mark.nightly
@pytest.mark.serial
@pytest.mark.servers
def test_clients_that_never_read_lose_updates_and_others_get_all(pipeline: Pipeline, tmp_path: Path) -> None:
    """Kafka answers, but Connect does not, and each poll says so in 30 KB."""
    pipeline.source("a").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    files = [pipeline.file, *(away(pipeline, tmp_path / f"away{number}.toml") for number in range(3))]
    with served(tmp_path, "monitor", *files) as monitor:
        path, process = f"/api/v1/pipelines/{pipeline.name}", psutil.Process(monitor.process.pid)
        until("first poll", lambda: monitor.client.get(path).json()["at"])
        readers = [Reader(monitor.url) for _ in range(3)]
        unread = [connect(monitor.url, "/api/v1/events", receive=2304) for _ in range(UNREAD)]
        time.sleep(3)  # all have begun
        before = process.memory_info().rss
        until("lost updates", lambda: dropped(monitor) >= UNREAD, 60, 1)
        time.sleep(12)  # some more polls
        grown = process.memory_info().rss - before
        polls = [sample[0] for sample in monitor.client.get(f"{path}/history").json()["samples"]]
        print(f"{dropped(monitor):,.0f} updates lost, grown by {grown:,} bytes; {len(polls)} polls")
        for reader in readers:
            shown = [at for at in polls if reader.polls[0] <= at <= reader.polls[-1]]
            assert len(shown) > 5
            assert reader.polls == shown  # none is missing
            assert reader.size > 10 * LONG
        assert grown < UNREAD * (300 << 10)
        lively = f"towpath_clients {len(readers):.1f}"
        promised("end of who never reads", lambda: lively in monitor.client.get("/metrics").text, 90, 1)
        for connection in [*unread, *(reader.connection for reader in readers)]:
            connection.close()


def away(pipeline: Pipeline, file: Path) -> Path:
    """A pipeline whose worker does not run, at an address of which messages are long."""
    text = pipeline.file.read_text().replace(f'name = "{pipeline.name}"', f'name = "{file.stem}"')
    file.write_text(text.replace(pipeline.addresses.connect, f"http://127.0.0.1:1/{'x' * LONG}"), encoding="utf-8")
    file.chmod(0o600)
    return file


def dropped(served: Served) -> float:
    found = re.search(r"^towpath_dropped_updates_total (\S+)", served.client.get("/metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


class Reader:
    """Reads all events in a thread."""

    def __init__(self, url: str) -> None:
        self.connection, self.polls, self.size = connect(url, "/api/v1/events"), list[float](), 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.connection.makefile("rb"):
            self.size += len(line)
            if line.startswith(b"data: ") and b'"lag_seconds"' in line:
                short = json.loads(line.removeprefix(b"data: "))
                if short["state"] == "running":
                    self.polls.append(round(short["at"], 1))


def follow(connection: socket.socket, received: list[int], number: int) -> None:
    while data := connection.recv(1 << 16):
        received[number] += len(data)


@pytest.mark.nightly
@pytest.mark.serial
@pytest.mark.servers
def test_fifty_clients_cost_little(pipeline: Pipeline, tmp_path: Path) -> None:
    seconds = 60
    workload = Workload(1, [pipeline.source("a")], documents=200)
    workload.fill()
    pipeline.deploy()
    pipeline.wait()
    with served(tmp_path, "run", pipeline.file, "--json") as run, Writer(workload, per_second=100):
        process, path = psutil.Process(run.process.pid), f"/updates?pipeline={pipeline.name}"
        until("first poll", lambda: run.client.get(f"/api/v1/pipelines/{pipeline.name}").json()["at"])
        time.sleep(1)  # what is imported late
        alone = used(process, seconds)
        received = [0] * CLIENTS
        connections = [connect(run.url, path) for _ in received]
        slow = connect(run.url, path)  # never reads
        threads = [
            threading.Thread(target=follow, args=(connection, received, number), daemon=True)
            for number, connection in enumerate(connections)
        ]
        for thread in threads:
            thread.start()
        until("bytes for all", lambda: all(received))
        before = process.memory_info().rss
        with_clients = used(process, seconds)
        grown = process.memory_info().rss - before
        print(f"alone {alone:.1%} of a core, with {CLIENTS} clients {with_clients:.1%}")
        print(f"{sum(received):,} bytes received; grown by {grown:,} bytes")
        assert with_clients - alone <= 0.05
        assert grown < 4 << 20
        for connection in [*connections, slow]:
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        promised("end of all clients", lambda: "towpath_clients 0.0" in run.client.get("/metrics").text, 40)


def used(process: psutil.Process, seconds: float) -> float:
    """The share of a core that the process uses."""
    before, start = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - start)
