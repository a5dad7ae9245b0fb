"""Compaction: the whole document of a key follows each of its updates in the log before the cleaner may drop records.

In each pass the source connector re-reads the documents with updates since their last whole record. A pass ends when
these have arrived in the log. The committed offset is never beyond an unprotected update, so that a restart, or another
instance, finds all of them.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, KafkaException, TopicPartition

from towpath.checks.facts import Facts
from towpath.checks.kafka import how_to_apply
from towpath.checks.rule import Finding, Rule, error, rules
from towpath.clients.kafka.consume import is_record, messages, place_of, poll
from towpath.clients.kafka.topics import Place, Topic, Topics, interruptible
from towpath.config.events import Pass
from towpath.config.namespaces import namespace_of
from towpath.config.pipeline import Log, Pipeline
from towpath.config.text import first_few
from towpath.deploy import unreplicated
from towpath.errors import NotYet, Refused, TopicError, TowpathError
from towpath.history.chunks import DECIDED_MS, Sweeper
from towpath.history.unprotected import Part, summary
from towpath.log import reread_requests
from towpath.log.definitions import MARK, POLICY, change_settings, is_compacted
from towpath.log.records import is_chunk, is_key, is_update
from towpath.log.source_offsets import read_state
from towpath.session import Session
from towpath.verify.repair import unreadable

#: A document, by its partition and key.
Document = tuple[Place, bytes]
#: Documents with unprotected updates that are kept in memory; when there are more, they are requested at once.
MOST_DIRTY = 200_000
_AT_ONCE = 10_000  # documents that are requested, and awaited, together
_HOUR = 3_600_000
_READ_S = 0.2  # one read
_STATUS_S = 2.0  # between two queries to Connect
_REPEAT_S = 30.0  # between two messages about the same problem, and between two commits
_SLOW_S = 10.0  # before slow answers are reported
_JOIN_S = 60.0  # until the group must have assigned partitions
_REBALANCE_S = 10.0  # to wait for partitions that other instances give up
_ANSWER_S = 15.0  # for one request to the brokers
_NOTHING = object()
_SHOWN = 3  # namespaces in a message
_SEARCHED = 1_000  # records that are searched for a document
_GROUP = {
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 10_000,  # after this, another instance gets the partitions of a killed one
}


def interval(log: Log) -> int:
    """The default time between two passes in ms: an hour, or a quarter of the lag if that is less."""
    return min(_HOUR, log.compaction_lag // 4)


def supported(facts: Facts) -> Iterator[Finding]:
    reread_requests.refuse_unable(facts.pipeline)
    return iter(())


def compacted(facts: Facts) -> Iterator[Finding]:
    if not facts.pipeline.log.compact:
        yield error(
            f"the log of {facts.pipeline.name} is not compacted: it keeps every record, so re-read documents would"
            " only make it longer",
            "set [log] compact = true, run `towpath deploy`, and start this again",
        )


def often_enough(every_ms: int, facts: Facts) -> Iterator[Finding]:
    log = facts.pipeline.log
    if log.compact and every_ms > log.compaction_lag // 2:
        yield error(
            f"--every {every_ms // 1000}s is more than half of the compaction lag ({log.compaction_lag // 1000}s): an"
            " update could grow too old before its document follows",
            f"give {log.compaction_lag // 2000}s or less, or raise [log] compaction_lag",
        )


def deployed(facts: Facts) -> Iterator[Finding]:
    """The topics exist and have the settings in the file."""
    facts.session.require_deployed()
    pipeline, topics = facts.pipeline, facts.topics
    has_requests = pipeline.request_topic in facts.existing
    if not has_requests or not facts.log:
        missing = "no change topics" if has_requests else f"no topic {pipeline.request_topic}"
        yield error(f"{pipeline.name} has {missing} at {topics.bootstrap}", "`towpath deploy` creates them")
    lag = pipeline.log.compaction_lag
    for topic in facts.log if pipeline.log.compact else ():
        if (actual := facts.topic_settings[topic.name].get(MARK)) != str(lag):
            yield error(
                f"the topic {topic.name} has {MARK}={actual}, and the file says {lag} ([log] compaction_lag)",
                how_to_apply(pipeline),
            )


def preconditions(every_ms: int) -> Sequence[Rule[Facts]]:
    """What must hold before the service begins. `every_ms`: the time between two passes."""
    return rules("compaction", supported, compacted, partial(often_enough, every_ms), deployed)


class Reader:
    """Reads this instance's share of the partitions, and knows their unprotected updates."""

    def __init__(self, pipeline: Pipeline, topics: Topics, *, from_beginning: bool) -> None:
        self.parts: dict[Place, Part] = {}
        self.records = 0
        self.joined = False
        """Whether the group has assigned partitions to this instance at least once."""
        self._pipeline, self._topics, self._from_beginning = pipeline, topics, from_beginning
        self._begun: set[Place] = set()
        self._names: set[str] = set()
        self._paused = False
        self._consumer: Consumer = topics.consumer(**_GROUP, **{"group.id": pipeline.compaction_group})

    def close(self) -> None:
        self._consumer.close()  # revokes the partitions, which commits

    def refresh(self) -> None:
        """Subscribe to new topics. Raises `Refused` when the pipeline has no topics."""
        names = {name for name in self._topics.all() if self._pipeline.is_change_topic(name)}
        if not names:
            raise Refused(
                f"{self._pipeline.name} has no topics at {self._topics.bootstrap}", "`towpath deploy` creates them"
            )
        if names != self._names:
            self._consumer.subscribe(
                sorted(names), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            self._names = names

    def ends(self) -> dict[Place, int]:
        """The current end offsets of this instance's partitions."""
        existing = self._topics.all()
        names = {topic for topic, _ in self.parts}
        ends = self._topics.ends(existing[name] for name in names if name in existing)
        return {place: end for place, (_, end) in ends.items() if place in self.parts}

    def has_read(self, ends: Mapping[Place, int]) -> bool:
        """Whether those of these partitions that this instance still has are read up to these offsets."""
        return all((self.parts[place].next or 0) >= end for place, end in ends.items() if place in self.parts)

    @property
    def dirty(self) -> int:
        return sum(len(part.dirty) for part in self.parts.values())

    @property
    def awaited(self) -> int:
        return sum(len(part.awaited) for part in self.parts.values())

    @property
    def oldest_seconds(self) -> float | None:
        """The age of the oldest unprotected update."""
        oldest = min((part.oldest.time_ms for part in self.parts.values() if part.oldest), default=None)
        return None if oldest is None else max(0.0, time.time() - oldest / 1000)

    def pause(self, *, paused: bool) -> None:
        """Pause or resume reading, and stay in the group."""
        if paused != self._paused:
            places = [TopicPartition(*place) for place in self.parts]
            (self._consumer.pause if paused else self._consumer.resume)(places)
            self._paused = paused

    def read(self, seconds: float) -> None:
        """Read for this time. Raises `TopicError` for errors from the brokers."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            with interruptible():  # callbacks assign and revoke partitions
                message = poll(self._consumer, remaining)
            part = None if message is None else self.parts.get(place_of(message))
            if message is None or part is None:
                continue
            if is_record(message):
                part.take(message.offset() or 0, message.timestamp()[1], message.key(), message.value())
                self.records += 1
            else:
                part.reached(message.offset() or 0, int(time.time() * 1000))

    def end_wait(self, *, arrived: bool = False) -> None:
        """Wait for no more documents. `arrived`: they are in the log, but not read yet."""
        for part in self.parts.values():
            for key in part.awaited if arrived else ():
                part.dirty.pop(key, None)
            part.awaited.clear()

    def commit(self, parts: Mapping[Place, Part] | None = None) -> None:
        """Commit where the next start, or another instance, begins to read. Raises `TopicError`."""
        now = int(time.time() * 1000)
        offsets = [
            TopicPartition(*place, part.safe, part.summary(now).written())
            for place, part in (self.parts if parts is None else parts).items()
            if part.safe is not None
        ]
        try:
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise TopicError(
                f"cannot commit the offsets of {self._pipeline.compaction_group} at {self._topics.bootstrap}:"
                f" {error.args[0].str()}"
            ) from error

    def _assigned(self, consumer: Consumer, new: list[TopicPartition]) -> None:
        self.joined = True
        committed: dict[Place, TopicPartition] = {}
        with suppress(KafkaException):  # the client then begins at the committed offset, without a summary
            committed = {(p.topic, p.partition): p for p in consumer.committed(new, timeout=_ANSWER_S)} if new else {}
        for partition in new:
            place = partition.topic, partition.partition
            self.parts[place], partition.offset = self._begin(place, committed.get(place))
        consumer.incremental_assign(new)
        if self._paused and new:
            consumer.pause(new)

    def _begin(self, place: Place, committed: TopicPartition | None) -> tuple[Part, int]:
        """The state of an assigned partition, and the offset at which to begin reading it."""
        if self._from_beginning and place not in self._begun:
            self._begun.add(place)
            return Part(), OFFSET_BEGINNING
        if committed is None:
            return Part(has_chunks=True), OFFSET_STORED  # as far as is known
        known = summary(committed.metadata or "")
        part = Part(has_chunks=True)  # as far as is known
        if known:
            part = Part(last_ms=known.last, quiet=known.quiet, has_chunks=known.has_chunks, swept=known.swept)
        elif committed.offset < 0:
            part = Part()
        return part, committed.offset if committed.offset >= 0 else OFFSET_BEGINNING

    def _revoked(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        with suppress(TopicError):  # the next instance then begins at the last commit
            self.commit(self._removed(gone))
        consumer.incremental_unassign(gone)

    def _lost(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        self._removed(gone)
        consumer.incremental_unassign(gone)

    def _removed(self, gone: list[TopicPartition]) -> dict[Place, Part]:
        places = [(partition.topic, partition.partition) for partition in gone]
        return {place: self.parts.pop(place) for place in places if place in self.parts}


class Compactor:
    """Does the passes of one instance, for a pipeline whose log is compacted."""

    def __init__(
        self, session: Session, reader: Reader, timeout: float | None = None, decided_ms: int = DECIDED_MS
    ) -> None:
        """`timeout`: seconds until everything must be read and answered; None waits forever.

        `decided_ms`: see `towpath.history.chunks`.
        """
        assert session.pipeline.log.compact
        self._session, self._pipeline, self._topics = session, session.pipeline, session.topics
        self._log, self._reader = session.pipeline.log, reader
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._reported: dict[str, float] = {}
        self._enabled: set[str] = set()
        self._gone: frozenset[str] = frozenset()
        """Collections whose documents were not requested at the last try: see `unreplicated.gone`."""
        self._committed = time.monotonic()
        self._sweeper = Sweeper(self._topics, reader.parts, self._log, self._report, decided_ms)
        self._sweeping = self._sweeper.steps()

    def run_pass(self) -> Pass:
        start, before, reader = time.monotonic(), self._reader.records, self._reader
        reader.pause(paused=False)  # the previous pass may have ended with an error
        reader.end_wait()
        reader.refresh()
        self._join()
        self._catch_up()
        rolls = list(self._segment_rolls())
        needed = [*self._dirty(), *rolls]
        asked, unanswered = self._reread(needed)
        for place, key in rolls:
            if (part := reader.parts.get(place)) is not None and part.nudge == key:
                part.refused_ms = part.last_ms
        self._commit()
        ready = self._enable_cleaner()
        return Pass(
            records=reader.records - before,
            asked=asked,
            arrived=asked - unanswered,
            unreadable=len(needed) - asked,
            dirty=reader.dirty,
            oldest_seconds=reader.oldest_seconds,
            partitions=len(reader.parts),
            switched_on=ready if self._enables else (),
            ready=() if self._enables else ready,
            seconds=time.monotonic() - start,
        )

    def pause(self, seconds: float) -> None:
        """Read for `seconds`, or until too many documents have unprotected updates; commit for `towpath status`.

        It also deletes chunks that no value needs; what is not done continues in the next pause.
        """
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0 and not self._is_full:
            is_sweeping = next(self._sweeping, _NOTHING) is None
            self._reader.read(min(remaining, _READ_S if is_sweeping else _REPEAT_S))
            if not is_sweeping:
                self._sweeping = self._sweeper.steps()
            if not is_sweeping or time.monotonic() > self._committed + _REPEAT_S:
                self._commit()

    def rest(self, seconds: float) -> None:
        """Wait for `seconds` after an error, and read on, if possible, to stay in the group."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            with suppress(TowpathError):
                self._reader.read(remaining)

    @property
    def _enables(self) -> bool:
        """Whether it enables compaction, and not someone else who has created the topics."""
        return self._pipeline.kafka.topics == "deploy"

    def _enable_cleaner(self) -> tuple[str, ...]:
        """The topics that are not compacted although all their updates are protected; enable it, where that is ours."""
        pending = {topic for topic, _ in self._reader.parts} - self._enabled
        if not pending:
            return ()
        existing = self._topics.all()
        settings = self._topics.settings_of_all(pending & existing.keys(), (POLICY,))
        self._enabled |= {name for name, now in settings.items() if is_compacted(now)}
        others = [existing[name] for name in settings.keys() - self._enabled]
        ready = tuple(sorted(protected(self._pipeline, self._topics, others)))
        if self._enables:
            self._topics.alter(list(ready), {POLICY: change_settings(self._pipeline)[POLICY]})
            self._enabled.update(ready)
        return ready

    def _join(self) -> None:
        start = time.monotonic()
        while not self._reader.parts and time.monotonic() < start + (_REBALANCE_S if self._reader.joined else _JOIN_S):
            self._read_on("the group's coordinator has not assigned partitions")
        if not self._reader.joined:
            raise TopicError(f"no broker has let this instance into the group {self._pipeline.compaction_group}")

    def _catch_up(self) -> None:
        """Read up to the current end offsets."""
        now_ms, ends, parts = int(time.time() * 1000), self._reader.ends(), self._reader.parts
        while not self._reader.has_read(ends):
            self._read_on("the log is not read to its end")
            if self._is_full:
                self._reread(self._dirty())
        for place in ends.keys() & parts.keys():
            parts[place].reached(ends[place], now_ms)

    @property
    def _is_full(self) -> bool:
        """Whether too many documents have unprotected updates: then they are requested at once, as far as they can."""
        name, parts, gone = self._pipeline.name, self._reader.parts, self._gone
        stay = (len(part.dirty) for place, part in parts.items() if gone and namespace_of(name, place[0]) in gone)
        return self._reader.dirty - sum(stay) > MOST_DIRTY

    def _dirty(self) -> list[Document]:
        """The documents with unprotected updates, the oldest first."""
        parts = self._reader.parts
        dirty = [(first.time_ms, place, key) for place, part in parts.items() for key, first in part.dirty.items()]
        return [(place, key) for _, place, key in sorted(dirty)]

    def _segment_rolls(self) -> Iterator[Document]:
        """A document of each partition that needs a new record: it makes the broker close the active segment."""
        parts, now = self._reader.parts, int(time.time() * 1000)
        for place in [place for place, part in parts.items() if is_due(part, self._log, now)]:
            key = key_in(self._topics, place)
            if key is not None:
                parts[place].nudge = key
                yield place, key

    def sweep_all(self) -> None:
        """Delete the chunks that no value needs, and commit."""
        for _ in self._sweeper.steps():
            self._reader.read(_READ_S)  # stays in the group
        self._commit()

    def _reread(self, documents: Iterable[Document]) -> tuple[int, int]:
        """Request those of these documents that can be queried, and wait until they are re-read.

        Returns how many were requested, and how many of them were not re-read.
        """
        readable = [document for document in documents if not unreadable(document[1])]
        asked = unanswered = 0
        for at in range(0, len(readable), _AT_ONCE):
            batch = self._present(readable[at : at + _AT_ONCE])  # a collection may be dropped since the last batch
            asked += len(batch)
            unanswered += self._reread_batch(batch)
        return asked, unanswered

    def _present(self, documents: list[Document]) -> list[Document]:
        """Those of collections that the source still has. Raises `TowpathError` when that cannot be read."""
        namespaces = {place: namespace_of(self._pipeline.name, place[0]) for place, _ in documents}
        gone = unreplicated.gone(self._session, namespaces.values())
        self._gone = self._gone - {*namespaces.values()} | gone
        if gone:
            self._report(
                f"the source has dropped or renamed {first_few(sorted(gone), _SHOWN)}, so that a re-read of these"
                f" documents would delete them at the destination: they stay unprotected; `towpath ddl"
                f" {self._session.file}` says what to do"
            )
        return [document for document in documents if namespaces[document[0]] not in gone]

    def _reread_batch(self, batch: list[Document]) -> int:
        namespaces: dict[str, list[bytes]] = {}
        for place, key in batch:
            if (part := self._reader.parts.get(place)) is not None:
                part.awaited.add(key)
                namespaces.setdefault(namespace_of(self._pipeline.name, place[0]), []).append(key)
        last = {
            name: reread_requests.write(self._pipeline, self._topics, name, keys) or 0
            for name, keys in namespaces.items()
        }
        start, full = time.monotonic(), False
        next_query = start + _STATUS_S
        while self._reader.awaited:
            full = self._is_full
            self._reader.pause(paused=full)
            self._read_on(f"{self._reader.awaited:,} requested documents have not arrived")
            if time.monotonic() > next_query:
                if self._answered(last, report=time.monotonic() > start + _SLOW_S):
                    break
                next_query = time.monotonic() + _STATUS_S
        self._reader.pause(paused=False)
        if full:  # there was no room to read them
            self._reader.end_wait(arrived=True)
        return self._count_unanswered()

    def _count_unanswered(self) -> int:
        """The number of documents that were not re-read, after the source connectors have answered."""
        ends = self._reader.ends() if self._reader.awaited else {}
        while self._reader.awaited and not self._reader.has_read(ends):
            self._read_on("the re-read documents are not read from the log")
        unanswered = self._reader.awaited
        self._reader.end_wait()
        if unanswered:
            self._report(
                f"{unanswered:,} requested documents were not re-read; the log of the source connector shows why"
            )
        return unanswered

    def _answered(self, last: Mapping[str, int], *, report: bool) -> bool:
        """Whether the source connectors have answered the requests up to `last` (namespace → request offset).

        With `report`, reports why not; a reason that the connector gives is always reported.
        """
        connect = self._session.connect
        try:
            for name, offset in last.items():
                connector = self._pipeline.source_connector_of(name)
                state = read_state(connect, connector)
                if not state.has_answered(offset):
                    why = state.requests.waiting if state.requests else ""
                    if report or why:
                        status = connect.status(connector).state
                        detail = "" if status == "RUNNING" else f", which is {status}"
                        detail += f": {why}" if why else ""
                        self._report(f"{self._reader.awaited:,} documents wait to be re-read by {connector}{detail}")
                    return False
            return True
        except TowpathError as error:  # the documents may still arrive
            self._report(f"cannot read the progress of the requests: {str(error).splitlines()[0]}")
            return False

    def _read_on(self, last_seen: str) -> None:
        """One step of every wait: read, warn, commit. Raises `NotYet` with `last_seen` after the deadline."""
        self._reader.read(_READ_S)
        self._warn_of_age()
        if time.monotonic() > self._committed + _REPEAT_S:
            self._commit()
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise NotYet(f"{self._pipeline.name}: the log is not protected in time: {last_seen}")

    def _commit(self) -> None:
        self._reader.commit()
        self._committed = time.monotonic()

    def _warn_of_age(self) -> None:
        """Warn when an unprotected update is almost as old as the lag."""
        age, lag = self._reader.oldest_seconds, self._log.compaction_lag / 1000
        if age is not None and age > lag * 3 / 4:
            self._report(
                f"WARNING: the oldest unprotected update is {age:.0f} s old; the log cleaner may drop records that are"
                f" older than {lag:.0f} s ([log] compaction_lag)"
            )

    def _report(self, message: str) -> None:
        """Report a message, but not the same one (apart from its numbers) all the time."""
        key = re.sub(r"[0-9,]+", "", message)
        if time.monotonic() > self._reported.get(key, 0) + _REPEAT_S:
            self._reported[key] = time.monotonic()
            self._session.say(message)


def protected(pipeline: Pipeline, topics: Topics, candidates: Collection[Topic]) -> set[str]:
    """Those of these change topics that may be compacted: all their updates are protected.

    The group's commits show this, also for partitions that other instances have.
    """
    committed = topics.committed_with_metadata(pipeline.compaction_group) if candidates else {}
    safe = {place for place, (_, metadata) in committed.items() if _is_protected(metadata, pipeline.log)}
    return {topic.name for topic in candidates if all((topic.name, n) in safe for n in range(topic.partitions))}


def _is_protected(metadata: str, log: Log) -> bool:
    """Whether every unprotected update is younger than half of the lag, by the summary of a commit.

    What was appended since the partition was read to its end may be one. A summary of an instance that has not read it
    to its end, or of a version that did not store when, says nothing.
    """
    committed = summary(metadata)
    if committed is None or committed.read is None:
        return False
    since = committed.read if committed.oldest is None else min(committed.read, committed.oldest)
    return time.time() * 1000 - since < log.compaction_lag / 2


def is_due(part: Part, log: Log, now_ms: int) -> bool:
    """Whether a partition needs a new record, which closes its active segment, so that the cleaner can work on it.

    This is so when the newest record is as old as the lag. A quiet partition only has tombstones left to remove, which
    stay longer. If the source did not answer the request for one, it is requested again only after another record: the
    name may be a view's by now.
    """
    if part.last_ms is None or part.dirty or part.refused_ms == part.last_ms:
        return False
    tombstones_ms = max(log.delete_retention, 2 * log.compaction_lag)  # the cleaner does not run sooner
    return now_ms - part.last_ms > (tombstones_ms if part.quiet else log.compaction_lag)


def key_in(topics: Topics, place: Place) -> bytes | None:
    """The key of the first whole document in a partition, or else of its first record; None for an empty partition.

    The first document probably still exists; re-reading a deleted one would add another tombstone.
    """
    first = None
    with topics.reader(**{"auto.offset.reset": "earliest"}) as consumer:
        found = (message for _, message in messages(consumer, {place: (0, sys.maxsize)}, at_once=1))
        for message in islice((one for one in found if not is_chunk(one.key())), _SEARCHED):
            key, value = message.key(), message.value()
            if not is_key(key):
                continue  # not written by Towpath
            if value is not None and not is_update(value):
                return key
            first = first or key
    return first
