"""Compaction: the whole document of a key follows each of its updates in the log before the cleaner may drop records.

In each round the source connector re-reads the documents with updates since their last whole record. A round ends when
these have arrived in the log. The committed offset is never beyond an unprotected update, so that a restart, or another
instance, finds all of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

from towpath.clients.kafka.consume import messages
from towpath.clients.kafka.topics import Place, Topics
from towpath.config.events import Round
from towpath.config.namespaces import namespace_of
from towpath.config.sections import Log
from towpath.errors import NotYet, TopicError, TowpathError
from towpath.history.compaction.reader import Reader
from towpath.history.unprotected import Part, figures
from towpath.log import reread_requests
from towpath.log.definitions import POLICY, change_settings, is_compacted
from towpath.log.records import is_key, is_update
from towpath.log.source_offsets import read_state
from towpath.session import Session

#: A document, by its partition and key.
Document = tuple[Place, bytes]
#: Documents with unprotected updates that are kept in memory; when there are more, they are requested at once.
MOST_DIRTY = 200_000
_AT_ONCE = 10_000  # documents that are requested, and awaited, together
_READ_S = 0.2  # one read
_STATUS_S = 2.0  # between two queries to Connect
_REPEAT_S = 30.0  # between two messages about the same trouble, and between two commits
_SLOW_S = 10.0  # before slow answers are reported
_JOIN_S = 60.0  # until the group must have assigned partitions
_REBALANCE_S = 10.0  # to wait for partitions that other instances give up


class Compactor:
    """Does the rounds of one instance, for a pipeline whose log is compacted."""

    def __init__(
        self, session: Session, reader: Reader, unreadable: Callable[[bytes], str], timeout: float | None = None
    ) -> None:
        """`unreadable` returns why an `_id` cannot be queried, or an empty text.

        `timeout`: seconds until everything must be read and answered; None waits forever.
        """
        assert session.pipeline.log.compact
        self._session, self._pipeline, self._topics = session, session.pipeline, session.topics
        self._log, self._reader, self._unreadable = session.pipeline.log, reader, unreadable
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._reported: dict[str, float] = {}
        self._enabled: set[str] = set()
        self._committed = time.monotonic()

    def round(self) -> Round:
        start, before = time.monotonic(), self._reader.records
        self._reset()
        self._reader.refresh()
        self._join()
        self._catch_up()
        needed = [*self._dirty(), *self._segment_rolls()]
        readable = [document for document in needed if not self._unreadable(document[1])]
        unanswered = self._reread(readable)
        self._commit()
        return Round(
            records=self._reader.records - before,
            asked=len(readable),
            arrived=len(readable) - unanswered,
            unreadable=len(needed) - len(readable),
            dirty=self._reader.dirty,
            oldest_seconds=self.oldest_seconds(),
            partitions=len(self._reader.parts),
            switched_on=tuple(self._enable_cleaner()),
            seconds=time.monotonic() - start,
        )

    def _reset(self) -> None:
        """Forget what the previous round waited for, which may have ended with an error."""
        self._reader.pause(paused=False)
        for part in self._reader.parts.values():
            part.awaited.clear()

    def pause(self, seconds: float) -> None:
        """Read for `seconds`, or until too many documents have unprotected updates; commit for `towpath status`."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0 and self._reader.dirty <= MOST_DIRTY:
            self._reader.read(min(remaining, _REPEAT_S))
            self._commit()

    def rest(self, seconds: float) -> None:
        """Wait for `seconds` after an error, and read on, if possible, to stay in the group."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            with suppress(TowpathError):
                self._reader.read(remaining)

    def oldest_seconds(self) -> float | None:
        oldest = self._reader.oldest
        return None if oldest is None else max(0.0, time.time() - oldest.time_ms / 1000)

    def _enable_cleaner(self) -> Iterator[str]:
        """Enable compaction in each topic once all its updates are protected; yield its name.

        The group's commits show this, also for partitions that other instances have.
        """
        pending = {topic for topic, _ in self._reader.parts} - self._enabled
        if not pending:
            return
        existing = self._topics.all()
        committed = self._topics.committed_with_metadata(self._pipeline.compaction_group)
        for name, settings in sorted(self._topics.settings_of_all(pending & existing.keys()).items()):
            places = [(name, number) for number in range(existing[name].partitions)]
            if is_compacted(settings):
                self._enabled.add(name)
            elif all(place in committed and self._is_protected(committed[place][1]) for place in places):
                self._topics.alter(name, {POLICY: change_settings(self._pipeline)[POLICY]})
                self._enabled.add(name)
                yield name

    def _is_protected(self, metadata: str) -> bool:
        """Whether every unprotected update is younger than half of the lag, by the figures of a commit."""
        committed = figures(metadata)
        if committed is None:
            return False
        since = committed.at if committed.oldest is None else min(committed.at, committed.oldest)
        return time.time() * 1000 - since < self._log.compaction_lag / 2

    def _join(self) -> None:
        start = time.monotonic()
        while not self._reader.parts and time.monotonic() < start + (_REBALANCE_S if self._reader.joined else _JOIN_S):
            self._read_on("the group's coordinator has not assigned partitions")
        if not self._reader.joined:
            raise TopicError(f"no broker has let this instance into the group {self._pipeline.compaction_group}")

    def _catch_up(self) -> None:
        """Read up to the current end offsets."""
        ends = self._reader.ends()
        while not self._reader.has_read(ends):
            self._read_on("the log is not read to its end")
            if self._reader.dirty > MOST_DIRTY:
                self._reread([document for document in self._dirty() if not self._unreadable(document[1])])

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

    def _reread(self, documents: list[Document]) -> int:
        """Request these documents and wait until they are re-read; the number of those that were not."""
        return sum(self._reread_batch(documents[at : at + _AT_ONCE]) for at in range(0, len(documents), _AT_ONCE))

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
            full = self._reader.dirty > MOST_DIRTY
            self._reader.pause(paused=full)
            self._read_on(f"{self._reader.awaited:,} requested documents have not arrived")
            if time.monotonic() > next_query:
                if self._answered(last, report=time.monotonic() > start + _SLOW_S):
                    break
                next_query = time.monotonic() + _STATUS_S
        self._reader.pause(paused=False)
        return self._count_unanswered(trusted=full)

    def _count_unanswered(self, *, trusted: bool) -> int:
        """The number of documents that were not re-read, after the source connectors have answered."""
        if trusted:
            self._reader.trust()
        ends = self._reader.ends() if self._reader.awaited else {}
        while self._reader.awaited and not self._reader.has_read(ends):
            self._read_on("the re-read documents are not read from the log")
        unanswered = self._reader.awaited
        for part in self._reader.parts.values():
            part.awaited.clear()
        if unanswered:
            self._report(
                f"{unanswered:,} requested documents were not re-read; the log of the source connector shows why"
            )
        return unanswered

    def _answered(self, last: Mapping[str, int], *, report: bool) -> bool:
        """Whether the source connectors have answered the requests up to `last` (namespace → request offset).

        With `report`, reports why not; a reason that the connector gives is always reported.
        """
        try:
            for name, offset in last.items():
                connector = self._pipeline.source_connector_of(name)
                state = read_state(self._session.connect, connector)
                if not state.has_answered(offset):
                    why = state.requests.waiting if state.requests else ""
                    if report or why:
                        state_name = self._session.connect.status(connector).state
                        detail = "" if state_name == "RUNNING" else f", which is {state_name}"
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
        age, lag = self.oldest_seconds(), self._log.compaction_lag / 1000
        if age is not None and age > lag * 3 / 4:
            self._report(
                f"WARNING: the oldest unprotected update is {age:.0f} s old; the log cleaner may drop records that are"
                f" older than {lag:.0f} s ([log] compaction_lag)",
                key="warning",
            )

    def _report(self, message: str, key: str = "") -> None:
        """Report a message, but not the same one (apart from a number at its beginning) all the time."""
        key = key or message.lstrip("0123456789,")
        if time.monotonic() > self._reported.get(key, 0) + _REPEAT_S:
            self._reported[key] = time.monotonic()
            self._session.say(message)


_SEARCHED = 1_000  # records that are searched for a document


def is_due(part: Part, log: Log, now_ms: int) -> bool:
    """Whether a partition needs a new record, which closes its active segment, so that the cleaner can work on it.

    This is so when the newest record is as old as the lag. A quiet partition only has tombstones left to remove, which
    stay longer.
    """
    if part.last_ms is None or part.dirty:
        return False
    tombstones_ms = max(log.delete_retention, 2 * log.compaction_lag)  # the cleaner does not run sooner
    return now_ms - part.last_ms > (tombstones_ms if part.quiet else log.compaction_lag)


def key_in(topics: Topics, place: Place) -> bytes | None:
    """The key of the first whole document in a partition, or else of its first record; None for an empty partition.

    The first document probably still exists; re-reading a deleted one would add another tombstone.
    """
    first = None
    with topics.reader(**{"auto.offset.reset": "earliest"}) as consumer:
        for _, message in islice(messages(consumer, {place: (0, sys.maxsize)}, at_once=1), _SEARCHED):
            key, value = message.key(), message.value()
            if not is_key(key):
                continue  # not written by Towpath
            if value is not None and not is_update(value):
                return key
            first = first or key
    return first
