"""Records that nothing of ours wrote, in the hands of everything that reads the log: shown, counted or skipped."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, ObjectId, Regex, Timestamp
from confluent_kafka import Message

from tests.checks.test_check_judgements import PIPELINE
from tests.support.fuzz import cases, told
from towpath.cli.tail import _as_text, _foreign
from towpath.errors import TopicError, TowpathError
from towpath.history.sink_run import _key
from towpath.history.unprotected import Part
from towpath.log.dead_letters import dead_letter
from towpath.log.integrity import Cut, Scan
from towpath.log.records import Record, in_short, is_key, record, source_milliseconds
from towpath.verify.repair import document_of, of_file, unreadable
from towpath_verifier import id_key

KEY = bson.encode({"_id": Int64(5)})
DOCUMENT = bson.encode(
    {
        "_id": 5,
        "a": {"b": [1, "x", None, True]},
        "r": Regex("a", "i"),
        "o": ObjectId(b"x" * 12),
        "t": Timestamp(1, 2),
        "d": Decimal128("1.5"),
        "b": b"bytes",
    }
)
UPDATE = bson.encode({"$set": {"a.b": 1}, "$unset": {"c": ""}})
SPLICE = bson.encode({"$set": {"a.b": 1}, "$splice": {"c": [9, [0, 1, []], [4, 2, [{"x": 1}, "y"]]]}})
DEEP = bson.encode({"_id": 5})
for _ in range(400):
    DEEP = (len(DEEP) + 8).to_bytes(4, "little") + b"\x03a\x00" + DEEP + b"\x00"
FOREIGN = [b"", b"null", b'{"_id": 5}', b"\0\0\0\0\x2a\x02\x0ahello", b"\xff" * 20, DEEP]
HEADERS = [
    b"",
    b"1",
    b"2",
    b"2 u 1:2 5",
    b"1 u",
    b"1 u 1:2 x",
    b"1 u 1:2 5 row-follows",
    b"-1",
    b"9" * 5000,
    b"9" * 19,
    b"1e5",
    b"1:2",
    b"\xff\xfe",
    b"1700000000:1",
    b" 1 ",
]


def _bytes(random: Random, good: bytes) -> bytes | None:
    raw = bytearray(good)
    match random.randrange(8):
        case 0:
            return None
        case 1:
            return random.choice(FOREIGN)
        case 2:
            return random.randbytes(random.randrange(60))
        case 3:
            del raw[random.randrange(len(raw)) :]
        case 4:
            raw[random.randrange(4, len(raw))] ^= 1 << random.randrange(8)
        case 5:
            at = random.randrange(len(raw) - 4)
            raw[at : at + 4] = random.choice([0, 1, 2**31 - 1, 2**32 - 1, 2**31]).to_bytes(4, "little")
    return bytes(raw)


def _message(random: Random, offset: int) -> Message:
    headers: list[tuple[str, Any]] = [("v", b"1 u 1700000000:1 1700000000000")]
    for _ in range(random.randrange(3)):
        names = ["v", "topic", "partition", "offset", "code", "reason", "é"]
        headers.append((random.choice(names), random.choice([*HEADERS, None])))
    random.shuffle(headers)
    return Message(
        topic="shop.shop.orders",
        partition=0,
        offset=offset,
        key=_bytes(random, KEY),
        value=_bytes(random, random.choice([DOCUMENT, UPDATE, SPLICE])),
        headers=headers[random.randrange(2) * random.randrange(4) :],
        timestamp=(2, 1_700_000_000_000),
    )


def _read(message: Message, outcomes: Counter[str]) -> None:
    try:
        found = record(message)
        shown: dict[str, Any] = found.as_json(canonical=True)
        if found.value is not None and in_short(found.value, canonical=True):
            outcomes["in short"] += 1
        outcomes["a record"] += 1
    except TowpathError as error:
        assert "shop.shop.orders, partition 0, offset" in str(error)
        shown = _foreign(message, str(error), canonical=False)
        outcomes["foreign"] += 1
    assert _as_text(shown)
    json.dumps(shown)
    letter = dead_letter(message)
    json.dumps(letter.as_json(canonical=False))
    source_milliseconds(message)
    if is_key(message.key()):
        outcomes["with a key"] += 1


def test_every_reader_goes_on() -> None:
    outcomes = Counter[str]()
    for case, random in cases("records of others", 500):
        messages = [_message(random, offset) for offset in range(4)]
        part, scan = Part(), Scan(("shop.shop.orders", 0), (0, 4), Cut(1_700_000_000_000, 2))
        try:
            for message in messages:
                _read(message, outcomes)
                part.take(message.offset() or 0, 1, message.key(), message.value())
                scan.gather(message)
            assert part.next == 4, case
            assert all(map(is_key, part.dirty)), case
            scan.gathered()
            for message in messages:
                scan.resolve(message)
        except TopicError as error:
            assert "without a cluster time" in str(error), case
            outcomes["no cluster time"] += 1
        except Exception as error:
            raise AssertionError(f"{case}: {error!r}") from error
    told("records of others", outcomes)
    assert min(outcomes.values()) > 20
    assert len(outcomes) == 5


def test_an_update_with_splices_is_shown_in_short() -> None:
    assert in_short(SPLICE, canonical=False) == 'c: -1 at 0, -2 +2 at 4 [{"x": 1}, "y"]; {"$set": {"a.b": 1}}'
    whole = bson.encode({"$splice": {"c.d": [1, [1, 0, [bson.Int64(1)]]], "e": [2, [0, 2, []]]}})
    assert in_short(whole, canonical=True) == 'c.d: +1 at 1 [{"$numberLong": "1"}]; e: -2 at 0'
    for other in ({"$set": {"a": 1}}, {"$splice": 5}, {"$splice": {"a": 5}}, {"$splice": {"a": [1, [2, 3]]}}):
        assert in_short(bson.encode(other), canonical=False) is None, other


def test_a_key_is_an_id_alone() -> None:
    assert is_key(KEY)
    assert is_key(b"\x13\0\0\0\x02_id\0\x05\0\0\0a\xff\xfeb\0\0"), "text that is not UTF-8"
    for other in (None, b"", "text", DOCUMENT, UPDATE, bson.encode({}), DEEP, KEY[:-1], KEY + b"\0"):
        assert not is_key(other), other


@pytest.mark.parametrize("kind", [b"\x03", b"\x04"])
@pytest.mark.parametrize("levels", [100, 200, 245, 255, 400, 900, 3000, 50_000])
def test_a_key_of_many_levels_is_shown_and_sorted_or_unknown(kind: bytes, levels: int) -> None:
    key = b"\x05\0\0\0\0"
    for name in [b"0"] * levels + [b"_id"]:
        key = (len(key) + len(name) + 7).to_bytes(4, "little") + kind + name + b"\0" + key + b"\0"
    headers = [("v", b"1 u 1700000000:1 1700000000000")]
    message = Message(topic="a.b.c", partition=0, offset=0, key=key, value=key, headers=headers, timestamp=(2, 1))
    try:
        shown = record(message).as_json(canonical=False)
    except TowpathError as error:
        shown = _foreign(message, str(error), canonical=False)
    assert _as_text(shown)
    assert dead_letter(message).as_json(canonical=True)["key"] == shown["key"] == _key(key)
    assert is_key(key) is (levels < 250)
    if is_key(key):
        assert id_key(key) == id_key(bytes(key))
        assert unreadable(key) == ""


def test_a_value_of_many_levels_is_shown() -> None:
    value = b"\x05\0\0\0\0"
    for _ in range(900):
        value = (len(value) + 8).to_bytes(4, "little") + b"\x03a\0" + value + b"\0"
    found = Record("a.b.c", 0, 0, 1, 1, "1:1", "u", "update", KEY, value)
    assert found.as_json(canonical=True)["value"] == value.hex()


def test_ids_of_many_levels_in_a_file_are_words(tmp_path: Path) -> None:
    file = tmp_path / "ids"
    file.write_text("[" * 100_000 + "]" * 100_000)
    with file.open() as stream, pytest.raises(TowpathError, match=r"line 1: .* is not the Extended JSON of an _id"):
        list(of_file(PIPELINE, "shop.orders", stream))


def test_times_are_utc_and_say_so() -> None:
    shown = {
        "time_ms": 1_700_000_001_000,
        "cluster_time": "1700000000:7",
        "partition": 0,
        "offset": 1,
        "kind": "update",
        "key": "",
        "value": "",
    }
    assert _as_text(shown).startswith("2023-11-14T22:13:20Z  1700000000:7  ")
    for foreign in ({**shown, "cluster_time": ""}, {**shown, "cluster_time": None}):
        assert _as_text(foreign).startswith("2023-11-14T22:13:21Z  -  ")
    for foreign in ({**shown, "cluster_time": f"{1 << 80}:1"}, {**shown, "cluster_time": "x"}):
        assert _as_text(foreign).startswith("----------T--:--:--Z  -  ")


def test_a_dead_letter_of_no_document_is_about_none() -> None:
    for key in (b"", b"\xff" * 9, b"null", KEY[:-1], DEEP):
        assert document_of(None, "shop.shop.orders", key) is None  # type: ignore[arg-type]  # not looked at
