"""A replay's connector: create it, wait until it has applied the log, remove it with all it needed."""

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
from towpath.log.bounds import CODES, breaks_within, still_in_log
from towpath.log.dead_letters import DeadLetter, letters
from towpath.log.lag import gaps, peek
from towpath.mongo.client import REPLAY_SIDE, connected
from towpath.pipeline import Pipeline
from towpath.replay.plan import Log, Replay, change_topics, definition, late_starts
from towpath.topic_settings import plain_settings

_ADVICE = {"connection.uri": " (--destination; its user needs readWrite on the databases written and on towpath)"}


def begin(replay: Replay, connect: Connect, topics: Topics, say: Callable[[str], None]) -> None:
    """Create what the replay needs, its connector last. Delete the positions of an earlier replay of this name."""
    settings = plain_settings(replay.pipeline)
    if replay.dead_letter_topic not in topics.all():
        topics.create(replay.dead_letter_topic, 1, replay.pipeline.replication_factor, settings)
        say(f"created topic {replay.dead_letter_topic}")
    with connected(replay.sink.destination_uri, REPLAY_SIDE) as client:
        positions.forget(client, replay.sink)
        if replay.plan.forced:  # otherwise the sink stops where the beginning is gone
            positions.skip_to(client, replay.sink, late_starts(replay.plan.log), datetime.now(UTC))
    write_secrets(replay)
    put(connect, replay.name, definition(replay), replay.secrets, _ADVICE)
    say(f"created connector {replay.name}")


def write_secrets(replay: Replay) -> bool:
    """Write the file from which the workers read the destination's URI; return whether it differed."""
    text = credentials.replay_properties(replay.sink, replay.destination.name)
    if differs := credentials.differs(replay.secrets, text):
        credentials.write(replay.secrets, text)
    return differs


def resume(replay: Replay, connect: Connect, say: Callable[[str], None]) -> None:
    """Run an existing replay again with the current URI: restart it if it has failed, resume it if it was stopped."""
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


def sink_progress(replay: Replay, connect: Connect, topics: Topics) -> SinkProgress:
    """The replay's progress through the log as it was when the replay began."""
    return SinkProgress(replay.sink, replay.name, REPLAY_SIDE, connect, topics, dict(replay.plan.log))


def lost_partitions(replay: Replay, topics: Topics) -> list[str]:
    """Descriptions of the partitions whose log the replay cannot continue in: see `towpath.log.bounds`."""
    with connected(replay.sink.destination_uri, REPLAY_SIDE) as client:
        applied = positions.positions(client, replay.sink)
    return [gap.description for gap in breaks_within(replay.plan.log, topics, applied)]


def deleted_heads(pipeline: Pipeline, log: Log, topics: Topics) -> list[str]:
    """What retention has deleted since `log` was read: partitions with the range of offsets."""
    now = topics.ends(change_topics(pipeline, (), topics.all()))
    return [
        f"{place[0]}, partition {place[1]}: {first:,} to {now[place][0] - 1:,}"
        for place, (first, _) in log.items()
        if place in now and now[place][0] > first
    ]


def counts(replay: Replay) -> Counts:
    """The counters of its tasks, summed."""
    with connected(replay.sink.destination_uri, REPLAY_SIDE) as client:
        return sum((task.counts for task in positions.task_states(client, replay.sink)), Counts())


def dead_letters_since(sink: Pipeline, topics: Topics, start: int) -> list[DeadLetter]:
    """The dead letters since the dead-letter topic ended at offset `start`, each record once."""
    return list({letter.place: letter for letter in letters(sink, topics, follow=False, start=start)}.values())


def stop(replay: Replay, connect: Connect) -> None:
    """Stop the replay's connector; return when none of its tasks is left."""
    connect.stop(replay.name)
    wait_stopped(connect, replay.name)


def remove(replay: Replay, connect: Connect, topics: Topics, *, keep_letters: bool, say: Callable[[str], None]) -> None:
    """Remove the replay: its connector, then its positions, secrets and dead-letter topic.

    With `keep_letters` the topic stays unless it is empty. If the destination does not answer, the positions stay
    there; the next replay of the same name deletes them.
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


_POLL_S = 0.5
_RUN_AGAIN = "fix the cause and run the same command again: it continues where it stopped"
_WINDOW = 20  # polls over which the rate is computed


@dataclass(frozen=True, slots=True)
class Progress:
    """Counted in offsets of the log: records, transaction markers, and offsets that compaction has removed."""

    done: int
    of: int
    per_second: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the present rate; None while the sink applies nothing."""
        return (self.of - self.done) / self.per_second if self.per_second > 0 else None


def progress(log: Log, done: Mapping[Place, int]) -> Progress:
    """How much of a range of the log is applied."""
    remaining = sum(end - start for start, end in gaps(log, done).values())
    total = sum(end - first for first, end in log.values())
    return Progress(total - remaining, total)


@dataclass(slots=True)
class SinkProgress:
    """Follows a sink through a range of the log.

    `sink` is the pipeline or replay that the sink belongs to; `side` names in messages the cluster that it writes to.
    """

    sink: Pipeline
    connector: str
    side: str
    connect: Connect
    topics: Topics
    log: dict[Place, tuple[int, int]]
    _previous: dict[Place, int] = field(default_factory=dict)
    _polls: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def wait_until_applied(
        self, timeout: float, report: Callable[[Progress], None], say: Callable[[str], None]
    ) -> None:
        """Return once the range is applied.

        Raises `TowpathError` when the sink has failed, is gone, or has applied nothing for `timeout` seconds. It waits
        as long for a server that does not answer.
        """
        waiting = Wait(
            self.connect,
            [self.connector],
            timeout,
            f"{self.connector} has applied nothing for {timeout:.0f} s",
            pause=_POLL_S,
            passing=(TowpathError,),
            say=say,
        )
        done = -1

        def applied() -> None:
            nonlocal done
            progress = self.read()
            report(progress)
            if progress.done != done:
                done = progress.done
                waiting.extend()
            if progress.done < progress.of:
                raise NotYet(f"it has applied {progress.done:,} of {progress.of:,} records")

        try:
            waiting.until(applied)
        except NoSuchConnector:
            raise
        except TowpathError as error:
            if error.code in CODES:
                raise
            raise TowpathError(str(error), _RUN_AGAIN, where=error.where, code=error.code) from error
        self._refuse_broken()

    def read(self) -> Progress:
        """The progress now. A partition without progress counts as applied if the rest of it holds no records."""
        with connected(self.sink.destination_uri, self.side) as client:
            done = {place: position.offset for place, position in positions.positions(client, self.sink).items()}
        remaining = gaps(self.log, done)
        unmoved = {place: gap for place, gap in remaining.items() if self._previous.get(place) == gap[0]}
        peeked = peek(self.topics, still_in_log(unmoved, self.topics), limit=0)
        for place in unmoved:
            if place not in peeked or not peeked[place].records:
                done[place] = self.log[place][1]
        self._previous = {place: start for place, (start, _) in remaining.items()}
        current = progress(self.log, done)
        self._polls.append((time.monotonic(), current.done))
        (then, before), (now, after) = self._polls[0], self._polls[-1]
        return Progress(current.done, current.of, (after - before) / (now - then) if now > then else 0.0)

    def _refuse_broken(self) -> None:
        """Records that are gone from the log look like applied ones: raise `TowpathError` for them."""
        with connected(self.sink.destination_uri, self.side) as client:
            applied = positions.positions(client, self.sink)
        if breaks := breaks_within(self.log, self.topics, applied):
            raise TowpathError(f"{self.connector} has not applied all of the log: {breaks[0].description}")
