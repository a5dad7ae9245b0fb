"""What a dead letter says: where it came from, where it was to go, and why it did not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import bson
import pytest
from confluent_kafka import Message

from tests.checks.test_check_judgements import PIPELINE
from tests.support.memory_topics import MemoryConsumer, MemoryTopics
from towpath.errors import TopicError
from towpath.log import dead_letters
from towpath.log.dead_letters import EXAMPLES, DeadLetter, DeadLetters, dead_letter, end, examples, letters, summarize

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


def test_a_dead_letter_of_connect_itself_is_shown_in_hexadecimal_where_it_is_no_bson() -> None:
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


PIPELINE_OF_LETTERS = PIPELINE.changed(mode="exactly-once")
TOPIC = "move.dead-letters"


def stored(*letters: tuple[int, str]) -> MemoryTopics:
    """A dead-letter topic with one letter for each of these offsets and reasons."""
    topics = MemoryTopics(**{TOPIC: 1})
    for number, reason in letters:
        topics.write(TOPIC, (KEY, None, 1))
        headers = [(name, text.encode()) for name, text in (LETTER | {"offset": str(number), "reason": reason}).items()]
        offsets = topics.stored[TOPIC, 0].offsets
        offsets[-2] = 1_000, topics.message(TOPIC, 0, len(offsets) - 2, KEY, b"value", headers)
    return topics


def counted(topics: MemoryTopics) -> DeadLetters:
    return summarize(PIPELINE_OF_LETTERS, topics, topics.all())


def test_a_record_that_was_rejected_twice_counts_once_and_causes_are_the_most_frequent_first() -> None:
    topics = stored((1, "rare"), (2, "flood"), (3, "flood"), (2, "flood"))
    found = counted(topics)
    assert (found.count, found.complete) == (3, True)
    assert [(cause.reason, cause.records) for cause in found.causes] == [("flood", 2), ("rare", 1)]
    assert [letter.place[2] for letter in found.examples] == [3, 2, 1]
    topics.cut(TOPIC, 2)  # as retention does
    assert counted(topics).count == 2
    topics.cut(TOPIC, 8)
    assert counted(topics) == DeadLetters(0, True, ())
    assert counted(MemoryTopics()) == DeadLetters(0, True, ())


@pytest.mark.parametrize("limit", ["NEWEST", "_BYTES", "_SECONDS"])
def test_where_not_all_dead_letters_are_read_all_of_them_are_counted(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = stored((1, "first"), (2, "second"), (3, "third"))
    monkeypatch.setattr(dead_letters, limit, {"NEWEST": 2, "_BYTES": 2 * len(b"value"), "_SECONDS": -1}[limit])
    found = counted(topics)
    assert (found.count, found.complete) == (6, False)
    read = {"NEWEST": ["third"], "_BYTES": ["first", "second"], "_SECONDS": ["first"]}
    assert [cause.reason for cause in found.causes] == read[limit]


def test_dead_letters_that_kafka_does_not_give_are_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_SECONDS", 0.05)
    topics = stored((1, "first"), (2, "second"))
    monkeypatch.setattr(MemoryConsumer, "consume", lambda *_, **__: [])
    assert counted(topics) == DeadLetters(4, False, ())


def test_dead_letters_are_listed_from_an_offset_on_and_later_ones_follow() -> None:
    topics = stored((1, "first"), (2, "second"), (3, "third"))

    def listed(*, follow: bool = False, start: int = 0) -> Iterator[int]:
        return (one.place[2] for one in letters(PIPELINE_OF_LETTERS, topics, follow=follow, start=start))

    assert end(PIPELINE_OF_LETTERS, topics) == 6
    assert [list(listed(start=start)) for start in (0, 1, 2, 6, 9)] == [[1, 2, 3], [2, 3], [2, 3], [], []]
    following = listed(follow=True, start=4)
    assert next(following) == 3
    topics.write(TOPIC, (KEY, None, 1))
    assert next(following) == 6, "which is no dead letter, and is about itself"
    topics.cut(TOPIC, 4)
    assert list(listed(start=1)) == [3, 6], "retention has deleted what was before"
    assert end(PIPELINE_OF_LETTERS, MemoryTopics()) == 0
    with pytest.raises(TopicError, match=r"no topic move\.dead-letters at memory"):
        next(letters(PIPELINE_OF_LETTERS, MemoryTopics(), follow=False))
