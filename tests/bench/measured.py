"""What a run is measured by: processor time of the stack's processes, and the times in the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil
from confluent_kafka import KafkaError, TopicPartition

import stack as embedded
from connectors.topics import Place, Topics

WORKER, SOURCE, DESTINATION, BROKER = "connect-0", "source-0", "destination-0", "kafka"
_PATIENCE = 30.0  # seconds without an answer


@dataclass(frozen=True, slots=True)
class Run:
    """One side once: `cpu` is seconds of processor time by process, `seconds` the time that the work took."""

    side: str
    items: int
    seconds: float
    cpu: Mapping[str, float]

    @property
    def per_second(self) -> float:
        return self.items / self.seconds

    def micros(self, process: str) -> float:
        """Processor time per item, in microseconds."""
        return self.cpu[process] / self.items * 1e6


def processor(stack: embedded.Stack, *names: str) -> dict[str, float]:
    """Seconds of processor time that each process has used so far."""
    used = {}
    for name in names:
        times = psutil.Process(stack.processes[name].pid).cpu_times()
        used[name] = times.user + times.system
    return used


def used_since(stack: embedded.Stack, before: Mapping[str, float]) -> dict[str, float]:
    return {name: now - before[name] for name, now in processor(stack, *before).items()}


def await_fact(what: str, look: Callable[[], bool], timeout: float = 600) -> None:
    """Look every 0.1 s until it is so; the looks cost both sides the same."""
    end = time.monotonic() + timeout
    while not look():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come within {timeout:.0f} s")
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Logged:
    """A stretch of the log: how many records, the seconds from the first append to the last, the last offsets."""

    records: int
    seconds: float
    last: Mapping[Place, int]


def logged(topics: Topics, starts: Mapping[Place, int]) -> Logged:
    """Read every committed record from these offsets to the present ends."""
    consumer, unread = topics.consumer(), set(starts)
    records, times, last = 0, [0, 0], {}
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
        while unread:
            for message in consumer.consume(1000, _PATIENCE):
                place, error = (str(message.topic()), message.partition() or 0), message.error()
                if error is None:
                    at = message.timestamp()[1]
                    times = [min(times[0] or at, at), max(times[1], at)]
                    records, last[place] = records + 1, message.offset() or 0
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(place)
                else:
                    raise TimeoutError(f"cannot read {place[0]}: {error.str()}")
    finally:
        consumer.close()
    return Logged(records, (times[1] - times[0]) / 1000, last)
