"""Compaction: every update in the log is followed by the whole document of its key before the cleaner may touch it.

Round by round the documents with updates since their last whole record are re-read by the source connector, in
their place in the log. A round ends when they have come by; what is committed is never beyond an update without its
document, so that another life, or another instance, begins rightly.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

from connectors.rest import Connect
from towpath.compaction.preconditions import SwitchOn
from towpath.compaction.reader import Reader
from towpath.errors import NotYet, TopicError, TowpathError
from towpath.events import Round
from towpath.kafka.consume import messages
from towpath.kafka.topics import Place, Topics
from towpath.log import reread_requests
from towpath.log.records import is_key
from towpath.log.source_offsets import read_state
from towpath.log.unprotected import Document, Part, batches, is_update
from towpath.namespaces import namespace_of
from towpath.pipeline import Compaction, Pipeline

#: Documents with unprotected updates that are kept in memory; when there are more, they are asked for at once.
MOST_DIRTY = 200_000
_SLICE = 0.2  # seconds
_LOOK = 2.0  # seconds between two questions to Connect
_TOLD = 30.0  # seconds between two words about the same trouble, and between two commits
_LONG = 10.0  # seconds that answers may take before it is told
_JOIN = 60.0  # seconds until the group must have given out the partitions
_SHARED = 10.0  # seconds for which partitions that other instances give up are waited for


class Compactor:
    """Does the rounds of one instance. `say` is told of what takes long; `unreadable` tells why an `_id` cannot be
    asked for, empty when it can."""

    def __init__(
        self,
        pipeline: Pipeline,
        compaction: Compaction,
        connect: Connect,
        topics: Topics,
        reader: Reader,
        say: Callable[[str], None],
        unreadable: Callable[[bytes], str],
        timeout: float | None = None,
    ) -> None:
        """`timeout` in seconds, for everything to be read and answered; None waits for ever."""
        self._pipeline, self._compaction, self._connect = pipeline, compaction, connect
        self._topics, self._reader, self._say, self._unreadable = topics, reader, say, unreadable
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._told: dict[str, float] = {}
        self._switch = SwitchOn(pipeline, compaction, topics)
        self._committed = time.monotonic()

    def round(self) -> Round:
        start, before = time.monotonic(), self._reader.records
        self._begin_anew()
        self._reader.refresh()
        self._join()
        self._catch_up()
        wanted = [*self._dirty(), *self._nudges()]
        askable = [one for one in wanted if not self._unreadable(one[1])]
        unanswered = self._ask(askable)
        self._commit()
        return Round(
            records=self._reader.records - before,
            asked=len(askable),
            arrived=len(askable) - unanswered,
            unreadable=len(wanted) - len(askable),
            dirty=self._reader.dirty,
            oldest_seconds=self.oldest_seconds(),
            partitions=len(self._reader.parts),
            switched_on=tuple(self._switch.protected({topic for topic, _ in self._reader.parts})),
            seconds=time.monotonic() - start,
        )

    def _begin_anew(self) -> None:
        """Whatever trouble ended the round before."""
        self._reader.pause(paused=False)
        for part in self._reader.parts.values():
            part.awaited.clear()

    def pause(self, seconds: float) -> None:
        """Read on for so long, unless very many documents have to be asked for; keeps the figures for `status` new."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._reader.dirty <= MOST_DIRTY:
            self._reader.read(min(left, _TOLD))
            self._commit()

    def rest(self, seconds: float) -> None:
        """Wait for so long after trouble, and stay in the group if that can be."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with suppress(TowpathError):
                self._reader.read(left)

    def oldest_seconds(self) -> float | None:
        oldest = self._reader.oldest
        return None if oldest is None else max(0.0, time.time() - oldest.time_ms / 1000)

    def _join(self) -> None:
        start = time.monotonic()
        while not self._reader.parts and time.monotonic() < start + (_SHARED if self._reader.joined else _JOIN):
            self._go_on("the group's coordinator has not given out the partitions")
        if not self._reader.joined:
            raise TopicError(f"no broker has let this instance into the group {self._pipeline.compaction_group}")

    def _catch_up(self) -> None:
        """Read up to the present ends."""
        ends = self._reader.ends()
        while not self._reader.has_read(ends):
            self._go_on("the log is not read to its end")
            if self._reader.dirty > MOST_DIRTY:
                self._ask([one for one in self._dirty() if not self._unreadable(one[1])])

    def _dirty(self) -> list[Document]:
        """The documents with unprotected updates, the oldest first."""
        parts = self._reader.parts
        dirty = [(first.time_ms, place, key) for place, part in parts.items() for key, first in part.dirty.items()]
        return [(place, key) for _, place, key in sorted(dirty)]

    def _nudges(self) -> Iterator[Document]:
        """Documents whose records close segments; of partitions that are read to their ends."""
        parts, now = self._reader.parts, int(time.time() * 1000)
        for place in [place for place, part in parts.items() if is_due(part, self._compaction, now)]:
            key = key_in(self._topics, place)
            if key is not None:
                parts[place].nudge = key
                yield place, key

    def _ask(self, wanted: Iterable[Document]) -> int:
        """Have these documents read again, and wait until they have; how many were not."""
        return sum(self._settle(batch) for batch in batches(wanted))

    def _settle(self, batch: list[Document]) -> int:
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
        look = start + _LOOK
        while self._reader.awaited:
            full = self._reader.dirty > MOST_DIRTY
            self._reader.pause(paused=full)
            self._go_on(f"{self._reader.awaited:,} documents were asked for and have not come")
            if time.monotonic() > look:
                if self._answered(last, tell=time.monotonic() > start + _LONG):
                    break
                look = time.monotonic() + _LOOK
        self._reader.pause(paused=False)
        return self._left(trusted=full)

    def _left(self, *, trusted: bool) -> int:
        """What was not answered, once all that was asked for should have come."""
        if trusted:
            self._reader.trust()
        ends = self._reader.ends() if self._reader.awaited else {}
        while self._reader.awaited and not self._reader.has_read(ends):
            self._go_on("the answers are not read")
        left = self._reader.awaited
        for part in self._reader.parts.values():
            part.awaited.clear()
        if left:
            self._tell(f"{left:,} requested documents were not re-read; the log of the source connector shows why")
        return left

    def _answered(self, last: Mapping[str, int], *, tell: bool) -> bool:
        """Whether the source connectors have answered these requests; with `tell` says why not."""
        try:
            for name, offset in last.items():
                connector = self._pipeline.source_connector_of(name)
                state = read_state(self._connect, connector)
                if not state.has_answered(offset):
                    why = state.requests.waiting if state.requests else ""
                    if tell or why:
                        found = self._connect.status(connector).state
                        stands = "" if found == "RUNNING" else f", which is {found}"
                        words = stands + (f": {why}" if why else "")
                        self._tell(f"{self._reader.awaited:,} documents wait to be re-read by {connector}{words}")
                    return False
            return True
        except TowpathError as error:  # the answers may come all the same
            self._tell(f"cannot ask how far the requests are: {str(error).splitlines()[0]}")
            return False

    def _go_on(self, last_seen: str) -> None:
        self._reader.read(_SLICE)
        self._warn()
        if time.monotonic() > self._committed + _TOLD:
            self._commit()
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise NotYet(f"{self._pipeline.name}: the log is not protected in time: {last_seen}")

    def _commit(self) -> None:
        self._reader.commit()
        self._committed = time.monotonic()

    def _warn(self) -> None:
        """When the rule is near to being broken."""
        age, lag = self.oldest_seconds(), self._compaction.lag_ms / 1000
        if age is not None and age > lag * 3 / 4:
            self._tell(
                f"WARNING: the oldest update that no document follows is {age:.0f} s old; the cleaner may touch what"
                f" is older than {lag:.0f} s ([log] compaction_lag)",
                key="warning",
            )

    def _tell(self, words: str, key: str = "") -> None:
        """Say it, but not again and again."""
        key = key or words.lstrip("0123456789,")
        if time.monotonic() > self._told.get(key, 0) + _TOLD:
            self._told[key] = time.monotonic()
            self._say(words)


_LOOKED_AT = 1_000  # records in which a document is looked for


def is_due(part: Part, compaction: Compaction, now_ms: int) -> bool:
    """Whether the newest record is as old as the lag. Once closed, only tombstones have to go: their time is longer."""
    if part.last_ms is None or part.dirty:
        return False
    tombstones_ms = max(compaction.delete_retention_ms, 2 * compaction.lag_ms)  # sooner the cleaner does not come by
    return now_ms - part.last_ms > (tombstones_ms if part.quiet else compaction.lag_ms)


def key_in(topics: Topics, place: Place) -> bytes | None:
    """The key of the first document of a partition, or else of its first record; None when there is none.

    The first, because an old document is likely to be there still: of a deleted one another tombstone would come.
    """
    first = None
    with topics.reader(**{"auto.offset.reset": "earliest"}) as consumer:
        for _, message in islice(messages(consumer, {place: (0, sys.maxsize)}, at_once=1), _LOOKED_AT):
            key, value = message.key(), message.value()
            if not is_key(key):
                continue  # somebody else's
            if value is not None and not is_update(value):
                return key
            first = first or key
    return first
