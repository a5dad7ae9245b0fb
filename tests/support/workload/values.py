"""Random values and documents for the workload.

Fields go by what they usually hold, so that most updates meet what they need: `n` numbers, `b` integers for `$bit`,
`s` strings, `l` arrays that never hold an object, `d` arrays of documents, `a` arrays so long that a splice is smaller,
`o` objects, `x` anything, `c` copies, `w…` names that occur once, `clock` the server's time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

Value = Any
NUMBERS = ("n0", "n1", "n2", "n3")
BITS = ("b0", "b1")
STRINGS = ("s0", "s1")
ARRAYS = ("l0", "l1", "l2")
DOCUMENT_ARRAYS = ("d0", "d1")
LONG_ARRAYS = ("a0",)
#: How many elements a long array keeps.
CAP = 14
OBJECTS = ("o0", "o1", "o2")
ANYTHING = ("x0", "x1", "x2", "x3")
#: Names inside objects: numeric ones, near-numeric ones and plain ones sort differently at the server.
INNER = ("0", "1", "2", "10", "9", "01", "a", "b", "k", "z", "Z", "_", "a1", "é")

_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


def number(random: Random) -> Value:
    small = random.randint(-40, 40)
    return random.choice(
        (
            small,
            Int64(small),
            float(small),
            Decimal128(str(small)),
            random.uniform(-1e6, 1e6),
            Decimal128(f"{small}.{random.choice(('0', '00', '10'))}"),
            Int64(random.getrandbits(62)),
        )
    )


def odd_number(random: Random) -> Value:
    """Numbers that few expect, and that arithmetic keeps to itself."""
    return random.choice(
        (-0.0, float("nan"), float("inf"), 5e-324, Decimal128("NaN"), Decimal128("-0E+3"), Decimal128("1E-6176"))
    )


def integer(random: Random) -> Value:
    wide = random.getrandbits(31)
    return random.choice((wide, Int64(wide), Int64(random.getrandbits(62)), -wide))


def string(random: Random) -> str:
    return random.choice(("", "a\0b", "é", "日本🚢", "$n0", "0", "null")) + "s" * random.randint(0, 12)


_SCALARS: tuple[Callable[[Random], Value], ...] = (
    number,
    number,
    odd_number,
    string,
    string,
    lambda _: None,
    lambda random: random.random() < 0.5,
    lambda random: _EPOCH + timedelta(milliseconds=random.randint(-(10**12), 10**11)),
    lambda random: ObjectId(random.randbytes(12)),
    lambda random: Binary(random.randbytes(random.randint(0, 20)), random.choice((0, 2, 5, 6, 128))),
    lambda random: Timestamp(random.randint(1, 2**31), random.randint(0, 9)),
    lambda random: Regex("a|b", random.choice(("", "i", "ms"))),
    lambda _: Code("f()"),
    lambda random: Code("f()", {"z": 1, "a": Int64(random.randint(0, 9))}),
    lambda random: random.choice((MinKey(), MaxKey())),
)


def scalar(random: Random) -> Value:
    return random.choice(_SCALARS)(random)


def scalars(random: Random, *, depth: int = 2, most: int = 6) -> list[Value]:
    """An array of scalars and, now and then, of such arrays."""
    return [
        scalars(random, depth=depth - 1, most=3) if depth and random.random() < 0.15 else scalar(random)
        for _ in range(random.randint(0, most))
    ]


def row(random: Random) -> dict[str, Value]:
    """An element of an array of documents."""
    fields = {"k": random.randint(0, 5), "v": number(random), "w": [random.randint(0, 9) for _ in range(3)]}
    return shuffled(random, fields, least=2)


def rows(random: Random, most: int = 5) -> list[Value]:
    return [row(random) for _ in range(random.randint(0, most))]


def long_row(random: Random) -> dict[str, Value]:
    return {"k": random.randint(0, CAP), "v": scalar(random), "text": random.choice("abc") * 50}


def long_rows(random: Random) -> list[Value]:
    return [long_row(random) for _ in range(CAP)]


def obj(random: Random, depth: int = 2) -> dict[str, Value]:
    """An object of a few fields in random order, nested to `depth`."""
    names = random.sample(INNER, random.randint(0, 4))
    return {name: obj(random, depth - 1) if depth and random.random() < 0.3 else leaf(random) for name in names}


def leaf(random: Random) -> Value:
    """What ends a path: a scalar, or an array of anything."""
    return random.choice((scalar, scalar, scalar, scalar, scalars, rows))(random)


def anything(random: Random) -> Value:
    return random.choice((scalar, scalars, rows, obj))(random)


def usual(random: Random, name: str) -> Value:
    """What the top-level field usually holds."""
    return _USUAL[name[0]](random)


_USUAL: dict[str, Callable[[Random], Value]] = {
    "n": number,
    "b": integer,
    "s": string,
    "l": scalars,
    "d": rows,
    "a": long_rows,
    "o": obj,
    "x": anything,
}


def document(random: Random) -> dict[str, Value]:
    """A document without its `_id`."""
    names = NUMBERS + BITS + STRINGS + ARRAYS + DOCUMENT_ARRAYS + LONG_ARRAYS + OBJECTS + ANYTHING
    return shuffled(random, {name: usual(random, name) for name in names}, least=8)


def shuffled(random: Random, fields: dict[str, Value], *, least: int) -> dict[str, Value]:
    """Some of these fields, `least` at least, in random order."""
    return {name: fields[name] for name in random.sample(list(fields), random.randint(least, len(fields)))}


def identity(random: Random, index: int) -> Value:
    """An `_id` of document `index`: numbers, which half of them hold, come as any that the server holds equal."""
    number = random.choice((index, index, Int64(index), float(index), Decimal128(str(index)), Decimal128(f"{index}.0")))
    match index % 10:
        case 3 | 8:
            return {"a": number, "b": "x"}
        case 4:
            return f"k{index}"
        case 5:
            return ObjectId(index.to_bytes(12, "big"))
        case 6:
            return Binary(index.to_bytes(16, "big"), 4)
        case 9:
            return _EPOCH + timedelta(hours=index)
    return number
