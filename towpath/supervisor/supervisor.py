"""The supervisor: one look after another at a pipeline, and what is to be done about what was seen.

It has no state that matters: whatever it knows it sees again. So it may be killed at any moment, and two of them on
two machines do nothing worse than restarting a failed task twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from connectors.rest import Connector
from towpath.errors import KafkaUnreachable, NoSuchConnector, TowpathError, fields
from towpath.events import Ddl, Failed, Gap, Note, Repair, Restart, RunEnd, State
from towpath.log import bounds
from towpath.schema import unreplicated
from towpath.schema.unreplicated import UnreplicatedDdl
from towpath.session import TROUBLE, Session
from towpath.status import log_figures
from towpath.status.collector import look
from towpath.status.figures import Status
from towpath.supervisor.children import Events, Row
from towpath.supervisor.dead_letters import SetAside
from towpath.supervisor.restarts import Backoff, Ends, lasting
from towpath.supervisor.services import Services
from towpath.text import counted
from towpath.verification.full_verdict import Standing, Verified

_LOOK = 2.0  # seconds between two looks
_SELDOM = 5.0  # seconds between two looks at what costs more
_READING = 5.0  # seconds for reading dead letters before the next look
_FIRST, _LONGEST, _WELL = 2.0, 300.0, 600.0  # seconds: pauses before a restart; running for so long begins anew


@dataclass(slots=True)
class Supervisor:
    it: Session
    events: Events
    services: Services
    aside: SetAside
    ends: Ends
    found: Status | None = None
    """The last look; None while nothing was seen."""
    away: str = ""
    """Why the last look failed; empty when it did not."""
    restarts: dict[str, int] = field(default_factory=dict)
    hopeless: dict[str, str] = field(default_factory=dict)
    """Connector → what to run, where no restart helps."""
    ddl: tuple[UnreplicatedDdl, ...] = ()
    standing: Standing | None = None
    """What verdicts are held against; None before that was looked at."""
    since: float = field(default_factory=time.monotonic)
    _pauses: dict[str, Backoff] = field(default_factory=dict)
    _looked: float = float("-inf")
    _seldom: float = float("-inf")
    _away_since: float = 0.0
    _without_kafka: bool = False
    _troubles: tuple[str, ...] = ()

    def turn(self) -> None:
        """Do what is due now."""
        now = time.monotonic()
        if not self._without_kafka:  # first: Connect may not answer because of one that has lost its end
            self._trying("transactions", self._end)
        if now - self._looked >= _LOOK:
            self._look()
            self._looked = time.monotonic()
        running = not self.away and self.found is not None and self.found.state == "running"
        self._trying("compact and verify", lambda: self.services.turn(now, wanted=running))
        if running and self.it.pipeline.run.repair and self.it.pipeline.exactly_once:
            self._trying("set aside", self._repair)

    def _look(self) -> None:
        try:
            self.found = self._really(look(self.it.pipeline, self.it.connect, self.it.topics))
        except TROUBLE as error:
            if not self.away:
                self._away_since = time.monotonic()
            self.away, self._without_kafka = str(error), isinstance(error, KafkaUnreachable)
            words = f"{self.away}; looked again until it answers"
            self.events.standing(Note(event="away", about="look", words=words, error=fields(error)))
            return
        seconds = time.monotonic() - self._away_since
        self.away, self._without_kafka = "", False
        self.events.standing(Note(event="back", about="look"), f"Kafka and Connect answer again after {seconds:.0f} s")
        self._judge(self.found)
        if not self.found.trouble and time.monotonic() - self._seldom >= _SELDOM:
            self._trying("warnings", self._look_deeper)
            self._seldom = time.monotonic()

    def _really(self, found: Status) -> Status:
        """A worker that has just begun knows of no state of connectors that are there."""
        there = found.state == "missing" and all(self.it.connect.config(name) for name in self.it.pipeline.connectors)
        return replace(found, state="starting") if there else found

    def _judge(self, found: Status) -> None:
        for connector in found.connectors:
            self._trying(connector.name, partial(self._connector, connector))
        copying = found.state == "running" and not found.snapshot_done
        copied = "; the copy is under way" if copying else ""
        self.events.standing(State(words=f"{found.name} is {_state(found)}{copied}", state=found.state))
        for words in dict.fromkeys((*self._troubles, *found.trouble)):
            self._trouble(words, words if words in found.trouble else "")
        self._troubles = found.trouble
        breaks = bounds.describe(found.breaks) if found.breaks else ""
        self.events.standing(Gap(words=breaks, log_breaks=[one.as_json() for one in found.breaks]))
        for waiting in found.waiting:
            why = f"re-read requests wait for {waiting.connector}: {waiting.reason}" if waiting.reason else ""
            self._trouble(f"requests {waiting.connector}", why)

    def _connector(self, connector: Connector) -> None:
        name, now = connector.name, time.monotonic()
        pause = self._pauses.setdefault(name, Backoff(_FIRST, _LONGEST, _WELL))
        if not connector.failures:
            self.hopeless.pop(name, None)
            if connector.running:
                self.events.standing(Note(event="well", about=name), f"{name} runs again")
                pause.is_well(now)
            return
        reason, codes = "; ".join(connector.failures), [cause.code for cause in connector.causes if cause.code]
        code = codes[0] if codes else ""
        if (found := lasting(codes)) is not None:
            self.hopeless[name] = self._commands(found.verbs)
            words = f"{name} failed, and no restart mends it: {found.why}: {reason}; run: {self.hopeless[name]}"
            self.events.standing(
                Failed(event="stopped", about=name, words=words, reason=reason, code=code, run=self.hopeless[name])
            )
            pause.due = None
            return
        if pause.is_due(now):
            self.it.connect.restart(name, only_failed=True)
            pause.tried()
            self.restarts[name] = self.restarts.get(name, 0) + 1
            self.events.tell(Restart(words=f"restarted {name} (restart {self.restarts[name]})", connector=name))
        elif (seconds := pause.failed(now)) is not None:
            words = f"{name} failed: {reason}; restarted in {seconds:.0f} s"
            self.events.standing(Failed(about=name, words=words, reason=reason, code=code))

    def _commands(self, verbs: tuple[tuple[str, ...], ...]) -> str:
        return "; ".join(" ".join(["towpath", verb, str(self.it.file), *options]) for verb, *options in verbs)

    def _end(self) -> None:
        for words in self.ends.turn(time.monotonic()):
            self.events.tell(Note(event="transaction", words=words))

    def _repair(self) -> None:
        for words in chain(self.aside.read(time.monotonic(), _READING), self.aside.turn(time.monotonic())):
            self.events.tell(Repair(words=words, left=self.aside.left))

    def _look_deeper(self) -> None:
        assert self.found is not None
        self.standing = Standing.look(self.it, self.found.topic_ids)
        before = {one.ddl.mark for one in self.ddl}
        self.ddl = unreplicated.unsettled(self.it, self.found.ddl)
        for one in self.ddl:
            if one.ddl.mark not in before:
                self.events.tell(Ddl(**one.as_json() | {"words": one.line}))
        for mark in before - {one.ddl.mark for one in self.ddl}:
            self.events.tell(Ddl(words=f"settled: {mark}"))
        warnings = "; ".join(log_figures.report(self.it, self.found.ends).warnings)
        self.events.standing(Note(event="warning", about="log", words=warnings))

    def _trying(self, about: str, act: Callable[[], None]) -> None:
        """What fails is told, and comes by again."""
        try:
            act()
        except NoSuchConnector:
            return  # told as its state
        except TROUBLE as error:
            self._trouble(f"{about} fails", str(error), error)
        else:
            self._trouble(f"{about} fails", "")

    def _trouble(self, about: str, words: str, error: Exception | None = None) -> None:
        told = None if error is None else fields(error)
        self.events.standing(Note(event="trouble", about=about, words=words, error=told))

    def rows(self) -> Iterator[Row]:
        """The screen."""
        name, minutes = self.it.pipeline.name, (time.monotonic() - self.since) / 60
        if self.found is None or self.away:
            yield "pipeline", f"{name}: not seen at present, watched for {minutes:.0f} min", "red"
            yield "", self.away, "red"
        else:
            style = "" if self.found.state == "running" else "red"
            yield "pipeline", f"{name}: {_state(self.found)}, watched for {minutes:.0f} min", style
            yield from _numbers(self.found)
        restarts = ", ".join(f"{connector} {count}" for connector, count in self.restarts.items())
        yield "restarts", restarts or "none", ""
        for connector, command in self.hopeless.items():
            yield "to do", f"{connector}: {command}", "red"
        yield from self._aside()
        yield from self.services.rows()
        for line, differs in self._verified().lines():
            yield "verified", line, "red" if differs else ""
        for one in self.ddl:
            yield "ddl", one.line, "yellow"

    def _verified(self) -> Verified:
        try:
            self.standing = self.standing or Standing.look(self.it)
            return Verified.read(self.it.pipeline.name, self.standing)
        except TowpathError as error:
            self._trouble("verdict", str(error), error)
            return Verified()

    def _aside(self) -> Iterator[Row]:
        letters = self.found.dead_letters.count if self.found else 0
        told = f", {self.aside.mended:,} mended" if self.aside.mended else ""
        yield "set aside", f"{counted(self.aside.left, 'document')}{told} ({letters:,} dead letters)", ""
        for line in self.aside.rows(time.monotonic()):
            yield "", line, "red"

    def verdict(self) -> RunEnd:
        """The words and figures at the end, and the exit status."""
        verified = self._verified()
        differs = any(differs for _, differs in verified.lines())
        running = self.found is not None and self.found.state == "running"
        broken = self.found is not None and bool(self.found.breaks)
        well = running and not (self.aside.left or differs or self.ddl or self.hopeless or broken)
        status = 2 if self.away or self.found is None else 0 if well else 1
        restarts = sum(self.restarts.values())
        parts = [
            _state(self.found) if self.found and not self.away else f"not seen: {self.away or 'ended too soon'}",
            counted(restarts, "restart"),
            f"{counted(self.aside.left, 'document')} set aside, {self.aside.mended:,} mended",
            *([f"{counted(len(self.ddl), 'change')} of the source's collections not followed"] if self.ddl else []),
            *(f"to do: {command}" for command in self.hopeless.values()),
            *([bounds.describe(self.found.breaks)] if self.found and self.found.breaks else []),
            *(f"verified: {line}" for line, _ in verified.lines()),
        ]
        return RunEnd(
            words=f"{self.it.pipeline.name}: ended: {'; '.join(parts)}",
            state=self.found.state if self.found and not self.away else None,
            restarts=self.restarts,
            set_aside=self.aside.left,
            mended=self.aside.mended,
            ddl=[one.as_json() for one in self.ddl],
            verify=verified.as_json(),
            exit=status,
        )


def _state(found: Status) -> str:
    if found.cutover is not None:
        return f"{found.state}; cutover: {found.cutover.description}"
    asked = "; somebody asked for that: towpath resume" if found.state in ("paused", "stopped") else ""
    gone = "; its connectors are not there: towpath deploy" if found.state == "missing" else ""
    return f"{found.state}{asked}{gone}"


def _numbers(found: Status) -> Iterator[Row]:
    if not found.snapshot_done and found.state != "missing":
        copied = ", ".join(f"{one.namespace} {one.documents:,} of {one.of:,}" for one in found.snapshot if not one.done)
        yield "copy", f"under way: {copied}", ""
    lag = "unknown" if found.lag_records is None else f"{found.lag_records:,} records, {found.lag_seconds:.1f} s"
    yield "lag", f"{lag}; {found.records_per_second:,.0f} records/s into the log", ""
    for trouble in found.trouble:
        yield "", trouble, "red"
