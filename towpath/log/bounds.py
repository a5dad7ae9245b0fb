"""Whether a sink's positions are in its log: whether records behind them are gone, or the log is another one by now.

MongoSink judges alike (`LogBounds.java`) and stops with the same codes; here it is seen of a sink that stands, or that
is mongo-kafka's, which goes on at the log's beginning in silence.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from connectors.control import move_offsets, stop_sink
from connectors.rest import Connect
from towpath.bookkeeping.positions import LOG_GAP, Applied, note_breaks, noted_breaks, positions, skip_to
from towpath.errors import Refused, TowpathError
from towpath.kafka.topics import Place, Topics
from towpath.log.lag import pipeline_ends
from towpath.mongo.client import briefly, connected
from towpath.pipeline import Pipeline

#: Records behind the position are gone; the log ends before it; the topic was deleted and made again.
Code = Literal["TWP-LOG-GAP", "TWP-LOG-END", "TWP-LOG-TOPIC"]
#: Of each partition: the first offset, and the end.
Log = Mapping[Place, tuple[int, int]]
CODES = get_args(Code)
_AGAIN = 1.0  # seconds until it is looked again at what is found: a transaction may be under way

_FOUND: dict[Code, str] = {
    "TWP-LOG-GAP": "records are gone from the log that the sink has not applied",
    "TWP-LOG-END": "the log is shorter than what the sink has applied",
    "TWP-LOG-TOPIC": "the topic was deleted and made again",
}


@dataclass(frozen=True, slots=True)
class Break:
    """One partition whose position is not in its log."""

    code: Code
    topic: str
    partition: int
    position: int
    """The next offset to apply."""
    first: int
    """The first offset that is left, and the end."""
    end: int
    last_at: datetime | None
    """When the broker took in the last record that was applied; None when it is not known."""

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def begin(self) -> int:
        """Where the sink goes on once this is accepted. All of a new topic is new; of a log that was cut short nobody
        knows what is."""
        return self.end if self.code == "TWP-LOG-END" else self.first

    @property
    def words(self) -> str:
        since = f", to what came in at {self.last_at:%Y-%m-%d %H:%M:%S} UTC" if self.last_at else ""
        return (
            f"{self.code}: {self.topic}, partition {self.partition}: {_FOUND[self.code]}: it has applied up to offset"
            f" {self.position:,}{since}, and the log goes from {self.first:,} to {self.end:,}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "topic": self.topic,
            "partition": self.partition,
            "position": self.position,
            "first": self.first,
            "end": self.end,
            "last_at": self.last_at.isoformat() if self.last_at else None,
        }


def listed(breaks: Iterable[Break]) -> str:
    """In words, with what to do."""
    found = list(breaks)
    more = f"; and {len(found) - 1:,} more partitions" if len(found) > 1 else ""
    return f"{found[0].words}{more}; `towpath restart PIPELINE {LOG_GAP}`, then `towpath verify` and `towpath repair`"


def judge(
    done: Mapping[Place, Applied],
    ends: Mapping[Place, tuple[int, int]],
    ids: Mapping[str, str],
    *,
    transactional: bool,
) -> tuple[Break, ...]:
    """The positions that are not in the log; `ends` are those of all that was written, and were read after `done`.

    `transactional`: whether the log's records were written in transactions, so that it ends in the mark of one.
    """
    found = []
    for (topic, partition), applied in sorted(done.items()):
        first, end = ends.get((topic, partition), (0, applied.offset))
        code = _code(applied, first, end, ids.get(topic), transactional=transactional)
        if code is not None:
            found.append(Break(code, topic, partition, applied.offset, first, end, applied.last_at))
    return tuple(found)


def _code(applied: Applied, first: int, end: int, topic_id: str | None, *, transactional: bool) -> Code | None:
    if applied.topic_id is not None and topic_id is not None and applied.topic_id != topic_id:
        return "TWP-LOG-TOPIC"
    if applied.offset > end:
        return "TWP-LOG-END"
    clear = max(applied.offset, applied.clear)
    only_a_mark = transactional and clear + 1 == first == end
    return "TWP-LOG-GAP" if clear < first and not only_a_mark else None


@dataclass(frozen=True, slots=True)
class Seen:
    """The positions, then the ends of all that was written, which were read after them, and the ids of the topics."""

    done: Mapping[Place, Applied]
    ends: Log
    ids: Mapping[str, str]


def suspected(pipeline: Pipeline, topics: Topics, seen: Seen | None = None) -> tuple[Break, ...]:
    """The breaks by one look, which may be over at the next: a sink may be just about to commit what the log has lost
    by now. In plain mode by the offsets that the sink's consumers have committed; no offset tells nothing.

    `seen`: where it was looked already. Raises `MongoUnreachable` when the destination, which tells the positions, is.
    """
    if seen is None:
        done, ends = _done(pipeline, topics), pipeline_ends(pipeline, topics, stable=False)
        seen = Seen(done, ends, topics.ids(topic for topic, _ in ends))
    # without a position a sink begins at offset 0
    done = dict.fromkeys(seen.ends, Applied(0, 0)) | dict(seen.done) if pipeline.exactly_once else seen.done
    return judge(done, seen.ends, seen.ids, transactional=pipeline.has_own_source)


def broken_within(log: Log, topics: Topics, done: Mapping[Place, Applied]) -> tuple[Break, ...]:
    """The same by one look, of a replay's or rebuild's positions in its stretch of the log."""
    mine = {place: done.get(place, Applied(first, 0)) for place, (first, _) in log.items()}
    return judge(mine, _ends(log, topics), topics.ids(topic for topic, _ in log), transactional=True)


def still_there(log: Log, topics: Topics) -> dict[Place, tuple[int, int]]:
    """What the brokers have left by now of a stretch of the log; nothing of partitions of which all is gone."""
    if not log:
        return {}
    now = _ends(log, topics)
    left = {place: (max(first, now[place][0]), end) for place, (first, end) in log.items() if place in now}
    return {place: (first, end) for place, (first, end) in left.items() if first < end}


def _ends(log: Log, topics: Topics) -> dict[Place, tuple[int, int]]:
    existing, names = topics.all(), {topic for topic, _ in log}
    return topics.ends((topic for name, topic in existing.items() if name in names), stable=False)


def _done(pipeline: Pipeline, topics: Topics) -> Mapping[Place, Applied]:
    if not pipeline.exactly_once:
        return {place: Applied(offset, 0) for place, offset in topics.committed(pipeline.sink_group).items()}
    with briefly(pipeline.destination_uri, "destination") as client:
        return positions(client, pipeline)


def look(pipeline: Pipeline, topics: Topics, seen: Seen | None = None) -> tuple[Break, ...]:
    """The breaks that stand: a second look finds them where the first one did. As `suspected` otherwise."""
    before = {(one.place, one.code, one.position) for one in suspected(pipeline, topics, seen)}
    if not before:
        return ()
    time.sleep(_AGAIN)
    return tuple(one for one in suspected(pipeline, topics) if (one.place, one.code, one.position) in before)


def cut_short(pipeline: Pipeline, topics: Topics, log: Log) -> dict[Place, str]:
    """The partitions of a stretch of the log that were cut short or made again, in words: their offsets begin at 0 and
    do not show it. Raises `MongoUnreachable` when the destination, which tells them, is."""
    with briefly(pipeline.destination_uri, "destination") as client:
        codes, done = noted_breaks(client, pipeline), positions(client, pipeline)
    now = judge(done, _ends(log, topics), topics.ids(topic for topic, _ in log), transactional=True)
    words = {place: f"{code}: the sink went on all the same" for place, code in codes.items()}
    words |= {one.place: f"{one.code}: {_FOUND[one.code]}" for one in now if one.code != "TWP-LOG-GAP"}
    return {place: words[place] for place in sorted(words) if place in log}


def refuse(pipeline: Pipeline, topics: Topics) -> None:
    """Raise `TowpathError` when a position is not in the log."""
    if found := look(pipeline, topics):
        raise TowpathError(listed(found), where=found[0].topic, code=found[0].code)


def accept(pipeline: Pipeline, topics: Topics, connect: Connect) -> tuple[Break, ...]:
    """Stop the sink, and have it begin where the log goes on; what was accepted. The sink stays STOPPED.

    Raises `Refused` where nothing is wrong: what may be lost is not to be accepted beforehand.
    """
    if not suspected(pipeline, topics):
        raise Refused(
            f"the positions of {pipeline.sink_connector} are all in its log, so there is nothing to accept;"
            " `towpath restart` without the option restarts what has failed"
        )
    stop_sink(pipeline, connect)
    found = look(pipeline, topics)  # with nobody left who moves them
    begins, now = {one.place: one.begin for one in found}, datetime.now(UTC)
    if pipeline.exactly_once:
        with connected(pipeline.destination_uri, "destination") as client:
            note_breaks(client, pipeline, {one.place: one.code for one in found if one.code != "TWP-LOG-GAP"}, now)
            skip_to(client, pipeline, begins, now)
    elif begins:
        move_offsets(connect, pipeline.sink_connector, begins)
    return found
