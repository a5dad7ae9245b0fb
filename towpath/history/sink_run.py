"""A sink that applies the log of a pipeline from the beginning: its progress, and what it came to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from towpath.clients.connect.control import Wait
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import ClusterTime
from towpath.config.events import Json, Replayed
from towpath.config.text import counted, utc
from towpath.errors import NoSuchConnector, NotYet, TowpathError
from towpath.history.plan import Plan, namespaces
from towpath.history.preconditions import ReplayFacts, document_counts
from towpath.log.barrier import holdup
from towpath.log.bounds import CODES, breaks_within, still_in_log
from towpath.log.dead_letters import letters
from towpath.log.integrity import LogCheck
from towpath.log.lag import gaps, peek, pipeline_ends
from towpath.log.records import readable
from towpath.store import positions
from towpath.store.positions import Applied

_POLL_S = 0.5
_RUN_AGAIN = "fix the cause and run the same command again: it continues where it stopped"
#: Receives the progress: the phase, and the records done and in total, counted in offsets.
Report = Callable[[str, int, int], None]
#: So many documents are shown as text, and so many dead letters are in JSON.
SHOWN, _IN_JSON = 20, 1_000


@dataclass(slots=True)
class SinkRun:
    """The sink of a replay, or of the pipeline that is rebuilt."""

    facts: ReplayFacts
    plan: Plan
    check: LogCheck | None
    """What the log lacked at the start; None when it was whole."""
    _previous: dict[Place, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For messages."""
        return f"replay {self.facts.label}" if self.facts.is_replay else "rebuild"

    def wait_until_applied(self, report: Report) -> None:
        """Return once the log is applied.

        Raises `TowpathError` when the sink has failed, is gone, or has applied nothing for `options.timeout` seconds.
        It waits as long for a server that does not answer.
        """
        facts, session, plan, name = self.facts, self.facts.session, self.plan, self.name
        connector, timeout, say = facts.connector, facts.options.timeout, session.say
        topics = counted(len(plan.topics), "topic")
        say(f"{name}: about {plan.offsets:,} records of {topics}, to {facts.cluster.address}")
        late = f"{connector} has applied nothing for {timeout:.0f} s"
        waiting = Wait(session.connect, [connector], timeout, late, pause=_POLL_S, passing=(TowpathError,), say=say)
        done = -1

        def applied() -> None:
            nonlocal done
            before, done = done, self._done()
            report("applying the log", done, plan.offsets)
            if done != before:
                waiting.extend()
            if done < plan.offsets:
                command = f"towpath ddl PIPELINE --{name}" if facts.is_replay else "towpath ddl"
                held_up = holdup(facts.cluster, facts.sink, plan.topics, command=command)
                words = f"it has applied {done:,} of {plan.offsets:,} records"
                raise NotYet(f"{words}; {held_up}" if held_up else words)

        try:
            waiting.until(applied)
        except NoSuchConnector:
            raise
        except TowpathError as error:
            if error.code in CODES:
                raise
            raise TowpathError(str(error), _RUN_AGAIN, where=error.where, code=error.code) from error
        except KeyboardInterrupt:
            give_up = f"`towpath remove PIPELINE --{name}` gives it up"
            hint = give_up if facts.is_replay else "`towpath status` shows it as well"
            raise TowpathError(
                f"{name}: continues in Kafka Connect",
                f"run the same command again to see its progress and to finish it; {hint}",
            ) from None
        if breaks := breaks_within(plan.log, session.topics, self._applied()):  # they look like applied records
            raise TowpathError(
                f"{connector} has not applied all of the log: {breaks[0].description}",
                f"`towpath remove PIPELINE --{name}`, and begin another one"
                if facts.is_replay
                else "`towpath restart PIPELINE --accept-log-gap` if `status` shows it as well; then the same command"
                " with --force ends with what is left, and lists the rest",
            )

    def _applied(self) -> dict[Place, Applied]:
        with self.facts.cluster.connected() as client:
            return positions.positions(client, self.facts.sink)

    def _done(self) -> int:
        """How much is applied. A partition without progress counts as applied if the rest of it holds no records."""
        log, topics = self.plan.log, self.facts.session.topics
        done = {place: position.offset for place, position in self._applied().items()}
        remaining = gaps(log, done)
        unmoved = {place: gap for place, gap in remaining.items() if self._previous.get(place) == gap[0]}
        peeked = peek(topics, still_in_log(unmoved, topics), limit=0)
        done |= {place: log[place][1] for place in unmoved if place not in peeked or not peeked[place].records}
        self._previous = {place: start for place, (start, _) in remaining.items()}
        return self.plan.offsets - sum(end - start for start, end in gaps(log, done).values())

    def verdict(self, *, records: int | None = None, earliest: ClusterTime | None = None) -> Replayed:
        """What it came to. `records`: as the tasks count them, else offsets, with transaction markers.

        `earliest`: the earliest point in time that can be rebuilt now, if it is later than that of the plan.
        """
        facts, plan, topics = self.facts, self.plan, self.facts.session.topics
        uncopied = facts.pipeline.copy_method == "none"
        fresh = letters(facts.sink, topics, follow=False, start=plan.letters)
        refused = list({letter.place: letter for letter in fresh}.values())  # each record once
        now = pipeline_ends(facts.pipeline, topics)
        deleted = [
            f"{place[0]}, partition {place[1]}: {first:,} to {now[place][0] - 1:,}"
            for place, (first, _) in plan.log.items()
            if place in now and now[place][0] > first
        ]
        targets = [facts.pipeline.renamed(name) for name in namespaces(facts.pipeline, plan.log)]
        with facts.cluster.connected() as client:
            documents = dict.fromkeys(targets, 0) | document_counts(client, targets)
        return Replayed(
            done=self.name,
            whole=not (self.check or uncopied or refused or deleted or earliest),
            records=plan.offsets if records is None else records,
            documents=documents,
            seconds=round(time.time() - plan.began, 1),
            until=str(plan.until) if plan.until else None,
            following=plan.follow,
            refused=len(refused),
            dead_letters=[
                {"namespace": one.namespace, "key": _key(one.key), "code": one.code, "reason": one.reason}
                for one in refused[:_IN_JSON]
            ],
            dead_letter_topic=facts.sink.dead_letter_topic if refused else None,
            uncopied=uncopied,
            missing=missing(self.check),
            deleted_since=deleted,
            earliest=str(earliest) if earliest else None,
        )


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
    for row in broken[:SHOWN]:
        place = f"{row['partition']}:{row['offset']}"
        yield f"missing  {row['namespace']} {row['key']}: updates without their document, from {place} on"
    if len(broken) > SHOWN:
        yield f"         and {len(broken) - SHOWN:,} more documents"
    for namespace, count in sorted(Counter(row["namespace"] for row in broken).items()):
        yield f"{namespace}: {count:,} documents cannot be rebuilt: the log has their updates, but not the documents"


def _key(raw: bytes | None) -> str:
    """The `_id` as Extended JSON, or the bytes in hexadecimal."""
    return readable(raw or b"", canonical=False) or ""
