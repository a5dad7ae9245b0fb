"""What a dead letter says: where it came from, where it was to go, and why it did not."""

from __future__ import annotations

from collections.abc import Iterable

import bson
from confluent_kafka import Message

from towpath.log.dead_letters import EXAMPLES, DeadLetter, dead_letter, examples

KEY = bson.encode({"_id": 5})
RECORD = {"v": "1 u 7:1 1700000000000"}
LETTER = RECORD | {
    "topic": "shop.shop.orders",
    "partition": "3",
    "offset": "42",
    "namespace": "archive.orders",
    "code": "121",
    "reason": "Document failed validation",
}


def message(headers: dict[str, str], key: bytes = KEY, value: bytes | None = None) -> Message:
    listed = [(name, text.encode()) for name, text in headers.items()]
    return Message(topic="shop.dead-letters", partition=0, offset=1, key=key, value=value, headers=listed)


def test_a_dead_letter_with_its_record() -> None:
    value = bson.encode({"$set": {"n": bson.Int64(1)}})
    found = dead_letter(message(LETTER, value=value))
    assert found.place == ("shop.shop.orders", 3, 42)
    shown = found.as_json(canonical=True)
    assert (shown["namespace"], shown["code"], shown["reason"]) == ("archive.orders", 121, "Document failed validation")
    assert shown["key"] == '{"_id": {"$numberInt": "5"}}'
    assert shown["value"] == '{"$set": {"n": {"$numberLong": "1"}}}'
    assert (shown["kind"], shown["op"], shown["cluster_time"]) == ("update", "u", "7:1")


def test_a_delete_has_no_value() -> None:
    shown = dead_letter(message(LETTER | {"v": "1 d 7:1 1700000000000"})).as_json(canonical=False)
    assert (shown["kind"], shown["value"]) == ("delete", None)


def test_what_connect_itself_set_aside_is_shown_in_hexadecimal_where_it_is_no_bson() -> None:
    names = {"topic": "a.b.c", "partition": "0", "offset": "9", "exception.message": "no record"}
    headers = {f"__connect.errors.{name}": text for name, text in names.items()}
    shown = dead_letter(message(headers, value=b"\1\2")).as_json(canonical=False)
    assert (shown["topic"], shown["offset"], shown["reason"]) == ("a.b.c", 9, "no record")
    assert (shown["value"], shown["code"], shown["kind"]) == ("0102", None, None)


def test_a_record_that_is_no_dead_letter_is_about_itself() -> None:
    found = dead_letter(message(RECORD))
    assert found.place == ("shop.dead-letters", 0, 1)
    assert "without the headers of a dead letter" in found.reason


def test_a_flood_of_one_cause_does_not_hide_the_documents_of_the_others() -> None:
    def letters(reason: str, numbers: Iterable[int]) -> list[DeadLetter]:
        return [dead_letter(message(LETTER | {"reason": reason, "offset": str(number)})) for number in numbers]

    rare, flood = letters("rare", range(2)), letters("flood", range(2, 100))
    causes = [("archive.orders", "121", "flood"), ("archive.orders", "121", "rare")]
    shown = examples([*rare, *flood], causes)
    assert [letter.place[2] for letter in shown] == [*range(99, 99 - EXAMPLES + 1, -1), 1]
    assert [letter.place[2] for letter in examples(rare, causes[1:])] == [1, 0]
    many = [letter for number in range(EXAMPLES + 5) for letter in letters(f"cause {number}", [number])]
    causes = [("archive.orders", "121", f"cause {number}") for number in range(EXAMPLES + 5)]
    assert [letter.place[2] for letter in examples(many, causes)] == list(reversed(range(EXAMPLES)))
