"""The order of `_id`s and the walks over bytes, without a server."""

import itertools
import random

import pytest

from tests.support import bsonbytes as b
from tests.support.corpus import DOCUMENTS, IDENTITIES, RAW_DOCUMENTS
from towpath_verifier import id_key, raw
from towpath_verifier.differences import differing, in_one_order, readable, same_but_for_order

#: Ascending, as MongoDB's documentation of the comparison order has it; those of one line are equal to it.
ASCENDING = [
    [b.MIN_KEY],
    [b.UNDEFINED],
    [b.NULL],
    [
        *(b.double(float("nan")), b.double_bits(0x7FF8_0000_DEAD_BEEF), b.double_bits(0xFFF8_0000_0000_0000)),
        # decimals: quiet, signaling, and signaling with sign and payload
        *(b.decimal_bits(0x7C00 << 48, 0), b.decimal_bits(0x7E00 << 48, 0), b.decimal_bits(0xFE00 << 48, 7)),
    ],
    [b.double(float("-inf")), b.decimal_bits(0xF800_0000_0000_0000, 0)],
    [b.int64(-(2**63))],
    [b.double(-0.5)],
    [b.double(-0.0), b.int32(0), b.int64(0)],
    [b.int32(5), b.int64(5), b.double(5.0)],
    [b.double(5.5)],
    [b.int64(2**53), b.double(2.0**53)],
    [b.int64(2**53 + 1)],
    [b.double(float("inf"))],
    [b.string("")],
    [b.string("a"), b.symbol("a")],
    [b.string("a\0b")],
    [b.string("b")],
    [b.embedded()],
    [b.embedded(("b", b.int32(1))), b.embedded(("b", b.double(1.0)))],
    [b.embedded(("b", b.int32(2)))],
    [b.embedded(("b", b.int32(2)), ("a", b.NULL))],
    [b.embedded(("a", b.string("")))],
    [b.embedded(("a", b.embedded(("c", b.int64(1)))))],
    [b.embedded(("a", b.embedded(("c", b.int64(2)))))],
    [b.binary(0, b"")],
    [b.binary(5, b"")],
    [b.binary(0, b"z")],
    [b.binary(0, b"aa")],
    [b.object_id(bytes(12))],
    [b.boolean(0)],
    [b.boolean(1)],
    [b.date(-1)],
    [b.date(0)],
    [b.timestamp(0, 0)],
    [b.timestamp(0xFFFF_FFFF, 0)],
    [b.code("x")],
    [b.code_with_scope("x", b.document())],
    [b.code_with_scope("x", b.document(("n", b.int32(1))))],
    [b.code_with_scope("x", b.document(("n", b.int32(2))))],
    [b.MAX_KEY],
]


def key(value):
    return id_key(b.document(("_id", value)))


def test_keys_ascend_as_mongodb_orders_ids_and_equal_ids_have_one_key():
    keys = [[key(value) for value in line] for line in ASCENDING]
    for line in keys:
        assert {hash(one) for one in line} == {hash(line[0])}
        assert all(one == line[0] for one in line)
    firsts = [line[0] for line in keys]
    shuffled = random.Random(1).sample(firsts, len(firsts))
    assert sorted(shuffled) == firsts
    assert all(one < other for one, other in itertools.pairwise(firsts))


@pytest.mark.parametrize("name", list(IDENTITIES))
def test_every_id_is_found_wherever_it_stands_and_has_a_key(name):
    value = IDENTITIES[name]
    document = b.document(("a", b.embedded(("_id", b.NULL))), ("_id", value), ("z", b.NULL))
    assert raw.id_document(b"junk" + document, 4) == b.document(("_id", value))
    assert id_key(document) == key(value)


@pytest.mark.parametrize("specimen", [*DOCUMENTS, *RAW_DOCUMENTS], ids=lambda specimen: specimen.name)
def test_a_walk_over_a_document_loses_nothing(specimen):
    assert raw.document(raw.elements(specimen.document)) == specimen.document
    assert list(raw.documents(specimen.document * 3)) == [specimen.document] * 3
    assert in_one_order(in_one_order(specimen.document)) == in_one_order(specimen.document)


def test_order_alone_is_told_from_content():
    one = b.document(("a", b.array(b.embedded(("x", b.NULL), ("y", b.int32(1))))), ("b", b.NULL))
    other = b.document(("b", b.NULL), ("a", b.array(b.embedded(("y", b.int32(1)), ("x", b.NULL)))))
    retyped = b.document(("b", b.NULL), ("a", b.array(b.embedded(("y", b.int64(1)), ("x", b.NULL)))))
    turned = b.document(("a", b.array(b.int32(1), b.int32(2))))
    assert same_but_for_order(one, other)
    assert not same_but_for_order(one, retyped)
    assert not same_but_for_order(turned, b.document(("a", b.array(b.int32(2), b.int32(1)))))
    assert not same_but_for_order(
        b.document(("a", b.int32(1)), ("a", b.NULL)), b.document(("a", b.NULL), ("a", b.int32(1)))
    )


def test_differing_paths_are_named_with_both_values():
    one = b.document(("a", b.array(b.int32(1), b.embedded(("v", b.int32(1))))), ("gone", b.NULL), ("same", b.NULL))
    other = b.document(("a", b.array(b.int32(1), b.embedded(("v", b.int64(1))))), ("same", b.NULL), ("new", b.NULL))
    found = [
        (part.path, part.source and part.source.kind, part.destination and part.destination.kind)
        for part in differing(one, other)
    ]
    assert found == [("a.1.v", 0x10, 0x12), ("gone", 0x0A, None), ("new", None, 0x0A)]


def test_names_that_occur_twice_are_compared_by_place():
    one = b.document(("a", b.int32(1)), ("a", b.int32(2)))
    other = b.document(("a", b.int32(1)), ("a", b.int32(3)))
    assert [(p.path, p.source.value, p.destination.value) for p in differing(one, other)] == [
        ("a", b"\x02\0\0\0", b"\x03\0\0\0")
    ]


def test_a_name_that_occurs_twice_on_one_side_hides_no_value():
    twice = b.document(("o", b.embedded(("a", b.int32(1)), ("a", b.int32(2)))))
    once = b.document(("o", b.embedded(("a", b.int32(2)))))
    for one, other in ((twice, once), (once, twice)):
        assert [part.path for part in differing(one, other)] == ["o.a", "o.a"]


def test_an_order_that_differs_is_one_path_with_both_objects():
    one = b.document(("o", b.embedded(("a", b.int32(1)), ("b", b.int32(2)))))
    other = b.document(("o", b.embedded(("b", b.int32(2)), ("a", b.int32(1)))))
    (part,) = differing(one, other)
    assert (part.path, part.order) == ("o", True)
    assert {part.source.kind, part.destination.kind} == {0x03}
    assert (part.source.value, part.destination.value) == tuple(
        b.field(whole, "o").value.payload for whole in (one, other)
    )


def test_a_document_for_people_is_json_or_its_bytes_and_is_cut_where_it_is_long():
    assert readable(b.document(("_id", b.int32(1)), ("é", b.string("ü")))) == (
        '{\n  "_id": {\n    "$numberInt": "1"\n  },\n  "é": "ü"\n}'
    )
    twice = b.document(("a", b.int32(1)), ("a", b.int32(2)))
    assert readable(twice) == f"BSON {twice.hex()}", "JSON would lose a value"
    long = readable(b.document(("a", b.string("x" * 5_000))))
    assert (len(long), long[-16:]) == (4_000 + len("… (5,013 bytes)"), "x… (5,013 bytes)")
    huge = readable(b.document(("a", b.string("x" * 70_000))))
    assert huge.startswith("BSON ") and huge.endswith("… (70,013 bytes)") and len(huge) < 4_100
