"""Which records `tail` takes by the source's time and by document, and where it begins to read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId
from click.testing import CliRunner

from tests.checks.test_check_judgements import PIPELINE
from tests.deploy.test_changes_in_log import KEY
from tests.support.memory_topics import MemoryTopics
from towpath.cli.tail import _records, _selection, tail
from towpath.clients.kafka import consume
from towpath.clients.mongo.client import ClusterTime
from towpath.errors import TopicError, TowpathError
from towpath.history.plan import END_OF_SECOND
from towpath.log.selection import CLOCKS_S, Selection, starts
from towpath.verify.repair import id_of
from towpath_verifier import id_key

TOPIC = "move.shop.one"
HOUR = 3_600


def document(number: object, second: int) -> tuple[bytes, bytes, int]:
    return bson.encode({"_id": number}), bson.encode({"_id": number}), second


@pytest.fixture
def topics() -> MemoryTopics:
    """Changes of each hour, appended half an hour late, and a row of a later time between them."""
    made = MemoryTopics()
    made.make(TOPIC, 2)
    for hour in range(1, 6):
        appended = (hour * HOUR + HOUR // 2) * 1_000
        made.write(TOPIC, document(hour, hour * HOUR), partition=hour % 2, at_ms=appended)
    made.write(TOPIC, document(9, 2 * HOUR), at_ms=6 * HOUR * 1_000)
    return made


def found(topics: MemoryTopics, wanted: Selection) -> tuple[list[int], int]:
    """The `_id`s that are taken, and how many records were read for it."""
    ends = topics.ends(topics.all().values())
    begin = starts(topics, ends, wanted.since)
    consumer = topics.consumer()
    window = {place: (begin[place], end) for place, (_, end) in ends.items()}
    read = [message for _, message in consume.messages(consumer, window)]
    taken = [bson.decode(message.key())["_id"] for message in filter(wanted.takes, read)]  # type: ignore[arg-type]
    return sorted(taken), len(read)


def test_a_time_is_looked_up_in_the_log_and_then_judged_by_that_of_the_source(topics: MemoryTopics) -> None:
    assert found(topics, Selection()) == ([1, 2, 3, 4, 5, 9], 6)
    assert found(topics, Selection(since=ClusterTime(4 * HOUR, 1))) == ([4, 5], 3)
    assert found(topics, Selection(since=ClusterTime(4 * HOUR, 2))) == ([5], 3)
    assert found(topics, Selection(ClusterTime(2 * HOUR, 0), ClusterTime(2 * HOUR, END_OF_SECOND))) == ([2, 9], 5)
    assert found(topics, Selection(since=ClusterTime(9 * HOUR, 0))) == ([], 0)


def test_tail_begins_at_the_end_unless_something_is_wanted(topics: MemoryTopics) -> None:
    session: Any = SimpleNamespace(pipeline=PIPELINE, topics=topics)
    counts = {
        (begins, wanted.since): len(list(_records(session, "shop.one", wanted, begins=begins, follow=False)))
        for begins in (False, True)
        for wanted in (Selection(), Selection(since=ClusterTime(4 * HOUR, 1)))
    }
    assert list(counts.values()) == [0, 0, 6, 3]
    with pytest.raises(TopicError, match=r"existing ones: shop\.one"):
        list(_records(session, "shop.two", Selection(), begins=True, follow=False))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "1h", "--from-beginning"], "give one of --since and --from-beginning"),
        (["--dead-letters", "--id", "7"], "do not go with --dead-letters"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], said: str) -> None:
    result = CliRunner().invoke(tail, ["shop.toml", "shop.one", *words])
    assert (result.exit_code, said in result.output) == (2, True)


def test_a_broker_whose_clock_is_behind_hides_nothing() -> None:
    topics = MemoryTopics()
    topics.make(TOPIC)
    topics.write(TOPIC, document(1, HOUR), at_ms=(HOUR - CLOCKS_S) * 1_000)
    assert found(topics, Selection(since=ClusterTime(HOUR, 1))) == ([1], 1)


def test_what_retention_has_deleted_is_not_asked_for(topics: MemoryTopics) -> None:
    topics.cut(TOPIC, 2, partition=1)
    assert found(topics, Selection(since=ClusterTime(0, 0)))[0] == [2, 3, 4, 5, 9]


def test_a_document_has_all_numbers_that_are_equal() -> None:
    topics = MemoryTopics()
    topics.make(TOPIC)
    topics.write(TOPIC, *(document(one, 1) for one in (7, Int64(7), 7.0, "7", 8)))
    topics.write(TOPIC, (None, b"x", 1))
    ids = {text: found(topics, Selection(document=id_key(id_of(text))))[0] for text in ("7", '"7"', "8")}
    assert ids == {"7": [7, 7, 7], '"7"': ["7"], "8": [8]}


def test_a_document_also_ends_with_its_collection() -> None:
    """Otherwise its history would look as if it lived on."""
    topics = MemoryTopics()
    topics.make(TOPIC, 2)
    drop, collmod = (bson.encode({"ddl": kind, "ns": "shop.one"}) for kind in ("drop", "collMod"))
    for partition in (0, 1):
        topics.write(TOPIC, (KEY, collmod, 2), (KEY, drop, 3), partition=partition)
    topics.write(TOPIC, document(7, 1), document(8, 1))
    consumer, ends = topics.consumer(), topics.ends(topics.all().values())
    read = [message for _, message in consume.messages(consumer, ends)]

    def values(wanted: Selection) -> list[Any]:
        return sorted(message.value() for message in read if wanted.takes(message))

    seven = id_key(id_of("7"))
    assert values(Selection(document=seven)) == sorted([drop, drop, document(7, 1)[1]])
    assert values(Selection(until=ClusterTime(2, 1), document=seven)) == [document(7, 1)[1]]


def test_a_record_without_a_time_of_the_source_is_not_of_any_time() -> None:
    message = MemoryTopics.message(TOPIC, 0, 0, b"x", b"y")
    assert Selection().takes(message)
    assert not Selection(until=ClusterTime(9, 9)).takes(message)
    assert not Selection(document=id_key(id_of("7"))).takes(message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ('"7"', "7"),
        ("order-7", "order-7"),
        ("007", "007"),
        ('{"$oid": "65e4a1b2c3d4e5f60718293a"}', ObjectId("65e4a1b2c3d4e5f60718293a")),
        ('{"_id": {"$numberLong": "7"}}', Int64(7)),
        ('{"shop": 1, "n": 2}', {"shop": 1, "n": 2}),
    ],
)
def test_an_id_is_extended_json_or_a_string(text: str, expected: object) -> None:
    assert bson.decode(id_of(text))["_id"] == expected


@pytest.mark.parametrize("text", ["65e4a1b2c3d4e5f60718293a", "1" * 24, '{"$oid": "65"}', "{$oid: 1}", '"7', "9" * 30])
def test_what_may_be_meant_otherwise_is_no_id(text: str) -> None:
    with pytest.raises(TowpathError, match=r"ObjectId or a string|is not the Extended JSON"):
        id_of(text)


def test_times_are_those_of_until_or_so_long_ago() -> None:
    now = 1_795_284_600.5
    wanted = _selection("2026-11-21T18:00:00Z", "2026-11-21T19:00:00+01:00", None, now)
    assert wanted == Selection(ClusterTime(1_795_284_000, 0), ClusterTime(1_795_284_000, END_OF_SECOND))
    assert _selection("10m", "1795284000:7", None, now) == Selection(
        ClusterTime(1_795_284_000, 0), ClusterTime(1_795_284_000, 7)
    )
    assert _selection(None, None, None, now) == Selection()
    with pytest.raises(TowpathError, match=r"--since 'yesterday': .* such as 2026.* such as 10m$"):
        _selection("yesterday", None, None, now)
