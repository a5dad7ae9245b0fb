"""What `towpath run` run going besides the connectors: compaction and verification, each a verb of its own."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from towpath import state_files
from towpath.compaction import preconditions
from towpath.events import Definition, Difference, Note, Round, parse
from towpath.session import Session
from towpath.state_files import FOLLOW, lock
from towpath.supervisor.children import Child, Events, Line, Row
from towpath.supervisor.restarts import Backoff, Pulse
from towpath.text import counted
from towpath.verification import follow_state

_FIRST, _LONGEST, _WELL = 5.0, 300.0, 300.0  # seconds
_SHOWN, _SHOWN_FOR = 20, 60.0  # differences that are told one by one within so many seconds
_LOOK = 5.0  # seconds between two looks for a sign of life
#: Seconds without one after which a verb is taken to hang: `verify --follow` writes its verdict every second, and waits
#: for a minute for a server that is away; `compact` tells of each round.
_QUIET = {"verify": 900.0, "compact": 3600.0}
_ROUNDS = 4  # of compaction without a word, where that is longer


@dataclass(slots=True)
class Service:
    """A verb that is to run for ever, and is begun again when it ends."""

    verb: Literal["compact", "verify"]
    options: tuple[str, ...]
    child: Child | None = None
    last: str = ""
    """What it said last, in a line."""
    pause: Backoff = field(default_factory=lambda: Backoff(_FIRST, _LONGEST, _WELL))
    pulse: Pulse = field(default_factory=lambda: Pulse(math.inf))
    quiet: float = math.inf
    """Seconds without a sign of life after which it is begun anew; doubled each time, should it take so long."""
    looked: float = float("-inf")


@dataclass(slots=True)
class Services:
    it: Session
    events: Events
    every: list[Service]
    _differences: deque[float] = field(default_factory=lambda: deque(maxlen=_SHOWN))
    """When the last of them were told."""

    @classmethod
    def of(cls, it: Session, events: Events) -> Services:
        run, compaction = it.pipeline.run, it.pipeline.compaction
        rounds = _ROUNDS * preconditions.interval(compaction, None) / 1000 if compaction else 0.0
        quiet = max(_QUIET["compact"], rounds)
        compact = [Service("compact", ("--json",), quiet=quiet)] if run.compact else []
        verify = [Service("verify", ("--follow", "--json"), quiet=_QUIET["verify"])] if run.verify else []
        return cls(it, events, compact + verify)

    @property
    def children(self) -> list[Child]:
        return [service.child for service in self.every if service.child is not None]

    def turn(self, now: float, *, wanted: bool) -> None:
        """Hear what they say; begin those that do not run. `wanted`: whether they can work now."""
        for service in self.every:
            self._turn(service, now, wanted=wanted)

    def _turn(self, service: Service, now: float, *, wanted: bool) -> None:
        child = service.child
        if child is not None:
            ended = child.ended
            for line in child.lines():
                self._hear(service, line)
            if ended is None:
                service.pause.is_well(now)
                self._look_for_life(service, child, now)
                return
            service.child = None
            pause = service.pause.failed(now)
            self._note(service, f"{service.verb} ended: {child.why}; begun again in {pause or 0:.0f} s")
        elif wanted and not self._is_elsewhere(service) and (service.pause.due is None or service.pause.is_due(now)):
            if service.pause.due is not None:
                service.pause.tried()
            service.child = Child.start(service.verb, [str(self.it.file), *service.options])
            service.pulse = Pulse(service.quiet)
            self._note(service, f"{service.verb} begins")

    def _look_for_life(self, service: Service, child: Child, now: float) -> None:
        if now - service.looked < _LOOK:
            return
        service.looked = now
        if service.verb == "verify":  # its first pass may take hours without a word
            state = follow_state.read_running(self.it.pipeline.name)
            sign = state.at if state else None
        else:
            sign = child.heard
        if service.pulse.hangs(sign, now):
            child.give_up(f"it gave no sign of life for {service.quiet:,.0f} s, and was killed")
            service.quiet *= 2

    def _is_elsewhere(self, service: Service) -> bool:
        """Whether somebody else on this machine keeps the running verdict."""
        if service.verb != "verify":
            return False
        holder = state_files.holder(lock(self.it.pipeline.name, FOLLOW))
        words = f"verified by another `towpath verify --follow` ({holder})" if holder else ""
        self.events.standing(Note(event="verify", about="elsewhere", words=words))
        return bool(holder)

    def _hear(self, service: Service, line: Line) -> None:
        if line.stream == "err":
            if not line.text.strip() or line.text.startswith(
                "source: "
            ):  # what was done to collections is told by the supervisor itself
                return
            service.last = line.shown
            words = f"{service.verb}: {line.shown}"
            self.events.standing(Note(event=service.verb, about=f"{service.verb} says", words=words))
            return
        try:
            found = parse(line.text)
            service.last = _round(found) if isinstance(found, Round) else service.last
        except ValueError:
            words = f"{service.verb} printed what is not a line of its JSON: {line.shown}"
            self.events.standing(Note(event="trouble", about=f"{service.verb} prints", words=words))
            return
        if isinstance(found, Difference | Definition):
            self._differs(found)

    def _note(self, service: Service, words: str) -> None:
        self.events.tell(Note(event=service.verb, words=words))

    def _differs(self, found: Difference | Definition) -> None:
        now = time.monotonic()
        if len(self._differences) == _SHOWN and now - self._differences[0] < _SHOWN_FOR:
            words = "more differs than is told here: `towpath status` counts it"
            self.events.standing(Note(event="difference", about="more", words=words))
            return
        self._differences.append(now)
        if isinstance(found, Difference):
            shown = json.dumps(found.id_bson if found.id is None else found.id, ensure_ascii=False)
            self.events.tell(replace(found, words=f"differs: {found.namespace} {shown}: {found.kind}"))
        else:
            words = f"differs: {found.namespace}: {found.what}; at the destination: {found.command}"
            self.events.tell(replace(found, event="difference", words=words))

    def rows(self) -> Iterator[Row]:
        for service in self.every:
            state = "" if service.child is not None else "not running; "
            yield service.verb, f"{state}{service.last or 'nothing told yet'}", ""


def _round(done: Round) -> str:
    """One round of compaction in a line."""
    asked = counted(done.asked, "document")
    at = time.strftime("%H:%M:%S", time.gmtime(done.at % 86_400))
    return f"at {at} UTC read {counted(done.records, 'record')}; asked for {asked}, {done.arrived:,} came"
