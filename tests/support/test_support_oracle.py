"""The oracle tells what differs, and only that."""

from __future__ import annotations

import pytest

from tests.support import bsonbytes as b
from tests.support import oracle

PLAIN = b.document(
    ("_id", b.int32(1)),
    ("n", b.int64(5)),
    ("o", b.embedded(("z", b.double(0.0)), ("a", b.array(b.int32(1), b.embedded(("y", b.NULL), ("x", b.NULL)))))),
)
REORDERED = b.document(
    ("_id", b.int32(1)),
    ("o", b.embedded(("a", b.array(b.int32(1), b.embedded(("x", b.NULL), ("y", b.NULL)))), ("z", b.double(0.0)))),
    ("n", b.int64(5)),
)
DAMAGED = {
    "retyped": b.document(("_id", b.int32(1)), ("n", b.int32(5)), ("o", b.field(PLAIN, "o").value)),
    "negative zero": PLAIN.replace(b.double(0.0).payload, b.double(-0.0).payload),
    "field lost": b.document(("_id", b.int32(1)), ("n", b.int64(5))),
    "field added": b.document(*((e.name.decode(), e.value) for e in b.elements(PLAIN)), ("more", b.NULL)),
    "array reordered": b.document(
        ("_id", b.int32(1)),
        ("n", b.int64(5)),
        (
            "o",
            b.embedded(("z", b.double(0.0)), ("a", b.array(b.embedded(("y", b.NULL), ("x", b.NULL)), b.int32(1)))),
        ),
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("ignore_field_order", [False, True])
def test_damage_is_a_difference_in_either_mode(damage: str, ignore_field_order: bool) -> None:
    found = oracle.differences({b"k": PLAIN}, {b"k": DAMAGED[damage]}, ignore_field_order=ignore_field_order)
    assert len(found) == 1
    assert found[0].startswith("different: at ")


def test_the_order_of_fields_counts_unless_told_otherwise() -> None:
    assert oracle.differences({b"k": PLAIN}, {b"k": REORDERED})
    assert not oracle.differences({b"k": PLAIN}, {b"k": REORDERED}, ignore_field_order=True)


def test_nan_payloads_count_in_either_mode() -> None:
    quiet, odd = (b.document(("_id", b.NULL), ("v", b.double_bits(0x7FF8_0000_0000_0000 + n))) for n in (0, 1))
    assert oracle.canonical(quiet) != oracle.canonical(odd)
    assert "7ff8" in oracle.first_difference(quiet, odd) or "f87f" in oracle.first_difference(quiet, odd)


def test_fields_of_one_name_keep_their_order() -> None:
    twice, other = (b.document(("a", b.int32(n)), ("a", b.int32(1 - n))) for n in (0, 1))
    assert oracle.differences({b"k": twice}, {b"k": other}, ignore_field_order=True)


def test_missing_and_extra_are_told_apart() -> None:
    assert oracle.differences({b"k": PLAIN}, {}) == [f"missing at the destination: {oracle.show(PLAIN)}"]
    assert oracle.differences({}, {b"k": PLAIN}) == [f"extra at the destination: {oracle.show(PLAIN)}"]


def test_the_path_of_the_first_difference_is_named() -> None:
    changed = PLAIN.replace(
        b.embedded(("y", b.NULL), ("x", b.NULL)).payload, b.embedded(("y", b.NULL), ("q", b.NULL)).payload
    )
    assert oracle.first_difference(PLAIN, changed).startswith("at o.a.1: field 'x'")


def test_nothing_is_never_the_same() -> None:
    with pytest.raises(AssertionError, match="proves nothing"):
        oracle.assert_same("mongodb://nowhere", "mongodb://nowhere", ["a.b"], at_least=0)
