"""Which documents a repair is asked for, and which no driver could ask for."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId
from bson.son import SON

from tests.support import bsonbytes as b
from tests.support import corpus
from tests.support.bsonbytes import Value
from tests.support.sessions import session_of
from towpath.cli import repair
from towpath.config import loading as pipeline_file
from towpath.config.events import as_line
from towpath.config.pipeline import Pipeline
from towpath.errors import Refused, TowpathError
from towpath.session import Session, unsaid
from towpath.store import verdict_file
from towpath.verify.repair import DocumentRef, extra_now, of_file, of_verdicts, source_name, unreadable
from towpath_verifier import Difference as Found
from towpath_verifier import Pair, Rereads

FILE = """
name = "shop"
[source]
uri = "mongodb://a/"
[destination]
uri = "mongodb://b/"
[collections]
include = ["shop.*"]
[kafka]
bootstrap = "k:9092"
[connect]
url = "http://c:8083"
"""
#: Kind → a document's bytes at the source and at the destination.
SIDES = {
    "missing": (bson.encode({"_id": 1}), None),
    "extra": (None, bson.encode({"_id": 1})),
    "different": (bson.encode({"_id": 1, "a": 1}), bson.encode({"_id": 1})),
}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    file = tmp_path / "shop.toml"
    file.write_text(FILE)
    return pipeline_file.read(file)


@pytest.mark.parametrize(
    ("line", "id"),
    [
        ("7", 7),
        ('{"$numberLong": "7"}', Int64(7)),
        ('"a"', "a"),
        ("null", None),
        ('{"$oid": "0123456789abcdef01234567"}', ObjectId("0123456789abcdef01234567")),
        ('{"_id": 7, "more": 1}', 7),
        ('{"b": 1, "a": 2}', SON([("b", 1), ("a", 2)])),
        ('{"_id": {"_id": 1}}', SON([("_id", 1)])),
    ],
)
def test_a_line_is_an_id_or_a_document_that_has_one(pipeline: Pipeline, line: str, id: Any) -> None:
    (found,) = of_file(pipeline, "shop.orders", io.StringIO(f"\n{line}\n"))
    assert (found.namespace, found.id) == ("shop.orders", bson.encode({"_id": id}))


@pytest.mark.parametrize("line", ["nonsense", '{"$oid": "12"}', '{"$numberInt": "x"}'])
def test_a_line_that_is_no_id_is_named(pipeline: Pipeline, line: str, tmp_path: Path) -> None:
    (tmp_path / "ids").write_text(f"1\n{line}\n")
    with (tmp_path / "ids").open() as file, pytest.raises(TowpathError, match="line 2"):
        list(of_file(pipeline, "shop.orders", file))


def test_a_renamed_namespace_goes_by_either_name(pipeline: Pipeline) -> None:
    renamed = pipeline.changed(collections={"rename": {"shop.a": "shop.b", "shop.b": "shop.c"}})
    names = {"shop.a": "shop.a", "shop.b": "shop.b", "shop.c": "shop.b", "shop.d": "shop.d"}
    assert {name: source_name(renamed, name) for name in names} == names


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions. Nothing is gone, unless a test says so."""
    asked = list[str]()
    monkeypatch.setattr(repair.click, "confirm", lambda question, **how: asked.append(question))
    monkeypatch.setattr(repair, "wait", lambda *_: {})
    monkeypatch.setattr(repair.rereads, "extra_now", lambda session, documents: list(documents)[:0])
    monkeypatch.setattr(repair.unreplicated, "gone", lambda session, names: frozenset())
    return asked


def test_a_confirmation_names_both_sides_the_namespaces_and_what_is_repaired(
    pipeline: Pipeline, tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A document that two verdicts have found is one document."""
    session = session_of(pipeline.changed(collections={"rename": {"shop.parcels": "archive.parcels"}}))
    places = [tmp_path / "verdict", tmp_path / "follow"]

    def write(place: Path, *found: tuple[str, int, str]) -> None:
        lines = (
            verdict_file.difference(Found(name, bson.encode({"_id": id}), *SIDES[kind]), name).line
            for name, id, kind in found
        )
        place.write_text("".join((*lines, as_line({"v": 1, "clean": False}))), encoding="utf-8")

    parcels = [("shop.parcels", 1, "extra"), ("shop.parcels", 2, "extra")]
    write(places[0], *parcels, ("shop.orders", 1, "missing"))
    write(places[1], ("shop.parcels", 2, "different"), ("shop.orders", 2, "different"))
    repair._confirm(session, of_verdicts(places), can_ask=True)
    assert capsys.readouterr().err.splitlines() == [
        "repairing from the source mongodb://a to the destination mongodb://b:",
        "  shop.orders: 1 missing, 1 different",
        "  shop.parcels → archive.parcels: 2 extra",
    ]
    assert asked == ["Delete 2 documents of archive.parcels that only mongodb://b has?"]
    write(places[0], ("shop.orders", 1, "missing"))
    write(places[1])
    repair._confirm(session, of_verdicts(places), can_ask=True)
    assert len(asked) == 1 and not capsys.readouterr().err, "nothing is deleted"


def test_what_the_source_has_lost_since_a_verdict_is_asked_about_whatever_names_it(
    pipeline: Pipeline, asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session, looked_up, on_its_way = session_of(pipeline), list[DocumentRef](), list[DocumentRef]()
    one, two, three, other = [
        DocumentRef(name, bson.encode({"_id": id}))
        for name, id in (("shop.orders", 1), ("shop.orders", 2), ("shop.orders", 3), ("shop.other", 1))
    ]
    left = {one, two}

    def extra_now(session: Session, documents: Iterable[DocumentRef]) -> Iterator[DocumentRef]:
        looked_up.extend(chosen := list(documents))
        return iter([document for document in chosen if document in left])

    def wait(session: Session, timeout: float, say: Callable[[str], None]) -> None:
        left.difference_update(on_its_way)

    monkeypatch.setattr(repair, "wait", wait)
    monkeypatch.setattr(repair.rereads, "extra_now", extra_now)
    monkeypatch.setattr(repair.unreplicated, "gone", lambda session, names: frozenset(names))
    repair._confirm(session, {one: "different", two: "missing", three: "extra", other: "different"}, can_ask=True)
    assert looked_up == [one, two, other, one, two]
    assert capsys.readouterr().err.splitlines()[1:] == [
        "  shop.orders: 3 extra",
        "  shop.other: 1 different",
        "the source has dropped or renamed shop.orders, or never had it: the destination may have the last copy of"
        " these documents; `towpath ddl shop.toml` shows what has happened",
    ]
    assert asked == ["Delete 3 documents of shop.orders that only mongodb://b has?"]
    repair._confirm(session, {one: "", two: "", three: ""}, can_ask=True)
    assert "  shop.orders: 2 extra, 1 other" in capsys.readouterr().err
    with pytest.raises(Refused, match=r"this would delete 2 documents of shop\.orders .*; nothing was changed; --yes"):
        repair._confirm(session, {one: "", two: ""}, can_ask=False)
    on_its_way[:] = [one, two]
    repair._confirm(session, {one: "", two: ""}, can_ask=False)
    assert len(asked) == 2, "what the source has just deleted is on its way"


def test_what_is_extra_by_now_is_looked_up_where_it_would_be_re_read(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An `_id` that no driver can query finds no document, and would count as deleted."""
    odd = b.document(("_id", b.embedded(("a", b.int32(1)), ("a", b.int32(2)))))
    ids = [bson.encode({"_id": id}) for id in (1, 2)]
    documents = [DocumentRef("shop.a", ids[0]), DocumentRef("shop.a", odd), DocumentRef("shop.b", ids[1])]
    looked_up = list[tuple[str, str, list[bytes]]]()

    def extra(self: Rereads, pair: Pair, ids: list[bytes]) -> Iterator[bytes]:
        looked_up.append((pair.source, pair.destination, ids))
        yield from ids if pair.source == "shop.a" else ()

    monkeypatch.setattr(Rereads, "extra", extra)
    session = session_of(pipeline.changed(collections={"rename": {"shop.a": "away.a"}}))
    assert list(extra_now(session, [*documents, DocumentRef("other.a", ids[0])])) == documents[:1]
    assert looked_up == [("shop.a", "away.a", ids[:1]), ("shop.b", "shop.b", ids[1:])]


@pytest.mark.parametrize("option", [("--ids", "shop.orders", "ids"), ("--dead-letters",), ()])
@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_no_repair_deletes_without_a_question(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: Sequence[str], yes: Sequence[str]
) -> None:
    """Whatever names the documents."""
    document, repaired, asked = DocumentRef("shop.orders", bson.encode({"_id": 1})), list[DocumentRef](), list[str]()
    (tmp_path / "ids").write_text("1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(repair, "opened", lambda file: nullcontext(session_of(pipeline)))
    for name in ("reread_requests", "target", "cutovers"):
        monkeypatch.setattr(
            repair, name, SimpleNamespace(**dict.fromkeys(("refuse_unable", "require_own", "refuse"), unsaid))
        )
    monkeypatch.setattr(repair, "_found", lambda session: ({}, {document: "different"}))
    monkeypatch.setattr(repair.rereads, "of_dead_letters", lambda *_: iter([document]))
    monkeypatch.setattr(repair.rereads, "extra_now", lambda session, documents: documents)
    monkeypatch.setattr(repair.unreplicated, "gone", lambda session, names: frozenset())
    monkeypatch.setattr(repair.unreplicated, "lines", lambda session: ())
    monkeypatch.setattr(repair.click, "confirm", lambda question, **how: asked.append(question))
    monkeypatch.setattr(repair, "passing", lambda session: nullcontext())
    monkeypatch.setattr(repair, "wait", lambda *_: {})
    monkeypatch.setattr(repair.rereads, "repair", lambda session, documents, *_: repaired.extend(documents) or iter(()))
    repair.repair.main(["shop.toml", *option, *yes], standalone_mode=False)
    assert repaired == [document]
    assert asked == ([] if yes else ["Delete 1 document of shop.orders that only mongodb://b has?"])


@pytest.mark.parametrize(
    ("id", "why"),
    [
        (b.int32(1), ""),
        (b.string("Türkiye"), ""),
        (b.embedded(("a", b.int32(1)), ("b", b.array(b.string("x")))), ""),
        (b.embedded(("a", b.int32(1)), ("a", b.int32(2))), "a name twice"),
        (b.array(b.embedded(("a", b.int32(1)), ("a", b.int32(2)))), "a name twice"),
        (Value(0x02, b"\x03\0\0\0\xff\xfe\0"), "not UTF-8"),
        (Value(0x0B, b"a\0xi\0"), "options out of order"),
        (Value(0x0B, b"a\0ix\0"), ""),
    ],
)
def test_an_id_that_no_driver_can_ask_for_is_told(id: Value, why: str) -> None:
    found = unreadable(b.document(("_id", id)))
    assert why in found
    assert bool(found) == bool(why)


@pytest.mark.parametrize("name", corpus.VALUES)
def test_what_drivers_write_can_be_asked_for(name: str) -> None:
    assert unreadable(b.document(("_id", corpus.VALUES[name]))) == ""


@pytest.mark.parametrize("name", corpus.RAW_VALUES)
def test_what_no_driver_writes_cannot(name: str) -> None:
    assert unreadable(b.document(("_id", corpus.RAW_VALUES[name]))) != ""
