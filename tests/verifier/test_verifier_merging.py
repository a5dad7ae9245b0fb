"""Two streams in `_id` order, cut into batches at any place: what they have in common, and what not."""

import random

import pytest

from tests.support import bsonbytes as b
from towpath_verifier.merge import Equal, Side, Unequal, merged


def document(number, filling=b"x", *, kind=b.int32):
    return b.document(("_id", kind(number)), ("v", b.binary(0, filling * (number % 7))))


def batches(documents, chance):
    """Documents in batches of any size, empty ones among them."""
    left = list(documents)
    while left:
        size = chance.choice((0, 1, 2, 3, 50))
        yield b"".join(left[:size])
        left = left[size:]


def compare(ours, theirs, chance, **how):
    equal, unequal = 0, []
    for one in merged(Side(batches(ours, chance)), Side(batches(theirs, chance)), **how):
        if isinstance(one, Equal):
            equal += one.documents
        else:
            unequal.append(one)
    return equal, unequal


@pytest.mark.parametrize("round", range(30))
def test_each_difference_is_found_once_and_none_is_invented(round, seed):
    chance = random.Random(seed + round)
    ours = {number: document(number) for number in range(400)}
    theirs = dict(ours)
    wanted = {}
    for number in chance.sample(range(1, 400), chance.choice((0, 1, 20, 399))):
        match chance.choice("mxde"):
            case "m":
                del theirs[number]
                wanted[number] = (ours[number], None)
            case "x":
                del ours[number]
                wanted[number] = (None, theirs[number])
            case "d":
                theirs[number] = document(number, b"yy")
                wanted[number] = (ours[number], theirs[number])
            case "e":  # another type of number, the same _id to a server
                theirs[number] = document(number, kind=b.int64)
                wanted[number] = (ours[number], theirs[number])
    wanted = {number: both for number, both in wanted.items() if both[0] != both[1]}
    equal, unequal = compare(ours.values(), theirs.values(), chance)
    assert [(one.source, one.destination) for one in unequal] == [wanted[number] for number in sorted(wanted)]
    assert equal == len(ours.keys() | theirs.keys()) - len(wanted)


def test_a_stretch_that_one_side_lacks_is_named_document_by_document():
    ours = [document(number) for number in range(1000)]
    equal, unequal = compare(ours, ours[:10] + ours[990:], random.Random(1))
    assert equal == 20
    assert [one.source for one in unequal] == ours[10:990]


def test_order_of_fields_passes_when_it_is_to_be_ignored():
    one = b.document(("_id", b.int32(1)), ("a", b.NULL), ("b", b.NULL))
    other = b.document(("_id", b.int32(1)), ("b", b.NULL), ("a", b.NULL))
    assert compare([one], [other], random.Random(1), ignore_field_order=True) == (1, [])
    assert compare([one], [other], random.Random(1)) == (0, [Unequal(b.document(("_id", b.int32(1))), one, other)])


def test_an_order_that_is_not_known_names_too_many_documents_and_passes_none_over():
    ours = [document(number) for number in range(100)]
    theirs = random.Random(1).sample(ours, 100)
    equal, unequal = compare(ours, theirs, random.Random(2))
    named = {one.id for one in unequal}
    assert equal + len(named) == 100


def test_a_side_tells_the_last_document_that_was_taken_over_the_end_of_a_batch():
    side = Side(iter([document(1) + document(2), document(3)]))
    assert side.position is None
    side.fill()
    side.take(), side.take()
    assert side.fill()
    assert side.position == b.document(("_id", b.int32(2)))


def test_a_side_passes_over_the_document_it_is_to_go_on_behind():
    known = b.document(("_id", b.double(1.0)))
    from towpath_verifier.raw import id_key

    side = Side(iter([document(1) + document(2)]), id_key(known))
    side.fill()
    assert side.take() == document(2)
