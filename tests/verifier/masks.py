"""What Java and Python must agree in: rules, documents, and what is left of these.

`masks.json` has cases that stay; `python -m tests.verifier.masks` makes it after a change of the rules. The Java tests
get others beside it, by the seed of a run.
"""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any

import bson
from bson import SON, Decimal128, Int64

from tests.support.workload import values
from towpath_verifier import Mask

FILE = Path(__file__).with_suffix(".json")
KEY = bytes(range(16))
_CASES = 12
_PATHS = (
    "n0",
    "n1",
    "s0",
    "l0",
    "d0",
    "d0.v",
    "d1.k",
    "d1.w",
    "a0.text",
    "o0",
    "o1.a",
    "o1.b.k",
    "o2.z",
    "x0",
    "x1.k",
    "é",
)
_CONSTANTS: dict[str, Any] = {
    "{$numberInt: '7'}": 7,
    "{$numberLong: '1099511627776'}": 2**40,
    "{$numberDouble: '0.5'}": 0.5,
    "true": True,
    "'redacted'": "redacted",
}
#: Numbers at the limits of their canonical form.
_NUMBERS = [
    *(Decimal128(text) for text in ("0", "-0", "5.00", "0.5", "0.1", "1E+18", "1E+19", "9223372036854775807")),
    *(
        Decimal128(text)
        for text in ("-9223372036854775808", "9223372036854775808", "1E+6144", "1E-6176", "NaN", "-sNaN")
    ),
    *(
        Decimal128(text)
        for text in ("Infinity", "-Infinity", "1.797693134862315708145274237317044E+308", "12345678901234567890.5")
    ),
    *(Decimal128.from_bid(bid) for bid in (b"\xff" * 15 + b"\x5f", b"\xff" * 14 + b"\xff\x31", b"\x01" * 15 + b"\x6c")),
    *(2.0**63, -(2.0**63), 2.0**62, 5e-324, -0.0, float("nan"), float("-inf"), Int64(2**53 + 1), 2.0**53),
]


def cases(seed: int, count: int) -> list[dict[str, Any]]:
    """Rule as the connector has it, document and result in base64; so many with random documents."""
    random = Random(seed)
    documents = [values.document(random) for _ in range(count)]
    documents += [{"n0": number, "o0": {"7": {"a": [number]}}} for number in _NUMBERS]
    documents += [{"d0.v": 1, "d0": {"3": {"v": 2}, "v": [{"4": 5}]}, "5": {"s0": "x"}, "o1.a": {"b": {"k": 1}}}]
    return [_case(random, bson.encode(SON([("_id", n), *each.items()]))) for n, each in enumerate(documents)]


def _case(random: Random, document: bytes) -> dict[str, Any]:
    paths = ["n0", "o0", *random.sample(_PATHS[2:], 7)]
    drop, hashed, constant = paths[7:], paths[:4], paths[4:7]
    texts = {path: random.choice(list(_CONSTANTS)) for path in constant if path not in hashed}
    mask = Mask(tuple(drop), tuple(hashed), {path: _CONSTANTS[text] for path, text in texts.items()}, KEY)
    sets = ", ".join(f"'{path}': {text}" for path, text in texts.items())
    rule = f"[{{collections: 's[.]c', drop: {json.dumps(drop)}, hash: {json.dumps(hashed)}, set: {{{sets}}}}}]"
    return {"rule": rule, "document": b64encode(document).decode(), "left": b64encode(mask(document)).decode()}


def text(seed: int = 7, count: int = _CASES) -> str:
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases(seed, count))
    return f'{{"key": "{KEY.hex()}", "cases": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
