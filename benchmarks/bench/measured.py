"""What a run is measured by: processor time of the stack's processes, and the times that log and servers keep."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import psutil
from bson import Timestamp
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from pymongo import MongoClient

from towpath import stack as embedded
from towpath.clients.kafka.topics import Place, Topics

WORKER, SOURCE, DESTINATION, BROKER = "connect-0", "source-0", "destination-0", "kafka"
PROCESSES = (SOURCE, WORKER, BROKER, DESTINATION)
_PATIENCE = 30.0  # seconds without an answer

Client = MongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """One side once: `cpu` is seconds of processor time by process, `seconds` the time that the work took.

    `numbers` is what else was measured, by the name that tables give it; `steady` the middle of the run.
    """

    side: str
    items: int
    seconds: float
    cpu: Mapping[str, float]
    numbers: Mapping[str, float] = field(default_factory=dict)
    steady: Run | None = None

    @property
    def per_second(self) -> float:
        return self.items / self.seconds

    def micros(self, *processes: str) -> float:
        """Processor time per item of these processes together, in microseconds."""
        return sum(self.cpu[process] for process in processes) / self.items * 1e6


def processor(stack: embedded.Stack, *names: str) -> dict[str, float]:
    """Seconds of processor time that each process has used so far."""
    used = {}
    for name in names:
        times = psutil.Process(stack.processes[name].pid).cpu_times()
        used[name] = times.user + times.system
    return used


def running(stack: embedded.Stack) -> list[str]:
    """The names of `PROCESSES`, and of further workers that run."""
    workers = (name for name in stack.options.workers if name != WORKER and stack.processes[name].running)
    return [*PROCESSES, *workers]


def used_since(stack: embedded.Stack, before: Mapping[str, float]) -> dict[str, float]:
    return {name: now - before[name] for name, now in processor(stack, *before).items()}


@dataclass(frozen=True, slots=True)
class Sample:
    """What was done by then (any unit), and the processor time that each process had used."""

    at: float
    done: float
    cpu: Mapping[str, float]


@contextmanager
def watched(stack: embedded.Stack, done: Callable[[], float]) -> Iterator[list[Sample]]:
    """Samples a run five times a second while it lasts, at its begin and at its end."""
    samples: list[Sample] = []
    ended = Event()

    def watch() -> None:
        over = False
        while not over:
            over = ended.is_set()
            samples.append(Sample(time.monotonic(), done(), processor(stack, *running(stack))))
            ended.wait(0.2)

    with ThreadPoolExecutor(1) as thread:
        watching = thread.submit(watch)
        try:
            yield samples
        finally:
            ended.set()
        watching.result()


def steady(side: str, items: int, samples: Sequence[Sample]) -> Run:
    """What a run was from a third to nine tenths of its items; between two samples it is taken as even."""
    start, end = (_when(samples, samples[-1].done * part) for part in (1 / 3, 9 / 10))
    cpu = {process: used - start.cpu[process] for process, used in end.cpu.items()}
    return Run(side, round(items * (end.done - start.done) / samples[-1].done), end.at - start.at, cpu)


def _when(samples: Sequence[Sample], done: float) -> Sample:
    later = bisect_left([sample.done for sample in samples], done)
    if later == 0:
        raise ValueError("a third was done before the first sample: there is nothing to take the middle of")
    a, b = samples[later - 1], samples[later]
    part = (done - a.done) / (b.done - a.done)
    cpu = {process: used + part * (b.cpu[process] - used) for process, used in a.cpu.items()}
    return Sample(a.at + part * (b.at - a.at), done, cpu)


def await_fact(what: str, is_so: Callable[[], bool], timeout: float = 300, pause: float = 0.1) -> None:
    """Ask again and again until it is so; that costs all sides the same."""
    end = time.monotonic() + timeout
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not so within {timeout:.0f} s")
        time.sleep(pause)


def newest(client: Client) -> Timestamp:
    """The time of the server's newest operation."""
    found: Timestamp = client.admin.command("hello")["operationTime"]
    return found


def last_write(client: Client, database: str, after: Timestamp) -> float:
    """When (seconds since 1970) the last write into a database after that operation was made, by the server's oplog."""
    mine = {"$regex": f"^{database}\\."}
    wanted = {"ts": {"$gt": after}, "$or": [{"ns": mine}, {"o.applyOps.ns": mine}]}
    found = client.local["oplog.rs"].find_one(wanted, {"wall": 1}, sort=[("$natural", -1)])
    if found is None:
        raise ValueError(f"nothing was written into {database}")
    return float(found["wall"].timestamp())


@dataclass(frozen=True, slots=True)
class Logged:
    """A part of the log.

    `weight` is the bytes of keys, values and headers, as they are before compression; `sizes` those of each record, by
    partition; `seconds` is the time from the first append to the last, `began` that of the first (seconds since 1970).
    """

    records: int
    seconds: float
    began: float
    weight: int
    sizes: Mapping[Place, list[tuple[bytes, int]]]


def logged(topics: Topics, starts: Mapping[Place, int]) -> Logged:
    """Read every committed record from these offsets to the present ends."""
    consumer, unread = topics.consumer(), set(starts)
    times: list[int] = []
    sizes: dict[Place, list[tuple[bytes, int]]] = {place: [] for place in starts}
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
        while unread:
            for message in _next(consumer):
                place, error = (str(message.topic()), message.partition() or 0), message.error()
                if error is None:
                    times.append(message.timestamp()[1])
                    sizes[place].append((message.key() or b"", _size(message)))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(place)
                else:
                    raise TimeoutError(f"cannot read {place[0]}: {error.str()}")
    finally:
        consumer.close()
    if not times:
        raise ValueError(f"nothing is in the log after {dict(starts)}")
    total = sum(size for records in sizes.values() for _, size in records)
    return Logged(len(times), (max(times) - min(times)) / 1000, min(times) / 1000, total, sizes)


def _next(consumer: Consumer) -> list[Message]:
    end = time.monotonic() + _PATIENCE
    while not (found := consumer.consume(1000, 0.2)):
        if time.monotonic() > end:
            raise TimeoutError(f"the broker sent nothing for {_PATIENCE:.0f} s")
    return found


def _size(message: Message) -> int:
    headers: Any = message.headers() or []
    every = [message.key(), message.value(), *(part for name, value in headers for part in (name.encode(), value))]
    return sum(len(part) for part in every if part is not None)
