"""A verification of two replica sets by several processes: every damage is found, and none invented."""

from __future__ import annotations

import datetime
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Int64
from bson.timestamp import Timestamp
from pymongo import MongoClient

from tests.support import bsonbytes as b
from tests.support import raw
from tests.support.corpus import Specimen
from tests.support.mongod import MongodSizes, Root, start_replica_set, start_standalone
from tests.support.replicator import Replicator
from towpath_verifier import (
    Difference,
    Mask,
    Options,
    Pair,
    Recheck,
    Rereads,
    Unsuitable,
    Verification,
    VerifierError,
)
from towpath_verifier.metadata import Schemas

pytestmark = pytest.mark.servers

SOON = Recheck(first=0.1, tries=3, patience=30)
SMALL = MongodSizes(0.25, 256)
DATE = datetime.datetime(2026, 1, 1)


class Sides:
    """Two replica sets, and the database `v` on both."""

    def __init__(self, source_uri: str, destination_uri: str) -> None:
        self.uris = source_uri, destination_uri
        self.source: raw.Client = MongoClient(source_uri)
        self.destination: raw.Client = MongoClient(destination_uri)

    def fill(self, name: str, documents: list[dict[str, Any]]) -> None:
        for client in (self.source, self.destination):
            client.v[name].insert_many(documents)

    def verification(self, *names: str, passed: Callable[[Any], bool] | None = None, **options: Any) -> Verification:
        chosen = {"processes": 2, "recheck": SOON, "range_bytes": 1 << 20} | options
        pairs = [Pair(f"v.{name}", f"v.{name}") for name in names or ("c",)]
        return Verification(*self.uris, pairs, Options(**chosen), passed=passed)

    def verify(self, *names: str, **options: Any) -> tuple[Verification, list[Difference]]:
        run = self.verification(*names, **options)
        return run, list(run)


MASK = Mask(("ssn",), ("email",), {"country": "x"}, b"key")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    place = tmp_path_factory.mktemp("sets")
    with (
        start_replica_set(place / "source", sizes=SMALL) as one,
        start_replica_set(place / "destination", sizes=SMALL) as two,
    ):
        yield Sides(one.uri, two.uri)


@pytest.fixture
def sides(both: Sides) -> Sides:
    for client in (both.source, both.destination):
        client.drop_database("v")
    return both


def document(number: int) -> dict[str, Any]:
    return {
        "_id": number if number % 3 else f"id {number}",
        "n": number,
        "at": DATE,
        "ratio": float("nan"),
        "deep": [{"list": [number, {"x": number}]}],
        "text": "x" * (number % 200),
        "count": 0,
    }


def named(found: list[Difference]) -> list[tuple[str, Any]]:
    return sorted(((one.kind, bson.decode(one.id)["_id"]) for one in found), key=str)


def _nan_payload(documents: raw.Documents, identity: Any) -> None:
    name = b.document(("_id", b.string(identity) if isinstance(identity, str) else b.int32(identity)))
    raw.set_fields(documents, Specimen("", name), {"ratio": b.double_bits(0x7FF8_0000_0000_0001)})


def _reorder(documents: raw.Documents, identity: Any) -> None:
    whole = documents.find_one({"_id": identity}) or {}
    documents.replace_one({"_id": identity}, {"_id": identity} | dict(reversed(whole.items())))


def _retype(documents: raw.Documents, identity: Any) -> None:
    documents.update_one({"_id": identity}, [{"$set": {"n": {"$toLong": "$n"}}}])


def _set(path: str, value: Any) -> Callable[[raw.Documents, Any], None]:
    return lambda documents, identity: documents.update_one({"_id": identity}, {"$set": {path: value}})  # type: ignore[func-returns-value]


#: Damage by name: kind that is to be told, and what does it to a document at the destination.
DAMAGES: dict[str, tuple[str, Callable[[raw.Documents, Any], None]]] = {
    "deleted": ("missing", lambda documents, identity: documents.delete_one({"_id": identity}) and None),
    "int32 to int64": ("different", _retype),
    "a date by 1 ms": ("different", _set("at", DATE + datetime.timedelta(milliseconds=1))),
    "a date by -1 ms": ("different", _set("at", DATE - datetime.timedelta(milliseconds=1))),
    "the payload of a NaN": ("different", _nan_payload),
    "order of fields": ("order", _reorder),
    "an element deep in an array": ("different", _set("deep.0.list.0", "other")),
    "a field more": ("different", _set("more", None)),
}


def damage(sides: Sides, name: str, numbers: list[int]) -> list[tuple[str, Any]]:
    """Damage these documents at the destination, and add some; what is to be found."""
    wanted = []
    for number, (kind, does) in zip(numbers, cycle(DAMAGES.values()), strict=False):
        identity = document(number)["_id"]
        does(sides.destination.v[name], identity)
        wanted.append((kind, identity))
    extras = [{"_id": identity} for identity in (-5, None, "zzz", b"binary", 7.5, DATE, bson.MaxKey(), bson.MinKey())]
    sides.destination.v[name].insert_many(extras)
    return sorted([*wanted, *(("extra", one["_id"]) for one in extras)], key=str)


@contextmanager
def changing(documents: raw.Documents, change: Callable[[raw.Documents, int], None]) -> Iterator[list[int]]:
    """Changes documents in a thread, without end, until the `with` is left; how many changes there were."""
    stop, done = threading.Event(), [0]

    def run() -> None:
        while not stop.is_set():
            change(documents, done[0])
            done[0] += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(10)


@pytest.mark.nightly
def test_every_damage_is_found_under_a_writer_that_never_stops(sides: Sides, seed: int) -> None:
    chance = random.Random(seed)
    sides.fill("c", [document(number) for number in range(30_000)])
    damaged = chance.sample(range(30_000), 200)
    wanted = damage(sides, "c", damaged)
    assert {kind for kind, _ in wanted} == {"missing", "extra", "different", "order"}
    missing = {identity for kind, identity in wanted if kind == "missing"}
    others = [n for n in range(30_000) if document(n)["_id"] not in missing]

    def write(documents: raw.Documents, count: int) -> None:
        number = chance.choice(others) if count % 4 else chance.choice(damaged)
        identity = document(number)["_id"]
        if identity in missing:  # an update of it would say nothing to a destination that lost it
            return
        match count % 5:
            case 0 | 1 | 2:
                documents.update_one({"_id": identity}, {"$inc": {"count": 1}})
            case 3:
                documents.insert_one({"_id": Int64(1_000_000 + count), "count": 1})
            case 4:
                documents.delete_one({"_id": 1_000_000 + chance.randrange(count)})

    with (
        Replicator(sides.source, sides.destination, "v") as replicator,
        changing(sides.source.v.c, write) as changes,
    ):
        run, found = sides.verify(passed=replicator.passed)
    assert named(found) == wanted
    assert changes[0] > 200
    assert run.verdict.compared >= 30_000
    assert not run.verdict.errors


def test_documents_that_oscillate_are_no_difference_and_damaged_ones_are_found(sides: Sides) -> None:
    sides.fill("c", [{"_id": number, "v": "A", "steady": 1} for number in range(40)])
    sides.destination.v.c.update_one({"_id": 7}, {"$set": {"steady": Int64(1)}})
    sides.destination.v.c.update_one({"_id": 8}, {"$unset": {"steady": 1}})

    def flip(documents: raw.Documents, count: int) -> None:
        identity, turn = count % 40, count // 40
        if identity >= 36:  # now there, now not
            if turn % 2:
                documents.replace_one({"_id": identity}, {"v": "A", "steady": 1}, upsert=True)
            else:
                documents.delete_one({"_id": identity})
        else:
            documents.update_one({"_id": identity}, {"$set": {"v": "AB"[turn % 2]}})

    with (
        Replicator(sides.source, sides.destination, "v", lag=0.5) as replicator,
        changing(sides.source.v.c, flip) as changes,
    ):
        for _ in range(2):
            run, found = sides.verify(passed=replicator.passed)
            assert named(found) == [("different", 7), ("different", 8)]
            assert not run.verdict.errors
    assert changes[0] > 500


@pytest.mark.nightly
def test_screening_moves_few_bytes_and_finds_what_digests_show(sides: Sides, seed: int) -> None:
    documents = [document(number) | {"body": "x" * 800} for number in range(8_000)]
    sides.fill("c", documents)
    full, _ = sides.verify()
    screened, found = sides.verify(screen=True)
    assert found == []
    assert screened.verdict.compared == full.verdict.compared == 8_000
    assert screened.verdict.tallies[0].verdict == "screened"
    assert full.verdict.tallies[0].verdict == "same"
    assert 0 < screened.verdict.read <= 0.05 * full.verdict.read

    damaged = random.Random(seed).sample(range(8_000), 32)
    wanted = damage(sides, "c", damaged)
    _, everything = sides.verify()
    assert named(everything) == wanted
    run, seen = sides.verify(screen=True)
    names = list(zip(damaged, cycle(DAMAGES), strict=False))
    blind = [document(number)["_id"] for number, name in names if name in ("int32 to int64", "the payload of a NaN")]
    unseen = {one.id for one in everything} - {one.id for one in seen}
    assert unseen == {bson.encode({"_id": identity}) for identity in blind}
    assert {kind for kind, _ in named(seen)} == {"missing", "extra", "different", "order"}
    assert run.verdict.tallies[0].verdict == "not the same"


def test_hashes_compare_what_nothing_writes_to_and_refuse_what_is_written(sides: Sides) -> None:
    sides.fill("c", [document(number) for number in range(2_000)])
    sides.fill("d", [document(number) for number in range(2_000)])
    sides.destination.v.d.update_one({"n": 1_500}, {"$set": {"n": Int64(1_500)}})
    run, found = sides.verify("c", "d", quiet=True)
    assert [(one.namespace, one.kind) for one in found] == [("v.d", "different")]
    assert [tally.way for tally in run.verdict.tallies] == ["hashed", "compared"]
    assert run.verdict.compared == 4_000

    def write(documents: raw.Documents, count: int) -> None:
        documents.update_one({"_id": 1}, {"$inc": {"count": 1}})

    for documents, side in ((sides.source.v.c, "source"), (sides.destination.v.c, "destination")):
        with changing(documents, write), pytest.raises(Unsuitable, match=rf"v\.c was written to at the {side}"):
            sides.verify("c", "d", quiet=True)
    with changing(sides.source.w.elsewhere, write):
        assert sides.verify("d", quiet=True)[0].verdict.differences == 1


def test_what_is_no_plain_collection_is_told_in_words(sides: Sides) -> None:
    source, destination = sides.source.v, sides.destination.v
    sides.fill("whole", [{"_id": 1}])
    destination.create_collection("view", viewOn="whole", pipeline=[])
    source.view.insert_one({"_id": 1})
    source.create_collection("series", timeseries={"timeField": "t"})
    for database in (source, destination):
        database.create_collection("capped", capped=True, size=100_000)
        database.capped.insert_many([{"_id": number} for number in (3, 1, 2)])
        database.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
        database.clustered.insert_many([{"_id": number, "x": "x" * 1000} for number in range(3_000)])
        database.create_collection("folded", collation={"locale": "en", "strength": 2})
        database.folded.insert_many([{"_id": text, "n": 1} for text in ("b", "A", "C", "Z", "y")])
    source.create_collection("empty")
    source.absent.insert_many([{"_id": 1}, {"_id": 2}])
    destination.clustered.delete_one({"_id": 2_999})
    destination.folded.delete_one({"_id": "b"})  # by the collation "b" comes before "C", by bytes behind it
    destination.folded.update_one({"_id": "C"}, {"$set": {"n": 2}})

    names = ("whole", "view", "series", "capped", "clustered", "folded", "empty", "absent", "nowhere")
    run, found = sides.verify(*names)
    tallies = dict(zip(names, run.verdict.tallies, strict=True))
    assert sorted((one.namespace, one.kind) for one in found) == [
        ("v.absent", "missing"),
        ("v.absent", "missing"),
        ("v.clustered", "missing"),
        ("v.folded", "different"),
        ("v.folded", "missing"),
    ]
    assert tallies["view"].errors == [
        "v.view at the destination is a view, which stores no documents: it is not compared"
    ]
    assert "is a time-series collection" in tallies["series"].errors[0]
    assert tallies["capped"].notes[0].startswith("v.capped is capped at the source")
    assert tallies["empty"].notes == ["v.empty does not exist at the destination"]
    assert tallies["absent"].notes == ["v.absent does not exist at the destination"]
    assert len(tallies["nowhere"].notes) == 2
    assert tallies["folded"].documents == 5
    verdicts = {name: tally.verdict for name, tally in tallies.items()}
    assert verdicts["whole"] == verdicts["capped"] == verdicts["empty"] == "same"
    assert verdicts["view"] == verdicts["series"] == "no verdict"
    assert not run.verdict.clean


def test_a_collection_dropped_during_the_run_is_told(sides: Sides) -> None:
    sides.fill("c", [document(number) for number in range(5_000)])
    sides.destination.v.c.insert_one({"_id": -1})
    run = sides.verification(recheck=Recheck(first=0.3, tries=2))
    for _ in run:
        for client in (sides.source, sides.destination):
            client.v.c.drop()
    assert run.verdict.errors == [
        "v.c was dropped at the source during the run",
        "v.c was dropped at the destination during the run",
    ]
    assert not run.verdict.clean


REPLACING: dict[str, Callable[[raw.Client], object]] = {
    "drop": lambda source: source.v.c.drop(),
    "rename": lambda source: source.v.c.rename("other"),
    "rename to it": lambda source: source.v.empty.rename("c", dropTarget=True),
    "$out": lambda source: source.v.empty.aggregate([{"$out": "c"}]),
    "dropDatabase": lambda source: source.drop_database("v"),
}


@pytest.mark.parametrize("how", REPLACING)
def test_what_replaces_a_collection_proves_nothing_before_the_pipeline_has_passed_it(sides: Sides, how: str) -> None:
    sides.source.v.create_collection("empty")
    sides.fill("c", [document(number) for number in range(10)])
    sides.destination.v.c.update_one({"_id": 1}, {"$set": {"n": -1}})
    passes, asked = 1, set[Timestamp]()

    def passed(time: Timestamp) -> bool:
        asked.add(time)
        return len(asked) <= passes

    rereads = Rereads(sides.source, sides.destination, Recheck(first=0, tries=1), passed)
    rereads.add(Pair("v.c", "v.c"), [bson.encode({"_id": 1})])
    REPLACING[how](sides.source)
    for _ in range(3):
        time.sleep(rereads.pause() or 0.0)
        assert rereads.step() == []
    assert len(asked) == 2, "when it differed, and when it was replaced"
    passes = 2
    time.sleep(rereads.pause() or 0.0)
    ((_, outcome),) = rereads.step()
    assert isinstance(outcome, Difference) and outcome.kind == "extra"


def test_without_an_answer_how_far_the_pipeline_is_there_is_no_verdict(sides: Sides) -> None:
    sides.fill("c", [document(number) for number in range(100)])
    sides.destination.v.c.delete_one({"_id": 7})
    impatient = Recheck(first=0.05, tries=2, patience=0.3)
    run, found = sides.verify(passed=lambda moment: False, recheck=impatient)
    assert found == []
    assert run.verdict.errors == ["1 documents of v.c could not be judged"]
    assert run.verdict.tallies[0].verdict == "no verdict"


def test_standalones_are_compared_by_what_stays_as_it_is(tmp_path: Path) -> None:
    with start_standalone(tmp_path / "one", sizes=SMALL) as one, start_standalone(tmp_path / "two", sizes=SMALL) as two:
        sides = Sides(one.uri, two.uri)
        sides.fill("c", [document(number) for number in range(500)])
        sides.destination.v.c.delete_one({"_id": 7})

        def flip(documents: raw.Documents, count: int) -> None:
            documents.update_one({"_id": 8}, {"$inc": {"count": 1}})

        with changing(sides.source.v.c, flip):
            run, found = sides.verify(recheck=Recheck(first=0.05, tries=3, patience=0.5))
        assert named(found) == [("missing", 7)]
        assert run.verdict.errors == ["1 documents of v.c could not be judged"]
        with pytest.raises(Unsuitable, match="the source is a standalone mongod"):
            sides.verify(quiet=True)


@pytest.mark.nightly
def test_the_rights_that_the_readme_names_suffice(tmp_path: Path) -> None:
    """Those of the pipeline's user at the source, and `readWrite` on the database at the destination."""
    root = Root("root", "secret")
    reads = ["find", "changeStream", "listCollections", "listIndexes", "collStats"]
    with (
        start_replica_set(tmp_path / "one", sizes=SMALL, root=root) as one,
        start_replica_set(tmp_path / "two", sizes=SMALL, root=root) as two,
        MongoClient[dict[str, Any]](one.uri) as source,
        MongoClient[dict[str, Any]](two.uri) as destination,
    ):
        privileges = [{"resource": {"db": "", "collection": ""}, "actions": reads}]
        source.admin.command("createRole", "towpathReader", roles=[], privileges=privileges)
        source.admin.command("createUser", "reader", pwd="secret", roles=["towpathReader"])
        destination.admin.command("createUser", "writer", pwd="secret", roles=[{"role": "readWrite", "db": "v"}])
        for client in (source, destination):
            client.v.c.insert_many([document(number) for number in range(500)])
        destination.v.c.delete_one({"_id": 7})
        sides = Sides(one.uri.replace("root:", "reader:"), two.uri.replace("root:", "writer:"))
        with changing(source.v.c, lambda documents, count: _set("count", count)(documents, 8)):
            run, found = sides.verify()
        assert not Schemas.read(sides.source, sides.destination, [Pair("v.c", "v.c")]).differences()
        assert named(found) == [("different", 8), ("missing", 7)], "nothing replicates: 8 differs, however it changes"
        assert not run.verdict.errors
        destination.admin.command("updateUser", "writer", roles=[])
        with pytest.raises(VerifierError, match="not authorized"):
            sides.verify()


def masked(sides: Sides, **options: Any) -> tuple[Verification, list[Difference]]:
    run = Verification(*sides.uris, [Pair("v.c", "v.c", MASK)], Options(processes=2, recheck=SOON, **options))
    return run, list(run)


@pytest.mark.parametrize("way", [{}, {"quiet": True}, {"screen": True}, {"ignore_field_order": True}], ids=str)
def test_through_a_mask_only_what_it_leaves_is_the_same(sides: Sides, way: dict[str, Any], tmp_path: Path) -> None:
    """Also where both sides have equal bytes, which must not be at the destination."""
    documents = [{"_id": n, "ssn": f"secret-{n}", "email": f"secret@{n}", "country": "UK", "n": n} for n in range(50)]
    sides.fill("c", documents)
    run, found = masked(sides, **way)
    assert len(found) == 50 and {difference.kind for difference in found} == {"different"}
    assert "secret" not in "".join(str(left) for difference in found for _, left, _ in difference.paths)
    assert not any(b"secret" in (difference.source or b"") for difference in found)
    assert run.verdict.tallies[0].way == ("unordered" if way.get("ignore_field_order") else "compared")

    for document in documents:
        sides.destination.v.c.replace_one({"_id": document["_id"]}, bson.decode(MASK(bson.encode(document))))
    run, found = masked(sides, **way)
    assert (found, run.verdict.clean, run.verdict.tallies[0].documents) == ([], True, 50)


@pytest.mark.parametrize("way", [{}, {"quiet": True}, {"screen": True}], ids=str)
def test_with_a_filter_what_it_matches_is_compared_with_all_of_the_destination(
    sides: Sides, way: dict[str, Any]
) -> None:
    only = {"region": "eu"}
    documents = [{"_id": n, "region": "eu" if n % 2 else "us", "n": n} for n in range(50)]
    sides.fill("c", documents)

    def compared() -> tuple[Verification, list[Difference]]:
        pairs = [Pair("v.c", "v.c", None, only)]
        run = Verification(*sides.uris, pairs, Options(processes=2, recheck=SOON, **way))
        return run, list(run)

    assert sorted(named(compared()[1])) == [("extra", n) for n in range(0, 50, 2)], "equal bytes, and yet too much"
    sides.destination.v.c.delete_many({"region": "us"})
    run, found = compared()
    assert (found, run.verdict.clean, run.verdict.tallies[0].documents) == ([], True, 25)
    sides.source.v.c.update_one({"_id": 1}, {"$set": {"region": "us"}})
    sides.destination.v.c.delete_one({"_id": 3})
    assert sorted(named(compared()[1])) == [("extra", 1), ("missing", 3)]


def test_a_run_through_another_mask_is_not_resumed(sides: Sides, tmp_path: Path) -> None:
    sides.fill("c", [{"_id": n} for n in range(10)])
    journal = Options(journal=tmp_path / "journal", resume=True)
    both_masks = [Mask(("a",)), Mask(("b",))]
    for mask, is_refused in ((both_masks[0], False), (both_masks[1], True)):
        run = Verification(*sides.uris, [Pair("v.c", "v.c", mask), Pair("v.gone", "v.gone")], journal)
        run.verdict.tallies[1].errors.append("kept, so that the journal stays")
        if is_refused:
            with pytest.raises(VerifierError, match="compared something else"):
                list(run)
        else:
            list(run)
