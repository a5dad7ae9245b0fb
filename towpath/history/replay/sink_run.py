"""A sink that applies the log of a pipeline from the beginning: its progress, and what it came to."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from towpath.clients.connect.control import Wait
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import Cluster
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted
from towpath.errors import NoSuchConnector, NotYet, TowpathError
from towpath.history.replay.plan import Start, change_topics, namespaces
from towpath.log.barrier import holdup
from towpath.log.bounds import CODES, breaks_within, still_in_log
from towpath.log.dead_letters import DeadLetter, letters
from towpath.log.lag import gaps, peek
from towpath.session import Session
from towpath.store import positions
from towpath.store.positions import Applied

_POLL_S = 0.5
_RUN_AGAIN = "fix the cause and run the same command again: it continues where it stopped"
_WINDOW = 20  # polls over which the rate is computed


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of the log a replay or a rebuild has applied, or checked before, for a terminal.

    Counted in offsets: records, transaction markers, and offsets that compaction has removed.
    """

    done: int
    of: int
    per_second: float = 0.0
    is_check: bool = False
    is_last: bool = False

    @property
    def seconds_left(self) -> float | None:
        """At the present rate; None while nothing moves."""
        return (self.of - self.done) / self.per_second if self.per_second > 0 else None


@dataclass(slots=True)
class SinkRun:
    """`sink` is the pipeline or replay that the sink belongs to; `destination` is what it writes to."""

    session: Session
    name: str
    """For messages: `replay` and its label, or the rebuild."""
    sink: Pipeline
    connector: str
    destination: Cluster
    start: Start
    _previous: dict[Place, int] = field(default_factory=dict)
    _polls: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def wait_until_applied(self, timeout: float, hint: str, report: Callable[[Progress], None]) -> None:
        """Return once the log is applied. `hint` is the end of the message on Ctrl-C.

        Raises `TowpathError` when the sink has failed, is gone, or has applied nothing for `timeout` seconds. It waits
        as long for a server that does not answer.
        """
        topics, connect, say = self.session.topics, self.session.connect, self.session.say
        say(
            f"{self.name}: about {self.start.offsets:,} records of {counted(len(self.start.topics), 'topic')}, to"
            f" {self.destination.address}"
        )
        late = f"{self.connector} has applied nothing for {timeout:.0f} s"
        waiting = Wait(connect, [self.connector], timeout, late, pause=_POLL_S, passing=(TowpathError,), say=say)
        done = -1

        def applied() -> Progress:
            nonlocal done
            progress = self.read()
            report(progress)
            if progress.done != done:
                done = progress.done
                waiting.extend()
            if progress.done < progress.of:
                command = "towpath ddl" if self.name == "rebuild" else f"towpath ddl PIPELINE --{self.name}"
                held_up = holdup(self.destination, self.sink, self.start.topics, command=command)
                words = f"it has applied {progress.done:,} of {progress.of:,} records"
                raise NotYet(f"{words}; {held_up}" if held_up else words)
            return progress

        try:
            report(replace(waiting.until(applied), is_last=True))
        except NoSuchConnector:
            raise
        except TowpathError as error:
            if error.code in CODES:
                raise
            raise TowpathError(str(error), _RUN_AGAIN, where=error.where, code=error.code) from error
        except KeyboardInterrupt:
            raise TowpathError(
                f"{self.name}: goes on in Kafka Connect. Run the same command again to see its progress and to finish"
                f" it; {hint}"
            ) from None
        if breaks := breaks_within(self.start.log, topics, self.applied()):  # they look like applied records
            raise TowpathError(f"{self.connector} has not applied all of the log: {breaks[0].description}")

    def applied(self) -> dict[Place, Applied]:
        with self.destination.connected() as client:
            return positions.positions(client, self.sink)

    def read(self) -> Progress:
        """The progress now. A partition without progress counts as applied if the rest of it holds no records."""
        done = {place: position.offset for place, position in self.applied().items()}
        remaining = gaps(self.start.log, done)
        unmoved = {place: gap for place, gap in remaining.items() if self._previous.get(place) == gap[0]}
        peeked = peek(self.session.topics, still_in_log(unmoved, self.session.topics), limit=0)
        for place in unmoved:
            if place not in peeked or not peeked[place].records:
                done[place] = self.start.log[place][1]
        self._previous = {place: start for place, (start, _) in remaining.items()}
        applied = self.start.offsets - sum(end - start for start, end in gaps(self.start.log, done).values())
        self._polls.append((time.monotonic(), applied))
        (then, before), (now, after) = self._polls[0], self._polls[-1]
        rate = (after - before) / (now - then) if now > then else 0.0
        return Progress(applied, self.start.offsets, rate)

    def documents(self) -> dict[str, int]:
        """Namespace at the destination → its number of documents, estimated."""
        counts = {}
        with self.destination.connected() as client:
            for name in namespaces(self.session.pipeline, self.start.log):
                target = self.session.pipeline.renamed(name)
                database, collection = target.split(".", 1)
                counts[target] = client[database][collection].estimated_document_count()
        return counts

    def dead_letters(self) -> list[DeadLetter]:
        """Those since the start, each record once."""
        fresh = letters(self.sink, self.session.topics, follow=False, start=self.start.letters)
        return list({letter.place: letter for letter in fresh}.values())

    def deleted_heads(self) -> list[str]:
        """What retention has deleted since the start: partitions with the range of offsets."""
        topics = self.session.topics
        now = topics.ends(change_topics(self.session.pipeline, (), topics.all()))
        return [
            f"{place[0]}, partition {place[1]}: {first:,} to {now[place][0] - 1:,}"
            for place, (first, _) in self.start.log.items()
            if place in now and now[place][0] > first
        ]
