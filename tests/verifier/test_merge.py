"""Two streams in `_id` order, cut into batches at any place: what they have in common, and what differs."""

import random
from collections.abc import Iterable, Iterator
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import bsonbytes as b
from towpath_verifier import merge
from towpath_verifier.merge import Equal, Side, Unequal, merged

#: A document by its `_id`: its size, and what each side has: nothing, its content, or its `_id` as another type.
Documents = dict[int, tuple[int, bytes, bytes]]
_ABSENT, _INT64 = b"", b"64"
contents = st.sampled_from((b"x", b"x", b"x", b"y", _INT64, _ABSENT))
documents = st.dictionaries(st.integers(-50, 50), st.tuples(st.integers(0, 40), contents, contents), max_size=60)
#: Sizes of batches, over and over; 0 is an empty batch.
sizes = st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any)


def document(number: int, size: int = 5, content: bytes = b"x") -> bytes:
    kind = b.int64 if content == _INT64 else b.int32
    return b.document(("_id", kind(number)), ("v", b.binary(0, content * size)))


def batches(documents: Iterable[bytes], sizes: list[int]) -> Iterator[bytes]:
    left = list(documents)
    while left:
        for size in sizes:
            yield b"".join(left[:size])
            left = left[size:]


def compare(
    ours: Iterable[bytes], theirs: Iterable[bytes], cuts: tuple[list[int], list[int]] = ([3], [2, 0, 5]), **how: bool
) -> tuple[int, int, list[Unequal]]:
    """How many documents are equal, their bytes, and the others."""
    equal, size, unequal = 0, 0, []
    sides = Side(batches(ours, cuts[0])), Side(batches(theirs, cuts[1]))
    for one in merged(*sides, **how):
        if isinstance(one, Equal):
            equal, size = equal + one.documents, size + one.bytes
        else:
            unequal.append(one)
    return equal, size, unequal


@given(documents, sizes, sizes, st.sampled_from((1, 100, 1 << 18)))
def test_each_difference_is_found_once_and_none_is_invented(
    documents: Documents, ours: list[int], theirs: list[int], block: int
) -> None:
    sides = [
        {number: document(number, one[0], one[side]) for number, one in documents.items() if one[side] != _ABSENT}
        for side in (1, 2)
    ]
    source, destination = ([side[number] for number in sorted(side)] for side in sides)
    same = {number for number in sides[0] if sides[0][number] == sides[1].get(number)}
    wanted = [(sides[0].get(number), sides[1].get(number)) for number in sorted({*sides[0], *sides[1]} - same)]
    with mock.patch.object(merge, "_BLOCK", block):
        equal, size, unequal = compare(source, destination, (ours, theirs))
    assert [(one.source, one.destination) for one in unequal] == wanted
    assert [one.id for one in unequal] == [b.document(("_id", b.field(a or z or b"", "_id").value)) for a, z in wanted]
    assert (equal, size) == (len(same), sum(len(sides[0][number]) for number in same))


@given(st.permutations(range(30)), sizes, sizes)
def test_an_order_that_is_not_known_names_too_many_documents_and_misses_none(
    order: list[int], ours: list[int], theirs: list[int]
) -> None:
    left = [document(number) for number in range(30)]
    right = [document(number) for number in order if number % 7]
    equal, _, unequal = compare(left, right, (ours, theirs))
    named = {one.id for one in unequal}
    assert named >= {b.document(("_id", b.int32(number))) for number in range(0, 30, 7)}
    assert equal + len(named) == 30


def test_documents_that_one_side_lacks_are_named_one_by_one() -> None:
    ours = [document(number) for number in range(1000)]
    equal, _, unequal = compare(ours, ours[:10] + ours[990:], ([50], [50]))
    assert equal == 20
    assert [one.source for one in unequal] == ours[10:990]


@pytest.mark.parametrize("ignored", [True, False])
def test_the_order_of_fields_is_ignored_only_where_that_is_wanted(ignored: bool) -> None:
    fields = [("a", b.NULL), ("b", b.NULL)]
    one, other = (b.document(("_id", b.int32(1)), *inner) for inner in (fields, reversed(fields)))
    wanted = [] if ignored else [Unequal(b.document(("_id", b.int32(1))), one, other)]
    assert compare([one], [other], ignore_field_order=ignored)[2] == wanted


def test_a_side_counts_the_bytes_that_came_over_the_network() -> None:
    stream = [document(number) for number in random.Random(1).sample(range(100), 100)]
    side = Side(batches(stream, [7]))
    while side.fill():
        side.take()
    assert side.read == len(b"".join(stream))
