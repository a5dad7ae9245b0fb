"""What `towpath run` keeps going besides the connectors: compaction and verification, each a verb of its own."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from connectors.supervising import Backoff
from towpath import kept
from towpath.alone import FOLLOW, lock
from towpath.checks.finding import counted
from towpath.children import Child, Line
from towpath.opened import Opened
from towpath.run_events import Events, Row

_FIRST, _LONGEST, _WELL = 5.0, 300.0, 300.0  # seconds
_SHOWN, _SHOWN_FOR = 20, 60.0  # differences that are told one by one within so many seconds


@dataclass(slots=True)
class Service:
    """A verb that is to run for ever, and is begun again when it ends."""

    verb: str
    options: tuple[str, ...]
    child: Child | None = None
    last: str = ""
    """What it said last, in a line."""
    pause: Backoff = field(default_factory=lambda: Backoff(_FIRST, _LONGEST, _WELL))


@dataclass(slots=True)
class Services:
    it: Opened
    events: Events
    every: list[Service]
    _differences: deque[float] = field(default_factory=lambda: deque(maxlen=_SHOWN))
    """When the last of them were told."""

    @classmethod
    def of(cls, it: Opened, events: Events) -> Services:
        keeps = it.pipeline.keeps
        compact = [Service("compact", ("--json",))] if keeps.compact else []
        verify = [Service("verify", ("--follow", "--json"))] if keeps.verify else []
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
                return
            service.child = None
            pause = service.pause.failed(now)
            self.events.tell(service.verb, f"{service.verb} ended: {child.why}; begun again in {pause or 0:.0f} s")
        elif wanted and not self._is_elsewhere(service) and (service.pause.due is None or service.pause.is_due(now)):
            if service.pause.due is not None:
                service.pause.tried()
            service.child = Child.start(service.verb, [str(self.it.file), *service.options])
            self.events.tell(service.verb, f"{service.verb} begins")

    def _is_elsewhere(self, service: Service) -> bool:
        """Whether somebody else on this machine keeps the running verdict."""
        if service.verb != "verify":
            return False
        holder = kept.holder(lock(self.it.pipeline.name, FOLLOW))
        words = f"verified by another `towpath verify --follow` ({holder})" if holder else ""
        self.events.standing("verify", "elsewhere", words)
        return bool(holder)

    def _hear(self, service: Service, line: Line) -> None:
        if line.stream == "err":
            if not line.text.strip() or line.text.startswith(
                "source: "
            ):  # what was done to collections is told by the supervisor itself
                return
            service.last = line.text
            self.events.standing(service.verb, f"{service.verb} says", f"{service.verb}: {line.text}")
        elif service.verb == "compact":
            service.last = _round(json.loads(line.text))
        else:
            self._verified(json.loads(line.text))

    def _verified(self, found: dict[str, Any]) -> None:
        """A line of `verify --json`: of a document, of options, views and indexes, or the counts at the end."""
        if "id_bson" not in found and "command" not in found:
            return
        now = time.monotonic()
        if len(self._differences) == _SHOWN and now - self._differences[0] < _SHOWN_FOR:
            self.events.standing("difference", "more", "more differs than is told here: `towpath status` counts it")
            return
        self._differences.append(now)
        if "id_bson" in found:
            shown = json.dumps(found["id_bson"] if found["id"] is None else found["id"], ensure_ascii=False)
            self.events.tell("difference", f"differs: {found['namespace']} {shown}: {found['kind']}", found)
        else:
            words = f"differs: {found['namespace']}: {found['what']}; at the destination: {found['command']}"
            self.events.tell("difference", words, found)

    def rows(self) -> Iterator[Row]:
        for service in self.every:
            state = "" if service.child is not None else "not running; "
            yield service.verb, f"{state}{service.last or 'nothing told yet'}", ""


def _round(done: dict[str, Any]) -> str:
    """One round of compaction in a line."""
    at = time.strftime("%H:%M:%S", time.gmtime(done["at"]))
    asked = counted(done["asked"], "document")
    return f"at {at} read {counted(done['records'], 'record')}; asked for {asked}, {done['arrived']:,} came"
