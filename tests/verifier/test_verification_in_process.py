"""What guards the verdict of a run, without servers: nothing is called the same that was not compared and equal."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from bson.timestamp import Timestamp
from pymongo.errors import AutoReconnect, OperationFailure

from tests.support import bsonbytes as b
from tests.support.member import Reachable
from towpath_verifier import (
    Difference,
    Journal,
    Options,
    Pair,
    Recheck,
    Rereads,
    Same,
    ServerLost,
    Tally,
    Unresolved,
    Unsuitable,
    Verdict,
    Verification,
    VerifierError,
    WorkerDied,
    id_key,
    plan,
    proof,
    token_time,
    verification,
    workers,
)
from towpath_verifier.merge import Equal, Unequal
from towpath_verifier.plan import ListedPair, Plan
from towpath_verifier.progress import Compared, Range
from towpath_verifier.reads import Bounds, Size
from towpath_verifier.verification import RangeStates, watch
from towpath_verifier.workers import Job

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

    def __len__(self) -> int:
        return len(self.added)

    @property
    def size(self) -> int:
        return sum(len(id) for id, _ in self.added)

    def pause(self) -> float | None:
        return 0.0

    def add(self, pair: Pair, ids: Any, owner: int = 0) -> None:
        assert pair == PAIR
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
    ranges.take((3, Compared(10, 220, [ONE, TWO])))
    ranges.take((3, Compared(5, 110, [])))
    ranges.take((3, None))
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
    ranges.take((3, Compared(10, 220, [ONE])))
    ranges.take((3, None))
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


def test_a_range_with_several_reports_waits_for_all_that_differed_in_any_of_them(tmp_path: Path) -> None:
    ranges, rereads, tally, journal = states(tmp_path, Plan([WORK, replace(WORK, number=4)]))
    for id in (ONE, TWO):
        ranges.take((3, Compared(1, 22, [id])))
    ranges.take((3, None))
    for _ in (1, 2):
        assert finished(journal) == {}
        rereads.outcomes = [(3, Difference("v.c", ONE, ONE, TWO))]
        assert len(list(ranges.resolved())) == 1
    assert finished(journal) == {3: Compared(2, 44, [ONE, ONE])} and ranges.done == 1
    ranges.take((4, None))
    assert (tally.kinds["different"], ranges.done, finished(journal)[4]) == (2, 2, Compared())


def test_a_few_documents_that_cannot_be_judged_are_named_and_all_are_counted(tmp_path: Path) -> None:
    said: list[str] = []
    ranges, rereads, tally, _ = states(tmp_path, Plan([WORK]))
    ranges.say = said.append
    ranges.take("the source does not answer")
    ranges.take(None)
    ranges.take((3, Compared(7, 220, [ONE] * 7)))
    rereads.outcomes = [(3, Unresolved("v.c", ONE, "it keeps changing"))] * 7
    assert list(ranges.resolved()) == []
    assert (tally.unresolved, tally.documents) == (7, 7)
    assert (
        said
        == ["the source does not answer"]
        + ["a document of v.c could not be judged: it keeps changing"] * verification._NAMED
    )


def test_a_document_that_a_collation_names_twice_counts_once(tmp_path: Path) -> None:
    ranges, rereads, tally, _ = states(tmp_path, Plan([WORK]), (PAIR,))
    ranges.take((3, Compared(5, 220, [ONE, ONE, TWO])))
    one, two = Difference("v.c", ONE, ONE, TWO), Difference("v.c", TWO, None, TWO)
    rereads.outcomes = [(3, one), (3, one), (3, two)]
    assert list(ranges.resolved()) == [one, two]
    assert (tally.documents, tally.kinds.total()) == (4, 2)


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

    def in_id_order(documents: _Named, *asked: Any) -> Iterator[bytes]:
        assert asked == ((None, None, 10, None) if documents == "source" else (None, None, 10))
        for batch in found[documents].pop(0):
            if isinstance(batch, Exception):
                raise batch
            yield batch

    monkeypatch.setattr(workers, "in_id_order", in_id_order)
    sides = {(0, "v.c"): "source", (1, "w.c"): "destination"}
    monkeypatch.setattr(workers, "collection", lambda *asked: _Named(sides[asked]))
    return found


class _Named(str):
    @property
    def full_name(self) -> str:
        return f"v.{self}"


def reports(work: Range, say: Callable[[str], None] = lambda words: None, lost_for: float = 5) -> list[Compared]:
    job = Job("", "", ignore_field_order=False, screen=False, lost_for=lost_for)
    return list(workers._compare(job, cast(Any, (0, 1)), work, say))


def test_a_read_that_breaks_off_begins_again_and_is_reported_once(streams: dict[str, list[Any]]) -> None:
    streams["source"] += [[ONE, AutoReconnect("gone")], [ONE, TWO]]
    streams["destination"] += [[ONE], [ONE]]
    said: list[str] = []
    assert reports(WORK, said.append) == [Compared(2, 3 * len(ONE), [TWO])]
    assert said == ["cannot compare v.source with v.destination: gone; trying again for 5 s"]


@pytest.mark.parametrize("ordered", [True, False])
def test_where_nothing_is_read_the_collections_have_to_be_there(
    ordered: bool, streams: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, asked = replace(WORK, ordered=ordered, uuids=("61", "61")), list[Any]()
    now = [ListedPair(PAIR, entry(), entry()), ListedPair(PAIR, entry(), None)]

    def list_pairs(*how: Any) -> list[ListedPair]:
        asked.append(how)
        return [now.pop(0)]

    monkeypatch.setattr(workers, "list_pairs", list_pairs)
    streams["source"] += [[], [ONE]]
    streams["destination"] += [[], [ONE]]
    back = reports(work)
    assert sum(part.documents for part in back) == 1 and not any(part.away for part in back), "it was away, and is back"
    streams["source"] += [[]]
    streams["destination"] += [[]]
    assert reports(work)[-1] == Compared(away=True)
    assert asked == [(0, 1, [PAIR], 5)] * 2
    for found, expected in (([ONE], work), ([], WORK)):
        streams["source"] += [found]
        streams["destination"] += [found]
        reports(expected)
    assert len(asked) == 2, "something was read, or nothing was expected"


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


def test_a_range_is_compared_within_its_bounds_in_the_way_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    work = replace(WORK, bounds=Bounds(ONE, TWO))
    fields = ("a", b.NULL), ("b", b.NULL)
    asked: list[Any] = []

    def in_id_order(documents: str, *how: Any) -> Iterator[bytes]:
        asked.append((documents, *how))
        inner = fields if documents == "v.c" else reversed(fields)
        yield b.document(("_id", b.int32(1)), *inner)

    def screen(*how: Any) -> Any:
        asked.append(how)
        return Screened([Equal(5, 0), Unequal(ONE, None, None)])

    class Screened(list[Any]):
        read = 77

    monkeypatch.setattr(workers, "in_id_order", in_id_order)
    monkeypatch.setattr(workers, "Screen", screen)
    monkeypatch.setattr(workers, "with_retries", lambda action, lost_for, read, say: read())

    def compared(**how: bool) -> list[Compared]:
        job = Job("", "", **{"ignore_field_order": False, "screen": False} | how, lost_for=5.0)
        return list(workers._compare(job, cast(Any, ("v", "w")), work, print))

    monkeypatch.setattr(
        workers, "collection", lambda client, namespace: _Named(namespace) if client == namespace[0] else None
    )
    assert [report.differing for report in compared()] == [[ONE]]
    assert [report.differing for report in compared(ignore_field_order=True)] == [[]]
    assert asked == [("v.c", ONE, TWO, 10, None), ("w.c", ONE, TWO, 10)] * 2
    asked.clear()
    assert compared(screen=True) == [Compared(6, 77, [ONE])]
    assert asked == [("v.c", "w.c", work.bounds, 5.0, print)]
    asked.clear()
    work = replace(work, pair=replace(PAIR, only={"a": 1}))
    assert [report.differing for report in compared(screen=True)] == [[ONE]]
    assert asked == [("v.c", ONE, TWO, 10, {"a": 1}), ("w.c", ONE, TWO, 10)]


@pytest.mark.parametrize("limit", ["_REPORT_BYTES", "_REPORT_ID_BYTES"])
def test_a_report_is_bounded_in_bytes(
    limit: str, streams: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, limit, 2 * len(ONE))
    documents = [b.document(("_id", b.int32(number))) for number in range(6)]
    streams["source"] += [[b"".join(documents)]]
    streams["destination"] += [[]]
    found = reports(WORK)
    assert [id for report in found for id in report.differing] == documents
    assert [report.documents for report in found] == ([2, 2, 2, 0] if limit == "_REPORT_BYTES" else [3, 3, 0])


def test_collections_are_the_same_by_hash_only_if_both_hashes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Database:
        def __init__(self, digests: dict[str, str]) -> None:
            self._digests = digests
            self.error: Exception | None = None

        def command(self, name: str, collections: list[str]) -> dict[str, Any]:
            assert name == "dbHash"
            if self.error is not None:
                raise self.error
            return {"collections": {name: self._digests[name] for name in collections if name in self._digests}}

    pairs = [Pair(f"v.{name}", f"v.{name}") for name in ("same", "other", "missing", "extra", "nowhere")]
    ours = {"v": Database({"same": "1", "other": "1", "missing": "1"})}
    theirs = {"v": Database({"same": "1", "other": "2", "extra": "1"})}
    found = verification.same_by_hash(cast(Any, ours), cast(Any, theirs), pairs)
    assert [found[pair] for pair in pairs] == [True, False, False, False, True]
    theirs["v"].error = AutoReconnect("gone")
    with pytest.raises(ServerLost, match="cannot hash collections with dbHash: gone"):
        verification.same_by_hash(cast(Any, ours), cast(Any, theirs), pairs)


def test_a_write_during_a_quiet_run_leaves_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [Timestamp(5, 0), *[Timestamp(9, 0)] * 4]
    monkeypatch.setattr(verification, "cluster_time", lambda client: times.pop(0) if client == "client" else None)
    refuse_writes = watch(cast(Any, "client"), ["v.a", "v.b"], "source", 5)
    asked: list[Any] = []

    def written(*arguments: Any) -> set[str]:
        asked.append(arguments)
        return {"v.b"}

    monkeypatch.setattr(proof, "written", lambda *arguments: set())
    refuse_writes()
    monkeypatch.setattr(proof, "written", written)
    with pytest.raises(Unsuitable, match=r"v\.b was written to at the source during the run"):
        refuse_writes()
    assert asked == [("client", ["v.a", "v.b"], Timestamp(5, 0), Timestamp(9, 0))]

    def unknown(*arguments: Any) -> set[str]:
        raise proof.Unknown("the oplog is too short")

    monkeypatch.setattr(proof, "written", unknown)
    with pytest.raises(Unsuitable, match="cannot see whether anything is written") as refused:
        refuse_writes()
    assert refused.value.where == "source"

    def away(*arguments: Any) -> set[str]:
        raise AutoReconnect("gone")

    monkeypatch.setattr(proof, "written", away)
    with pytest.raises(ServerLost, match="cannot look for writes to the source: gone") as lost:
        refuse_writes()
    assert lost.value.where == "source"


def test_writes_to_a_standalone_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = object()
    monkeypatch.setattr(verification, "cluster_time", lambda of: None if of is client else pytest.fail("another"))
    with pytest.raises(Unsuitable, match="the source is a standalone"):
        watch(client, ["v.a"], "source", 5)


def token(seconds: int, increment: int = 0) -> dict[str, str]:
    return {"_data": f"82{seconds:08x}{increment:08x}2B02"}


class Stream:
    """A database whose change stream has these events, each a cluster time; None is a look that finds nothing."""

    def __init__(self, *events: int | None) -> None:
        self._events = list(events)
        self.resume_token = token(0)

    def watch(self, *_: object, **__: object) -> AbstractContextManager[Stream]:
        return nullcontext(self)

    def try_next(self) -> dict[str, Any] | None:
        seconds = self._events.pop(0)
        if seconds is None:
            self.resume_token = token(8)
            return None
        return {"clusterTime": Timestamp(seconds, 0)}


@pytest.mark.parametrize("events", [(3, 4, 5, 8, None), (4, 5, 8, 9), (5, 8, 20)])
def test_the_events_of_a_span_are_those_after_its_start_up_to_its_end(events: tuple[int | None, ...]) -> None:
    found = proof._events(cast(Any, Stream(*events)), (), "ns", Timestamp(4, 0), Timestamp(8, 0))
    assert [event["clusterTime"].time for event in found] == [5, 8]


def test_a_stream_that_does_not_reach_the_end_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_PATIENCE", 0.01)
    with pytest.raises(proof.Unknown, match="did not reach"):
        database = cast(Any, Stream(*(None for _ in range(10**6))))
        list(proof._events(database, (), "ns", Timestamp(4, 0), Timestamp(99, 0)))


def test_a_token_holds_the_cluster_time() -> None:
    assert token_time(token(0x66E2_0BC5, 0x0102_0304)) == Timestamp(0x66E2_0BC5, 0x0102_0304)


def test_a_resumed_run_reads_the_ranges_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [ListedPair(PAIR, entry(), entry())]
    monkeypatch.setattr(plan, "collection", lambda client, namespace: client)
    monkeypatch.setattr(plan, "size", lambda client: client.size)
    monkeypatch.setattr(plan, "aggregated", lambda documents, stages, **how: iter([ONE, TWO]))
    source, destination = (cast(Any, SimpleNamespace(size=Size(count, count * 100))) for count in (1, 2))
    options = Options(1, range_bytes=100, journal=tmp_path / "journal")
    journal = Journal(tmp_path / "journal")
    journal.begin({}, 1.0, [])
    whole = plan.plan(source, destination, listed, options)  # without resume, an earlier run is over
    assert [work.bounds for work in whole.ranges] == [Bounds(None, TWO), Bounds(TWO, None)]
    assert whole.expected == {PAIR: 2}
    assert {work.uuids for work in whole.ranges} == {("61", "61")}
    empty: Any = SimpleNamespace(size=Size(0, 0))
    assert [work.uuids for work in plan.plan(empty, empty, listed, Options(1)).ranges] == [None], "none is expected"
    assert id_key(TWO) > id_key(ONE)
    journal.add(0, Compared(1, 200, [ONE]))
    again = plan.plan(source, destination, listed, Options(2, range_bytes=1, journal=options.journal, resume=True))
    assert again.ranges == whole.ranges[1:]
    assert again.finished == [(replace(whole.ranges[0], uuids=None), Compared(1, 200, [ONE]))]
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


def test_both_sides_of_a_pair_are_listed_under_their_own_names() -> None:
    class Listing(Reachable, dict[str, Any]):
        pass

    def server(**databases: list[str]) -> Any:
        return Listing(
            {
                name: SimpleNamespace(
                    list_collections=lambda names=names, of=name: [{"name": one, "of": of} for one in names]
                )
                for name, names in databases.items()
            }
        )

    pairs = [Pair("v.a", "w.b"), Pair("v.c.d", "w.c.d"), Pair("v.e", "v.e")]
    found = plan.list_pairs(server(v=["a", "b", "c.d", "e"]), server(v=["a"], w=["a", "b"]), pairs, 5)
    assert found == [
        ListedPair(pairs[0], {"name": "a", "of": "v"}, {"name": "b", "of": "w"}),
        ListedPair(pairs[1], {"name": "c.d", "of": "v"}, None),
        ListedPair(pairs[2], {"name": "e", "of": "v"}, None),
    ]


def test_rereads_are_made_with_the_options_of_the_run() -> None:
    source, destination = cast(Any, "source"), cast(Any, "destination")
    recheck, said = Recheck(first=1, tries=2, patience=3), list[str]()
    options = Options(1, recheck=recheck, ignore_field_order=True, lost_for=7)

    def passed(time: Timestamp) -> bool:
        return True

    found = options.rereads(source, destination, passed, said.append)
    assert (found.source, found.destination, found.recheck, found.passed) == (source, destination, recheck, passed)
    assert (found.ignore_field_order, found.lost_for) == (True, 7)
    found.say("it does not answer")
    assert said == ["it does not answer"]


def test_every_pair_has_ranges_of_its_larger_side_and_each_range_its_own_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"v.a": Size(2, 200), "w.a": Size(1, 100), "v.b": Size(1, 1), "w.b": Size(3, 300)}
    both: Any = {"v": {name: f"v.{name}" for name in "ab"}, "w": {name: f"w.{name}" for name in "ab"}}
    cut: list[str] = []

    def aggregated(documents: str, stages: Any, **how: Any) -> Iterator[bytes]:
        cut.append(documents)
        return iter([ONE, TWO])

    monkeypatch.setattr(plan, "size", lambda documents: sizes[documents])
    monkeypatch.setattr(plan, "aggregated", aggregated)
    pairs = [Pair("v.a", "w.a"), Pair("v.b", "w.b")]
    found = plan.plan(both, both, [ListedPair(pair, entry(), entry()) for pair in pairs], Options(1, range_bytes=100))
    assert cut == ["v.a", "w.b"]
    assert [(work.number, work.pair, work.bounds) for work in found.ranges] == [
        (2 * at + n, pair, bounds)
        for at, pair in enumerate(pairs)
        for n, bounds in enumerate((Bounds(None, TWO), Bounds(TWO, None)))
    ]
    assert found.expected == {pairs[0]: 2, pairs[1]: 3}
    assert all(work.batch_size == plan._BATCH_DOCUMENTS and work.ordered for work in found.ranges)


class Workers:
    """Workers that send these messages, as far as they are asked for them."""

    def __init__(self, *messages: Any) -> None:
        self.messages, self.ended = list(messages), False
        self.compared: list[Any] = []

    def compare(self, *work: Any) -> None:
        self.compared.append(work)

    def message(self, timeout: float) -> Any:
        assert 0 <= timeout <= verification._TICK
        if not self.messages:
            return None
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message


class Run:
    """A run over these listings of `PAIR`, before and after it, whose workers send these messages."""

    def __init__(self, patch: pytest.MonkeyPatch, *messages: Any) -> None:
        self.workers, self.rereads = Workers(*messages), FakeRereads()
        self.before = self.after = ListedPair(PAIR, entry(), entry())
        self.plan = Plan([WORK], expected={PAIR: 7}, since=5.0)
        self.rechecks: list[Any] = []
        self.asked: list[Any] = []
        self.said: list[str] = []
        self.told: list[Any] = []
        sides = SimpleNamespace(name="source"), SimpleNamespace(name="destination")
        self.sides: Any = tuple(nullcontext(side) for side in sides)
        listings = [self.listed, lambda: [self.after]]

        def list_pairs(source: Any, destination: Any, pairs: Any, lost_for: float) -> list[ListedPair]:
            self.asked.append((source is self.sides[0], destination is self.sides[1], list(pairs), lost_for))
            return listings.pop(0)()

        def rereads(options: Options, source: Any, destination: Any, passed: Any, say: Any) -> Any:
            assert (source, destination) == self.sides
            self.rechecks.append((options.recheck, passed))
            return self.rereads

        @contextmanager
        def running() -> Iterator[Workers]:
            try:
                yield self.workers
            finally:
                self.workers.ended = True

        patch.setattr(Job, "clients", lambda job: self.sides)
        patch.setattr(verification, "list_pairs", list_pairs)
        patch.setattr(verification, "plan", self.planned)
        patch.setattr(Options, "rereads", rereads)
        patch.setattr(verification, "running", running)

    def listed(self) -> list[ListedPair]:
        return [self.before]

    def planned(self, source: Any, destination: Any, listed: Any, options: Options) -> Plan:
        assert (source, destination) == self.sides
        if not listed:
            return Plan([])
        assert listed == [self.before]
        return self.plan

    def __call__(self, options: Options | None = None, passed: Any = None) -> tuple[list[Difference], Verdict]:
        run = Verification("s", "d", [PAIR], options, passed=passed, tell=self.told.append, say=self.said.append)
        found = []
        for one in run:
            found.append(one)
        return found, run.verdict


def test_a_run_reports_what_its_workers_found_and_rereads_have_proven(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Run(monkeypatch, "the source does not answer", (3, Compared(9, 220, [ONE])), None, (3, None))
    steps = iter([[], [], [], [(3, Difference("v.c", ONE, ONE, None))]])

    def step() -> Any:
        found = next(steps)
        del run.rereads.added[: len(found)]
        return found

    monkeypatch.setattr(run.rereads, "step", step)
    journal, passed = Journal(tmp_path / "journal"), lambda time: True
    journal.begin({}, 1.0, [WORK])
    found, verdict = run(Options(4, journal=journal.path, lost_for=7, screen=True), passed)
    assert [one.kind for one in found] == ["missing"]
    assert (verdict.compared, verdict.read, verdict.differences, verdict.errors, verdict.since) == (9, 220, 1, [], 5.0)
    assert verdict.seconds > 0 and verdict.tallies[0].expected == 7
    assert run.workers.compared == [(Job("s", "d", False, True, 7), [WORK], 1)], "no more processes than ranges"
    assert run.rechecks == [(Recheck(), passed)] and run.said == ["the source does not answer"]
    last = run.told[-1]
    assert (last.documents, last.expected, last.ranges, last.done, last.waiting) == (9, 7, 1, 1, 0)
    assert run.asked == [(True, True, [PAIR], 7)] * 2
    assert run.workers.ended and not journal.path.exists(), "a complete run leaves none"


@pytest.mark.parametrize("error", [WorkerDied("killed"), VerifierError("the server refused")])
def test_a_worker_that_fails_ends_the_run_and_leaves_the_journal(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Run(monkeypatch, (3, Compared(9, 220, [])), error)
    journal = Journal(tmp_path / "journal")
    journal.begin({}, 1.0, [WORK])
    with pytest.raises(type(error)):
        run(Options(1, journal=journal.path))
    assert run.workers.ended and journal.path.exists()


def test_a_collection_that_was_dropped_during_the_run_leaves_no_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Run(monkeypatch, (3, Compared(9, 220, [])), (3, None))
    run.after = ListedPair(PAIR, entry(), None)
    journal = Journal(tmp_path / "journal")
    journal.begin({}, 1.0, [WORK])
    _, verdict = run(Options(1, journal=journal.path))
    assert verdict.errors == ["w.c was dropped at the destination during the run"] and not verdict.clean
    assert journal.path.exists()


def test_a_collection_that_was_away_while_a_range_was_read_leaves_no_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other, away = replace(WORK, number=4), Compared(away=True)
    run = Run(monkeypatch, (3, away), (4, away), (3, None), (4, Compared(9, 220, [])), (4, None))
    run.plan = Plan([WORK, other], expected={PAIR: 7}, since=5.0)
    journal = Journal(tmp_path / "journal")
    journal.begin({}, 1.0, [WORK, other])
    _, verdict = run(Options(1, journal=journal.path))
    assert verdict.errors == ["v.c or w.c was renamed or dropped while it was read"] and not verdict.clean
    found = journal.read({})
    assert found is not None and found[2] == {}, "both ranges are to be read again"


def test_what_cannot_be_compared_leaves_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.before = ListedPair(PAIR, entry(type="view"), None)
    run.after = None  # type: ignore[assignment]
    monkeypatch.setattr(run, "listed", lambda: [run.before])
    monkeypatch.setattr(verification, "list_pairs", lambda source, destination, pairs, _: [run.before] if pairs else [])
    found, verdict = run()
    assert found == [] and len(verdict.errors) == 1 and "is a view" in verdict.errors[0]
    assert verdict.tallies[0].notes == ["w.c does not exist at the destination"]


@pytest.mark.parametrize("same", [True, False])
def test_a_quiet_run_reads_what_its_hashes_do_not_show_and_ends_without_a_verdict_if_something_was_written(
    same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(verification, "same_by_hash", lambda s, d, pairs: dict.fromkeys(pairs, same))
    monkeypatch.setattr(verification, "collection", lambda client, namespace: (client, namespace))
    monkeypatch.setattr(verification, "size", lambda documents: Size(41, 1))

    def begin(client: Any, namespaces: Any, side: str, lost_for: float) -> Any:
        done.append((client, namespaces, side))
        return lambda: done.append(side)

    monkeypatch.setattr(verification, "watch", begin)
    run = Run(monkeypatch, *([] if same else [(3, Compared(9, 220, [])), (3, None)]))
    run.after = run.before
    monkeypatch.setattr(verification, "list_pairs", lambda source, destination, pairs, _: [run.before] if pairs else [])
    _, verdict = run(Options(1, quiet=True), lambda time: pytest.fail("no pipeline is asked"))
    source, destination = run.sides
    watched = [(source, ["v.c"], "source"), (destination, ["w.c"], "destination")]
    assert done == [*watched, "source", "destination"], "seen from before the hashes on, up to the end"
    assert run.rechecks == [(Recheck(first=0, tries=1), None)]
    (tally,) = verdict.tallies
    assert (tally.way, tally.documents) == (("hashed", 41) if same else ("compared", 9))
    assert (tally.expected, tally.verdict) == (41 if same else 7, "same")
    refused = Mock(side_effect=Unsuitable("written to"))
    monkeypatch.setattr(verification, "watch", lambda *_: refused)
    run = Run(monkeypatch, *([] if same else [(3, Compared(9, 220, [])), (3, None)]))
    monkeypatch.setattr(verification, "list_pairs", lambda source, destination, pairs, _: [run.before] if pairs else [])
    with pytest.raises(Unsuitable, match="written to"):
        run(Options(1, quiet=True))


def test_workers_wait_while_many_documents_wait_for_a_reread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_HELD", 2)
    run = Run(monkeypatch, (3, Compared(2, 22, [ONE, TWO])), (3, None))
    left: list[int] = []

    def step() -> Any:
        left.append(len(run.workers.messages))
        if len(left) < 3:
            return []
        outcomes = [(3, Same("v.c", id)) for id, _ in run.rereads.added]
        run.rereads.added.clear()
        return outcomes

    monkeypatch.setattr(run.rereads, "step", step)
    _, verdict = run()
    assert left == [1, 1, 1, 0] and verdict.clean


def worked(streams: dict[str, list[Any]], *tasks: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a worker sends that finds these tasks."""
    left, sent = list(tasks), list[Any]()

    def get(timeout: float) -> Any:
        task = left.pop(0)
        if isinstance(task, Exception):
            raise task
        return task

    def put(message: Any, timeout: float) -> None:
        if full:
            raise full.pop()
        sent.append(message)

    full: list[Exception] = [queue.Full()]
    monkeypatch.setattr(workers.signal, "signal", lambda *_: None)
    monkeypatch.setattr(Job, "clients", lambda job, silence_ms: {workers._SILENCE_MS: (0, 1)}[silence_ms])
    workers._work(
        Job("", "", ignore_field_order=False, screen=False, lost_for=5),
        SimpleNamespace(get=get),
        SimpleNamespace(put=put),
    )
    assert left == []
    return sent


def test_a_worker_compares_ranges_until_there_is_none_and_says_when_each_is_read(
    streams: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams["source"] += [[ONE], [AutoReconnect("gone")], [TWO]]
    streams["destination"] += [[ONE], [], []]
    other = replace(WORK, number=4)
    sent = worked(streams, queue.Empty(), WORK, other, None, monkeypatch=monkeypatch)
    size = len(ONE)
    assert sent[:2] == [(3, Compared(1, 2 * size, [])), (3, None)]
    assert sent[3:] == [(4, Compared(1, size, [TWO])), (4, None)]
    assert sent[2] == "cannot compare v.source with v.destination: gone; trying again for 5 s"


def test_a_worker_that_a_server_refuses_says_why_and_does_not_call_its_range_read(
    streams: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams["source"] += [[ONE, OperationFailure("no right", 13)]]
    streams["destination"] += [[ONE]]
    (sent,) = worked(streams, WORK, monkeypatch=monkeypatch)
    assert isinstance(sent, VerifierError) and "no right" in str(sent)


@pytest.mark.parametrize(("status", "error"), [(None, None), (0, "with status 0"), (137, "ended with status 137")])
def test_a_worker_that_died_is_noticed_once_it_has_nothing_more_to_say(status: int | None, error: str | None) -> None:
    results: queue.Queue[Any] = queue.Queue()
    process: Any = SimpleNamespace(exitcode=status)
    running = workers.Workers(process, None, results)
    results.put((3, None))
    results.put(Unsuitable("it cannot be"))
    assert running.message(0.01) == (3, None)
    with pytest.raises(Unsuitable):
        running.message(0.01)
    if error is None:
        assert running.message(0.01) is None
    else:
        with pytest.raises(WorkerDied, match=error):
            running.message(0.01)


def test_what_a_worker_said_before_it_ended_is_not_taken_for_its_death() -> None:
    class Late(queue.Queue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if process.exitcode is None:
                process.exitcode = 0
                self.put((3, None))
                raise queue.Empty
            return super().get(block, timeout)

    process: Any = SimpleNamespace(exitcode=None)
    running = workers.Workers(process, None, Late())
    assert (running.message(0.01), running.message(0.01)) == (None, (3, None))
    with pytest.raises(WorkerDied):
        running.message(0.01)


def test_the_workers_of_a_run_share_its_ranges_and_each_is_told_that_there_is_no_more() -> None:
    tasks: queue.Queue[Any] = queue.Queue()
    job: Any = "job"
    workers.Workers(cast(Any, None), tasks, None).compare(job, [WORK, replace(WORK, number=4)], 3)
    assert [tasks.get_nowait() for _ in range(tasks.qsize())] == [
        ("job", 3), WORK, replace(WORK, number=4), None, None, None
    ]  # fmt: skip
