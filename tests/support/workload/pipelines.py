"""Updates by aggregation pipelines.

A change stream cannot tell a field that moves from one that is set in place. So these pipelines, `MOVES` aside,
keep the relative order of what exists and add what is new behind it, at every depth: where one object may take
the place of another, it has one field, or names that never occurred before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.support.workload import values as v
from tests.support.workload.changes import Change

#: A pipeline's generator takes names that never occurred before from the second argument.
Pipeline = Callable[[Random, Iterator[str]], Change]


def fresh_names(random: Random) -> Iterator[str]:
    """Names that never repeat and are not in ascending order."""
    count = 0
    while True:
        count += 1
        yield f"w{random.choice('zmaZ09')}{count}"


def _array_of(name: str) -> dict[str, Any]:
    """The field if it holds an array, else an empty one."""
    return {"$cond": [{"$isArray": f"${name}"}, f"${name}", []]}


def _literal(random: Random, fresh: Iterator[str]) -> Any:
    """A value that takes the place of any other without moving a field."""
    shapes = (
        v.scalar(random),
        v.scalars(random),
        {random.choice(v.INNER): v.scalar(random)},
        {next(fresh): v.scalar(random), next(fresh): v.scalar(random), next(fresh): v.scalars(random)},
    )
    return {"$literal": random.choice(shapes)}


def _set(random: Random, fresh: Iterator[str]) -> Change:
    plain = {"$cond": [{"$in": [{"$type": "$s0"}, ["object", "array", "missing"]]}, "none", "$s0"]}
    total = {"$add": [{"$cond": [{"$isNumber": "$n0"}, "$n0", 0]}, 1]}
    fields = {
        "c0": plain,
        "n0": total,
        random.choice(v.ANYTHING): _literal(random, fresh),
        f"{random.choice(v.OBJECTS)}.{random.choice(v.INNER)}": _literal(random, fresh),
    }
    return Change([{"$set": v.shuffled(random, fields, least=1)}])


def _unset(random: Random, fresh: Iterator[str]) -> Change:
    paths = [random.choice(v.ANYTHING + v.OBJECTS), f"d0.{random.choice(('k', 'w'))}", random.choice(v.NUMBERS)]
    return Change([{"$unset": paths}, {"$set": {next(fresh): 1}}])


def _replace_with(random: Random, fresh: Iterator[str]) -> Change:
    if random.random() < 0.2:
        new = {next(fresh): v.leaf(random) for _ in range(random.randint(1, 12))}
        return Change([{"$replaceWith": {"$mergeObjects": [{"_id": "$_id"}, {"$literal": new}]}}])
    new = {next(fresh): v.leaf(random) for _ in range(3)}
    return Change([{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"$literal": new}]}}])


def _new_fields(random: Random, fresh: Iterator[str]) -> Change:
    """Several new fields, on top and inside, in another order."""
    parent = random.choice(v.OBJECTS)
    names = [next(fresh), next(fresh), f"{parent}.{next(fresh)}", f"{parent}.{next(fresh)}"]
    return Change([{"$set": {name: {"$literal": v.leaf(random)} for name in names}}])


def _concat(random: Random, fresh: Iterator[str]) -> Change:
    if random.random() < 0.5:
        name = random.choice(v.DOCUMENT_ARRAYS)
        parts: list[Any] = [_array_of(name), {"$literal": v.rows(random, 3)}]
    else:
        name = random.choice(v.ARRAYS)
        parts = random.sample([_array_of(name), {"$literal": v.scalars(random, most=3)}], 2)
    return Change([{"$set": {name: {"$slice": [{"$concatArrays": parts}, 60]}}}])


def _slice(random: Random, fresh: Iterator[str]) -> Change:
    if random.random() < 0.5:
        name, size = random.choice(v.DOCUMENT_ARRAYS), random.randint(0, 3)
    else:
        name, size = random.choice(v.ARRAYS), random.choice((0, 1, 2, 5, -1, -2, -5))
    return Change([{"$set": {name: {"$slice": [_array_of(name), size]}}}], {f"{name}.1": {"$exists": True}})


def _slice_and_change(random: Random, fresh: Iterator[str]) -> Change:
    """Cut the array and change one of the elements that stay."""
    name = random.choice(v.DOCUMENT_ARRAYS)
    kept = random.randint(1, 4)
    element = {"$arrayElemAt": [f"${name}", "$$at"]}
    new = {random.choice(("v", "k", next(fresh))): {"$literal": v.scalar(random)}}
    changed = {
        "$cond": [{"$eq": ["$$at", random.randrange(kept)]}, {"$mergeObjects": [element, new]}, element],
    }
    places = {"$range": [0, {"$min": [kept, {"$size": f"${name}"}]}]}
    mapped = {"$map": {"input": places, "as": "at", "in": changed}}
    more: dict[str, Any] = {"n1": v.number(random)} if random.random() < 0.5 else {}
    return Change([{"$set": {name: mapped} | more}], {f"{name}.1": {"$exists": True}})


def _rearrange(random: Random, fresh: Iterator[str]) -> Change:
    """The elements of an array change places: only where they are no objects."""
    name = random.choice(v.ARRAYS)
    return Change([{"$set": {name: {"$reverseArray": _array_of(name)}}}], {f"{name}.1": {"$exists": True}})


PIPELINES: dict[str, Pipeline] = {
    "pipeline $set": _set,
    "pipeline $unset": _unset,
    "pipeline $replaceWith": _replace_with,
    "pipeline new fields": _new_fields,
    "pipeline $concatArrays": _concat,
    "pipeline $slice": _slice,
    "pipeline $slice and change": _slice_and_change,
    "pipeline $reverseArray": _rearrange,
}


def _move_to_the_end(random: Random, fresh: Iterator[str]) -> Change:
    name = random.choice(v.NUMBERS + v.STRINGS)
    rest = {"$unsetField": {"field": name, "input": "$$ROOT"}}  # stages of $unset and $set would leave it in place
    return Change([{"$replaceWith": {"$mergeObjects": [rest, {name: f"${name}"}]}}])


def _move_to_the_front(random: Random, fresh: Iterator[str]) -> Change:
    name = random.choice(v.NUMBERS + v.STRINGS)
    return Change([{"$replaceWith": {"$mergeObjects": [{"_id": "$_id", name: f"${name}"}, "$$ROOT"]}}])


MOVES: dict[str, Pipeline] = {
    "pipeline move to the end": _move_to_the_end,
    "pipeline move to the front": _move_to_the_front,
}

_ODD = ("a.b", "$x", "o0.k", "", "x0.0", ".", "l0.1")


def _set_field(random: Random, fresh: Iterator[str]) -> Change:
    change = {"field": {"$literal": random.choice(_ODD)}, "input": "$$ROOT", "value": {"$literal": v.scalar(random)}}
    return Change([{"$replaceWith": {"$setField": change}}])


def _unset_field(random: Random, fresh: Iterator[str]) -> Change:
    change = {"field": {"$literal": random.choice(_ODD)}, "input": "$$ROOT"}
    return Change([{"$replaceWith": {"$unsetField": change}}])


ODD_NAMES: dict[str, Pipeline] = {"odd $setField": _set_field, "odd $unsetField": _unset_field}
