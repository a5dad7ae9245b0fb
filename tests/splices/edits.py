"""A seeded stream of array edits, such as make a server log whole arrays; none of them is ever refused.

A document has an array of rows (`rows`), one of short texts with many equal ones (`texts`) and one of rows deep inside
(`of.the.rows`). At each moment a path holds an array or nothing, so every edit suits every document; but where nothing
is left of an array, `$push` begins a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from bson import Decimal128, Int64
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne

Write = InsertOne[dict[str, Any]] | UpdateOne | ReplaceOne[dict[str, Any]] | DeleteOne
Update = Mapping[str, Any] | list[Mapping[str, Any]]

ROWS, TEXTS, DEEP = ARRAYS = ("rows", "texts", "of.the.rows")
CAP = 40
#: A field whose name has a dot: only a collection of `whole_documents` may change it.
DOTTED = "dotted.rows"


def row(random: Random) -> dict[str, Any]:
    number = random.randrange(40)
    value = random.choice((number, Int64(number), number / 2, Decimal128(f"{number}.0"), None))
    return {"k": number, "v": value, "t": random.choice("abc") * random.randint(20, 40)}


def text(random: Random) -> str:
    return f"{random.randrange(30):02} of thirty texts"


def element(random: Random, path: str) -> Any:
    return text(random) if path == TEXTS else row(random)


def some(random: Random, path: str, least: int, most: int) -> list[Any]:
    return [element(random, path) for _ in range(random.randint(least, most))]


def fields(random: Random) -> dict[str, Any]:
    """A document without its `_id`."""
    whole = {path: some(random, path, CAP // 2, CAP) for path in ARRAYS}
    return {ROWS: whole[ROWS], "n": 0, TEXTS: whole[TEXTS], "of": {"x": 1, "the": {DEEP.split(".")[-1]: whole[DEEP]}}}


def _push(random: Random, path: str) -> Update:
    """At the end, with the oldest cut off: the capped array."""
    return {"$push": {path: {"$each": some(random, path, 1, 2), "$slice": -CAP}}}


def _push_at(random: Random, path: str) -> Update:
    options = {"$position": random.choice((0, 1, 5, -3, 100)), "$slice": random.choice((CAP, -CAP))}
    return {"$push": {path: {"$each": some(random, path, 1, 3), **options}}}


def _append(random: Random, path: str) -> Update:
    return {"$push": {path: element(random, path)}}


def _pop(random: Random, path: str) -> Update:
    return {"$pop": {path: random.choice((1, -1, -1))}}


def _pull(random: Random, path: str) -> Update:
    return {"$pull": {path: text(random) if path == TEXTS else {"k": random.randrange(40)}}}


def _pull_all(random: Random, path: str) -> Update:
    return {"$pullAll": {path: some(random, path, 1, 3)}}


def _add_to_set(random: Random, path: str) -> Update:
    return {"$addToSet": {path: {"$each": some(random, path, 1, 3)}}}


def _sorted(random: Random, path: str) -> Update:
    order = random.choice((1, -1))
    sort: Any = order if path == TEXTS else {"k": order}
    return {"$push": {path: {"$each": some(random, path, 1, 2), "$sort": sort, "$slice": CAP}}}


def _whole(random: Random, path: str) -> Update:
    return {"$set": {path: some(random, path, 0, CAP)}}


def _swapped(random: Random, path: str) -> Update:
    """A pipeline that writes the whole array with two neighbours in the other's place."""
    place, array = random.randrange(CAP), {"$ifNull": [f"${path}", []]}
    first, second = ({"$slice": [array, at, 1]} for at in (place, place + 1))
    rest = {"$slice": [array, place + 2, CAP * 10]}
    before = {"$cond": [place == 0, [], {"$slice": [array, 0, max(place, 1)]}]}
    return [{"$set": {path: {"$concatArrays": [before, second, first, rest]}}}]


def _unset(random: Random, path: str) -> Update:
    """The array, or what it is in."""
    return {"$unset": {random.choice((path, path.split(".")[0])): ""}}


def _two(random: Random, path: str) -> Update:
    other = random.choice([one for one in ARRAYS if one != path])
    pushed = {one: {"$each": some(random, one, 1, 2), "$slice": -CAP} for one in (path, other)}
    return {"$push": pushed, "$set": {"n": random.randrange(9), f"x{random.randrange(9)}": 1}}


_KINDS: dict[Callable[[Random, str], Update], int] = {
    _push: 40, _push_at: 12, _append: 6, _pop: 10, _pull: 8, _pull_all: 4, _add_to_set: 4,
    _sorted: 4, _whole: 3, _swapped: 3, _unset: 1, _two: 6,
}  # fmt: skip


class Edits:
    """Edits of the documents 0 … `documents` − 1, which `fill` makes."""

    def __init__(self, seed: int, documents: int) -> None:
        self.random, self.documents = Random(seed), documents

    def fill(self) -> list[dict[str, Any]]:
        return [{"_id": number} | fields(self.random) for number in range(self.documents)]

    def segment(self, count: int) -> list[Write]:
        """About so many writes, in the order in which they are to be done."""
        found: list[Write] = []
        while len(found) < count:
            found += self._next()
        return found

    def _next(self) -> Iterator[Write]:
        random = self.random
        # a few documents are changed again and again
        same = {"_id": random.randrange(3) if random.random() < 0.1 else random.randrange(self.documents)}
        path = random.choice(ARRAYS)
        match random.choices(("edit", "element", "retype", "rename", "replace", "again"), (88, 5, 2, 1, 2, 2))[0]:
            case "element":
                place = random.randrange(CAP)
                within = same | {f"{path}.{place}": {"$exists": True}}
                deeper = f"{path}.{place}" if path == TEXTS or random.random() < 0.5 else f"{path}.{place}.v"
                new = 1 if deeper.endswith(".v") else element(random, path)
                yield UpdateOne(within, random.choice(({"$set": {deeper: new}}, {"$unset": {deeper: ""}})))
                yield UpdateOne(same, {"$pull": {path: None}})  # an element that was unset is null
            case "retype":
                yield UpdateOne(same, {"$set": {path: random.choice((5, {"0": 1}, None))}})
                yield UpdateOne(same, _whole(random, path))
            case "rename":
                yield UpdateOne(same, {"$rename": {path: "away"}})
                yield UpdateOne(same, _push(random, path))
                yield UpdateOne(same, {"$rename": {"away": path}})
            case "replace":
                yield ReplaceOne(same, fields(random))
            case "again":
                yield DeleteOne(same)
                yield InsertOne(same | fields(random))
            case _:
                (kind,) = random.choices(list(_KINDS), list(_KINDS.values()))
                yield UpdateOne(same, kind(random, path))


def dotted(random: Random, number: int) -> UpdateOne:
    """A push into the array whose name has a dot."""
    old = {"$ifNull": [{"$getField": DOTTED}, []]}
    new = {"$slice": [{"$concatArrays": [old, [row(random)]]}, -CAP]}
    stage = {"$replaceWith": {"$setField": {"field": DOTTED, "input": "$$ROOT", "value": new}}}
    return UpdateOne({"_id": number}, [stage])
