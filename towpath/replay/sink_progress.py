"""How far a sink has come on a stretch of the log, and waiting until it is through: replays and rebuilds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from connectors.control import statuses
from connectors.rest import Connect
from towpath.bookkeeping import positions
from towpath.errors import NoSuchConnector, TowpathError
from towpath.kafka.topics import Place, Topics
from towpath.log.bounds import CODE, broken_within, still_there
from towpath.log.lag import gaps, peek
from towpath.mongo.client import connected
from towpath.pipeline import Pipeline
from towpath.replay.plan import Log

_PAUSE = 0.5  # seconds between two looks
_FAILED_FOR = 5.0  # seconds: a failure may be that of tasks that are about to be replaced
_AGAIN = "mend the cause and give the same command again: it goes on where it was"
_WINDOW = 20  # looks by which the rate is reckoned


@dataclass(frozen=True, slots=True)
class Progress:
    """Offsets of the log, which are records but for the marks of transactions and what the cleaner took."""

    done: int
    of: int
    per_second: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the present rate; None while nothing moves."""
        return (self.of - self.done) / self.per_second if self.per_second > 0 else None


def progress(log: Log, done: Mapping[Place, int]) -> Progress:
    """How much of a stretch of the log is done."""
    left = sum(end - start for start, end in gaps(log, done).values())
    of = sum(end - first for first, end in log.values())
    return Progress(of - left, of)


@dataclass(slots=True)
class Course:
    """A sink on its way through a stretch of the log.

    `sink` is the pipeline whose sink it is, or a replay's; `side` says for people which cluster it writes to.
    """

    sink: Pipeline
    connector: str
    side: str
    connect: Connect
    topics: Topics
    log: dict[Place, tuple[int, int]]
    _seen: dict[Place, int] = field(default_factory=dict)
    _looks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def run(self, timeout: float, tell: Callable[[Progress], None], say: Callable[[str], None]) -> None:
        """Return once all is applied. Raises `TowpathError` when the sink has failed, is gone, or has not moved
        for `timeout` seconds; a part that does not answer meanwhile is waited for as long."""
        moved = well = time.monotonic()
        done, trouble, told = -1, "", False
        failures: tuple[str, ...] = ()
        while True:
            found, trouble = None, ""
            try:
                failures = self._failures()
                found = self.look()
            except NoSuchConnector:
                raise
            except TowpathError as error:
                trouble = str(error)
            if trouble and not told:
                say(f"{trouble}; waiting for it, up to {timeout:.0f} s")
            told = bool(trouble)
            now = time.monotonic()
            well = well if failures else now
            if found is not None:
                tell(found)
                if found.done >= found.of:
                    self._refuse_broken()
                    return
                moved, done = (now, found.done) if found.done != done else (moved, done)
            if now > well + _FAILED_FOR:
                words = f"{self.connector} has failed: {'; '.join(failures)}"
                raise TowpathError(words if CODE.search(words) else f"{words}; {_AGAIN}")
            if now > moved + timeout:
                raise TowpathError(self._stuck(timeout, trouble))
            time.sleep(_PAUSE)

    def look(self) -> Progress:
        """How far it is now. Where it stands before the end, what is left is looked at: there may be no record."""
        with connected(self.sink.destination_uri, self.side) as client:
            done = {place: found.offset for place, found in positions.positions(client, self.sink).items()}
        left = gaps(self.log, done)
        standing = {place: gap for place, gap in left.items() if self._seen.get(place) == gap[0]}
        peeked = peek(self.topics, still_there(standing, self.topics), most=0)
        for place in standing:
            if place not in peeked or not peeked[place].records:
                done[place] = self.log[place][1]
        self._seen = {place: start for place, (start, _) in left.items()}
        found_now = progress(self.log, done)
        self._looks.append((time.monotonic(), found_now.done))
        (then, before), (now, after) = self._looks[0], self._looks[-1]
        return Progress(found_now.done, found_now.of, (after - before) / (now - then) if now > then else 0.0)

    def _refuse_broken(self) -> None:
        """What is gone from the log looks like what is applied."""
        with connected(self.sink.destination_uri, self.side) as client:
            done = positions.positions(client, self.sink)
        if found := broken_within(self.log, self.topics, done):
            raise TowpathError(f"{self.connector} has not applied all of the log: {found[0].words}")

    def _failures(self) -> tuple[str, ...]:
        (connector,) = statuses(self.connect, [self.connector])
        if connector.state == "MISSING" and self.connect.config(self.connector) is None:
            raise NoSuchConnector(f"the connector {self.connector} is gone: it was removed meanwhile")
        return connector.failures

    def _stuck(self, timeout: float, trouble: str) -> str:
        words = trouble
        if not words:
            (connector,) = statuses(self.connect, [self.connector])
            words = f"it is {connector.state} with {len(connector.tasks)} tasks"
        return f"{self.connector} has not come any further for {timeout:.0f} s: {words}; {_AGAIN}"
