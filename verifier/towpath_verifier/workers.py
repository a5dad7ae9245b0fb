"""Worker processes that compare ranges, each with its own clients; they send messages to the verification.

One process, which has no client and no thread, imports the driver and forks the workers: the import takes longer than a
worker needs for 100,000 documents.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from towpath_verifier.merge import Equal, Merged, Screen, Side, merged
from towpath_verifier.plan import list_pairs
from towpath_verifier.progress import Compared, Range
from towpath_verifier.raw_batches import in_id_order
from towpath_verifier.reads import Client, VerifierError, WorkerDied, collection, verifier_error, with_retries

_REPORT_IDS, _REPORT_ID_BYTES = 1_000, 1 << 20  # ids in one message
_REPORT_BYTES = 4 << 20  # of documents in one message
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
            uri,
            appname="towpath verify",
            readPreference="primary",  # another member may show what both sides had once; see `refuse_stale`
            serverSelectionTimeoutMS=selection_ms,
            socketTimeoutMS=silence_ms,
        )


#: What was compared of a range since the last message about it, None once it is read to its end; or words for people.
#: After an error, the worker has ended.
Message: TypeAlias = tuple[int, Compared | None] | str | VerifierError


def _compare(job: Job, clients: tuple[Client, Client], work: Range, say: Callable[[str], None]) -> Iterator[Compared]:
    """What a range holds, in parts.

    A collection that is renamed away, and back later, has no documents in between. So where nothing is read although
    something is expected, the collections of the plan have to be there; then the range is read again.
    """
    documents = 0
    for part in _read(job, clients, work, say):
        documents += part.documents
        yield part
    if documents or work.uuids is None:
        return
    (listed,) = list_pairs(*clients, [work.pair], job.lost_for)
    if listed.uuids == work.uuids:
        yield from _read(job, clients, work, say)
    else:
        yield Compared(away=True)


def _read(job: Job, clients: tuple[Client, Client], work: Range, say: Callable[[str], None]) -> Iterable[Compared]:
    """What a range holds, in parts. It is reported when all of it is read, so that a read that fails can begin again.

    Where a collation orders `_id`s, the range is the whole collection: it is reported at once, and not read again.
    """
    source, destination = collection(clients[0], work.pair.source), collection(clients[1], work.pair.destination)
    pair = work.pair
    if job.screen and pair.is_whole:
        screen = Screen(source, destination, work.bounds, job.lost_for, say)
        return _parts(screen, lambda: screen.read)

    def read() -> Iterator[Compared]:
        low, high = work.bounds.low, work.bounds.high
        sides = [
            Side(in_id_order(source, low, high, work.batch_size, pair.only), pair.mask),
            Side(in_id_order(destination, low, high, work.batch_size)),
        ]
        found = merged(*sides, ignore_field_order=job.ignore_field_order)
        return _parts(found, lambda: sides[0].read + sides[1].read)

    action = f"compare {source.full_name} with {destination.full_name}"
    if work.ordered:
        return with_retries(action, job.lost_for, lambda: list(read()), say)
    return _refused(action, read())


def _refused(action: str, parts: Iterator[Compared]) -> Iterator[Compared]:
    try:
        yield from parts
    except PyMongoError as error:
        raise verifier_error(action, error) from error


def _parts(found: Iterable[Merged], read: Callable[[], int]) -> Iterator[Compared]:
    """`read` tells the bytes that came over the network so far."""
    documents = size = reported = id_bytes = 0
    differing: list[bytes] = []
    for each in found:
        if isinstance(each, Equal):
            documents, size = documents + each.documents, size + each.bytes
        else:
            documents, size = documents + 1, size + len(each.source or each.destination or b"")
            differing.append(each.id)
            id_bytes += len(each.id)
        if size >= _REPORT_BYTES or len(differing) == _REPORT_IDS or id_bytes > _REPORT_ID_BYTES:
            yield Compared(documents, read() - reported, differing)
            documents, size, reported, id_bytes, differing = 0, 0, read(), 0, []
    yield Compared(documents, read() - reported, differing)


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
            for part in _compare(job, clients, work, send):
                send((work.number, part))
            send((work.number, None))
    except VerifierError as error:
        send(error)


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
        """Start the process that forks them; it imports the driver while the caller continues."""
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
        """The next message of a worker; None if there is none for `timeout` seconds. Call it while ranges are unread.

        Raises a worker's `VerifierError`, and `WorkerDied` when one has ended unexpectedly.
        """
        status = self._process.exitcode  # before the messages: all have come from workers that have ended
        try:
            message: Message = self._results.get(timeout=timeout)
        except queue.Empty:
            if status is not None:
                raise WorkerDied(
                    f"a worker process ended with status {status}: was it killed, or did memory run out?"
                ) from None
            return None
        if isinstance(message, VerifierError):
            raise message
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
