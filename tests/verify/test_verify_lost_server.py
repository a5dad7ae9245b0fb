"""A verification whose server goes away, or that is interrupted: late, never wrong; and how much memory it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bson
import psutil
import pytest
from pymongo import MongoClient

from tests.support import control, raw
from tests.support.corpus import large
from tests.support.mongod import MongodSizes, start_replica_set
from towpath import stack
from towpath_verifier import Options, Pair, Progress, Recheck, ServerLost, Verification, WorkerDied, started_ahead

pytestmark = pytest.mark.servers

PAIR = Pair("v.c", "v.c")
RECHECK = Recheck(first=0.1, tries=2)
DOCUMENTS, RANGES = 20_000, 20
AWAY = 2  # seconds
_MANY = 400  # ranges: of more than 64, whose messages nothing takes, workers wait with the next


@dataclass(frozen=True, slots=True)
class Sets:
    """Two replica sets; the destination's can be killed and started."""

    source: str
    destination: str
    directory: Path

    def returned(self) -> int:
        """How many documents the source has returned so far."""
        with MongoClient[dict[str, Any]](self.source) as client:
            return int(client.admin.command("serverStatus")["metrics"]["document"]["returned"])

    def wait_until_workers_wait(self, before: int) -> None:
        """Until the workers have read what may wait in their queue, and read no more; before: what `returned` was."""
        count = self.returned()
        risen_at, end = time.monotonic(), time.monotonic() + 30
        while count < before + 1_000 or time.monotonic() < risen_at + 0.5:
            assert time.monotonic() < end, f"the workers have read {count - before} documents"
            time.sleep(0.1)
            last, count = count, self.returned()
            if count > last:
                risen_at = time.monotonic()

    def kill(self) -> None:
        control.kill(self.directory, "rs0-0")

    def start(self) -> None:
        control.start(self.directory, "rs0-0")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sets]:
    place = tmp_path_factory.mktemp("sets")
    sizes = MongodSizes(0.25, 256)
    with start_replica_set(place / "one", sizes=sizes) as one, start_replica_set(place / "two", sizes=sizes) as two:
        try:
            yield Sets(one.uri, two.uri, place / "two")
        finally:
            stack.down(place / "two")  # what a test has started again


@pytest.fixture(scope="module")
def filled(sets: Sets) -> Sets:
    """20,000 documents of 1 KB on both sides; one is damaged. No test changes any."""
    for uri in (sets.source, sets.destination):
        with MongoClient[dict[str, Any]](uri) as client:
            client.drop_database("v")
            client.v.c.insert_many([{"_id": number, "body": "x" * 1000} for number in range(DOCUMENTS)])
    with MongoClient[dict[str, Any]](sets.destination) as client:
        client.v.c.update_one({"_id": 19_000}, {"$set": {"body": "y"}})
        client.admin.command("fsync")
    return sets


def verification(
    sets: Sets, journal: Path, tell: Callable[[Progress], None], ranges: int = RANGES, **options: Any
) -> Verification:
    chosen = Options(2, RECHECK, range_bytes=1_020 * DOCUMENTS // ranges, journal=journal, **options)
    return Verification(sets.source, sets.destination, [PAIR], chosen, tell=tell, say=print)


def once(documents: int, act: Callable[[], None]) -> Callable[[Progress], None]:
    """Something to tell progress to that acts when so many documents are compared."""
    done: list[int] = []

    def tell(progress: Progress) -> None:
        if not done and progress.documents >= documents:
            done.append(progress.documents)
            act()

    return tell


@pytest.mark.nightly
def test_a_server_that_is_killed_and_comes_back_delays_a_right_verdict(filled: Sets, tmp_path: Path) -> None:
    killed: list[float] = []
    before = filled.returned()

    def die_and_come_back() -> None:
        filled.wait_until_workers_wait(before)
        filled.kill()
        killed.append(time.monotonic())
        threading.Thread(target=lambda: (time.sleep(AWAY), filled.start())).start()

    run = verification(filled, tmp_path / "journal", once(0, die_and_come_back), _MANY)
    found = [(one.kind, bson.decode(one.id)["_id"]) for one in run]
    assert found == [("different", 19_000)]
    assert run.verdict.compared == DOCUMENTS
    assert not run.verdict.errors
    assert time.monotonic() - killed[0] > AWAY  # most was read after it had come back


@pytest.mark.nightly
def test_a_run_that_lost_a_server_for_good_goes_on_where_it_was(filled: Sets, tmp_path: Path) -> None:
    journal, before = tmp_path / "journal", filled.returned()

    def kill_amid() -> None:
        filled.wait_until_workers_wait(before)
        filled.kill()

    run = verification(filled, journal, once(1, kill_amid), _MANY, lost_for=0.5)
    try:
        with pytest.raises(ServerLost, match=r"cannot (compare v\.c with|read documents of) v\.c"):
            list(run)
    finally:
        filled.start()
    ended = sum(line.startswith('{"range"') for line in journal.read_text().splitlines())
    assert ended > 0

    before, resumed_at = filled.returned(), time.time()
    run = verification(filled, journal, lambda progress: None, _MANY, resume=True)
    found = [(one.kind, bson.decode(one.id)["_id"]) for one in run]
    returned = filled.returned() - before
    assert found == [("different", 19_000)]
    assert run.verdict.compared == DOCUMENTS
    assert run.verdict.since < resumed_at, "it is as old as its oldest range"
    assert returned < DOCUMENTS * (_MANY - ended + 1) / _MANY + 100, "ranges that were done were read again"
    assert not journal.exists(), "nothing is left to continue with"


def forking() -> list[psutil.Process]:
    """The processes that fork workers. Other children of this one may have ended, and wait to be asked for."""
    return [
        child
        for child in psutil.Process().children()
        if "--multiprocessing-fork" in (child.as_dict(["cmdline"])["cmdline"] or ())
    ]


def workers() -> list[psutil.Process]:
    """The processes that compare: forked by one that is started."""
    return [worker for child in psutil.Process().children() for worker in child.children()]


def working() -> list[psutil.Process]:
    """The workers, as soon as there are any."""
    end = time.monotonic() + 10
    while not (found := workers()):
        assert time.monotonic() < end, "no worker was forked"
    return found


def test_a_worker_that_is_killed_ends_the_run(filled: Sets, tmp_path: Path) -> None:
    with pytest.raises(WorkerDied, match=r"ended with status 137: was it killed"):
        list(verification(filled, tmp_path / "journal", once(0, lambda: working()[0].kill()), _MANY))
    gone(*workers())


def test_workers_end_with_a_run_that_is_given_up(filled: Sets, tmp_path: Path) -> None:
    started: list[psutil.Process] = []

    def interrupt() -> None:
        started.extend(working())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(verification(filled, tmp_path / "journal", once(0, interrupt), _MANY))
    assert started
    gone(*started)


@pytest.mark.nightly
def test_workers_that_were_started_ahead_are_used_once_and_end(filled: Sets, tmp_path: Path) -> None:
    with started_ahead():
        (ahead,) = forking()
        forked_by: list[int] = []
        run = verification(filled, tmp_path / "journal", once(0, lambda: forked_by.append(working()[0].ppid())), _MANY)
        assert len(list(run)) == 1
        assert forked_by == [ahead.pid]
        gone(ahead)
        assert len(list(verification(filled, tmp_path / "journal", lambda progress: None))) == 1
    with started_ahead():
        (unused,) = forking()
    gone(unused)


def gone(*processes: psutil.Process) -> None:
    assert psutil.wait_procs(processes, timeout=10)[1] == []


def peak(pid: int) -> int:
    """The most memory that a process has ever had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


@pytest.mark.nightly
def test_documents_of_16_mb_leave_a_worker_under_300_mb(sets: Sets, tmp_path: Path) -> None:
    for uri in (sets.source, sets.destination):
        with MongoClient[dict[str, Any]](uri) as client:
            client.drop_database("v")
            client.v.c.insert_many([{"_id": number, "body": "x" * 1000} for number in range(3_000)])
            for number in range(8):
                raw.insert(client.v.c, large(f"large {number}"))
    with MongoClient[dict[str, Any]](sets.destination) as client:
        client.v.c.update_one({"_id": "large 5"}, {"$set": {"n": 2}})
    most = [0]

    def measure(progress: Progress) -> None:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess, OSError):
                most[0] = max(most[0], peak(child.pid) if child.name().startswith("python") else 0)

    watching = threading.Event()

    def watch() -> None:
        while not watching.wait(0.05):
            measure(Progress(0, 0, 0, 0, 0, 0))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    run = verification(sets, tmp_path / "journal", measure)
    found = [(one.kind, bson.decode(one.id)["_id"]) for one in run]
    watching.set()
    thread.join()
    assert found == [("different", "large 5")]
    assert run.verdict.compared == 3_008
    print(f"a worker took {most[0] >> 20} MB at most")
    assert 20 << 20 < most[0] < 300 << 20
