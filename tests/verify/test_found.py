"""A difference that was proven keeps the gate red, on every machine, until it is repaired or all is compared again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import bson
import click
import pytest

from tests.checks.test_check_judgements import PIPELINE as PLAIN
from tests.support import verdicts as memory
from tests.support.sessions import FakeCluster, session_of
from tests.verify.test_verdict_standing import NOW, gate_of
from towpath.cli import repair
from towpath.config.events import as_line
from towpath.cutover import takeover
from towpath.errors import KafkaUnreachable, MongoUnreachable, Refused
from towpath.log.changed_keys import Unread
from towpath.monitor import pages
from towpath.monitor.dashboard import Short
from towpath.run.report import unknown
from towpath.session import Session, unsaid
from towpath.store import state_files, verdict_file
from towpath.store import verdict as stored
from towpath.store.verdict_file import FollowState
from towpath.verify import follower, recent, run
from towpath.verify import repair as rereads
from towpath.verify import verdict as verdicts
from towpath.verify.repair import DocumentRef
from towpath.verify.run import VerifyRequest
from towpath.verify.verdict import VerdictContext, Verification
from towpath_verifier import Difference, Journal, Options, Pair, Same, Tally, Verdict, id_key

PIPELINE = PLAIN.changed(name="shop", mode="exactly-once", collections={"include": ["shop.*"]})


def missing(number: int) -> Difference:
    id = bson.encode({"_id": number})
    return Difference("shop.orders", id, bson.encode({"_id": number, "n": 1}), None)


class Compared:
    """A verification that finds these differences, and calls those that are functions."""

    def __init__(self, found: Sequence[Difference | Callable[[], object]], since: float) -> None:
        tally = Tally(Pair("shop.orders", "shop.orders"))
        self.found, self.tally, self.verdict = found, tally, Verdict([tally], since=since)

    def __iter__(self) -> Iterator[Difference]:
        for each in self.found:
            if isinstance(each, Difference):
                self.tally.kinds[each.kind] += 1
                yield each
            else:
                each()


class Machines:
    """Machines that verify one pipeline; each has its own state."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch, self.said = folder, monkeypatch, list[str]()
        self.destination = memory.destination(monkeypatch)
        monkeypatch.setattr(verdicts, "try_origin", lambda *_, **__: (NOW, ""))
        monkeypatch.setattr(recent, "try_origin", lambda *_, **__: (NOW, ""))
        self.use("a")

    def use(self, machine: str) -> None:
        self.patch.setenv("XDG_STATE_HOME", str(self.folder / machine))

    @property
    def session(self) -> Session:
        return session_of(PIPELINE, say=self.said.append, destination=self.destination)

    def verify(
        self,
        *found: Difference | Callable[[], object],
        only: Sequence[str] = (),
        since: float = 0.0,
        journal: Path | None = None,
        resume: bool = False,
        lag: float | None = None,
    ) -> None:
        """What `towpath verify` does when it finds this."""
        self.tick()
        compared = Compared(found, since or time.time())

        def verification(source: str, destination: str, pairs: object, options: Options, **_: Any) -> Compared:
            if journal and not resume:
                Journal(journal).begin({"origin": options.origin}, compared.verdict.since, [])
            return compared

        self.patch.setattr(run, "Verification", verification)
        self.patch.setattr(run, "asking", lambda *_, **__: nullcontext())
        self.patch.setattr(run, "_lag", lambda session: lag)
        request, options = VerifyRequest(lag is None, only=only), Options(journal=journal, resume=resume)
        run.run(self.session, [], options, request, lambda progress: None, lambda event: None)
        self.tick()

    def repaired(self, *found: Difference) -> None:
        """What `towpath repair` does when it has repaired these."""
        files = repair._verdict_files(PIPELINE)
        ids = {place: verdict_file.counts(place).get("id") for place in files}
        repair._remove(self.session, ids, {(one.namespace, id_key(one.id)) for one in found})

    @staticmethod
    def tick() -> None:
        time.sleep(0.002)  # times are stored in milliseconds

    @property
    def known(self) -> Verification:
        return Verification.of("shop", VerdictContext.read(self.session))

    @property
    def gate(self) -> tuple[bool, str, str]:
        return gate_of(self.known)


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path, monkeypatch)


def interrupted() -> None:
    raise KeyboardInterrupt


ORDERS, CUSTOMERS = ("shop.orders",), ("shop.customers",)


@pytest.mark.parametrize(
    ("ahead", "is_late", "is_green"), [(0, 0, True), (5_400, 5_400, True), (-5_400, 0, True), (9_000, 9_000, False)]
)
def test_what_a_verdict_proves_begins_by_the_destination_s_clock(
    machines: Machines, ahead: float, is_late: float, is_green: bool
) -> None:
    """A fail back compares only what changed since: a machine ahead by hours would leave out what changed in these."""
    machines.destination.client().ahead_s = ahead
    before = time.time()
    machines.verify(since=before - 60)
    since = machines.known.proven_since
    assert since is not None and abs(since - (before - 60 - is_late)) < 5
    assert machines.gate[0] is is_green


def test_what_a_verdict_proves_begins_before_what_the_destination_lacked_then(
    machines: Machines, tmp_path: Path
) -> None:
    """An insert and a delete that the sink had before it: both sides were equal."""
    before, journal = time.time(), tmp_path / "journal"
    for machine in ("a", "b"):
        machines.use(machine)
        machines.verify(since=before - 60, lag=7_200.0, journal=journal)
        since = machines.known.proven_since
        assert since is not None and abs(since - (before - 7_260)) < 5
    machines.verify(since=before - 50, lag=1.0, journal=journal, resume=True)
    since = machines.known.proven_since
    assert since is not None and abs(since - (before - 7_250)) < 5, "the first part of the run was then"
    machines.verify(since=before - 40, lag=0.0)
    since = machines.known.proven_since
    assert since is not None and abs(since - (before - 40)) < 5


def test_a_verdict_of_an_unknown_lag_does_not_count(machines: Machines) -> None:
    def fail(session: Session) -> float:
        raise KafkaUnreachable("no broker answers")

    machines.verify(lag=0.0)
    machines.patch.setattr(run, "Verification", lambda *_, **__: Compared([], time.time()))
    machines.patch.setattr(run, "_lag", fail)
    run.run(machines.session, [], Options(), VerifyRequest(False), lambda progress: None, lambda event: None)
    assert "its deployment is not known: no broker answers" in machines.said[-1]
    assert not machines.gate[0]


def test_a_later_verdict_on_another_part_does_not_hide_a_difference(machines: Machines) -> None:
    machines.verify()
    assert machines.gate[0]
    machines.verify(missing(1), only=ORDERS)
    assert (machines.gate[0], machines.gate[2]) == (False, "towpath repair shop.toml")
    machines.verify(only=CUSTOMERS)
    good, words, advice = machines.gate
    assert not good and "differences were found at 2" in words and advice == "towpath verify shop.toml"
    known = machines.known.reported
    assert known.full and (known.full.clean, known.full.shown) == (False, "differences since")
    assert [differs for _, differs in known.lines()] == [True, False, True]
    report = replace(unknown(machines.session), verification=known)
    assert Short.of(report).verdict == "differences since"
    page = pages.sections({"p": report, "events": [], "commands": [], "dry_run": None})["verification"]
    assert '<span class="badge bad">differences since</span>' in page and "Differences were found at 2" in page
    machines.verify()
    assert machines.gate[0] and not machines.known.found
    assert machines.known.full == machines.known.last


@pytest.mark.parametrize("on", ["a", "b"])
def test_what_one_machine_found_is_known_on_all(machines: Machines, on: str) -> None:
    machines.verify()
    machines.use(on)
    machines.verify(missing(1), only=ORDERS)
    machines.use("c")
    assert not machines.gate[0]
    loss: Any = SimpleNamespace(session=machines.session)
    [finding] = takeover._verified(loss)
    assert finding.level == "warning" and "differences were found" in finding.finding
    machines.use(on)
    machines.repaired(missing(1))
    machines.use("c")
    assert machines.gate[0]
    assert [finding.level for finding in takeover._verified(loss)] == ["ok"]


def test_a_run_that_was_killed_has_also_proven_its_difference(machines: Machines) -> None:
    machines.verify()
    with pytest.raises(KeyboardInterrupt):
        machines.verify(missing(1), interrupted)
    assert not machines.gate[0] and not machines.known.left
    machines.verify()
    assert machines.gate[0]


@pytest.mark.parametrize("earlier_is_clean", [True, False])
def test_of_two_runs_at_once_a_difference_counts_whoever_ends_last(machines: Machines, earlier_is_clean: bool) -> None:
    now = time.time()
    found = [(), (missing(1),)]
    first, second = found if earlier_is_clean else reversed(found)

    def other() -> None:
        machines.use("b")
        machines.verify(*second, since=now - 10)
        machines.use("a")

    machines.verify(other, *first, since=now - 20)
    assert not machines.gate[0]
    machines.use("c")
    assert not machines.gate[0]
    machines.verify()
    assert machines.gate[0]


def test_of_two_runs_at_once_the_one_that_began_later_stays(machines: Machines) -> None:
    now, newer = time.time(), list[str]()

    def other() -> None:
        machines.use("b")
        machines.verify(since=now - 10)
        assert machines.known.full
        newer.append(machines.known.full.id)
        machines.use("a")

    machines.verify(other, since=now - 20)
    for machine in ("a", "b", "c"):
        machines.use(machine)
        assert machines.known.full and [machines.known.full.id] == newer


def test_a_difference_that_was_found_during_a_clean_run_is_not_resolved_by_it(machines: Machines) -> None:
    machines.verify(lambda: stored.note_found(cast(Any, machines.destination.client()), PIPELINE, "other"))
    assert not machines.gate[0]


def test_only_a_verdict_of_all_bytes_resolves(machines: Machines) -> None:
    machines.verify(missing(1), only=ORDERS)
    full: Any = machines.destination.client()
    weak = {"since": "9", "verdict": "same, field order ignored", "clean": True, "id": "1", "origin": None}
    before = stored.before(full, PIPELINE)
    stored.write(full, PIPELINE, weak, before)
    assert stored.read(full, PIPELINE)[1]
    stored.write(full, PIPELINE, weak | {"verdict": "same"}, before)
    assert not stored.read(full, PIPELINE)[1]


def test_what_the_verdict_on_everything_says_is_said_once(machines: Machines) -> None:
    machines.verify(missing(1))
    assert machines.known.found and len(list(machines.known.lines())) == 1
    machines.repaired(missing(1))
    assert machines.known.reported.full and machines.known.reported.full.shown == "repaired since"


def test_a_repair_resolves_once_nothing_is_left(machines: Machines) -> None:
    machines.verify()
    machines.verify(missing(1), missing(2), only=ORDERS)
    machines.repaired(missing(1))
    assert not machines.gate[0]
    machines.repaired(missing(2))
    assert machines.gate[0]


def test_a_repair_removes_nothing_from_a_verdict_that_came_meanwhile(machines: Machines) -> None:
    machines.verify()
    machines.verify(missing(1), only=ORDERS)
    files = repair._verdict_files(PIPELINE)
    ids = {place: verdict_file.counts(place).get("id") for place in files}
    machines.verify(missing(1), only=ORDERS)
    repair._remove(machines.session, ids, {(one.namespace, id_key(one.id)) for one in [missing(1)]})
    assert (machines.known.left, machines.gate[0]) == (1, False)
    machines.repaired(missing(1))
    good, words, advice = machines.gate
    assert not good and "were found" in words, "of the first one, which was replaced, nothing tells what was repaired"
    assert advice == "towpath verify shop.toml"


def test_what_a_cutover_finds_is_known(machines: Machines) -> None:
    machines.verify()
    compared: Any = Compared([missing(1)], time.time())
    with pytest.raises(recent.DocumentsDiffer):
        recent.require_same(machines.session, compared, "the newest records")
    assert not machines.gate[0]
    machines.use("b")
    assert not machines.gate[0]
    machines.use("a")
    machines.repaired(missing(1))
    assert machines.gate[0]


def test_a_destination_that_cannot_be_written_leaves_it_on_this_machine(machines: Machines) -> None:
    machines.verify()
    away, machines.destination = machines.destination, FakeCluster(error=MongoUnreachable("no answer"))
    compared: Any = Compared([missing(1)], time.time())
    with pytest.raises(recent.DocumentsDiffer):
        recent.require_same(machines.session, compared, "the newest records")
    assert "differences were found, which is known on this machine only" in machines.said[0]
    machines.destination = away
    assert (machines.known.left, machines.known.found, machines.gate[0]) == (1, "", False)


def test_another_history_forgets_what_was_found_in_the_one_before(machines: Machines) -> None:
    machines.verify(missing(1), only=ORDERS)
    client: Any = machines.destination.client()
    stored.begin_history(client, PIPELINE, "a rebuild began")
    assert stored.read(client, PIPELINE) == (None, "")


# verify --follow


@pytest.fixture
def following(machines: Machines) -> Callable[..., follower._Follower]:
    def make(*known: Difference, began: str = "began") -> follower._Follower:
        log: Any = SimpleNamespace(records=0, places={}, unread=lambda: Unread(0, 0.0))
        state = FollowState(began, "everything", False, True, NOW.as_json(), time.time(), {}, ())
        it = follower._Follower(machines.session, log, cast(Any, ()), lambda difference: None, state)
        for difference in known:
            it._know(("shop.orders", id_key(difference.id)), verdict_file.difference(difference, "shop.orders"))
        return it

    machines.verify()
    return make


def saved(it: follower._Follower) -> None:
    Machines.tick()
    it.saved = float("-inf")
    it._save(following=True)


def test_what_one_that_follows_finds_is_known_on_all_machines_until_it_is_gone(
    machines: Machines, following: Callable[..., follower._Follower]
) -> None:
    it, found = following(), missing(1)
    saved(it)
    assert machines.gate[0]
    it._resolved(found)
    saved(it)
    machines.use("b")
    assert not machines.gate[0]
    machines.verify()
    assert machines.gate[0], "all was compared since"
    machines.use("a")
    it._resolved(found)  # it is compared again every 30 s
    saved(it)
    machines.use("b")
    assert not machines.gate[0], "it differs again"
    machines.use("a")
    it._resolved(Same("shop.orders", found.id))
    saved(it)
    assert machines.gate[0]
    machines.use("b")
    assert machines.gate[0]


def test_one_that_follows_another_part_does_not_hide_what_the_last_one_found(
    machines: Machines, following: Callable[..., follower._Follower]
) -> None:
    saved(following(missing(1)))
    assert not machines.gate[0]
    saved(following(began="another"))
    assert (machines.known.left, machines.gate[0]) == (0, False)


@pytest.mark.parametrize("runs", [True, False])
def test_a_repair_leaves_what_one_that_runs_has_found_to_it(
    machines: Machines, following: Callable[..., follower._Follower], runs: bool
) -> None:
    machines.verify(missing(1), only=ORDERS)
    began = verdict_file.counts(verdict_file.path("shop"))["id"]
    it = following(missing(1), began=began)
    saved(it)
    if runs:
        with state_files.locked(state_files.lock("shop", state_files.FOLLOW)):
            machines.repaired(missing(1))
        assert not machines.gate[0]
        it._resolved(Same("shop.orders", missing(1).id))
        saved(it)
    else:
        machines.repaired(missing(1))
    assert machines.gate[0]


def test_one_that_continues_resolves_what_a_killed_one_could_not_store(
    machines: Machines, following: Callable[..., follower._Follower]
) -> None:
    saved(following(missing(1)))
    saved(following())
    assert machines.gate[0]


def test_a_difference_that_is_compared_again_stays_one(following: Callable[..., follower._Follower]) -> None:
    it = following(missing(1))
    it.waiting = {("shop.orders", id_key(one.key)): one.key for one in it.known.values()} | {("shop.orders", b"2"): b""}
    now = it.verdict(following=True)
    assert (now.missing, now.waiting) == (1, 1)


def test_one_that_reads_no_more_still_sees_how_far_it_is_behind(
    following: Callable[..., follower._Follower],
) -> None:
    class Full:
        def __len__(self) -> int:
            return follower._MAX_WAITING

        def pause(self) -> None:
            return None

    it, read = following(), list[str]()
    log: Any = it.log
    log.failure, log.take, log.refresh = "", lambda *_: read.append("records"), lambda: read.append("ends")
    it.rereads, it.recheck_at = cast(Any, Full()), float("inf")
    it.turn()
    assert read == ["ends"]


ELSEWHERE = replace(NOW, sets=NOW.sets | {"destination": "other/z:1"})


def test_a_verdict_of_other_clusters_is_not_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pipelines of one user may have the same name; what one has found says nothing about the other."""
    monkeypatch.setattr(state_files, "folder", lambda name: tmp_path)
    said = list[str]()
    here: Session = session_of(PIPELINE, say=said.append)
    with verdict_file.writing("shop") as file:
        file.write(as_line({"id": "a", "clean": True, "origin": NOW.as_json()}))
    last, followed = verdict_file.path("shop"), verdict_file.followed_path("shop")
    monkeypatch.setattr(rereads, "try_origin", lambda session: (NOW, ""))
    assert rereads.of_these_clusters(here, repair._verdict_files(PIPELINE)) == {last: "a"}
    for origin, ids in ((NOW, {last: "a", followed: "b"}), (ELSEWHERE, {last: "a"})):
        state = FollowState("b", "everything", False, True, origin.as_json(), time.time(), {}, ())
        counts = dict.fromkeys(verdict_file.KINDS, 0) | {"clean": False}
        verdict_file.write_followed("shop", state, [verdict_file.difference(missing(7), "shop.orders")], counts)
        assert not said
        assert rereads.of_these_clusters(here, repair._verdict_files(PIPELINE)) == ids
    assert "is not of this pipeline: the destination was other/z:1" in said[0]
    monkeypatch.setattr(rereads, "try_origin", lambda session: (ELSEWHERE, ""))
    with pytest.raises(Refused, match=r"is not of this pipeline: the destination was .*, and is other/z:1; run"):
        rereads.of_these_clusters(here, repair._verdict_files(PIPELINE))


def test_what_is_repaired_is_what_was_confirmed(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what another verdict has found while it asked."""
    repaired = list[Any]()
    extra = [Difference("shop.orders", one.id, None, one.id) for one in map(missing, (1, 2, 3))]
    machines.verify(extra[0])

    def repairs(session: Session, documents: Iterable[DocumentRef], *_: Any) -> Iterator[Any]:
        repaired.extend(document.id for document in documents)
        return iter(())

    monkeypatch.setattr(repair, "opened", lambda file: nullcontext(machines.session))
    for name in ("reread_requests", "target", "cutovers"):
        does_not = dict.fromkeys(("refuse_unable", "require_own", "refuse"), unsaid)
        monkeypatch.setattr(repair, name, SimpleNamespace(**does_not))
    monkeypatch.setattr(rereads, "try_origin", lambda session: (NOW, ""))
    monkeypatch.setattr(click, "confirm", lambda *_, **__: machines.verify(*extra[1:]))
    monkeypatch.setattr(repair, "passing", lambda session: nullcontext())
    monkeypatch.setattr(repair.unreplicated, "lines", lambda session: ())
    monkeypatch.setattr(repair.unreplicated, "gone", lambda session, names: frozenset())
    monkeypatch.setattr(rereads, "extra_now", lambda session, documents: documents)
    monkeypatch.setattr(rereads, "repair", repairs)
    repair.repair.main(["shop.toml"], standalone_mode=False)
    assert repaired == [extra[0].id]


# clocks


def test_a_verdict_of_the_future_is_replaced_by_a_later_one(machines: Machines) -> None:
    machines.use("fast")
    machines.verify(since=time.time() + 86_400)
    machines.use("a")
    good, words, _ = machines.gate
    assert not good and "in the future" in words
    machines.verify()
    for machine in ("a", "fast"):
        machines.use(machine)
        assert machines.gate[0], "which of both is newer is known, whatever the clock of one says"


@pytest.mark.parametrize("seconds", [-60, 60])
def test_a_clean_run_removes_what_was_found_before_it_began_whatever_the_clocks_say(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    class Other(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=seconds)

    def found_elsewhere() -> None:
        machines.use("b")
        with monkeypatch.context() as patch:
            patch.setattr(stored, "datetime", Other)
            machines.verify(missing(1), only=ORDERS)
        machines.use("a")

    machines.verify(found_elsewhere)
    assert not machines.gate[0], "it was found after that run began"
    machines.verify()
    assert machines.gate[0], "it was found before"


def test_a_difference_that_is_found_again_during_a_clean_run_stays_if_the_clock_was_set_back(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Corrected(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) - timedelta(seconds=60)

    machines.verify(missing(1), only=ORDERS)
    (id,) = machines.destination.client().find_one({"_id": "shop"})["found"]  # type: ignore[attr-defined]

    def found_again() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(stored, "datetime", Corrected)
            verdicts.note_found(machines.session, id)

    machines.use("b")
    machines.verify(found_again)
    assert not machines.gate[0], "it was found after that run began"
    machines.verify()
    assert machines.gate[0]


def test_a_run_that_is_resumed_removes_what_was_found_before_its_first_part(machines: Machines) -> None:
    machines.verify(missing(1), only=ORDERS)
    journal = machines.folder / "journal"
    with pytest.raises(KeyboardInterrupt):
        machines.verify(interrupted, journal=journal)
    machines.verify(missing(2), only=CUSTOMERS)
    before = machines.destination.client().find_one({"_id": "shop"})["found"]  # type: ignore[attr-defined]
    machines.verify(journal=journal, resume=True)
    left = machines.destination.client().find_one({"_id": "shop"})["found"]  # type: ignore[attr-defined]
    assert len(before) == 2 and list(left) == list(before)[1:]
