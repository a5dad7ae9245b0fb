"""Updates by operators: one function for each kind, drawn at random.

A kind's function gives a `Change`; the server may refuse it where the document at hand is not of the usual shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.workload import values as v

Update = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One update: what to do, and what else the document must match."""

    update: Update | list[Update]
    condition: dict[str, Any] = field(default_factory=dict)
    array_filters: tuple[dict[str, Any], ...] | None = None
    upsert: bool = False


def _inner_path(random: Random) -> str:
    """A path of two to four steps into an object or into what was one."""
    steps = random.choices(v.INNER, k=random.choice((1, 1, 1, 2, 2, 3)))
    return ".".join((random.choice(v.OBJECTS + v.ANYTHING), *steps))


def _set(random: Random) -> Change:
    names = random.sample(v.NUMBERS + v.BITS + v.STRINGS + v.ARRAYS + v.DOCUMENT_ARRAYS + v.OBJECTS + v.ANYTHING, 3)
    return Change({"$set": {name: v.usual(random, name) for name in names[: random.randint(1, 3)]}})


def _set_nested(random: Random) -> Change:
    return Change({"$set": {_inner_path(random): v.leaf(random)}})


def _set_many_nested(random: Random) -> Change:
    """New fields of one object side by side: the server sorts them, numbers first."""
    parent = random.choice(v.OBJECTS)
    return Change({"$set": {f"{parent}.{name}": v.leaf(random) for name in random.sample(v.INNER, 5)}})


def _set_numeric(random: Random) -> Change:
    """A number in a path is an index in an array and a name in an object."""
    parent = random.choice(v.ARRAYS + v.OBJECTS + v.ANYTHING)
    return Change({"$set": {f"{parent}.{random.randint(0, 8)}": v.scalar(random)}})


def _set_element_field(random: Random) -> Change:
    parent = random.choice(v.DOCUMENT_ARRAYS)
    name = random.choice(("v", "k", "w", "w.1", "new", "new.deep"))
    return Change({"$set": {f"{parent}.{random.randint(0, 2)}.{name}": v.scalar(random)}})


def _reshape(random: Random) -> Change:
    """Scalars become objects and arrays, and the other way round."""
    return Change({"$set": {random.choice(v.ANYTHING): random.choice((v.scalar, v.obj, v.scalars, v.rows))(random)}})


def _unset(random: Random) -> Change:
    everything = v.NUMBERS + v.STRINGS + v.ARRAYS + v.DOCUMENT_ARRAYS + v.LONG_ARRAYS + v.OBJECTS + v.ANYTHING
    paths = {random.choice(everything), _inner_path(random), f"{random.choice(v.ARRAYS)}.{random.randint(0, 3)}"}
    return Change({"$unset": dict.fromkeys(sorted(_compatible(paths)), "")})


def _compatible(paths: set[str]) -> set[str]:
    """Leave out paths that are inside another one: the server refuses the pair."""
    return {path for path in paths if not any(path.startswith(other + ".") for other in paths)}


def _number_path(random: Random) -> str:
    return random.choice((*v.NUMBERS, *v.NUMBERS, "d0.0.v", "d1.1.v", "o0.k"))


def _inc(random: Random) -> Change:
    return Change({"$inc": {_number_path(random): random.choice((1, 2.5, v.number(random), v.odd_number(random)))}})


def _mul(random: Random) -> Change:
    return Change({"$mul": {_number_path(random): random.choice((0, 2, -1.0, 0.5, v.odd_number(random)))}})


def _min(random: Random) -> Change:
    return Change({"$min": {random.choice(v.NUMBERS + v.STRINGS + v.ANYTHING): v.scalar(random)}})


def _max(random: Random) -> Change:
    return Change({"$max": {random.choice(v.NUMBERS + v.STRINGS + v.ANYTHING): v.scalar(random)}})


def _rename(random: Random) -> Change:
    old = random.choice((*v.ANYTHING, *v.NUMBERS, *v.STRINGS, f"o0.{random.choice(v.INNER)}"))
    new = random.choice((*v.ANYTHING, f"o1.{random.choice(v.INNER)}", "o2.new.deep"))
    return Change({"$rename": {old: new}}, {old: {"$exists": True}})


def _current_date(random: Random) -> Change:
    kind = random.choice((True, {"$type": "date"}, {"$type": "timestamp"}))
    return Change({"$currentDate": {random.choice(("clock", "clocks.one", "clocks.two")): kind}})


def _set_on_insert(random: Random) -> Change:
    update = {"$setOnInsert": {"x0": v.anything(random), "o0.z": 1, "o0.a": 2}, "$set": {"n0": v.number(random)}}
    return Change(update, upsert=True)


def _bit(random: Random) -> Change:
    return Change({"$bit": {random.choice(v.BITS): {random.choice(("and", "or", "xor")): v.integer(random)}}})


def _push(random: Random) -> Change:
    return Change({"$push": _array(random, lambda _, element: element)})


def _push_each(random: Random) -> Change:
    return Change({"$push": _array(random, lambda more, element: {"$each": [element, *more]})})


def _push_slice(random: Random) -> Change:
    size = random.choice((0, 1, 3, 6, -1, -4))
    return Change({"$push": _array(random, lambda more, element: {"$each": [element, *more], "$slice": size})})


def _push_position(random: Random) -> Change:
    place = random.choice((0, 1, 3, -1, -2, 50))
    return Change({"$push": _array(random, lambda more, element: {"$each": [element, *more], "$position": place})})


def _push_sort(random: Random) -> Change:
    if random.random() < 0.5:
        sort: Any = random.choice(({"k": 1}, {"v": -1, "k": 1}))
        pushed = {"$each": v.rows(random), "$sort": sort, "$slice": random.choice((8, -8))}
        return Change({"$push": {random.choice(v.DOCUMENT_ARRAYS): pushed}})
    each = {"$each": v.scalars(random), "$sort": random.choice((1, -1)), "$slice": random.choice((8, -8))}
    return Change({"$push": {random.choice(v.ARRAYS): each}})


def _array(random: Random, operand: Callable[[list[Any], Any], Any]) -> dict[str, Any]:
    """An array field and what `operand` makes of further elements and one element that suit it."""
    if random.random() < 0.5:
        return {random.choice(v.DOCUMENT_ARRAYS): operand(v.rows(random, 2), v.row(random))}
    return {random.choice(v.ARRAYS): operand(v.scalars(random, most=2), v.scalar(random))}


def _add_to_set(random: Random) -> Change:
    elements = [random.choice((1, 1.0, "a", None, v.scalar(random))) for _ in range(3)]
    return Change({"$addToSet": {random.choice(v.ARRAYS): {"$each": elements}}})


def _pull(random: Random) -> Change:
    if random.random() < 0.5:
        return Change({"$pull": {random.choice(v.DOCUMENT_ARRAYS): {"k": {"$gte": random.randint(1, 5)}}}})
    return Change({"$pull": {random.choice(v.ARRAYS): {"$gte": random.randint(-20, 20)}}})


def _pull_all(random: Random) -> Change:
    if random.random() < 0.5:
        cells = random.sample(range(10), 6)
        return Change({"$pullAll": {f"{random.choice(v.DOCUMENT_ARRAYS)}.{random.randint(0, 1)}.w": cells}})
    return Change({"$pullAll": {random.choice(v.ARRAYS): [None, True, False, "", 1, v.scalar(random)]}})


def _pop(random: Random) -> Change:
    return Change({"$pop": {random.choice(v.ARRAYS + v.DOCUMENT_ARRAYS): random.choice((1, -1))}})


def _push_capped(random: Random) -> Change:
    """At the end with the oldest cut off, or in front with the last one cut off: the server logs the whole array."""
    options = random.choice(({"$slice": -v.CAP}, {"$slice": -v.CAP}, {"$position": 0, "$slice": v.CAP}))
    return Change({"$push": {random.choice(v.LONG_ARRAYS): {"$each": [v.long_row(random)], **options}}})


def _pop_first(random: Random) -> Change:
    return Change({"$pop": {random.choice(v.LONG_ARRAYS): -1}})


def _pull_long(random: Random) -> Change:
    return Change({"$pull": {random.choice(v.LONG_ARRAYS): {"k": random.randint(0, v.CAP)}}})


def _positional(random: Random) -> Change:
    parent = random.choice(v.DOCUMENT_ARRAYS)
    return Change({"$set": {f"{parent}.$.v": v.scalar(random)}}, {f"{parent}.k": {"$gte": random.randint(0, 4)}})


def _all_elements(random: Random) -> Change:
    parent = random.choice(v.DOCUMENT_ARRAYS)
    update = random.choice(({"$inc": {f"{parent}.$[].k": 1}}, {"$set": {f"{parent}.$[].w.$[]": random.randint(0, 9)}}))
    return Change(update, {f"{parent}.0": {"$exists": True}})


def _some_elements(random: Random) -> Change:
    parent = random.choice(v.DOCUMENT_ARRAYS)
    if random.random() < 0.5:
        filters = ({"row.k": {"$lt": random.randint(1, 6)}},)
        return Change({"$set": {f"{parent}.$[row].v": v.scalar(random)}}, {f"{parent}.0": {"$exists": True}}, filters)
    update = {"$inc": {f"{parent}.$[row].w.$[cell]": 10}}
    return Change(update, {f"{parent}.0": {"$exists": True}}, ({"row.k": {"$gte": 2}}, {"cell": {"$lt": 5}}))


def _several(random: Random) -> Change:
    """Operators side by side on fields of one document."""
    return Change(
        {
            "$set": {"x3": v.scalar(random), "s1": v.string(random), "o2.9": 1, "o2.10": 2},
            "$inc": {"n3": 1},
            "$unset": {"x0": "", "o1.a": ""},
            "$push": {"d1": v.row(random)},
        }
    )


CHANGES: dict[str, Callable[[Random], Change]] = {
    "$set": _set,
    "$set nested": _set_nested,
    "$set many nested": _set_many_nested,
    "$set numeric": _set_numeric,
    "$set element field": _set_element_field,
    "$set reshape": _reshape,
    "$unset": _unset,
    "$inc": _inc,
    "$mul": _mul,
    "$min": _min,
    "$max": _max,
    "$rename": _rename,
    "$currentDate": _current_date,
    "$setOnInsert": _set_on_insert,
    "$bit": _bit,
    "$push": _push,
    "$push $each": _push_each,
    "$push $slice": _push_slice,
    "$push $position": _push_position,
    "$push $sort": _push_sort,
    "$addToSet": _add_to_set,
    "$pull": _pull,
    "$pullAll": _pull_all,
    "$pop": _pop,
    "$push capped": _push_capped,
    "$pop first": _pop_first,
    "$pull long": _pull_long,
    "$": _positional,
    "$[]": _all_elements,
    "$[identifier]": _some_elements,
    "several operators": _several,
}
