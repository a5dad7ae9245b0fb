"""Worker processes that compare ranges, each with clients of its own; they send their parent messages."""

from __future__ import annotations

import multiprocessing
import queue
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from pymongo import MongoClient

from verifier.differences import Pair
from verifier.errors import VerifierError, WorkerDied
from verifier.hashes import Screen
from verifier.merge import Equal, RangeRead
from verifier.ranges import Bounds
from verifier.reads import Client, collection

_SUSPECTS, _SUSPECT_BYTES = 1_000, 1 << 20  # ids in one message
_REPORT_BYTES = 4 << 20  # compared between two messages about progress
_QUEUED = 64  # messages that may wait for the parent; then the workers wait
_SILENCE_MS = 60_000
_SELECTION = 2.0  # seconds; callers retry
_CHECK = 1.0  # seconds between checks whether the parent is alive


@dataclass(frozen=True, slots=True)
class Job:
    """What all workers need. URIs may hold passwords: they go through a pipe, and nothing prints them."""

    source_uri: str
    destination_uri: str
    ignore_field_order: bool
    screen: bool
    lost_for: float

    def clients(self, silence_ms: int | None = None) -> tuple[Client, Client]:
        """Clients that give up on a server that is silent for `silence_ms`; None for replies that may take long."""
        return self._client(self.source_uri, silence_ms), self._client(self.destination_uri, silence_ms)

    def _client(self, uri: str, silence_ms: int | None) -> Client:
        selection_ms = int(min(self.lost_for, _SELECTION) * 1000) or 1
        return MongoClient(
            uri, appname="towpath verify", serverSelectionTimeoutMS=selection_ms, socketTimeoutMS=silence_ms
        )


@dataclass(frozen=True, slots=True)
class Range:
    """A range of `_id`s of one pair, read by one worker."""

    number: int
    pair: Pair
    bounds: Bounds
    batch_size: int
    ordered: bool = True
    """Whether `verifier.raw` knows the order of the `_id`s; a collation has another."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """So many more documents of a range are compared: their bytes, and the bytes that came over the network."""

    number: int
    documents: int
    size: int
    read: int


@dataclass(frozen=True, slots=True)
class Suspected:
    """Documents of a range that differed when they were read."""

    number: int
    ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """A range is read to its end."""

    number: int


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for people."""

    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker cannot go on."""

    error: VerifierError


Message: TypeAlias = Advanced | Suspected | Finished | Notice | Failed


def _compare(job: Job, clients: tuple[Client, Client], work: Range, say: Callable[[str], None]) -> Iterator[Message]:
    source, destination = collection(clients[0], work.pair.source), collection(clients[1], work.pair.destination)
    reading: Screen | RangeRead
    if job.screen:
        reading = Screen(source, destination, work.bounds, job.lost_for, say)
    else:
        reading = RangeRead(
            source,
            destination,
            work.bounds,
            work.batch_size,
            ordered=work.ordered,
            ignore_field_order=job.ignore_field_order,
            lost_for=job.lost_for,
            say=say,
        )
    documents = size = reported = 0
    suspects: list[bytes] = []
    for stretch in reading:
        if isinstance(stretch, Equal):
            documents, size = documents + stretch.documents, size + stretch.bytes
        else:
            documents, size = documents + 1, size + len(stretch.source or stretch.destination or b"")
            suspects.append(stretch.id)
            if len(suspects) == _SUSPECTS or len(stretch.id) > _SUSPECT_BYTES // _SUSPECTS:
                yield Suspected(work.number, tuple(suspects))
                suspects.clear()
        if size >= _REPORT_BYTES:
            yield Advanced(work.number, documents, size, reading.read - reported)
            documents, size, reported = 0, 0, reading.read
    if suspects:
        yield Suspected(work.number, tuple(suspects))
    yield Advanced(work.number, documents, size, reading.read - reported)


def _work(job: Job, tasks: Any, results: Any) -> None:
    """A worker's loop, until there is no more work or its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    parent = multiprocessing.parent_process()

    def has_parent() -> bool:
        return parent is None or parent.is_alive()

    def send(message: Message) -> None:
        while has_parent():
            try:
                results.put(message, timeout=_CHECK)
            except queue.Full:
                continue
            return
        raise SystemExit(1)

    clients = job.clients(None if job.screen else _SILENCE_MS)
    try:
        while has_parent():
            try:
                work = tasks.get(timeout=_CHECK)
            except queue.Empty:
                continue
            if work is None:
                return
            for message in _compare(job, clients, work, lambda text: send(Notice(text))):
                send(message)
            send(Finished(work.number))
    except VerifierError as error:
        send(Failed(error))


@dataclass(frozen=True, slots=True)
class Workers:
    """Running worker processes."""

    _processes: Sequence[BaseProcess]
    _results: Any

    def message(self, timeout: float) -> Message | None:
        """The next message of a worker; None if there is none for `timeout` seconds.

        Raises `ServerLost` or `VerifierError` when a worker cannot go on, `WorkerDied` when one has ended unexpectedly.
        """
        try:
            message: Message = self._results.get(timeout=timeout)
        except queue.Empty:
            for process in self._processes:
                if process.exitcode:
                    raise WorkerDied(
                        f"a worker process ended with status {process.exitcode}: was it killed, or did memory run out?"
                    ) from None
            return None
        if isinstance(message, Failed):
            raise message.error
        return message


@contextmanager
def running(job: Job, work: Iterable[Range], processes: int) -> Iterator[Workers]:
    """So many processes that share this work; they end with the `with`, whatever happens."""
    context = multiprocessing.get_context("spawn")  # a MongoClient does not survive a fork
    tasks, results = context.Queue(), context.Queue(_QUEUED)
    started = [context.Process(target=_work, args=(job, tasks, results), daemon=True) for _ in range(processes)]
    for task in (*work, *(None for _ in started)):
        tasks.put(task)
    try:
        for process in started:
            process.start()
        yield Workers(started, results)
    finally:
        for process in started:
            if process.is_alive():
                process.terminate()
            if process.pid is not None:
                process.join(10)
        for queued in (tasks, results):
            queued.cancel_join_thread()
            queued.close()
