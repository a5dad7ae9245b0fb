"""A sink that applies the log of a pipeline from the beginning: its progress, and what it came to."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

from towpath.clients.connect.control import Wait
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import Cluster, ClusterTime, cluster_time
from towpath.config.events import Json, Progress, Replayed
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, duration, utc
from towpath.errors import NoSuchConnector, NotYet, TowpathError
from towpath.history.plan import Plan, format_time, namespaces
from towpath.log.barrier import holdup
from towpath.log.bounds import CODES, breaks_within, still_in_log
from towpath.log.dead_letters import DeadLetter, letters
from towpath.log.integrity import LogCheck
from towpath.log.lag import gaps, peek, pipeline_ends
from towpath.log.records import readable
from towpath.session import Session
from towpath.store import positions
from towpath.store.positions import Applied

_POLL_S = 0.5
_RUN_AGAIN = "fix the cause and run the same command again: it continues where it stopped"
_WINDOW = 20  # polls over which the rate is computed
_SHOWN, _IN_JSON = 20, 1_000  # items in text and in JSON


@dataclass(slots=True)
class SinkRun:
    """`sink` is the pipeline or replay that the sink belongs to; `destination` is what it writes to."""

    session: Session
    name: str
    """For messages: `replay` and its label, or `rebuild`."""
    sink: Pipeline
    connector: str
    destination: Cluster
    plan: Plan
    check: LogCheck | None
    """What the log lacked at the start; None when it was whole."""
    resumed: bool
    """Whether this run continues an earlier one."""
    _previous: dict[Place, int] = field(default_factory=dict)
    _polls: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def wait_until_applied(self, timeout: float, hint: str, report: Callable[[Progress], None]) -> None:
        """Return once the log is applied. `hint` is the end of the message on Ctrl-C.

        Raises `TowpathError` when the sink has failed, is gone, or has applied nothing for `timeout` seconds. It waits
        as long for a server that does not answer.
        """
        plan, say = self.plan, self.session.say
        say(
            f"{self.name}: about {plan.offsets:,} records of {counted(len(plan.topics), 'topic')}, to"
            f" {self.destination.address}"
        )
        late = f"{self.connector} has applied nothing for {timeout:.0f} s"
        connectors = [self.connector]
        waiting = Wait(self.session.connect, connectors, timeout, late, pause=_POLL_S, passing=(TowpathError,), say=say)
        done = -1

        def applied() -> Progress:
            nonlocal done
            progress = self._progress()
            report(progress)
            if progress.done != done:
                done = progress.done
                waiting.extend()
            if progress.done < progress.of:
                command = "towpath ddl" if self.name == "rebuild" else f"towpath ddl PIPELINE --{self.name}"
                held_up = holdup(self.destination, self.sink, plan.topics, command=command)
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
                f"{self.name}: continues in Kafka Connect",
                f"run the same command again to see its progress and to finish it; {hint}",
            ) from None
        if breaks := breaks_within(plan.log, self.session.topics, self._applied()):  # they look like applied records
            raise TowpathError(f"{self.connector} has not applied all of the log: {breaks[0].description}")

    def _applied(self) -> dict[Place, Applied]:
        with self.destination.connected() as client:
            return positions.positions(client, self.sink)

    def _progress(self) -> Progress:
        """The progress now. A partition without progress counts as applied if the rest of it holds no records."""
        log, topics = self.plan.log, self.session.topics
        done = {place: position.offset for place, position in self._applied().items()}
        remaining = gaps(log, done)
        unmoved = {place: gap for place, gap in remaining.items() if self._previous.get(place) == gap[0]}
        peeked = peek(topics, still_in_log(unmoved, topics), limit=0)
        done |= {place: log[place][1] for place in unmoved if place not in peeked or not peeked[place].records}
        self._previous = {place: start for place, (start, _) in remaining.items()}
        applied = self.plan.offsets - sum(end - start for start, end in gaps(log, done).values())
        self._polls.append((time.monotonic(), applied))
        (then, before), (now, after) = self._polls[0], self._polls[-1]
        rate = (after - before) / (now - then) if now > then else 0.0
        return Progress(event="applying", done=applied, of=self.plan.offsets, per_second=rate)

    def verdict(self, *, records: int | None = None, earliest: ClusterTime | None = None) -> Verdict:
        """What it came to. `records`: as the tasks count them.

        `earliest`: the earliest point in time that can be rebuilt now, if it is later than that of the plan.
        """
        plan, topics = self.plan, self.session.topics
        uncopied = self.session.pipeline.copy_method == "none"
        fresh = letters(self.sink, topics, follow=False, start=plan.letters)
        refused = list({letter.place: letter for letter in fresh}.values())  # each record once
        now = pipeline_ends(self.session.pipeline, topics)
        deleted = [
            f"{place[0]}, partition {place[1]}: {first:,} to {now[place][0] - 1:,}"
            for place, (first, _) in plan.log.items()
            if place in now and now[place][0] > first
        ]
        event = Replayed(
            done=self.name,
            whole=not (self.check or uncopied or refused or deleted or earliest),
            records=plan.offsets if records is None else records,
            documents=self._documents(),
            seconds=round(time.time() - plan.began, 1),
            until=str(plan.until) if plan.until else None,
            following=plan.follow,
            refused=len(refused),
            dead_letters=[*map(_letter, refused[:_IN_JSON])],
            dead_letter_topic=self.sink.dead_letter_topic if refused else None,
            uncopied=uncopied,
            missing=missing(self.check),
            deleted_meanwhile=deleted,
            earliest=str(earliest) if earliest else None,
        )
        return Verdict(event, is_counted=records is not None, resumed=self.resumed)

    def _documents(self) -> dict[str, int]:
        """Namespace at the destination → its number of documents, estimated."""
        counts = {}
        with self.destination.connected() as client:
            for target in map(self.session.pipeline.renamed, namespaces(self.session.pipeline, self.plan.log)):
                database, collection = target.split(".", 1)
                counts[target] = client[database][collection].estimated_document_count()
        return counts


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a replay or a rebuild."""

    event: Replayed
    is_counted: bool
    """Whether the tasks counted the records; else they are counted in offsets, with transaction markers."""
    resumed: bool
    """Whether this run continued an earlier one."""

    def lines(self) -> Iterator[str]:
        event = self.event
        documents = f"{sum(event.documents.values()):,} documents in {counted(len(event.documents), 'namespace')}"
        follows = ", and follows from now on" if event.following else ""
        until = f", as of {_time(event.until)}" if event.until else ""
        records, took = f"{'' if self.is_counted else 'about '}{event.records:,} records", duration(event.seconds)
        rate = f" in {took}, {event.records / max(event.seconds, 0.1):,.0f} a second"
        since = f" since it started {took} ago" if self.resumed else rate
        yield f"{event.done}: applied {records}{since}; {documents}{until}{follows}"
        if event.uncopied:
            yield 'missing  what the source held when the log began ([capture] copy = "none")'
        yield from missing_lines(event.missing)
        for head in event.deleted_meanwhile:
            yield f"deleted by retention in the meantime, and perhaps not applied: {head}"
        if event.earliest and event.until:
            yield (
                f"Kafka has compacted the log past {_time(event.until)} by now, so documents may be missing;"
                f" the earliest point in time that can be rebuilt now is {_time(event.earliest)}"
            )
        for letter in event.dead_letters[:_SHOWN]:
            code = f" ({letter['code']})" if letter["code"] else ""
            yield f"refused  {letter['namespace']} {letter['key']}: {letter['reason']}{code}"
        if event.refused > _SHOWN:
            yield f"         and {event.refused - _SHOWN:,} more"
        if event.refused:
            yield f"{event.refused:,} records that the destination refused are in the topic {event.dead_letter_topic}"
        if not event.whole:
            yield f"{event.done}: not whole"


def _time(text: str) -> str:
    return format_time(cluster_time(text))


def _letter(letter: DeadLetter) -> Json:
    row = {"namespace": letter.namespace, "key": _key(letter.key), "code": letter.code}
    return row | {"reason": letter.reason}


def missing(check: LogCheck | None) -> list[Json]:
    """What the log lacks to rebuild everything: what is gone from topics, and documents that cannot be rebuilt."""
    if check is None:
        return []
    heads = [{name: text for name, text in asdict(head).items() if name != "topic"} for head in check.headless]
    cut = [{"topic": topic, "partition": number, "reason": why} for (topic, number), why in check.cut_short.items()]
    return [*heads, *cut, *(asdict(broken) | {"key": _key(broken.key)} for broken in check.broken)]


def missing_lines(rows: Sequence[Json]) -> Iterator[str]:
    """The same as lines of text."""
    broken = [row for row in rows if "key" in row]
    for row in rows:
        if "first_offset" in row:
            time_ms, last = row["first_time_ms"], row["first_offset"] - 1
            gone = "everything so far" if time_ms is None else f"what came in before {utc(time_ms / 1000)}"
            gone += f" (offsets up to {last:,})"
            yield f"missing  {row['namespace']}, partition {row['partition']}: retention has deleted {gone}"
        elif "reason" in row:
            yield f"missing  {row['topic']}, partition {row['partition']}: {row['reason']}"
    for row in broken[:_SHOWN]:
        place = f"{row['partition']}:{row['offset']}"
        yield f"missing  {row['namespace']} {row['key']}: updates without their document, from {place} on"
    if len(broken) > _SHOWN:
        yield f"         and {len(broken) - _SHOWN:,} more documents"
    for namespace, count in sorted(Counter(row["namespace"] for row in broken).items()):
        yield f"{namespace}: {count:,} documents cannot be rebuilt: the log has their updates, but not the documents"


def _key(raw: bytes | None) -> str:
    """The `_id` as Extended JSON, or the bytes in hexadecimal."""
    return readable(raw or b"", canonical=False) or ""
