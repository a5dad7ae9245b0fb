"""What a mask leaves of a document, as a specification and as MongoSource has it."""

from __future__ import annotations

import pickle
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64
from hypothesis import given
from hypothesis import strategies as st

from tests.verifier import masks
from towpath_verifier import Mask, key_id
from towpath_verifier.mask import _canonical
from towpath_verifier.raw import elements

KEY = b"key"
HASHED = "hashed"


def left(mask: Mask, document: dict[str, Any]) -> dict[str, Any]:
    """Decoded; texts of 32 digits are shown as `HASHED`."""
    found: dict[str, Any] = bson.decode(mask(bson.encode(document)))
    return _shown(found)  # type: ignore[no-any-return]


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shown(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shown(inner) for inner in value]
    return HASHED if isinstance(value, str) and len(value) == 32 else value


@pytest.mark.parametrize(
    ("mask", "document", "expected"),
    [
        (Mask(("a",)), {"_id": 1, "a": 2, "b": 3}, {"_id": 1, "b": 3}),
        (Mask(("a.b",)), {"a": {"b": 2, "c": 3}}, {"a": {"c": 3}}),
        (Mask(("a.b",)), {"a": [{"b": 2, "c": 3}, 4, [{"b": 5}]]}, {"a": [{"c": 3}, 4, [{}]]}),
        (Mask(("a.b",)), {"a": {"7": {"b": 2}}, "5": {"a": {"b": 3}}}, {"a": {"7": {}}, "5": {"a": {}}}),
        (Mask(("a.b",)), {"a.b": 2, "a.0.b": 3, "a.bc": 4, "a": {"": {"b": 5}}}, {"a.bc": 4, "a": {"": {"b": 5}}}),
        (Mask(("a",)), {"_id": {"a": 1}, "b": {"a": 1}}, {"_id": {"a": 1}, "b": {"a": 1}}),
        (Mask(("a", "a.b")), {"a": {"b": 1}, "c": 2}, {"c": 2}),
        (Mask(("a",), (), {"a": 1, "a.b": 2}), {"a": {"b": 1}}, {}),
        (Mask((), (), {"a": "x"}), {"a": [1, None, {"b": True, "c": []}]}, {"a": ["x", None, {"b": "x", "c": []}]}),
        (
            Mask((), (), {"a": 5, "a.b": 2**40, "a.b.c": True}),
            {"a": {"b": {"c": 1, "d": 2}, "e": 3}},
            {"a": {"b": {"c": True, "d": 2**40}, "e": 5}},
        ),
        (
            Mask(("a.b",), ("a",), {}, KEY),
            {"a": {"b": 1, "c": [2, None]}, "d": 3},
            {"a": {"c": [HASHED, None]}, "d": 3},
        ),
    ],
)
def test_what_is_left(mask: Mask, document: dict[str, Any], expected: dict[str, Any]) -> None:
    assert left(mask, document) == expected


def test_names_of_elements_count_for_nothing() -> None:
    """A client that writes BSON itself can give the elements of an array any names."""
    mask = Mask(("a.b",), (), {"a.c": 7})
    stored, expected = (
        bson.encode({"a": inner}).replace(b"\x03a\0", b"\x04a\0")
        for inner in ({"x": {"b": 1, "c": 2}, "b": 3}, {"x": {"c": 7}, "b": 3})
    )
    assert mask(stored) == expected


@pytest.mark.parametrize("path", ["_id", "_id.a", "a..b", "", "a.0"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path"):
        Mask((path,))


def test_what_no_rule_names_is_the_same_object() -> None:
    document = bson.encode({"_id": 1, "a": {"c": 1}, "d": [{"b": 1}]})
    assert Mask(("a.b", "x"))(document) is document
    assert Mask()(document) is document
    assert Mask(("a",)).batch(document + document) == document.replace(document, b"") + 2 * Mask(("a",))(document)


def test_java_and_python_leave_the_same() -> None:
    assert masks.FILE.read_text(encoding="utf-8") == masks.text(), "python -m tests.verifier.masks; Java reads it too"


@pytest.mark.parametrize(
    ("one", "other"),
    [(5, Int64(5)), (5, 5.0), (5, Decimal128("5.00")), (0.5, Decimal128("0.50")), (0, -0.0), (2.0**62, 2**62)],
)
def test_equal_numbers_have_one_hash(one: Any, other: Any) -> None:
    mask = Mask((), ("a",), {}, KEY)
    assert mask(bson.encode({"a": one})) == mask(bson.encode({"a": other}))
    assert mask(bson.encode({"a": one})) != mask(bson.encode({"a": "5"}))


def test_identity_and_repr_tell_masks_apart_and_not_the_key() -> None:
    one, other = (Mask(("b", "a"), ("c",), {"d": 1}, key) for key in (b"one", b"other"))
    assert one.identity != other.identity and one.identity == Mask(("a", "b"), ("c",), {"d": 1}, b"one").identity
    assert Mask(("a",), (), {}, b"one").identity == Mask(("a",), (), {}, b"other").identity
    assert b"one".hex() not in str(one.identity) and "one" not in repr(one)
    assert len(key_id(b"one")) == 16


def test_a_mask_can_be_sent_to_another_process() -> None:
    mask, document = Mask(("a",), ("b",), {"c": 1}, KEY), bson.encode({"a": 1, "b": 2, "c": 3})
    mask(document)
    assert pickle.loads(pickle.dumps(mask))(document) == mask(document)


def test_hashes_need_a_key() -> None:
    with pytest.raises(ValueError, match="need a key"):
        Mask((), ("a",))


_NAMES = st.sampled_from(("a", "b", "c", "0", "12", "a.b", ""))
_VALUES = st.recursive(
    st.sampled_from((None, 1, "text", True, 0.5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)
_PATHS = st.lists(st.sampled_from(("a", "b", "a.b", "a.b.c", "b.a", "c")), max_size=3)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4), _PATHS, _PATHS)
def test_nothing_is_left_of_dropped_fields_and_a_second_time_changes_nothing(
    document: dict[str, Any], drop: list[str], constant: list[str]
) -> None:
    mask = Mask(tuple(drop), (), dict.fromkeys(constant, "constant"))
    once = mask(bson.encode(document))
    assert mask(once) == once
    assert not set(drop) & set(_paths(once))


def _paths(document: bytes, above: tuple[str, ...] = ()) -> list[str]:
    """All paths in a document, without numbers."""
    found = []
    for kind, name, value in elements(document):
        path = (*above, *(part for part in name.decode().split(".") if not part.isdigit()))
        found += [".".join(path[: n + 1]) for n in range(len(path))]
        if kind in (3, 4):
            found += _paths(value, path)
    return found


def test_a_value_that_is_no_number_is_hashed_as_it_is_stored() -> None:
    element = next(elements(bson.encode({"a": "text"})))
    assert _canonical(element.kind, element.value) == b"\x02\x05\0\0\0text\0"
