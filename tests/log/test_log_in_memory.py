"""What reads the log, over topics in memory: no record is missed, and none counts that is not committed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import bson
import pytest

from tests.checks.test_check_judgements import PIPELINE
from tests.support import bsonbytes as b
from tests.support.memory_topics import Made, MemoryTopics
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import ClusterTime
from towpath.errors import KafkaUnreachable, TopicError
from towpath.log import changed_keys, integrity, lag
from towpath.log.changed_keys import LogFollower, Unread, ids, ids_after
from towpath.log.definitions import MARK
from towpath.log.integrity import BrokenKey, Headless, LogCheck, check
from towpath.log.lag import (
    GapContents,
    Lag,
    OpenTransaction,
    measure,
    open_transactions,
    peek,
    pipeline_ends,
    pipeline_written,
    unread,
)

ONE, TWO = "move.shop.one", "move.shop.two"
A, B = (ONE, 0), (ONE, 1)
COPIED = ClusterTime(100, 7)
HOUR = {"cleanup.policy": "compact", MARK: "3600000"}


#: A document whose `_id` is not its first field, which no driver writes.
ID_LAST = b.document(("x", b.int32(1)), ("_id", b.int32(2)))


def key(number: int) -> bytes:
    return bson.encode({"_id": number})


def document(number: int, second: int = 1) -> Made:
    return key(number), bson.encode({"_id": number, "x": second}), second


def update(number: int, second: int = 1) -> Made:
    return key(number), bson.encode({"$set": {"x": second}}), second


def gone(number: int, second: int = 1) -> Made:
    return key(number), None, second


def schema_change(kind: str, second: int = 1) -> Made:
    return bson.encode({"ddl": "1"}), bson.encode({"ddl": kind, "ns": "shop.one"}), second


@pytest.fixture
def topics() -> MemoryTopics:
    """Two topics of the pipeline, and one that is another's."""
    made = MemoryTopics()
    made.make(ONE, 2)
    made.make(TWO)
    made.make("other.shop.one")
    made.write("other.shop.one", document(99))
    return made


def numbers(found: Iterator[Any]) -> list[tuple[str, int]]:
    return [(one.namespace, bson.decode(one.key)["_id"]) for one in found]


# which documents changed


def fill(topics: MemoryTopics, now_ms: int) -> list[tuple[int, tuple[str, int]]]:
    """Transactions a second apart, over all partitions, and aborted ones; the time and document of each record."""
    written = []
    for turn in range(30):
        topic, partition = ((ONE, 0), (ONE, 1), (TWO, 0))[turn % 3]
        at_ms, made = now_ms - 1_000 * (40 - turn), [3 * turn + n for n in range(3)]
        topics.write(topic, *(document(1_000) for _ in range(4)), partition=partition, at_ms=at_ms, commit=False)
        topics.write(topic, *map(document, made), partition=partition, at_ms=at_ms)
        written += [(at_ms, (topic.removeprefix("move."), number)) for number in made]
    return written


@pytest.mark.parametrize("count", [1, 3, 4, 25, 90, 5_000])
def test_the_newest_records_are_found_over_all_partitions_and_of_one_time_all(topics: MemoryTopics, count: int) -> None:
    written = fill(topics, int(time.time() * 1000))
    oldest = written[-count][0] if count <= len(written) else 0
    found = numbers(ids(PIPELINE, topics, count, None, pipeline_ends(PIPELINE, topics)))
    assert sorted(found) == sorted(one for at, one in written if at >= oldest)


def test_the_records_since_a_time_are_found(topics: MemoryTopics) -> None:
    written = fill(topics, int(time.time() * 1000))
    ends = pipeline_ends(PIPELINE, topics)
    topics.write(ONE, document(1_000), at_ms=int(time.time() * 1000))
    found = numbers(ids(PIPELINE, topics, None, time.time() - 20.5, ends))
    assert sorted(found) == sorted(one for _, one in written[-30:])
    assert numbers(ids(PIPELINE, topics, None, time.time() - 0.5, ends)) == [], "what came later does not count"
    with pytest.raises(ValueError, match="a number of records, or a time"):
        next(ids(PIPELINE, topics, None, None, ends))


def test_a_long_partition_is_read_backwards_in_sections_and_each_document_comes_once(
    topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "_SECTION", 1)
    topics.write(ONE, *(document(number % 2_000) for number in range(3_500)))
    topics.cut(ONE, 100)
    found = [number for _, number in numbers(ids_after(PIPELINE, topics, {}, pipeline_ends(PIPELINE, topics)))]
    assert found == [*range(1_499, -1, -1), *range(1_999, 1_499, -1)]
    assert topics.made[0].given[0] == (*A, 2_501)


def test_after_positions_only_later_records_count_and_all_of_partitions_without_one(topics: MemoryTopics) -> None:
    topics.write(ONE, document(1), document(2), document(3), schema_change("drop"), (None, b"", 1))
    topics.write(ONE, document(4), partition=1)
    topics.write(TWO, document(5), document(6), document(7))
    topics.cut(TWO, 1)
    found = numbers(ids_after(PIPELINE, topics, {A: 1, (TWO, 0): 0}, pipeline_ends(PIPELINE, topics)))
    assert found == [("shop.one", 3), ("shop.one", 2), ("shop.one", 4), ("shop.two", 7), ("shop.two", 6)]
    assert numbers(ids_after(PIPELINE, topics, {A: 6, B: 2, (TWO, 0): 4}, pipeline_ends(PIPELINE, topics))) == []


def test_one_that_follows_reads_each_record_once_and_new_topics_from_their_beginning(
    topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "_REFRESH", 0)
    topics.write(ONE, document(1), document(2), document(2), schema_change("drop"))
    topics.write(ONE, document(3), partition=1)
    with LogFollower(PIPELINE, topics, {A: 1, B: 2}) as follower:
        assert numbers(iter(follower.take(0.05, 10))) == [("shop.one", 2)]
        assert follower.places == {A: 5, B: 2, (TWO, 0): 0}, "control records are behind it as well"
        assert (follower.records, follower.unread()) == (3, Unread(0, 0.0))
        topics.make("move.shop.new")
        topics.write("move.shop.new", document(4), document(5))
        topics.write(ONE, document(6), commit=None)
        assert numbers(iter(follower.take(60, 2))) == [("shop.new", 4), ("shop.new", 5)], "it returns early"
        topics.failure = KafkaUnreachable("no broker answers")
        assert (follower.take(0.05, 10), follower.failure) == ([], "no broker answers")
        topics.failure = None
        topics.write(TWO, document(7))
        assert numbers(iter(follower.take(0.05, 10))) == [("shop.two", 7)]
        assert (follower.failure, follower.places[A]) == ("", 5)
    assert topics.made[0].closed


def test_what_one_that_follows_has_not_read_is_at_most_as_old_as_what_it_read_before(
    topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "_REFRESH", 0)
    monkeypatch.setattr(changed_keys.time, "time", lambda: 1_000.0)
    follower = LogFollower(PIPELINE, topics, {})
    topics.write(ONE, document(1), document(2), at_ms=400_000)
    follower.refresh()
    assert follower.unread() == Unread(3, None), "no record was read yet"
    follower.take(0.01, 10)
    assert follower.unread() == Unread(0, 0.0)
    topics.write(ONE, document(3), at_ms=900_000)
    follower.refresh()
    assert follower.unread() == Unread(2, 600.0), "also while it does not read"
    topics.write(ONE, document(4), document(5), partition=1, at_ms=900_000)
    follower.refresh()
    assert follower.unread() == Unread(5, None), "of another partition, nothing was read"
    follower.take(0.01, 10)
    topics.write(ONE, document(6), at_ms=950_000)
    follower.refresh()
    assert follower.unread() == Unread(2, 100.0)


def test_one_that_cannot_follow_leaves_no_consumer(topics: MemoryTopics) -> None:
    topics.failure = KafkaUnreachable("no broker answers")
    with pytest.raises(KafkaUnreachable):
        LogFollower(PIPELINE, topics, {})
    assert topics.made[0].closed


# the lag


@pytest.mark.parametrize("knows", [False, True])
def test_records_in_a_gap_are_counted_and_control_records_are_none(knows: bool, topics: MemoryTopics) -> None:
    topics.knows_what_is_empty = knows
    topics.write(ONE, document(1, 5), document(2, 6))
    topics.write(ONE, document(3, 7), document(4, 8), document(5, 9))
    topics.write(ONE, document(6), partition=1)
    found = peek(topics, {A: (1, 7), B: (1, 2), (TWO, 0): (0, 0)}, limit=6)
    size = sum(len(part) for one in (document(2), document(3), document(4), document(5)) for part in one[:2])  # type: ignore[arg-type]
    assert found == {A: GapContents(4, 6_000, size), B: GapContents(), (TWO, 0): GapContents()}
    assert peek(topics, {}, limit=6) == {}
    uncounted = peek(topics, {A: (1, 7)}, limit=5)[A]
    assert (uncounted.records, uncounted.oldest_ms) == (6, 6_000), "as the difference of offsets"
    assert topics.made[-1].given[0] == (*A, 1)


def test_a_gap_of_many_bytes_is_not_read_to_its_end(topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.write(ONE, *(document(number) for number in range(9)))
    size = len(document(1)[0] or b"") + len(document(1)[1] or b"")
    monkeypatch.setattr(lag, "_COUNTED_BYTES", 2 * size)
    assert peek(topics, {A: (0, 10)}, limit=100)[A] == GapContents(2 + 8, 1_000, 3 * size)


def test_the_lag_is_the_sum_of_all_gaps_and_the_age_of_the_oldest_record(topics: MemoryTopics) -> None:
    topics.write(ONE, document(1, 50), document(2, 60))
    topics.write(ONE, document(3, 40), partition=1)
    ends = pipeline_ends(PIPELINE, topics)
    assert ends == {A: (0, 3), B: (0, 2), (TWO, 0): (0, 0)}
    assert measure(topics, ends, {A: 1}, now=lambda: 100.0) == Lag(2, 60.0)
    assert measure(topics, ends, {A: 1}, now=lambda: 30.0) == Lag(2, 0.0), "the clocks differ"
    assert measure(topics, ends, {A: 2, B: 1}, now=lambda: pytest.fail("nothing is behind")) == Lag(0, 0.0)


def test_transactions_that_are_open_for_long_are_found_the_oldest_first(topics: MemoryTopics) -> None:
    now = time.time()
    topics.write(ONE, document(1))
    topics.write(ONE, document(2), document(3), at_ms=int((now - 200) * 1000), commit=None)
    topics.write(ONE, document(4), partition=1, at_ms=int((now - 300) * 1000), commit=None)
    topics.write(TWO, document(5), at_ms=int((now - 50) * 1000), commit=None)
    ends = pipeline_ends(PIPELINE, topics)
    assert ends == {A: (0, 2), B: (0, 0), (TWO, 0): (0, 0)}
    assert unread(pipeline_written(PIPELINE, topics), ends) == {A: 2, B: 0, (TWO, 0): 0}
    found = open_transactions(PIPELINE, topics, ends)
    assert [(one.place, one.offset) for one in found] == [(B, 0), (A, 2)]
    assert [one.seconds for one in found] == pytest.approx([300, 200], abs=30)
    assert open_transactions(PIPELINE, topics, ends, written={place: end for place, (_, end) in ends.items()}) == []
    assert len(open_transactions(PIPELINE, topics, ends, longest=20)) == 3


@pytest.mark.parametrize("later", ["open", "ended", "another"])
def test_a_transaction_hangs_if_it_is_open_in_a_second_reading_too(
    topics: MemoryTopics, later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = OpenTransaction(A, 2, 200.0)
    after = {"open": [begun], "ended": [], "another": [OpenTransaction(A, 5, 300.0), OpenTransaction(B, 2, 200.0)]}
    given: dict[Any, tuple[int, int]] = {A: (0, 2)}
    readings = iter([((given, 60.0, {}), [begun]), ((pipeline_ends(PIPELINE, topics), 60.0), after[later])])

    def open_transactions(pipeline: Any, of: Any, *asked: Any) -> list[OpenTransaction]:
        wanted, found = next(readings)
        assert (pipeline, of, asked) == (PIPELINE, topics, wanted)
        return found

    monkeypatch.setattr(lag, "open_transactions", open_transactions)
    monkeypatch.setattr(lag, "_RECHECK", 0)
    if later == "open":
        with pytest.raises(TopicError, match=r"move\.shop\.one, partition 0: a transaction that began 200 s ago"):
            lag.refuse_hanging_transactions(PIPELINE, topics, given, 60.0, {})
    else:
        lag.refuse_hanging_transactions(PIPELINE, topics, given, 60.0, {})
    assert list(readings) == []


# whether the log can rebuild a destination


def checked(
    topics: MemoryTopics,
    *namespaces: str,
    copied: ClusterTime | None = COPIED,
    cleaned_ms: int = 0,
    applied: dict[Place, int] | None = None,
) -> LogCheck:
    said: list[tuple[int, int]] = []
    found = check(
        PIPELINE, topics, namespaces or None, copied, lambda *progress: said.append(progress), cleaned_ms, applied
    )
    if said:
        total = said[-1][1]
        assert said == sorted(said) and said[-1] == (total, total) and {of for _, of in said} == {total}
    return found


def test_a_log_that_was_never_compacted_and_has_its_beginning_is_whole_and_not_read(topics: MemoryTopics) -> None:
    topics.write(ONE, document(1, 101), update(1, 102), update(2, 103))
    found = checked(topics)
    assert found == LogCheck(4, (), (), COPIED) and found.is_whole
    assert not topics.made[0].given
    assert checked(topics, copied=None).earliest is None
    assert checked(topics, "shop.none") == LogCheck(0, (), (), COPIED)


def test_a_log_without_its_beginning_names_what_cannot_be_rebuilt(
    topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "_REPORT_EVERY", 3)
    topics.write(ONE, document(1, 101), document(2, 101), document(3, 101))
    topics.write(
        ONE, update(1, 102), update(2, 103), update(1, 104), document(2, 105), update(3, 106), gone(3, 107), at_ms=7_000
    )
    topics.write(ONE, document(4, 108), update(4, 109))
    topics.write(ONE, update(9, 200), partition=1)  # which has its beginning
    topics.cut(ONE, 4)
    found = checked(topics)
    assert found.headless == (Headless("shop.one", ONE, 0, 4, 7_000),)
    assert found.broken == (BrokenKey("shop.one", key(1), 0, 4),)
    assert (found.records, found.earliest, found.is_whole) == (8 + 2, ClusterTime(107, 1), False)
    topics.cut(ONE, 14)
    assert checked(topics) == LogCheck(2, (Headless("shop.one", ONE, 0, 14, None),), (), COPIED)


def test_a_compacted_log_is_broken_where_a_key_has_updates_alone(topics: MemoryTopics) -> None:
    topics.settings[ONE] = topics.settings[TWO] = HOUR
    now = int(time.time() * 1000)
    topics.write(ONE, document(1, 101), update(1, 102), update(2, 103), update(3, 103), document(2, 105), at_ms=now)
    topics.write(ONE, update(5, 107), update(5, 108), gone(3, 109), (key(6), b"no BSON", 110), at_ms=now)
    topics.write(TWO, update(1, 101), at_ms=now)
    topics.write(TWO, document(1, 102), at_ms=now, commit=False)
    topics.write(TWO, update(2, 103), (key(2), ID_LAST, 104), at_ms=now)
    found = checked(topics)
    assert found.broken == (
        BrokenKey("shop.one", key(5), 0, 6),
        BrokenKey("shop.one", key(6), 0, 9),
        BrokenKey("shop.two", key(1), 0, 0),
    )
    assert (found.headless, found.records, found.is_whole) == ((), 12, False)
    assert found.earliest == ClusterTime(109, 1), "until then an update stands for document 3"
    assert checked(topics, "shop.two").broken == found.broken[2:]
    assert checked(topics, copied=ClusterTime(300, 1)).earliest == ClusterTime(300, 1)


@pytest.mark.parametrize(
    ("value", "broken"),
    [
        *((bson.encode({"ddl": kind}), 0) for kind in ("drop", "rename", "replace")),
        (bson.encode({"ddl": "create"}), 1),
        (b"no BSON", 1),
        (None, 1),
    ],
)
def test_updates_before_a_drop_are_of_documents_that_nothing_rebuilds(
    topics: MemoryTopics, value: bytes | None, broken: int
) -> None:
    topics.settings[ONE] = HOUR
    change = bson.encode({"ddl": "1"}), value, 1
    topics.write(ONE, update(1), change, update(2), at_ms=int(time.time() * 1000))
    topics.write(TWO, update(3), (b"drop", bson.encode({"ddl": "drop"}), 1))
    assert [one.key for one in checked(topics).broken] == [key(1), key(2)][-broken - 1 :]


def test_of_what_a_sink_has_applied_only_that_is_checked_again(topics: MemoryTopics) -> None:
    """The document that follows an update later does not help a sink that has stopped before it."""
    now = int(time.time() * 1000)
    topics.settings[ONE] = HOUR
    topics.write(ONE, document(1, 101), update(1, 102), at_ms=now)
    topics.write(ONE, document(1, 103), at_ms=now)
    topics.write(TWO, document(2, 101), update(3, 101))  # was never compacted
    topics.cut(TWO, 1)
    assert checked(topics, applied={A: 3}).is_whole
    topics.clean(ONE, 0)
    assert checked(topics).broken == (BrokenKey("shop.two", key(3), 0, 1),)
    found = checked(topics, applied={A: 3})
    assert (found.broken, found.headless) == ((BrokenKey("shop.one", key(1), 0, 1),), ())
    assert checked(topics, applied={}).is_whole, "it reads on"
    assert checked(topics, applied={A: 0}).is_whole


@pytest.mark.parametrize(
    ("settings", "later_ms", "applied", "is_overtaken"),
    [
        (HOUR, 3_700_000, 2, True),
        (HOUR, 3_700_000, 4, False),  # it has read on
        (HOUR, 3_500_000, 2, False),
        (HOUR | {"cleanup.policy": "delete"}, 3_700_000, 2, False),
    ],
    ids=["took longer than the lag", "read on", "younger than the lag", "is no longer compacted"],
)
def test_a_sink_may_miss_what_later_records_have_replaced_before_it_came(
    topics: MemoryTopics, settings: dict[str, str], later_ms: int, applied: int, is_overtaken: bool
) -> None:
    now = int(time.time() * 1000)
    topics.settings[ONE] = settings
    topics.write(ONE, document(1, 101), at_ms=now - 3_800_000)
    topics.write(ONE, document(1, 102), at_ms=now - later_ms)
    topics.clean(ONE, 0)
    found = checked(topics, applied={A: applied})
    assert (list(found.cut_short), found.is_whole) == ([A] if is_overtaken else [], not is_overtaken)
    assert checked(topics).is_whole


def chunk(number: int, second: int = 1) -> Made:
    """The tombstone of one."""
    of = b.binary(0, b"0123456789abcdef")
    return b.document(("chunk", b.int32(number)), ("of", of), ("_id", b.int32(1))), None, second


@pytest.mark.parametrize("kind", ["drop", "rename", "replace"])
def test_a_point_in_time_before_a_drop_needs_the_documents_that_it_ends(topics: MemoryTopics, kind: str) -> None:
    """The cleaner may have come to the update, which no document has to follow, and not yet to the drop."""
    now = int(time.time() * 1000)
    topics.settings[ONE] = topics.settings[TWO] = HOUR
    topics.write(ONE, document(1, 150), update(1, 200), at_ms=now - 3_700_000)
    topics.write(ONE, schema_change(kind, 300), document(2, 400), update(2, 410), at_ms=now - 3_500_000)
    topics.write(ONE, update(3, 420), document(3, 430), schema_change(kind, 500), at_ms=now)
    topics.write(ONE, update(4, 600), document(5, 610), update(5, 620), at_ms=now)
    found = checked(topics)
    assert (found.earliest, [one.key for one in found.broken]) == (ClusterTime(430, 1), [key(4)])
    topics.clean(ONE, 4)  # the document of 2
    assert checked(topics).earliest == ClusterTime(500, 1)
    assert [one.key for one in checked(topics).broken] == [key(4)]
    topics.write(TWO, document(1, 150), update(1, 200), at_ms=now - 3_700_000)
    topics.write(TWO, schema_change(kind, 300), at_ms=now)
    assert checked(topics, "shop.two").earliest == ClusterTime(200, 1)
    topics.clean(TWO, 0)
    assert checked(topics, "shop.two").earliest == ClusterTime(300, 1)


@pytest.mark.parametrize(
    ("old", "young", "missing", "earliest"),
    [
        ((document(1, 100), document(2, 900), chunk(1, 100)), (document(3, 950),), (), 900),
        ((document(1, 100), document(2, 900), chunk(1, 100), chunk(2, 100)), (), (), 900),
        ((document(1, 100), document(2, 900), gone(4, 910)), (chunk(1, 100), document(3, 950)), (2,), 950),
    ],
)
def test_a_tombstone_of_a_chunk_has_no_time_of_its_own(
    topics: MemoryTopics, old: tuple[Made, ...], young: tuple[Made, ...], missing: tuple[int, ...], earliest: int
) -> None:
    """It has that of a record that was read before it was written."""
    now = int(time.time() * 1000)
    topics.settings[ONE] = HOUR
    topics.write(ONE, *old, at_ms=now - 3_700_000)
    if young:
        topics.write(ONE, *young, at_ms=now)
    topics.clean(ONE, *missing)
    assert checked(topics).earliest == ClusterTime(earliest, 1)


#: Seconds of the cluster times of what the brokers appended before and after the cleaner's limit, and offsets that are
#: gone from it; the earliest point in time is of this second.
CLEANED = {
    "nothing is old": ((), (105, 106), (), 100),
    "all that is old is there": ((105, 106), (120,), (), 106),
    "offsets are missing at the limit": ((103, 104, 105), (120,), (1, 2), 120),
    "offsets are missing elsewhere": ((103, 104, 105), (120,), (0, 1), 105),
    "nothing is young": ((105, 106), (), (), 106),
    "nothing that is old is left": ((105,), (120,), (0,), 120),
}


@pytest.mark.parametrize("settings", [HOUR, {"cleanup.policy": "delete", MARK: "3600000"}], ids=["is", "was"])
@pytest.mark.parametrize("case", CLEANED)
def test_no_point_in_time_is_given_that_the_cleaner_may_have_passed(
    topics: MemoryTopics, case: str, settings: dict[str, str]
) -> None:
    old, young, missing, earliest = CLEANED[case]
    now = int(time.time() * 1000)
    topics.settings[ONE] = settings
    for seconds, at_ms in ((old, now - 3_700_000), (young, now - 3_500_000)):
        if seconds:
            topics.write(ONE, *(document(second, second) for second in seconds), at_ms=at_ms)
    topics.clean(ONE, *missing)
    found = checked(topics).earliest
    assert found == (COPIED if earliest == 100 else ClusterTime(earliest, 1))


def test_a_lag_that_was_raised_gives_nothing_back(topics: MemoryTopics) -> None:
    now = int(time.time() * 1000)
    topics.settings[ONE] = HOUR
    topics.write(ONE, document(1, 105), document(2, 106), at_ms=now - 1_800_000)
    topics.write(ONE, document(3, 120), at_ms=now - 1_000)
    assert checked(topics).earliest == COPIED
    assert checked(topics, cleaned_ms=now - 60_000).earliest == ClusterTime(106, 1)
    topics.settings[ONE] = {"cleanup.policy": "delete"}
    assert checked(topics, cleaned_ms=now).earliest == COPIED, "it was never compacted"


def test_where_the_cleaner_left_nothing_the_log_is_exact_from_its_limit_on(
    topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "time", SimpleNamespace(time=lambda: 20_000.9))
    topics.settings[ONE] = {"cleanup.policy": "compact,delete"}
    topics.write(ONE, document(1, 101), document(2, 102))
    topics.clean(ONE, 0, 1)
    assert checked(topics).earliest == ClusterTime(20_001, 0)
    topics.cut(ONE, 3)
    assert checked(topics).earliest == COPIED, "nothing of the partition remains"


def test_a_record_without_a_cluster_time_is_refused_where_it_is_needed(topics: MemoryTopics) -> None:
    topics.settings[ONE] = HOUR
    topics.write(ONE, document(1), at_ms=1_000)
    topics.stored[A].offsets[0] = 1_000, topics.message(ONE, 0, 0, key(1), b"")
    with pytest.raises(TopicError, match=r"move\.shop\.one, partition 0, offset 0: a record without a cluster time"):
        checked(topics)
