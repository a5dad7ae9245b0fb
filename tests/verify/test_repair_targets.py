"""Which documents a repair is asked for, and which no driver could ask for."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId
from bson.son import SON

from tests.support import bsonbytes as b
from tests.support import corpus
from tests.support.bsonbytes import Value
from towpath.cli import repair
from towpath.config import loading as pipeline_file
from towpath.config.events import as_line
from towpath.config.pipeline import Pipeline
from towpath.errors import TowpathError
from towpath.store import verdict_file
from towpath.verify.repair import of_file, of_verdicts, source_name, unreadable
from towpath_verifier import Difference as Found

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


def test_a_confirmation_names_both_sides_the_namespaces_and_what_is_repaired(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A document that two verdicts have found is one document."""
    asked = list[str]()
    renamed = pipeline.changed(collections={"rename": {"shop.parcels": "archive.parcels"}})
    places = [tmp_path / "verdict", tmp_path / "follow"]
    monkeypatch.setattr(repair.click, "confirm", lambda question, **how: asked.append(question))

    def write(place: Path, *found: tuple[str, int, str]) -> None:
        lines = (
            verdict_file.difference(Found(name, bson.encode({"_id": id}), *SIDES[kind]), name).line
            for name, id, kind in found
        )
        place.write_text("".join((*lines, as_line({"v": 1, "clean": False}))), encoding="utf-8")

    parcels = [("shop.parcels", 1, "extra"), ("shop.parcels", 2, "extra")]
    write(places[0], *parcels, ("shop.orders", 1, "missing"))
    write(places[1], ("shop.parcels", 2, "different"), ("shop.orders", 2, "different"))
    repair._confirm(renamed, of_verdicts(places))
    assert capsys.readouterr().err.splitlines() == [
        "repairing from the source mongodb://a to the destination mongodb://b:",
        "  shop.orders: 1 missing, 1 different",
        "  shop.parcels → archive.parcels: 2 extra",
    ]
    assert asked == ["Delete 2 documents of archive.parcels that the last verdict found only at mongodb://b?"]
    write(places[0], ("shop.orders", 1, "missing"))
    write(places[1])
    repair._confirm(renamed, of_verdicts(places))
    assert len(asked) == 1 and not capsys.readouterr().err, "nothing is deleted"


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
