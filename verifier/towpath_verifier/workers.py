"""Worker processes that compare ranges, each with clients of its own; they send messages to the verification.

One process, which has no client and no thread, imports the driver and forks the workers: the import takes longer than a
worker needs for 100,000 documents.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from pymongo import MongoClient

from towpath_verifier.differences import Pair
from towpath_verifier.errors import VerifierError, WorkerDied
from towpath_verifier.hashes import Screen
from towpath_verifier.merge import Equal, RangeRead
from towpath_verifier.ranges import Bounds
from towpath_verifier.reads import Client, collection

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
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
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


def _fork_workers(tasks: Any, results: Any) -> None:
    """Fork the workers that the first task asks for. They end with this process, which ends when one of them fails."""
    signal.signal(signal.SIGTERM, _end)
    parent, context = multiprocessing.parent_process(), multiprocessing.get_context("fork")
    assert parent is not None
    while True:
        try:
            job, processes = tasks.get(timeout=_CHECK)
            break
        except queue.Empty:
            if not parent.is_alive():
                return
    workers = [context.Process(target=_work, args=(job, tasks, results), daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    while workers:
        ready = wait([parent.sentinel, *(worker.sentinel for worker in workers)])
        if parent.sentinel in ready:
            return
        for worker in [each for each in workers if each.sentinel in ready]:
            worker.join()  # what it had open is closed before its status can be asked for
            if status := worker.exitcode:
                sys.exit(status if status > 0 else 128 - status)  # as a shell does for a signal
            workers.remove(worker)


def _end(*_: object) -> None:
    """End this process and its workers at once."""
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(0)


@dataclass(frozen=True, slots=True)
class Workers:
    """Worker processes, which begin with `compare`."""

    _process: BaseProcess
    _tasks: Any
    _results: Any

    @classmethod
    def start(cls) -> Workers:
        """Start the process that forks them; it imports the driver while the caller goes on."""
        context = multiprocessing.get_context("spawn")  # neither a MongoClient nor its threads survive a fork
        tasks, results = context.Queue(), context.Queue(_QUEUED)
        process = context.Process(target=_fork_workers, args=(tasks, results))
        # inherited: a terminal sends these to all its processes, and the verification ends its workers
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return cls(process, tasks, results)

    def end(self) -> None:
        """End them, whatever they are at."""
        if self._process.is_alive():
            self._process.terminate()
        self._process.join(10)
        for queued in (self._tasks, self._results):
            queued.cancel_join_thread()
            queued.close()

    def compare(self, job: Job, ranges: Sequence[Range], processes: int) -> None:
        """Have so many processes share these ranges; call it once."""
        for task in ((job, processes), *ranges, *(None for _ in range(processes))):
            self._tasks.put(task)

    def message(self, timeout: float) -> Message | None:
        """The next message of a worker; None if there is none for `timeout` seconds.

        Raises `ServerLost` or `VerifierError` when a worker cannot go on, `WorkerDied` when one has ended unexpectedly.
        """
        try:
            message: Message = self._results.get(timeout=timeout)
        except queue.Empty:
            if status := self._process.exitcode:
                raise WorkerDied(
                    f"a worker process ended with status {status}: was it killed, or did memory run out?"
                ) from None
            return None
        if isinstance(message, Failed):
            raise message.error
        return message


#: Started ahead of the verification that will use them.
_AHEAD: list[Workers] = []


@contextmanager
def started_ahead() -> Iterator[None]:
    """The next verification within the body has workers that are ready sooner."""
    _AHEAD.append(Workers.start())
    try:
        yield
    finally:
        while _AHEAD:
            _AHEAD.pop().end()


@contextmanager
def running() -> Iterator[Workers]:
    """Worker processes; they end with the `with`, whatever happens."""
    workers = _AHEAD.pop() if _AHEAD else Workers.start()
    try:
        yield workers
    finally:
        workers.end()
