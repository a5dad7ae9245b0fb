"""Odd field names are found in the bytes of documents of every type."""

import pytest

from tests.support import bsonbytes as b
from tests.support.corpus import ODD_NAMES, VALUES, Specimen
from towpath.checks.source import odd_names


@pytest.mark.parametrize("name", VALUES)
def test_a_value_of_any_type_is_stepped_over(name: str) -> None:
    found = list(odd_names(b.document(("_id", b.int32(1)), ("v", VALUES[name]), ("a.b", b.int32(2)))))
    assert found[-1] == ("a.b",)
    assert all(path[0] == "v" for path in found[:-1])


def test_every_odd_name_is_found_at_its_depth() -> None:
    inner = b.embedded(("", b.NULL), ("fine", b.NULL), ("$x", b.NULL), ("a$", b.NULL))
    document = b.document((".", b.NULL), ("in", b.array(b.embedded(("deep", inner)))), ("x", inner))
    expected = {(".",), ("in", "[]", "deep", ""), ("in", "[]", "deep", "$x"), ("x", ""), ("x", "$x")}
    assert set(odd_names(document)) == expected
    assert set(odd_names(document, may_hold_dots=True)) == expected - {(".",)}


@pytest.mark.parametrize("specimen", ODD_NAMES, ids=lambda specimen: specimen.name)
def test_documents_with_odd_names_are_told(specimen: Specimen) -> None:
    harmless = specimen.name == "dollar in the middle"
    assert bool(list(odd_names(specimen.document))) is not harmless


def test_positions_in_arrays_are_no_names() -> None:
    assert list(odd_names(b.document(("a", b.array(b.int32(1), b.array(b.int32(2))))))) == []
