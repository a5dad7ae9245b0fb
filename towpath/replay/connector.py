"""A replay's connector: made, followed until all is applied, and removed again with all it needed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from connectors.control import Wait, forget_offsets, statuses, wait_stopped
from connectors.rest import Connect
from towpath.bookkeeping import positions
from towpath.bookkeeping.positions import Counts
from towpath.deploy import credentials
from towpath.deploy.deployment import put
from towpath.errors import MongoUnreachable, NoSuchConnector, NotYet, TowpathError
from towpath.kafka.topics import Place, Topics
from towpath.log.bounds import CODES, breaks_within, remaining
from towpath.log.dead_letters import DeadLetter, letters
from towpath.log.lag import gaps, peek
from towpath.mongo.client import REPLAY_SIDE, connected
from towpath.pipeline import Pipeline
from towpath.replay.plan import Log, Replay, change_topics, definition, late_starts
from towpath.topic_settings import TOPIC_SETTINGS, retention_settings

_ADVICE = {"connection.uri": " (--destination; its user needs readWrite on the databases written and on towpath)"}


def begin(replay: Replay, connect: Connect, topics: Topics, say: Callable[[str], None]) -> None:
    """Make what the replay needs, its connector last. What a replay of this name left behind is forgotten."""
    settings = TOPIC_SETTINGS | retention_settings(replay.pipeline.retention_ms)
    if replay.dead_letter_topic not in topics.all():
        topics.create(replay.dead_letter_topic, 1, replay.pipeline.replication_factor, settings)
        say(f"created topic {replay.dead_letter_topic}")
    with connected(replay.sink.destination_uri, REPLAY_SIDE) as client:
        positions.forget(client, replay.sink)
        if replay.plan.forced:  # a sink that finds a beginning gone stops
            positions.skip_to(client, replay.sink, late_starts(replay.plan.log), datetime.now(UTC))
    write_secrets(replay)
    put(connect, replay.name, definition(replay), replay.secrets, _ADVICE)
    say(f"created connector {replay.name}")


def write_secrets(replay: Replay) -> bool:
    """Write the file from which the workers read the destination's URI, where it is not as it should be."""
    text = credentials.replay_properties(replay.sink, replay.destination.name)
    if differs := credentials.differs(replay.secrets, text):
        credentials.write(replay.secrets, text)
    return differs


def go_on(replay: Replay, connect: Connect, say: Callable[[str], None]) -> None:
    """Have a replay that is there run: with the URI as it was given now, what has failed or was stopped once more."""
    if write_secrets(replay):
        connect.restart(replay.name, only_failed=False)
        say(f"wrote {replay.secrets} and restarted {replay.name}, for the new address or password")
    (connector,) = statuses(connect, [replay.name])
    if connector.failures:
        connect.restart(replay.name, only_failed=True)
        say(f"restarted {replay.name}, which had failed: {'; '.join(connector.failures)}")
    if connector.state in ("STOPPED", "PAUSED"):
        connect.resume(replay.name)
        say(f"resumed {replay.name}, which was {connector.state}")


def course(replay: Replay, connect: Connect, topics: Topics) -> Course:
    """Its way through the log as it was when the replay began."""
    return Course(replay.sink, replay.name, REPLAY_SIDE, connect, topics, dict(replay.plan.log))


def overtaken(replay: Replay, topics: Topics) -> list[str]:
    """Partitions in words whose log is no longer one that the replay can go on in: see `towpath.log.bounds`."""
    with connected(replay.sink.destination_uri, REPLAY_SIDE) as client:
        done = positions.positions(client, replay.sink)
    return [gap.description for gap in breaks_within(replay.plan.log, topics, done)]


def moved_heads(pipeline: Pipeline, log: Log, topics: Topics) -> dict[tuple[str, int], tuple[int, str]]:
    """Partitions whose beginning the brokers have deleted since `log` was looked at: their first offset now, words."""
    now = topics.ends(change_topics(pipeline, (), topics.all()))
    return {
        place: (now[place][0], f"{place[0]}, partition {place[1]}: {first:,} to {now[place][0] - 1:,}")
        for place, (first, _) in log.items()
        if place in now and now[place][0] > first
    }


def counts(replay: Replay) -> Counts:
    """What its tasks have done."""
    with connected(replay.sink.destination_uri, REPLAY_SIDE) as client:
        return sum((task.counts for task in positions.task_states(client, replay.sink)), Counts())


def refused(sink: Pipeline, topics: Topics, start: int) -> list[DeadLetter]:
    """What the destination has refused since its dead-letter topic ended at `start`: each record once."""
    return list({letter.place: letter for letter in letters(sink, topics, follow=False, start=start)}.values())


def stop(replay: Replay, connect: Connect) -> None:
    """Stop the replay's connector; once this returns, none of its tasks is left."""
    connect.stop(replay.name)
    wait_stopped(connect, replay.name)


def remove(replay: Replay, connect: Connect, topics: Topics, *, keep_letters: bool, say: Callable[[str], None]) -> None:
    """Remove the replay: its connector, then its positions, secrets and dead-letter topic.

    With `keep_letters` that topic stays unless it is empty. A destination that does not answer keeps the positions:
    a replay of the same name that begins there forgets them.
    """
    if connect.config(replay.name) is not None:
        stop(replay, connect)
        forget_offsets(connect, replay.name)
        connect.delete(replay.name)
        say(f"removed connector {replay.name}")
    if replay.uri is not None:
        try:
            with connected(replay.uri, REPLAY_SIDE) as client:
                positions.forget(client, replay.sink)
        except MongoUnreachable as error:
            say(f"{error}; the positions of {replay.name} stay there, in the database towpath")
    replay.secrets.unlink(missing_ok=True)
    topic = topics.all().get(replay.dead_letter_topic)
    if topic is not None and not (keep_letters and any(first < end for first, end in topics.ends([topic]).values())):
        topics.delete([topic.name])
        say(f"deleted topic {topic.name}")


_PAUSE = 0.5  # seconds between two looks
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
        waiting = Wait(
            self.connect,
            [self.connector],
            timeout,
            f"{self.connector} has not come any further for {timeout:.0f} s",
            pause=_PAUSE,
            passing=(TowpathError,),
            say=say,
        )
        done = -1

        def applied() -> None:
            nonlocal done
            found = self.look()
            tell(found)
            if found.done != done:
                done = found.done
                waiting.extend()
            if found.done < found.of:
                raise NotYet(f"it has applied {found.done:,} of {found.of:,} records")

        try:
            waiting.until(applied)
        except NoSuchConnector:
            raise
        except TowpathError as error:
            if error.code in CODES:
                raise
            raise TowpathError(str(error), _AGAIN, where=error.where, code=error.code) from error
        self._refuse_broken()

    def look(self) -> Progress:
        """How far it is now. Where it stands before the end, what is left is looked at: there may be no record."""
        with connected(self.sink.destination_uri, self.side) as client:
            done = {place: found.offset for place, found in positions.positions(client, self.sink).items()}
        left = gaps(self.log, done)
        standing = {place: gap for place, gap in left.items() if self._seen.get(place) == gap[0]}
        peeked = peek(self.topics, remaining(standing, self.topics), limit=0)
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
        if found := breaks_within(self.log, self.topics, done):
            raise TowpathError(f"{self.connector} has not applied all of the log: {found[0].description}")
