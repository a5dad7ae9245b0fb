"""The services that `towpath run` keeps running next to the connectors: `compact` and `verify --follow`."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal

from towpath.config.events import Definition, Difference, Note, Pass, parse
from towpath.config.text import counted
from towpath.history.compaction import interval
from towpath.run.children import Child, Events, Launcher, Line
from towpath.run.restarts import Backoff, Pulse
from towpath.session import Session
from towpath.store import state_files, verdict_file
from towpath.store.state_files import FOLLOW, lock

_FIRST_PAUSE, _LONGEST_PAUSE, _RESET_AFTER = 5.0, 300.0, 300.0  # seconds
_MAX_DIFFERENCES, _DIFFERENCES_SECONDS = 20, 60.0  # so many are reported in so many seconds
_LIFE_CHECK = 5.0  # seconds between two checks for a sign of life
#: Seconds without a sign of life after which a command counts as hanging. `verify --follow` writes its verdict every
#: second, and waits up to a minute for a server that does not answer; `compact` reports each pass.
_MAX_SILENCE = {"verify": 900.0, "compact": 3600.0}
_SILENT_PASSES = 4  # of compaction, where these take longer


@dataclass(slots=True)
class Service:
    """A command that runs continuously, and is restarted when it ends."""

    command: Literal["compact", "verify"]
    options: tuple[str, ...]
    child: Child | None = None
    last_report: str = ""
    """Its last report in one line."""
    pause: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, _RESET_AFTER))
    pulse: Pulse = field(default_factory=lambda: Pulse(math.inf))
    """Its `longest` silence is doubled each time that it hangs, in case it needs so long."""
    life_checked: float = float("-inf")


@dataclass(slots=True)
class Services:
    session: Session
    events: Events
    services: list[Service]
    launcher: Launcher
    _differences: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_DIFFERENCES))
    """When the last of them were reported."""

    @classmethod
    def of(cls, session: Session, events: Events, launcher: Launcher) -> Services:
        run, log = session.pipeline.run, session.pipeline.log
        passes = _SILENT_PASSES * interval(log) / 1000 if log.compact else 0.0
        max_silence = max(_MAX_SILENCE["compact"], passes)
        compact = [Service("compact", ("--json",), pulse=Pulse(max_silence))] if session.pipeline.runs_compact else []
        verify = [Service("verify", ("--follow", "--json"), pulse=Pulse(_MAX_SILENCE["verify"]))] if run.verify else []
        return cls(session, events, compact + verify, launcher)

    @property
    def children(self) -> list[Child]:
        return [service.child for service in self.services if service.child is not None]

    def turn(self, now: float, able: Collection[str]) -> None:
        """Read their output, and start those that do not run. `able`: the commands that can work now."""
        for service in self.services:
            self._turn(service, now, can_run=service.command in able)

    def _turn(self, service: Service, now: float, *, can_run: bool) -> None:
        child = service.child
        if child is not None:
            exit_code = child.exit_code  # read before its lines, so that none is missed
            for line in child.lines():
                self._read_line(service, line)
            if exit_code is None:
                service.pause.healthy(now)
                self._check_life(service, child, now)
                return
            service.child = None
            pause = service.pause.failed(now)
            self._note(service, f"{service.command} ended: {child.end_reason}; restarted in {pause or 0:.0f} s")
        elif can_run and not self._is_elsewhere(service) and (service.pause.due is None or service.pause.is_due(now)):
            if service.pause.due is not None:
                service.pause.tried()
            service.child = Child.start(
                service.command, self.launcher(service.command, [str(self.session.file), *service.options])
            )
            service.pulse.restart()
            self._note(service, f"{service.command} started")

    def _check_life(self, service: Service, child: Child, now: float) -> None:
        if now - service.life_checked < _LIFE_CHECK:
            return
        service.life_checked = now
        if service.command == "verify":  # its first pass may print nothing for hours
            state = verdict_file.read_running(self.session.pipeline.name)
            sign = state.at if state else None
        else:
            sign = child.lines_read
        if service.pulse.hangs(sign, now):
            child.kill(f"it gave no sign of life for {service.pulse.longest:,.0f} s and was killed")
            service.pulse.longest *= 2

    def _is_elsewhere(self, service: Service) -> bool:
        """Whether another process on this machine already runs `verify --follow` for this pipeline."""
        if service.command != "verify":
            return False
        holder = state_files.holder(lock(self.session.pipeline.name, FOLLOW))
        words = f"verified by another `towpath verify --follow` ({holder})" if holder else ""
        self.events.report_state(Note(event="verify", about="elsewhere", words=words))
        return bool(holder)

    def _read_line(self, service: Service, line: Line) -> None:
        if line.stream == "err":
            if not line.text.strip() or line.text.startswith("source: "):  # the supervisor itself reports DDL
                return
            service.last_report = line.shown
            words = f"{service.command}: {line.shown}"
            self.events.report_state(Note(event=service.command, about=f"{service.command} says", words=words))
            return
        try:
            event = parse(line.text)
            service.last_report = _pass_summary(event) if isinstance(event, Pass) else service.last_report
        except ValueError:
            words = f"{service.command} printed an unreadable line: {line.shown}"
            self.events.report_state(Note(event="problem", about=f"{service.command} prints", words=words))
            return
        if isinstance(event, Difference | Definition):
            self._report_difference(event)

    def _note(self, service: Service, words: str) -> None:
        self.events.report(Note(event=service.command, words=words))

    def _report_difference(self, difference: Difference | Definition) -> None:
        now = time.monotonic()
        if len(self._differences) == _MAX_DIFFERENCES and now - self._differences[0] < _DIFFERENCES_SECONDS:
            words = "more differences than are reported here: `towpath status` counts them"
            self.events.report_state(Note(event="difference", about="more", words=words))
            return
        self._differences.append(now)
        if isinstance(difference, Difference):
            shown_id = json.dumps(difference.id_bson if difference.id is None else difference.id, ensure_ascii=False)
            words = f"differs: {difference.namespace} {shown_id}: {difference.kind}"
            self.events.report(replace(difference, words=words))
        else:
            words = f"differs: {difference.namespace}: {difference.what}"
            words += f"; at the destination: {difference.command}" if difference.command else ""
            self.events.report(replace(difference, event="difference", words=words))


def _pass_summary(event: Pass) -> str:
    at = time.strftime("%H:%M:%S", time.gmtime(event.at % 86_400))
    records, requested = counted(event.records, "record"), counted(event.asked, "document")
    return f"at {at} UTC: read {records}; requested {requested}, {event.arrived:,} arrived"
