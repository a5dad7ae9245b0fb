"""Processes that compare ranges, each with clients of its own; they and their parent talk in values."""

from __future__ import annotations

import multiprocessing
import queue
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from pymongo import MongoClient

from verifier.differences import Pair
from verifier.errors import ServerLost, VerifierError, WorkerDied
from verifier.hashes import Screen
from verifier.merge import Equal, RangeRead
from verifier.ranges import Bounds
from verifier.reads import Client, collection

_SUSPECTS, _SUSPECT_BYTES = 1_000, 1 << 20  # ids that are told at once
_TOLD_EVERY = 4 << 20  # bytes compared between two words of how far it has come
_QUEUED = 64  # messages that may wait for the parent; then the workers wait
_SILENCE_MS = 60_000
_SELECTION = 2.0  # seconds; whoever asks tries again
_LOOK = 1.0  # seconds between looks whether the others live


@dataclass(frozen=True, slots=True)
class Job:
    """What all workers are to know. URIs may hold passwords: they go through a pipe, and nothing prints them."""

    source_uri: str
    destination_uri: str
    ignore_field_order: bool
    screen: bool
    lost_for: float

    def clients(self, silence_ms: int | None = None) -> tuple[Client, Client]:
        return (
            client(self.source_uri, self.lost_for, silence_ms),
            client(self.destination_uri, self.lost_for, silence_ms),
        )


@dataclass(frozen=True, slots=True)
class Range:
    """A piece of work."""

    number: int
    pair: Pair
    bounds: Bounds
    batch_size: int
    ordered: bool = True
    """Whether `verifier.order` knows the order of the `_id`s; a collation has another."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """So many documents more of a range are compared, and so many bytes came over the network."""

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
    """A range was read to its end."""

    number: int


@dataclass(frozen=True, slots=True)
class Said:
    """Words for people."""

    words: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker cannot go on."""

    words: str
    lost: bool


Message: TypeAlias = Advanced | Suspected | Finished | Said | Failed


def client(uri: str, lost_for: float, silence_ms: int | None = None) -> Client:
    """A client that gives a server up which says nothing for `silence_ms`; hashing a collection may take long."""
    return MongoClient(
        uri,
        appname="towpath verify",
        serverSelectionTimeoutMS=int(min(lost_for, _SELECTION) * 1000) or 1,
        socketTimeoutMS=silence_ms,
    )


def _compared(job: Job, clients: tuple[Client, Client], work: Range, say: Any) -> Iterator[Message]:
    source, destination = (
        collection(c, ns) for c, ns in zip(clients, (work.pair.source, work.pair.destination), strict=True)
    )
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
    documents = size = told = 0
    suspects: list[bytes] = []
    for one in reading:
        if isinstance(one, Equal):
            documents, size = documents + one.documents, size + one.bytes
        else:
            documents, size = documents + 1, size + len(one.source or one.destination or b"")
            suspects.append(one.id)
            if len(suspects) == _SUSPECTS or len(one.id) > _SUSPECT_BYTES // _SUSPECTS:
                yield Suspected(work.number, tuple(suspects))
                suspects.clear()
        if size >= _TOLD_EVERY:
            yield Advanced(work.number, documents, size, reading.read - told)
            documents, size, told = 0, 0, reading.read
    if suspects:
        yield Suspected(work.number, tuple(suspects))
    yield Advanced(work.number, documents, size, reading.read - told)


def _screened(job: Job, clients: tuple[Client, Client], work: Range, say: Any) -> Iterator[Message]:
    source, destination = (
        collection(c, ns) for c, ns in zip(clients, (work.pair.source, work.pair.destination), strict=True)
    )
    screen = Screen(source, destination, job.lost_for, say)
    documents = 0
    suspects: list[bytes] = []
    for one in screen.range(work.bounds):
        if isinstance(one, int):
            documents += one
            continue
        documents += 1
        suspects.append(one)
        if len(suspects) == _SUSPECTS:
            yield Suspected(work.number, tuple(suspects))
            suspects.clear()
    if suspects:
        yield Suspected(work.number, tuple(suspects))
    yield Advanced(work.number, documents, 0, screen.read)


def _work(job: Job, tasks: Any, results: Any) -> None:
    """A worker's life: until it is told to end, or its parent has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    parent = multiprocessing.parent_process()

    def lives() -> bool:
        return parent is None or parent.is_alive()

    def tell(message: Message) -> None:
        while lives():
            try:
                results.put(message, timeout=_LOOK)
            except queue.Full:
                continue
            return
        raise SystemExit(1)

    clients = job.clients(None if job.screen else _SILENCE_MS)
    try:
        while lives():
            try:
                work = tasks.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if work is None:
                return
            does = _screened if job.screen else _compared
            for message in does(job, clients, work, lambda words: tell(Said(words))):
                tell(message)
            tell(Finished(work.number))
    except VerifierError as error:
        tell(Failed(str(error), isinstance(error, ServerLost)))


class Workers:
    """Running processes; `messages` is what they say until all work is done."""

    def __init__(self, processes: list[BaseProcess], tasks: Any, results: Any) -> None:
        self._processes, self._tasks, self._results = processes, tasks, results

    def message(self, timeout: float) -> Message | None:
        """What a worker says next; None when nobody says anything for `timeout` seconds.

        Raises `ServerLost` or `VerifierError` when a worker cannot go on, `WorkerDied` when one has gone.
        """
        try:
            found: Message = self._results.get(timeout=timeout)
        except queue.Empty:
            for process in self._processes:
                if process.exitcode:
                    raise WorkerDied(
                        f"a worker process ended with status {process.exitcode}: was it killed, or is memory short?"
                    ) from None
            return None
        if isinstance(found, Failed):
            raise (ServerLost if found.lost else VerifierError)(found.words)
        return found


@contextmanager
def running(job: Job, work: Iterable[Range], processes: int) -> Iterator[Workers]:
    """So many processes that share out this work; ended at the end, whatever happens."""
    context = multiprocessing.get_context("spawn")  # a MongoClient does not survive a fork
    tasks, results = context.Queue(), context.Queue(_QUEUED)
    started = [context.Process(target=_work, args=(job, tasks, results), daemon=True) for _ in range(processes)]
    for one in (*work, *(None for _ in started)):
        tasks.put(one)
    try:
        for process in started:
            process.start()
        yield Workers(list(started), tasks, results)
    finally:
        for process in started:
            if process.is_alive():
                process.terminate()
            if process.pid is not None:
                process.join(10)
        for queued in (tasks, results):
            queued.cancel_join_thread()
            queued.close()
