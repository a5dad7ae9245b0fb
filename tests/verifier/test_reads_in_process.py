"""What is asked of a server, and that nothing of its answer is lost, with servers that are not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import bson
import pytest
from bson.max_key import MaxKey
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.errors import ExecutionTimeout, OperationFailure
from pymongo.read_concern import ReadConcern

from tests.support import bsonbytes as b
from tests.support.member import Reachable
from towpath_verifier import Pair, cluster_time, id_key, merge, plan, proof, raw_batches, reads, rereads
from towpath_verifier.merge import Equal, Screen, Unequal
from towpath_verifier.reads import RAW, Bounds, Size, by_database, by_ids, size


def id_of(number: int) -> bytes:
    return b.document(("_id", b.int32(number)))


IDS = [id_of(number) for number in range(1, 6)]


def decoded(value: Any) -> Any:
    return bson.decode(value.raw) if isinstance(value, RawBSONDocument) else value


def test_the_name_of_a_collection_may_have_dots() -> None:
    assert by_database(["a.b", "c.d.e", "a.f.g.h"]) == {"a": ["b", "f.g.h"], "c": ["d.e"]}
    client: Any = {"a": {"b.c.d": "it"}}
    assert reads.collection(client, "a.b.c.d") == "it"


class Cursor(Reachable):
    """A server that has these documents, and the cursor of its answer to a `find`."""

    def __init__(self, *documents: bytes) -> None:
        self.name, self.documents = "it", list(documents)
        self.commands: list[dict[str, Any]] = []
        self.session = object()
        self.database = self.client = self

    def start_session(self) -> Any:
        return nullcontext(self.session)

    def with_options(self, codec_options: Any) -> Cursor:
        assert codec_options is RAW, "of the following batches"
        return self

    def cursor_command(self, command: dict[str, Any], codec_options: Any, session: Any) -> Any:
        assert codec_options is RAW and session is self.session, "a snapshot is that of its session"
        self.commands.append(command)
        return nullcontext(self)

    def batch_size(self, size: int) -> Iterator[RawBSONDocument]:
        assert size == reads.IDS
        return map(RawBSONDocument, self.documents)


THEN = Timestamp(5, 6)


@pytest.mark.parametrize(
    ("when", "concern"),
    [
        ({}, None),
        ({"at": THEN}, {"level": "snapshot", "atClusterTime": THEN}),
        ({"since": THEN}, {"level": "majority", "afterClusterTime": THEN}),
    ],
    ids=["now", "at", "since"],
)
def test_documents_are_read_by_id_in_all_batches_and_as_they_were_at_a_time(
    when: dict[str, Timestamp], concern: dict[str, Any] | None
) -> None:
    stored = [b.document(("_id", b.int32(number)), ("x", b.NULL)) for number in range(1, 6)]
    server = Cursor(*stored)
    assert list(by_ids(cast(Any, server), IDS, **when)) == [(id_key(one), one) for one in stored]  # type: ignore[arg-type]
    (find,) = server.commands
    assert decoded(find["filter"]) == {"_id": {"$in": [1, 2, 3, 4, 5]}}
    assert (find["find"], find.get("readConcern")) == ("it", concern)
    assert ("maxTimeMS" in find) is ("since" in when), "there may be no majority"


def test_without_a_majority_nothing_is_known_of_what_an_election_keeps() -> None:
    def refuse(command: Any, **how: Any) -> Any:
        raise ExecutionTimeout("operation exceeded time limit", 50)

    server: Any = Cursor()
    server.cursor_command = refuse
    with pytest.raises(proof.Unknown, match="time limit"):
        proof.committed(server, IDS, THEN, None)


class Ids:
    """A collection with these `_id`s; notes what each `find` is asked, and of which side."""

    def __init__(self, asked: list[tuple[str, Any, Any]], side: str, *ids: int) -> None:
        self.asked, self.side, self.ids, self.options = asked, side, ids, dict[str, Any]()

    def with_options(self, **options: Any) -> Ids:
        self.options |= options
        return self

    def find(self, filter: Any, fields: Any) -> list[RawBSONDocument]:
        assert self.options["codec_options"] is RAW and fields == {"_id": 1}
        self.asked.append((self.side, decoded(filter), self.options.get("read_concern")))
        chosen = decoded(filter)["_id"]["$in"]
        return [RawBSONDocument(id_of(number)) for number in self.ids if number in chosen]


def test_what_only_the_destination_has_is_looked_up_without_reading_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, Any, Any]]()
    monkeypatch.setattr(rereads, "collection", lambda client, namespace: client)
    monkeypatch.setattr(reads, "IDS", 3)
    source, destination = Ids(asked, "source", 1, 3, 4, 5), Ids(asked, "destination", 2, 3)
    both = rereads.Rereads(cast(Any, source), cast(Any, destination), rereads.Recheck())
    assert list(both.extra(Pair("v.c", "v.c"), IDS)) == [id_of(2)]
    assert asked == [
        ("source", {"_id": {"$in": [1, 2, 3]}}, ReadConcern("majority")),
        ("destination", {"_id": {"$in": [2]}}, None),
        ("source", {"_id": {"$in": [4, 5]}}, ReadConcern("majority")),
    ], "the source first, and the destination only where something may be extra"


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        ([{"storageStats": {"count": 7.0, "size": 900}}], Size(7, 900)),
        ([{"storageStats": {}}], Size(0, 0)),
        ([], Size(0, 0)),
        (OperationFailure("no such collection", 26), Size(0, 0)),
    ],
)
def test_a_collection_has_the_size_that_its_server_counts(reply: Any, wanted: Size) -> None:
    def aggregate(stages: Any) -> Iterator[Any]:
        assert stages == [{"$collStats": {"storageStats": {}}}]
        if isinstance(reply, Exception):
            raise reply
        return iter(reply)

    assert size(cast(Any, SimpleNamespace(aggregate=aggregate))) == wanted


def test_a_size_that_a_server_refuses_is_not_nothing() -> None:
    def refuse(stages: Any) -> Any:
        raise OperationFailure("not authorized", 13)

    with pytest.raises(OperationFailure):
        size(cast(Any, SimpleNamespace(aggregate=refuse)))


@pytest.mark.parametrize(("reply", "wanted"), [({"operationTime": Timestamp(5, 6)}, Timestamp(5, 6)), ({}, None)])
def test_a_standalone_has_no_cluster_time(reply: dict[str, Any], wanted: Timestamp | None) -> None:
    admin = SimpleNamespace(command=lambda name: reply if name == "ping" else None)
    assert cluster_time(cast(Any, SimpleNamespace(admin=admin))) == wanted


@pytest.mark.parametrize(("low", "high"), [(None, None), (IDS[0], None), (None, IDS[1]), (IDS[0], IDS[1])])
def test_a_range_is_read_from_its_bounds_and_the_last_one_with_maxkey(
    low: bytes | None, high: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, dict[str, Any]]] = []

    @contextmanager
    def cursor(documents: Any, query: Any, **how: Any) -> Iterator[list[bytes]]:
        assert documents == "raw"
        asked.append((query, how))
        yield [f"batch {len(asked)}".encode()]

    def with_options(codec_options: Any) -> str:
        assert codec_options is RAW
        return "raw"

    monkeypatch.setattr(raw_batches, "_RawBatches", cursor)
    documents: Any = SimpleNamespace(with_options=with_options, database=SimpleNamespace(client=Reachable()))
    found = list(raw_batches.in_id_order(documents, low, high, 7))
    (query, how), *others = asked
    bounds = {name: decoded(how[name]) for name in ("min", "max") if name in how}
    wanted = ({"min": {"_id": 1}} if low else {}) | ({"max": {"_id": 2}} if high else {})
    assert (query, bounds, how["batch_size"], how["hint"]) == ({}, wanted, 7, [("_id", 1)])
    assert how["sort"] == (None if bounds else [("_id", 1)])
    is_last = low is not None and high is None
    assert [query for query, _ in others] == ([{"_id": MaxKey()}] if is_last else [])
    assert found == [f"batch {number}".encode() for number in range(1, len(asked) + 1)]


@pytest.mark.parametrize(
    ("count", "needed", "sample"), [(20_000, 50, None), (20_001, 50, 500), (20_001, 4_000, 800), (100, 10, None)]
)
def test_the_ids_to_cut_at_are_sorted_by_the_server_and_each_comes_once(
    count: int, needed: int, sample: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def aggregated(documents: Any, stages: Any, **how: Any) -> Iterator[bytes]:
        asked.append((documents, stages, how))
        return iter([IDS[0], IDS[1], IDS[1], IDS[2]])

    monkeypatch.setattr(plan, "aggregated", aggregated)
    documents: Any = object()
    assert list(plan._ids(documents, Size(count, 1), needed)) == IDS[:3]
    sampled = [] if sample is None else [{"$sample": {"size": sample}}]
    stages = [*sampled, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
    assert asked == [(documents, stages, {"hint": {"_id": 1}} if sample is None else {})]


@pytest.mark.parametrize(
    ("whole", "wanted"),
    [
        (Size(8, 100), 1),
        (Size(8, 101), 2),
        (Size(8, 800), 8),
        (Size(8, 8_000), 8),
        (Size(200_001, 1), 3),
        (Size(10_000_000, 10_000_000), 4_096),
    ],
)
def test_a_collection_is_cut_into_ranges_of_about_as_many_documents(
    whole: Size, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [id_of(number) for number in range(min(whole.documents, 10_000))]
    monkeypatch.setattr(plan, "_ids", lambda documents, whole, ranges: iter(ids))
    found = plan._cut(cast(Any, None), whole, 100)
    assert len(found) == wanted
    assert [one.low for one in found[1:]] == [one.high for one in found[:-1]]
    assert found[0].low is found[-1].high is None and ids[0] not in {one.low for one in found}
    monkeypatch.setattr(plan, "_ids", lambda *_: iter(()))
    assert plan._cut(cast(Any, None), whole, 100) == [Bounds()], "it was emptied in the meantime"
    long = b.document(("_id", b.string("x" * 1_024)))
    monkeypatch.setattr(plan, "_ids", lambda *_: iter([ids[0], long, ids[1]]))
    assert plan._cut(cast(Any, None), Size(3, 300), 100) == [Bounds(None, ids[1]), Bounds(ids[1], None)]


def token(seconds: int) -> dict[str, str]:
    return {"_data": f"82{seconds:08x}00000000"}


class Watched:
    """A database whose change stream has these events: the second and what it is about."""

    def __init__(self, *events: tuple[int, dict[str, Any]], refuses: bool = False) -> None:
        self.name, self.full_name, self.database, self._events = "it", "v.it", self, list(events)
        self._refuses = refuses
        self.asked: list[tuple[Any, dict[str, Any]]] = []
        self.resume_token = token(100)

    def with_options(self, codec_options: Any) -> Watched:
        assert codec_options is RAW
        return self

    def watch(self, pipeline: Any, **how: Any) -> Any:
        self.asked.append((pipeline, how))
        if self._refuses:
            raise OperationFailure("not a replica set", 40573)
        return nullcontext(self)

    def try_next(self) -> Any:
        if not self._events:
            return None
        second, about = self._events.pop(0)
        return {"clusterTime": Timestamp(second, 1)} | about


def changed(second: int, number: int) -> tuple[int, dict[str, Any]]:
    key = RawBSONDocument(b.document(("shard", b.NULL), ("_id", b.int64(number))))
    return second, {"operationType": "update", "documentKey": key}


def test_the_changes_of_a_document_are_all_those_after_a_time_up_to_another() -> None:
    watched = Watched(changed(4, 1), changed(5, 1), changed(6, 2), changed(7, 1), changed(9, 1))
    after, to = Timestamp(4, 1), Timestamp(8, 0)
    found = proof.changes(cast(Any, watched), IDS[:2], after, to)
    assert found == {id_key(IDS[0]): [Timestamp(5, 1), Timestamp(7, 1)], id_key(IDS[1]): [Timestamp(6, 1)]}
    ((pipeline, how),) = watched.asked
    assert how["start_at_operation_time"] == after
    assert bson.decode(bson.encode(pipeline[0])) == {
        "$match": {
            "$or": [
                {"$and": [{"ns.coll": "it"}, {"documentKey._id": {"$in": [1, 2]}}]},
                {"operationType": {"$in": ["drop", "rename"]}, "ns.coll": "it"},
                {"operationType": "rename", "to.coll": "it"},
                {"operationType": "dropDatabase"},
            ]
        }
    }
    assert pipeline[1:] == [{"$project": {"documentKey._id": 1, "operationType": 1, "clusterTime": 1}}]
    assert proof.changes(cast(Any, Watched(refuses=True)), IDS, to, to) == {}, "nothing can have changed"
    with pytest.raises(proof.Unknown, match="not a replica set"):
        proof.changes(cast(Any, Watched(refuses=True)), IDS, after, to)


@pytest.mark.parametrize("kind", ["drop", "rename", "dropDatabase"])
def test_what_replaces_a_collection_is_no_change_of_a_document(kind: str) -> None:
    event = {"operationType": kind}
    after, to = Timestamp(4, 1), Timestamp(8, 0)
    with pytest.raises(proof.Replaced, match=f"v.it was dropped, renamed or replaced: {kind}"):
        proof.changes(cast(Any, Watched(changed(5, 1), (6, event))), IDS, after, to)
    assert proof.changes(cast(Any, Watched((4, event), (9, event))), IDS, after, to) == {}


def test_what_is_about_no_document_is_no_change_of_the_one_without_an_id() -> None:
    after, to = Timestamp(4, 1), Timestamp(8, 0)
    events = changed(5, 1), (6, {"operationType": "create"}), changed(7, 1)
    found = proof.changes(cast(Any, Watched(*events)), [b.document(("_id", b.NULL)), IDS[0]], after, to)
    assert found == {id_key(IDS[0]): [Timestamp(5, 1), Timestamp(7, 1)]}


def test_writes_are_seen_in_each_database() -> None:
    def event(second: int, name: str) -> tuple[int, dict[str, Any]]:
        return second, {"ns": {"coll": name}}

    client: Any = {"v": Watched(event(3, "a"), event(5, "b"), event(5, "b.c")), "w": Watched(event(9, "d"))}
    found = proof.written(client, ["v.a", "v.b", "v.b.c", "w.d"], Timestamp(4, 0), Timestamp(8, 0))
    assert found == {"v.b", "v.b.c"}
    for database, names in (("v", ["a", "b", "b.c"]), ("w", ["d"])):
        ((pipeline, how),) = client[database].asked
        assert pipeline[0] == {"$match": {"ns.coll": {"$in": names}}}
        assert pipeline[1] == {"$project": {"ns": 1, "clusterTime": 1}}
        assert how["start_at_operation_time"] == Timestamp(4, 0)
    with pytest.raises(proof.Unknown, match="not a replica set"):
        proof.written(cast(Any, {"v": Watched(refuses=True)}), ["v.a"], Timestamp(4, 0), Timestamp(8, 0))


def literal(condition: Any) -> int:
    return int(decoded(condition[1])["$literal"])


class Digests:
    """A collection by the digest of each document, which computes what `Screen` has a server compute."""

    def __init__(self, **digests: int) -> None:
        self.digests = {int(name[1:]): digest for name, digest in digests.items()}
        self.full_name, self.asked = "v.c", list[int]()

    def rows(self, stages: Sequence[Any]) -> list[bytes]:
        within, project, *group = stages
        conditions = within["$match"].get("$expr", {}).get("$and", [])
        lows = [literal(one["$gte"]) for one in conditions if "$gte" in one]
        highs = [literal(one["$lt"]) for one in conditions if "$lt" in one]
        ids = [n for n in sorted(self.digests) if all(n >= low for low in lows) and all(n < high for high in highs)]
        self.asked.append(len(ids))
        if not group:
            assert project == {"$project": {"h": {"$toHashedIndexKey": "$$ROOT"}}}
            return [b.document(("_id", b.int32(n)), ("h", b.int64(self.digests[n]))) for n in ids]
        if "$bucketAuto" in group[0]:
            assert group[0]["$bucketAuto"]["groupBy"] == "$_id" and project == {"$project": {"_id": 1}}
            size = -(-len(ids) // group[0]["$bucketAuto"]["buckets"])
            return [
                b.document(("_id", b.embedded(("min", b.int32(ids[n])), ("max", b.NULL))))
                for n in range(0, len(ids), size)
            ]
        assert project == {"$project": {"_id": 0, "h": {"$toHashedIndexKey": "$$ROOT"}}}
        by = group[0]["$group"]
        assert by["_id"] is None and by["n"] == {"$sum": 1}
        sums = [sum(self.digests[n] % of["$sum"]["$mod"][1] for n in ids) for name, of in by.items() if name[0] == "h"]
        if not ids:
            return []
        fields = [(f"h{n}", b.int64(one)) for n, one in enumerate(sums)]
        return [b.document(("_id", b.NULL), ("n", b.int32(len(ids))), *fields)]


def screened(ours: Digests, theirs: Digests, bounds: Bounds, patch: pytest.MonkeyPatch) -> tuple[int, list[Unequal]]:
    def aggregated(documents: Digests, stages: Any, **how: Any) -> list[bytes]:
        assert how == {"hint": {"_id": 1}}
        rows = documents.rows(stages)
        sent.extend(map(len, rows))
        return rows

    sent = list[int]()
    patch.setattr(merge, "aggregated", aggregated)
    screen = Screen(cast(Any, ours), cast(Any, theirs), bounds, 5.0, lambda words: None)
    found = list(screen)
    assert screen.read == sum(sent)
    return sum(one.documents for one in found if isinstance(one, Equal)), [
        one for one in found if isinstance(one, Unequal)
    ]


MANY = {f"d{number}": number * 7_919_000_000_007 % 2**63 for number in range(1, 101)}


@pytest.mark.parametrize("named", [5, 1_000])
@pytest.mark.parametrize(
    ("ours", "theirs", "different"),
    [
        (MANY, MANY, set[int]()),
        (MANY, MANY | {"d50": 1}, {50}),
        (MANY, MANY | {"d101": 1, "d102": 2}, {101, 102}),
        (MANY | {"d0": 1}, MANY, {0}),
        (MANY | {"d10": MANY["d11"], "d11": MANY["d10"]}, MANY, set[int]()),
        (MANY, {}, set(range(1, 101))),
        ({}, {}, set[int]()),
    ],
)
def test_documents_with_other_digests_are_named_and_all_are_counted(
    ours: dict[str, int], theirs: dict[str, int], different: set[int], named: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "_NAMED", named)
    left, right = Digests(**ours), Digests(**theirs)
    equal, unequal = screened(left, right, Bounds(), monkeypatch)
    assert sorted(one.id for one in unequal) == sorted(map(id_of, different))
    assert all(one.source is one.destination is None for one in unequal)
    assert equal == len({*ours, *theirs}) - len(different)
    if named == 5 and len(different) < 3:
        assert sum(left.asked) < 6 * len(MANY), "parts that are equal are not looked at again"


def test_a_screened_range_is_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = Digests(**MANY), Digests(**MANY | {"d9": 0, "d10": 0, "d19": 0, "d20": 0})
    equal, unequal = screened(left, right, Bounds(id_of(10), id_of(20)), monkeypatch)
    assert (equal, sorted(one.id for one in unequal)) == (8, [id_of(10), id_of(19)])


@pytest.mark.parametrize("digests", [(2**32, 0), (4_294_967_291, 0), (4_294_967_279, 0)])
def test_two_sums_tell_what_one_of_them_would_miss(digests: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = (Digests(d1=digest, d2=5) for digest in digests)
    assert len(screened(ours, theirs, Bounds(), monkeypatch)[1]) == 1
