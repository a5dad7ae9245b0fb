"""What guards the verdict of a run, without servers: nothing is called the same that was not compared and equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bson.timestamp import Timestamp
from pymongo.errors import AutoReconnect, OperationFailure

from tests.support import bsonbytes as b
from towpath_verifier import (
    Difference,
    Journal,
    Options,
    Pair,
    Rereads,
    Same,
    ServerLost,
    Tally,
    Unresolved,
    Unsuitable,
    Verdict,
    VerifierError,
    id_key,
    plan,
    proof,
    token_time,
    verification,
    workers,
)
from towpath_verifier.plan import ListedPair, Plan
from towpath_verifier.progress import Compared, Range
from towpath_verifier.reads import Bounds, Size
from towpath_verifier.verification import RangeStates, Watch
from towpath_verifier.workers import Finished, Job, Report

PAIR = Pair("v.c", "w.c")
ONE, TWO = (b.document(("_id", b.int32(number))) for number in (1, 2))
WORK = Range(3, PAIR, Bounds(), 10)


@pytest.mark.parametrize(
    ("tally", "verdict", "clean"),
    [
        (Tally(PAIR), "same", True),
        (Tally(PAIR, "hashed"), "same", True),
        (Tally(PAIR, "unordered"), "same, field order ignored", True),
        (Tally(PAIR, "screened"), "screened", True),
        (Tally(PAIR, unresolved=1), "no verdict", False),
        (Tally(PAIR, errors=["it is a view"]), "no verdict", False),
    ],
)
def test_a_namespace_is_the_same_only_without_differences_and_doubts(tally: Tally, verdict: str, clean: bool) -> None:
    assert tally.verdict == verdict
    assert Verdict([Tally(PAIR), tally]).clean is clean


@pytest.mark.parametrize("kind", ["missing", "extra", "different", "order"])
def test_one_difference_of_any_kind_is_not_the_same(kind: Any) -> None:
    tally = Tally(PAIR, "screened", unresolved=1)
    tally.kinds[kind] += 1
    assert tally.verdict == "not the same"
    verdict = Verdict([tally, Tally(PAIR)])
    assert (verdict.clean, verdict.differences, verdict.total(kind)) == (False, 1, 1)
    assert verdict.errors == ["1 documents of v.c could not be judged"]


class FakeRereads:
    """Stands for `Rereads`: gives the outcomes that a test sets."""

    def __init__(self) -> None:
        self.added: list[tuple[bytes, int]] = []
        self.outcomes: list[tuple[int, Any]] = []

    def add(self, pair: Pair, ids: Any, owner: int = 0) -> None:
        self.added += [(id, owner) for id in ids]

    def step(self) -> list[tuple[int, Any]]:
        taken, self.outcomes = self.outcomes, []
        return taken


def states(
    tmp_path: Path, begun: Plan, repeatable: tuple[Pair, ...] = ()
) -> tuple[RangeStates, FakeRereads, Tally, Journal]:
    tally, rereads, journal = Tally(PAIR), FakeRereads(), Journal(tmp_path / "journal")
    journal.begin({}, 1.0, begun.ranges)
    found = RangeStates({PAIR: tally}, cast(Rereads, rereads), journal, lambda words: None, repeatable)
    found.begin(begun)
    return found, rereads, tally, journal


def finished(journal: Journal) -> dict[int, Compared]:
    return (journal.read({}) or (0, [], {}))[2]


def test_a_range_is_finished_once_all_that_differed_in_it_has_an_outcome(tmp_path: Path) -> None:
    ranges, rereads, tally, journal = states(tmp_path, Plan([WORK], expected={PAIR: 7}))
    ranges.take(Report(3, 10, 220, (ONE, TWO)))
    ranges.take(Report(3, 5, 110, ()))
    ranges.take(Finished(3))
    assert (tally.documents, tally.read, tally.expected) == (15, 330, 7)
    assert rereads.added == [(ONE, 3), (TWO, 3)]
    rereads.outcomes = [(3, Same("v.c", ONE))]
    assert list(ranges.resolved()) == []
    assert finished(journal) == {}
    missing = Difference("v.c", TWO, TWO, None)
    rereads.outcomes = [(3, missing)]
    assert list(ranges.resolved()) == [missing]
    assert finished(journal) == {3: Compared(15, 330, [TWO])}
    assert (tally.verdict, tally.kinds["missing"], ranges.done) == ("not the same", 1, 1)


def test_a_document_that_cannot_be_judged_leaves_no_verdict_and_is_read_again_when_resumed(tmp_path: Path) -> None:
    ranges, rereads, tally, journal = states(tmp_path, Plan([WORK]))
    ranges.take(Report(3, 10, 220, (ONE,)))
    ranges.take(Finished(3))
    rereads.outcomes = [(3, Unresolved("v.c", ONE, "it keeps changing"))]
    assert list(ranges.resolved()) == []
    assert (tally.unresolved, tally.verdict) == (1, "no verdict")
    done = finished(journal)
    assert done == {3: Compared(10, 220, [ONE])}
    ranges, rereads, tally, _ = states(tmp_path, Plan([], [(WORK, done[3])]))
    assert rereads.added == [(ONE, -4)]
    assert (tally.documents, ranges.ranges, ranges.done) == (10, 1, 1)
    rereads.outcomes = [(-4, Difference("v.c", ONE, None, ONE))]
    assert [one.kind for one in ranges.resolved()] == ["extra"]


def test_a_document_that_a_collation_names_twice_counts_once(tmp_path: Path) -> None:
    ranges, rereads, tally, _ = states(tmp_path, Plan([WORK]), (PAIR,))
    ranges.take(Report(3, 2, 220, (ONE, ONE)))
    rereads.outcomes = [(3, Difference("v.c", ONE, ONE, TWO))] * 2
    assert len(list(ranges.resolved())) == 1
    assert (tally.documents, tally.kinds.total()) == (1, 1)


def entry(**fields: Any) -> dict[str, Any]:
    return {"type": "collection", "info": {"uuid": b"a"}, "options": {}} | fields


@pytest.mark.parametrize("kind", ["view", "timeseries"])
def test_what_holds_no_documents_is_not_compared(kind: str) -> None:
    assert ListedPair(PAIR, entry(), None).obstacle == ""
    assert ListedPair(PAIR, entry(type=kind), entry()).obstacle.startswith("v.c at the source is a ")
    assert ListedPair(PAIR, None, entry(type=kind)).obstacle.startswith("w.c at the destination is a ")


def test_a_collection_that_is_dropped_or_another_one_is_seen() -> None:
    before = ListedPair(PAIR, entry(), entry())
    assert before.gone(before) == []
    assert before.gone(ListedPair(PAIR, None, entry(info={"uuid": b"b"}))) == [
        "v.c was dropped at the source during the run",
        "w.c was dropped and created again at the destination during the run",
    ]
    assert ListedPair(PAIR, None, None).gone(before) == []


@pytest.mark.parametrize("side", [0, 1])
def test_a_collation_of_either_side_orders_ids_in_another_way(side: int) -> None:
    both = [entry(), entry()]
    assert ListedPair(PAIR, *both).ordered_alike
    both[side]["options"] = {"collation": {"locale": "de"}}
    assert not ListedPair(PAIR, *both).ordered_alike


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What a read of each side gives, time after time: batches, or an error."""
    found: dict[str, list[Any]] = {"source": [], "destination": []}

    def in_id_order(side: str, *_: Any) -> Iterator[bytes]:
        for batch in found[side].pop(0):
            if isinstance(batch, Exception):
                raise batch
            yield batch

    monkeypatch.setattr(workers, "in_id_order", in_id_order)
    monkeypatch.setattr(
        workers, "collection", lambda client, namespace: _Named("source" if client == 0 else "destination")
    )
    return found


class _Named(str):
    @property
    def full_name(self) -> str:
        return f"v.{self}"


def reports(work: Range, say: Callable[[str], None] = lambda words: None, lost_for: float = 5) -> list[Report]:
    job = Job("", "", ignore_field_order=False, screen=False, lost_for=lost_for)
    return list(workers._compare(job, cast(Any, (0, 1)), work, say))


def test_a_read_that_breaks_off_begins_again_and_is_reported_once(streams: dict[str, list[Any]]) -> None:
    streams["source"] += [[ONE, AutoReconnect("gone")], [ONE, TWO]]
    streams["destination"] += [[ONE], [ONE]]
    said: list[str] = []
    assert reports(WORK, said.append) == [Report(3, 2, 3 * len(ONE), (TWO,))]
    assert said == ["cannot compare v.source with v.destination: gone; trying again for 5 s"]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_server_that_stays_away_or_refuses_ends_the_range(streams: dict[str, list[Any]], ordered: bool) -> None:
    work = Range(3, PAIR, Bounds(), 10, ordered)
    streams["source"] += [[ONE, AutoReconnect("gone")]]
    streams["destination"] += [[ONE]]
    with pytest.raises(ServerLost, match=r"cannot compare v\.source with v\.destination: gone"):
        reports(work, lost_for=0)
    streams["source"] += [[ONE, OperationFailure("no right", 13)]]
    streams["destination"] += [[ONE]]
    with pytest.raises(VerifierError, match="the server refused: no right"):
        reports(work)


def test_reports_hold_all_that_was_found(streams: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_REPORT_IDS", 2)
    documents = [b.document(("_id", b.int32(number))) for number in range(5)]
    streams["source"] += [[b"".join(documents)]]
    streams["destination"] += [[]]
    found = reports(WORK)
    assert [id for report in found for id in report.differing] == documents
    assert [len(report.differing) for report in found] == [2, 2, 1]
    assert sum(report.documents for report in found) == 5
    assert sum(report.read for report in found) == len(b"".join(documents))


def test_collections_are_the_same_by_hash_only_if_both_hashes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Database:
        def __init__(self, digests: dict[str, str]) -> None:
            self._digests = digests

        def command(self, name: str, collections: list[str]) -> dict[str, Any]:
            assert name == "dbHash"
            return {"collections": {name: self._digests[name] for name in collections if name in self._digests}}

    pairs = [Pair(f"v.{name}", f"v.{name}") for name in ("same", "other", "missing", "extra", "nowhere")]
    ours = {"v": Database({"same": "1", "other": "1", "missing": "1"})}
    theirs = {"v": Database({"same": "1", "other": "2", "extra": "1"})}
    found = verification.same_by_hash(cast(Any, ours), cast(Any, theirs), pairs)
    assert [found[pair] for pair in pairs] == [True, False, False, False, True]


def test_a_write_during_a_quiet_run_leaves_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watch(cast(Any, None), ["v.a", "v.b"], "source", Timestamp(5, 0))
    monkeypatch.setattr(verification, "cluster_time", lambda client: Timestamp(9, 0))
    asked: list[Any] = []

    def written(*arguments: Any) -> set[str]:
        asked.append(arguments[1:])
        return {"v.b"}

    monkeypatch.setattr(proof, "written", lambda *arguments: set())
    watched.refuse_writes()
    monkeypatch.setattr(proof, "written", written)
    with pytest.raises(Unsuitable, match=r"v\.b was written to at the source during the run"):
        watched.refuse_writes()
    assert asked == [(["v.a", "v.b"], Timestamp(5, 0), Timestamp(9, 0))]

    def unknown(*arguments: Any) -> set[str]:
        raise proof.Unknown("the oplog is too short")

    monkeypatch.setattr(proof, "written", unknown)
    with pytest.raises(Unsuitable, match="cannot see whether anything is written"):
        watched.refuse_writes()


def token(seconds: int, increment: int = 0) -> dict[str, str]:
    return {"_data": f"82{seconds:08x}{increment:08x}2B02"}


class Stream:
    """A change stream with these events, each a cluster time; None is a look that finds nothing."""

    def __init__(self, *events: int | None) -> None:
        self._events = list(events)
        self.resume_token = token(0)

    def try_next(self) -> dict[str, Any] | None:
        seconds = self._events.pop(0)
        if seconds is None:
            self.resume_token = token(8)
            return None
        return {"clusterTime": Timestamp(seconds, 0)}


@pytest.mark.parametrize("events", [(3, 4, 5, 8, None), (4, 5, 8, 9), (5, 8, 20)])
def test_the_events_of_a_span_are_those_after_its_start_up_to_its_end(events: tuple[int | None, ...]) -> None:
    found = proof._events(cast(Any, Stream(*events)), Timestamp(4, 0), Timestamp(8, 0))
    assert [event["clusterTime"].time for event in found] == [5, 8]


def test_a_stream_that_does_not_reach_the_end_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_PATIENCE", 0.01)
    with pytest.raises(proof.Unknown, match="did not reach"):
        list(proof._events(cast(Any, Stream(*(None for _ in range(10**6)))), Timestamp(4, 0), Timestamp(99, 0)))


def test_a_token_holds_the_cluster_time() -> None:
    assert token_time(token(0x66E2_0BC5, 7)) == Timestamp(0x66E2_0BC5, 7)


def test_a_resumed_run_reads_the_ranges_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [ListedPair(PAIR, entry(), entry())]
    monkeypatch.setattr(plan, "collection", lambda client, namespace: client)
    monkeypatch.setattr(plan, "size", lambda client: client.size)
    monkeypatch.setattr(plan, "aggregated", lambda documents, stages, **how: iter([ONE, TWO]))
    source, destination = (cast(Any, SimpleNamespace(size=Size(count, count * 100))) for count in (1, 2))
    options = Options(1, range_bytes=100, journal=tmp_path / "journal")
    whole = plan.plan(source, destination, listed, options)
    assert [work.bounds for work in whole.ranges] == [Bounds(None, TWO), Bounds(TWO, None)]
    assert whole.expected == {PAIR: 2}
    assert id_key(TWO) > id_key(ONE)
    journal = Journal(tmp_path / "journal")
    journal.add(0, Compared(1, 200, [ONE]))
    again = plan.plan(source, destination, listed, Options(2, range_bytes=1, journal=options.journal, resume=True))
    assert again.ranges == whole.ranges[1:]
    assert again.finished == [(whole.ranges[0], Compared(1, 200, [ONE]))]
    assert again.since == whole.since
    for other in ({"screen": True}, {"ignore_field_order": True}, {"origin": "another"}):
        with pytest.raises(VerifierError, match="compared something else"):
            plan.plan(source, destination, listed, Options(1, journal=options.journal, resume=True, **other))  # type: ignore[arg-type]
    recreated = [ListedPair(PAIR, entry(), entry(info={"uuid": b"b"}))]
    with pytest.raises(VerifierError, match="compared something else"):
        plan.plan(source, destination, recreated, Options(1, journal=options.journal, resume=True))
    folded = [ListedPair(PAIR, entry(options={"collation": {"locale": "de"}}), entry())]
    (only,) = plan.plan(source, destination, folded, Options(1, range_bytes=1)).ranges
    assert (only.bounds, only.ordered) == (Bounds(), False)
