"""Whether the log still has the records that a sink needs next: none deleted, none cut off, no topic recreated.

MongoSink applies the same rules (`LogBounds.java`) and stops with the same codes. This module covers sinks that do not
run, and mongo-kafka's sink, which silently continues at the beginning of the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from towpath.clients.connect.control import stop
from towpath.clients.kafka.consume import NOTHING, Window, messages
from towpath.clients.kafka.topics import Place, Topic, Topics
from towpath.clients.mongo.client import Client
from towpath.config.namespaces import Selection, namespace_of
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted
from towpath.errors import Refused, TowpathError
from towpath.log.lag import pipeline_ends
from towpath.session import Session
from towpath.store import verdict
from towpath.store.positions import LOG_GAP, Applied, note_breaks, noted_breaks, positions, skip_to

#: Records after the position are gone; the log ends before the position; the topic is gone, or is another one.
Code = Literal["TWP-LOG-GAP", "TWP-LOG-END", "TWP-LOG-TOPIC"]
CODES = get_args(Code)
_RECHECK = 1.0  # seconds until breaks are checked again: a transaction may be in progress

_MEANING: dict[Code, str] = {
    "TWP-LOG-GAP": "records that the sink has not applied are gone from the log",
    "TWP-LOG-END": "the log is shorter than what the sink has applied",
    "TWP-LOG-TOPIC": "the topic was deleted, and recreated if it exists",
}
_OVERGROWN = "brokers lost the end of the log, which has grown since, so the last applied record is not in it"


@dataclass(frozen=True, slots=True)
class Break:
    """One partition whose position is not in its log."""

    code: Code
    topic: str
    partition: int
    position: int
    """The next offset to apply."""
    first: int
    """The first offset that the log still has."""
    end: int
    last_at: datetime | None
    """When the broker stored the last applied record; None when unknown."""

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def resume_at(self) -> int:
        """The offset at which the sink continues once the break is accepted: the beginning, or the end of a log that
        was cut short, of which nothing shows which records are new."""
        return self.end if self.code == "TWP-LOG-END" else self.first

    @property
    def meaning(self) -> str:
        return _OVERGROWN if self.code == "TWP-LOG-END" and self.position <= self.end else _MEANING[self.code]

    @property
    def description(self) -> str:
        since = f", stored at {self.last_at:%Y-%m-%d %H:%M:%S} UTC" if self.last_at else ""
        return (
            f"{self.code}: {self.topic}, partition {self.partition}: {self.meaning}: the sink has applied up to"
            f" offset {self.position:,}{since}, and the log goes from {self.first:,} to {self.end:,}"
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"last_at": self.last_at.isoformat() if self.last_at else None}


def describe(breaks: Iterable[Break]) -> str:
    """The first break, the number of others, and what to do."""
    first, *others = breaks
    more = f"; and {len(others):,} more partitions" if others else ""
    return (
        f"{first.description}{more}; `towpath restart PIPELINE {LOG_GAP}`, then `towpath verify` and `towpath repair`"
    )


def judge(
    done: Mapping[Place, Applied],
    ends: Window,
    ids: Mapping[str, str],
    *,
    transactional: bool,
) -> tuple[Break, ...]:
    """The positions that are not in the log. `ends` also count uncommitted records, and must be read after `done`.

    A topic that is not in `ends` is gone. Nothing shows whether all of it was applied, so its positions are breaks,
    unless they were moved since (`accept`): then they belong to no topic yet.

    `transactional`: whether producers write to the log in transactions, so that it ends in a control record.
    """
    breaks, existing = [], {topic for topic, _ in ends}
    for (topic, partition), applied in sorted(done.items()):
        is_gone = applied.topic_id is not None and topic not in existing
        first, end = (0, 0) if is_gone else ends.get((topic, partition), (0, applied.offset))
        code = "TWP-LOG-TOPIC" if is_gone else _code(applied, first, end, ids.get(topic), transactional=transactional)
        if code is not None:
            breaks.append(Break(code, topic, partition, applied.offset, first, end, applied.last_at))
    return tuple(breaks)


def _code(applied: Applied, first: int, end: int, topic_id: str | None, *, transactional: bool) -> Code | None:
    if applied.topic_id is not None and topic_id is not None and applied.topic_id != topic_id:
        return "TWP-LOG-TOPIC"
    if applied.offset > end:
        return "TWP-LOG-END"
    clear = max(applied.offset, applied.clear)
    only_control_record = transactional and clear + 1 == first == end
    return "TWP-LOG-GAP" if clear < first and not only_control_record else None


def is_overgrown(applied: Applied, found_ms: int | None, *, may_be_cleaned: bool) -> bool:
    """Whether the log was cut short before the position and has grown beyond it since, as its offsets do not show.

    `found_ms` is the broker's time of the record at `last_read`; None if the log, which holds that offset, has no
    record there. Kafka's cleaner may have removed it if `may_be_cleaned`.
    """
    if applied.last_at is None:
        return False
    return not may_be_cleaned if found_ms is None else found_ms != _ms(applied.last_at)


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _overgrown(pipeline: Pipeline, topics: Topics, done: Mapping[Place, Applied], ends: Window) -> Iterator[Break]:
    """The positions in a log that was cut short and has grown since.

    The sink reads the record itself, whenever it takes a partition over. Here one is read only where the brokers find
    a later one before the position, which costs one request for all partitions.
    """
    within = {place: one for place, one in done.items() if place in ends and one.last_read in range(*ends[place])}
    later = topics.offsets_at({place: _ms(at) + 1 for place, one in within.items() if (at := one.last_at)})
    window = {place: (n, n + 1) for place in later if 0 <= later[place] <= (n := done[place].last_read)}
    if not window:
        return
    with topics.reader() as consumer:
        found = {place: message.timestamp()[1] for place, message in messages(consumer, window)}
    for place in sorted(window):
        if is_overgrown(done[place], found.get(place), may_be_cleaned=pipeline.log.compact):
            yield Break("TWP-LOG-END", *place, done[place].offset, *ends[place], done[place].last_at)


@dataclass(frozen=True, slots=True)
class LogState:
    """The sink's positions, the ends of the log (read after them; uncommitted records count), and the topics' ids."""

    done: Mapping[Place, Applied]
    ends: Window
    ids: Mapping[str, str]
    unchanged: Set[Place] = frozenset()
    """Partitions of which the records before the position are known to be the ones that the sink has applied."""


def suspected(session: Session, state: LogState | None = None) -> tuple[Break, ...]:
    """The breaks in one reading; some may be transient, when the sink is about to commit records that the log has lost.

    In plain mode, positions are the offsets that the sink's consumers have committed; partitions without one are not
    judged. `state` avoids reading it again. Raises `MongoUnreachable` when the destination, which stores the positions,
    is unreachable.
    """
    pipeline, topics = session.pipeline, session.topics
    state = state or _state(session)
    # without a position a sink begins at offset 0
    done = dict.fromkeys(state.ends, Applied(0, 0)) | dict(state.done) if pipeline.exactly_once else state.done
    return _breaks(pipeline, topics, replace(state, done=done))


def _state(session: Session, known: Window | None = None, before: Window = NOTHING) -> LogState:
    """`known` are ends that were read before. They are enough, unless the sink has applied more since."""
    done, topics = _done(session), session.topics
    if known is None or any(place in known and known[place][1] < one.offset for place, one in done.items()):
        known, before = pipeline_ends(session.pipeline, topics, stable=False), NOTHING
    unchanged = {place for place, ends in known.items() if before.get(place) == ends}
    return LogState(done, known, topics.ids(topic for topic, n in known if (topic, n) not in unchanged), unchanged)


def _breaks(pipeline: Pipeline, topics: Topics, state: LogState) -> tuple[Break, ...]:
    done = {place: one for place, one in state.done.items() if pipeline.is_change_topic(place[0])}  # none excluded
    breaks = judge(done, state.ends, state.ids, transactional=pipeline.has_own_source)
    known = {gap.place for gap in breaks} | state.unchanged
    intact = {place: applied for place, applied in done.items() if place not in known}
    return (*breaks, *_overgrown(pipeline, topics, intact, state.ends))


def breaks_within(log: Window, topics: Topics, done: Mapping[Place, Applied]) -> tuple[Break, ...]:
    """As `suspected`, for the positions of a replay or rebuild in its part of the log, which must still be there.

    A partition that no longer exists must be applied to the end of that part.
    """
    ends = _ends(log, topics)
    positions_within = {place: done.get(place, Applied(first, 0)) for place, (first, _) in log.items()}
    existing = {place: one for place, one in positions_within.items() if place in ends}
    breaks = judge(existing, ends, topics.ids(topic for topic, _ in log), transactional=True)
    shorter = {place for place in existing if ends[place][1] < log[place][1]}
    shorter -= {gap.place for gap in breaks}  # the sink has begun after that, so its position is in the log
    gone = {
        place
        for place, one in positions_within.items()
        if place not in ends and max(one.offset, one.clear) + 1 < log[place][1]  # the last offset is a control record
    }
    return (
        *breaks,
        *(
            Break(
                "TWP-LOG-END" if place in ends else "TWP-LOG-TOPIC",
                *place,
                position=positions_within[place].offset,
                first=ends.get(place, (0, 0))[0],
                end=ends.get(place, (0, 0))[1],
                last_at=None,
            )
            for place in sorted(shorter | gone)
        ),
    )


def still_in_log(log: Window, topics: Topics) -> dict[Place, tuple[int, int]]:
    """What the brokers still have of a part of the log, without partitions of which nothing remains."""
    now = _ends(log, topics) if log else {}
    kept = {place: (max(first, now[place][0]), end) for place, (first, end) in log.items() if place in now}
    return {place: (first, end) for place, (first, end) in kept.items() if first < end}


def _ends(log: Window, topics: Topics, existing: Mapping[str, Topic] | None = None) -> dict[Place, tuple[int, int]]:
    """Of the partitions that exist; `existing` are all topics, which are read if not given."""
    existing, names = topics.all() if existing is None else existing, {topic for topic, _ in log}
    return topics.ends((topic for name, topic in existing.items() if name in names), stable=False)


def _done(session: Session) -> Mapping[Place, Applied]:
    pipeline = session.pipeline
    if not pipeline.exactly_once:
        return {place: Applied(offset, 0) for place, offset in session.topics.committed(pipeline.sink_group).items()}
    with session.destination.briefly() as client:
        return positions(client, pipeline)


def confirmed(session: Session, state: LogState | None = None) -> tuple[Break, ...]:
    """The breaks that a second reading finds unchanged; otherwise as `suspected`."""
    before = {(gap.place, gap.code, gap.position) for gap in suspected(session, state)}
    if not before:
        return ()
    time.sleep(_RECHECK)
    return tuple(gap for gap in suspected(session) if (gap.place, gap.code, gap.position) in before)


def cut_short(session: Session, log: Window, chosen: Selection) -> dict[Place, str]:
    """Why each partition that was cut short, recreated or deleted is incomplete, which its offsets do not show.

    A topic of a `chosen` namespace that no longer exists may not be in `log`. Raises `MongoUnreachable` when the
    destination, which stores the noted breaks, is unreachable.
    """
    pipeline, topics = session.pipeline, session.topics
    with session.destination.briefly() as client:
        reasons, done = accepted(client, pipeline), positions(client, pipeline)
    existing = topics.all()  # after the positions: what has one did exist
    ends, ids = _ends(log, topics, existing), topics.ids(topic for topic, _ in log)
    breaks = _breaks(pipeline, topics, LogState(done, ends, ids))
    reasons |= {gap.place: f"{gap.code}: {gap.meaning}" for gap in breaks if gap.code != "TWP-LOG-GAP"}

    def is_lacking(place: Place) -> bool:
        """Whether it is a part of the log, or was one. Others are of other namespaces, or newer than the log."""
        topic = place[0]
        return place in log or (topic not in existing and chosen.matches(namespace_of(pipeline.name, topic)))

    return {place: reasons[place] for place in sorted(reasons) if is_lacking(place)}


def accepted(client: Client, pipeline: Pipeline) -> dict[Place, str]:
    """Why the log is incomplete where a break of it was noted."""
    codes = noted_breaks(client, pipeline)
    return {place: f"{code}: the sink continued in spite of it" for place, code in codes.items()}


def refuse(session: Session, applied: Window | None = None, before: Window = NOTHING) -> None:
    """Raise `TowpathError` when a position is not in the log.

    `applied`, from `barrier.wait_applied`, saves reading the ends of the log: (first offset, end), which were read
    before the sink's positions reached them. What the log has lost since then looks applied at any later reading too.
    `before` is what `applied` was a moment ago, when nothing was refused: where it is the same, the ids of topics and
    their last records are not read again.
    """
    if breaks := confirmed(session, None if applied is None else _state(session, applied, before)):
        raise TowpathError(describe(breaks), where=breaks[0].topic, code=breaks[0].code)


def accept(session: Session) -> tuple[Break, ...]:
    """Stop the sink, move its positions to where the log continues, and return the accepted breaks.

    Verdicts of before no longer count. The sink stays STOPPED.

    Raises `Refused` when there is no break: no one can accept one in advance; and while a topic was created again with
    another number of partitions.
    """
    pipeline = session.pipeline
    found = suspected(session)
    _refuse_other_count(session, found)
    if not found:
        raise Refused(
            f"the positions of {pipeline.sink_connector} are all in its log, so there is nothing to accept;"
            " `towpath restart` without the option restarts what has failed"
        )
    stop(session.connect, pipeline.sink_connector)
    breaks = confirmed(session)  # positions no longer move
    if not breaks:
        return ()
    offsets, now = {gap.place: gap.resume_at for gap in breaks}, datetime.now(UTC)
    with session.destination.connected() as client:
        verdict.begin_history(client, pipeline, "a gap in the log was accepted")
        if pipeline.exactly_once:
            note_breaks(client, pipeline, {gap.place: gap.code for gap in breaks if gap.code != "TWP-LOG-GAP"}, now)
            skip_to(client, pipeline, offsets, now)
    if not pipeline.exactly_once:
        session.connect.move_offsets(pipeline.sink_connector, offsets)
    return breaks


def _refuse_other_count(session: Session, breaks: Iterable[Break]) -> None:
    """The source connector could not write to such a topic, or would write a document's changes to two partitions."""
    recreated = sorted({gap.topic for gap in breaks if gap.code == "TWP-LOG-TOPIC"})
    existing, count = session.topics.all() if recreated else {}, session.pipeline.kafka.partitions
    for name in recreated:
        if name in existing and existing[name].partitions != count:
            create = f"run `towpath deploy {session.file}`, which creates it as it must be"
            if session.pipeline.kafka.topics == "exist":
                create = f"create it as `towpath topics {session.file}` prints it"
            raise Refused(
                f"someone has created the topic {name} again, with {counted(existing[name].partitions, 'partition')}"
                f" instead of {count}",
                f"delete this topic, and {create}; then run this again",
                where=name,
            )
