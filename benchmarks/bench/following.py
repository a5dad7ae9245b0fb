"""`page`: what clients that follow the page cost `towpath run` beside a busy pipeline: CPU, memory."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import psutil

from benchmarks.bench.measured import Run
from benchmarks.bench.pairs import say
from benchmarks.bench.report import BASE, Found, Part, at_most, told
from benchmarks.bench.sides import pipeline_file
from benchmarks.bench.streaming import MIX, in_step, write_paced
from tests.support.awaited import until
from tests.support.served import TOKEN, served
from towpath import stack as embedded

_NAME = "page"
_EVERY = 5.0  # seconds between two samples of the memory


def bench(stack: embedded.Stack, *, clients: int, documents: int, rate: int, seconds: int, seed: int) -> Found:
    with in_step(stack, _NAME, BASE, seed, documents) as (_, source, _), ThreadPoolExecutor() as threads:
        file = pipeline_file(stack, _NAME)
        with served(file.parent, "run", file, "--json") as run:
            path = f"/api/v1/pipelines/{_NAME}"
            until("first poll", lambda: run.client.get(path).json()["at"])
            writer = threads.submit(write_paced, source, seed, documents, rate, 2 * seconds)
            process, series = psutil.Process(run.process.pid), {}
            alone, series["alone"] = _watched(process, "alone", seconds)
            with following(run.url, f"/updates?pipeline={_NAME}", clients) as received:
                side = f"{clients} clients"
                followed, series[side] = _watched(process, side, seconds)
            followed.numbers["received by a client, KiB/s"] = sum(received) / clients / seconds / 1024
            until("end of all clients", lambda: "towpath_clients 0.0" in run.client.get("/metrics").text)
            written, took = writer.result()
    say(f"page: {written / took:,.0f} changes a second were written")
    more = followed.numbers[_CPU] - alone.numbers[_CPU]
    goals = [
        at_most(f"CPU that {clients} clients take", more, 5, "% of a core"),
        at_most(
            f"memory that grows in the last third of the time with {clients} clients",
            followed.numbers[_GROWN],
            256,
            "KiB",
        ),
        told("the same without clients", f"{alone.numbers[_GROWN]:,.0f} KiB"),
    ]
    title = f"`towpath run --listen`, each for {seconds} s, beside {rate:,} changes a second"
    return Found([Part(title, "second", [alone, followed], rated=False)], goals, _NOTES, {"memory, KiB": series})


_CPU, _GROWN = "CPU, % of a core", "memory that grew in the last third, KiB"
_NOTES = (
    MIX,
    "The same process, first alone, then with clients. They read everything of one pipeline's page at once.",
    f"Memory is the process's resident set, every {_EVERY:.0f} s. It grows more before the clients come than with them:"
    " what the process needs is imported, and its threads' heaps fill, in the first minutes.",
)


def _watched(process: psutil.Process, side: str, seconds: int) -> tuple[Run, list[float]]:
    """What the process uses for so long, and its memory in KiB."""
    before, start, memory = sum(process.cpu_times()[:2]), time.monotonic(), list[float]()
    samples = max(6, round(seconds / _EVERY))
    for sample in range(samples):
        memory.append(process.memory_info().rss / 1024)
        time.sleep(max(0.0, start + (sample + 1) * seconds / samples - time.monotonic()))
    took, used = time.monotonic() - start, sum(process.cpu_times()[:2]) - before
    numbers = {_CPU: 100 * used / took, "memory, MiB": memory[-1] / 1024, _GROWN: grown(memory)}
    say(f"page: {side}: {numbers[_CPU]:.2f} % of a core, {numbers['memory, MiB']:.1f} MiB, {numbers[_GROWN]:+.0f} KiB")
    return Run(side, seconds, took, {"run": used}, numbers), memory


def grown(memory: list[float]) -> float:
    """Over the last third: by then all is imported, and what connections take is taken."""
    return memory[-1] - memory[2 * len(memory) // 3]


@contextmanager
def following(url: str, path: str, count: int) -> Iterator[list[int]]:
    """So many clients, each read by a thread; yields the bytes that each has received."""
    parts, received = urlsplit(url), [0] * count
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    connections = [socket.create_connection((parts.hostname or "", parts.port or 0)) for _ in received]

    def read(number: int) -> None:
        connections[number].sendall(request)
        while data := connections[number].recv(1 << 16):
            received[number] += len(data)

    with ThreadPoolExecutor(count) as threads:
        for number in range(count):
            threads.submit(read, number)
        try:
            until("bytes for all", lambda: all(received))
            yield received
        finally:
            for connection in connections:
                connection.shutdown(socket.SHUT_RDWR)
    for connection in connections:
        connection.close()
