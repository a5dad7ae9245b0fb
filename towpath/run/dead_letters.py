"""Retries of dead letters: documents that the destination refused and that still differ are repaired, cause by cause.

A cause (namespace and error code) is first tried with one document, since each further refusal is another dead letter.
Once the destination accepts that one, the others follow. A document that is the same by now is dropped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from towpath.clients.mongo.client import ANSWER_S
from towpath.config.events import BadLine, Reread, parse
from towpath.config.text import counted
from towpath.deploy import unreplicated
from towpath.log import dead_letters
from towpath.log.field_rules import pair_of
from towpath.run.children import Child, Launcher
from towpath.run.restarts import Backoff
from towpath.session import Session
from towpath.verify.repair import DocumentRef, document_of
from towpath_verifier import Key, Namespace, Recheck, Rereads, chunks, extended_json, id_key

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 1800.0  # seconds between two tries of a cause
_MAX_KNOWN = 50_000  # documents that are remembered; further dead letters are read when some of these are repaired
_BATCH = 1_000  # documents of one cause in one repair
_TIMEOUT = 120  # seconds for them to be re-read and applied
_RECHECK_S, _RECHECK_SHARE = 5.0, 20  # between two rechecks: so many seconds, or times as long as the last one took
_APPLIED_S = 30.0  # seconds in which the sink should have applied what was re-read
_HANG_SECONDS = 900.0  # a repair that runs longer is killed

_DocumentId = tuple[Namespace, Key]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A document with a dead letter, and the destination's error."""

    target: DocumentRef
    code: str
    reason: str

    @property
    def cause(self) -> tuple[Namespace, str]:
        return self.target.namespace, self.code

    @property
    def description(self) -> str:
        code = f" ({self.code})" if self.code else ""
        return f"{self.target.namespace}: {self.reason}{code}"

    @property
    def shown_id(self) -> str | None:
        """As `repair --ids` reads it; None where Extended JSON cannot express it exactly."""
        return extended_json(self.target.id)


@dataclass(slots=True)
class DeadLetterRetries:
    session: Session
    repaired: int = 0
    has_more: bool = False
    """Whether there are dead letters beyond those that are remembered."""
    _next: int = 0
    """Offset of the first dead letter that is not read yet."""
    _refusals: dict[_DocumentId, Refusal] = field(default_factory=dict)
    _pauses: dict[tuple[Namespace, str], Backoff] = field(default_factory=dict)
    _running: tuple[Child, list[Refusal]] | None = None
    _results: list[Reread] = field(default_factory=list)
    """The documents that the running repair has reported so far."""
    _answered: object = None
    _recheck_at: float = 0.0
    _recheck_until: float = 0.0

    @property
    def remaining(self) -> int:
        """Documents; more where `has_more`."""
        return len(self._refusals)

    @property
    def words(self) -> str:
        """`remaining`, such as `50,000 documents or more`."""
        return counted(self.remaining, "document") + (" or more" if self.has_more else "")

    def causes(self, now: float) -> Iterator[tuple[list[Refusal], float | None]]:
        """The documents of each cause, and the seconds until they are retried; None while they are being retried."""
        for cause, group in _by_cause(self._refusals.values()).items():
            pause = self._pauses.get(cause)
            due = None if pause is None else pause.due
            yield group, None if due is None else max(0.0, due - now)

    def read(self, now: float, seconds: float = math.inf) -> Iterator[str]:
        """Read new dead letters for at most `seconds`; yields a message for each new cause. The next call continues."""
        end, until = dead_letters.end(self.session.pipeline, self.session.topics), time.monotonic() + seconds
        while self._next < end and len(self._refusals) < _MAX_KNOWN and time.monotonic() <= until:
            yield from self._read_part(now, end, until)
        self.has_more = self._next < end

    def _read_part(self, now: float, end: int, until: float) -> Iterator[str]:
        """Read as many documents as can be remembered, and drop those that are the same by now."""
        room = _MAX_KNOWN - len(self._refusals)
        fresh: dict[_DocumentId, Refusal] = {}
        for letter in dead_letters.letters(self.session.pipeline, self.session.topics, follow=False, start=self._next):
            if time.monotonic() > until:
                end = letter.at
                break
            target = document_of(self.session.pipeline, letter.place[0], letter.key)
            if target is not None and self.session.pipeline.selection.matches(target.namespace):
                refusal = Refusal(target, letter.code, letter.reason)
                if len(fresh) == room and refusal.target.key not in fresh:
                    end = letter.at
                    break
                fresh.pop(refusal.target.key, None)  # the newest go to the end
                fresh[refusal.target.key] = refusal
        new = {id: refusal for id, refusal in fresh.items() if id not in self._refusals}
        differing = self._differing(new.values())
        self._next = end  # not before: `_differing` raises while a cluster is down, and then these are re-read
        self._refusals |= {id: fresh[id] for id in fresh if id in self._refusals or id in differing}
        for group in _by_cause(refusal for id, refusal in new.items() if id in differing).values():
            pause = self._pause(group[0]).failed(now)
            when = "" if pause is None else f"; retried in {pause:.0f} s"
            yield f"the destination refused {counted(len(group), 'document')} of {group[0].description}{when}"

    def _pause(self, refusal: Refusal) -> Backoff:
        return self._pauses.setdefault(refusal.cause, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, reset_after=0))

    def turn(self, now: float, launcher: Launcher) -> Iterator[str]:
        """Read the output of the running repair, or start one that is due; yields messages about the results."""
        if self._running is not None:
            yield from self._read_results(now, launcher)
            return
        for group in _by_cause(self._refusals.values()).values():
            pause = self._pause(group[0])
            pause.failed(now)
            if pause.is_due(now):
                pause.tried()
                differing = self._differing(group)
                for refusal in group:
                    if refusal.target.key not in differing:
                        del self._refusals[refusal.target.key]
                namespace, left = group[0].target.namespace, [r for r in group if r.target.key in differing]
                if left and unreplicated.gone(self.session, [namespace]):
                    yield (
                        f"not repaired: {counted(len(left), 'document')} of {namespace}, which the source has dropped"
                        f" or renamed: a repair would delete them at the destination; `towpath ddl"
                        f" {self.session.file}` says what to do"
                    )
                elif target := next((refusal for refusal in left if refusal.shown_id), None):
                    self._start_repair([target], launcher)
                return

    def recheck(self, now: float, answered: object) -> Iterator[str]:
        """Forget documents that are the same by now, soon after another `towpath repair` has fixed them.

        `answered`: up to where re-read requests are answered. While it stays the same, nothing is read.
        """
        if self._answered not in (None, answered):
            self._recheck_until = now + _APPLIED_S
        self._answered = answered
        if self._running is not None or not self._refusals or not self._recheck_at <= now < self._recheck_until:
            return
        self._recheck_at, began = now + _RECHECK_S, time.monotonic()
        differing = self._differing(self._refusals.values())
        self._recheck_at = now + max(_RECHECK_S, _RECHECK_SHARE * (time.monotonic() - began))
        same = [refusal for id, refusal in self._refusals.items() if id not in differing]
        for refusal in same:
            del self._refusals[refusal.target.key]
        for (namespace, _), group in _by_cause(same).items():
            yield f"the same by now: {counted(len(group), 'document')} of {namespace} that the destination had refused"

    def _start_repair(self, group: list[Refusal], launcher: Launcher) -> None:
        group = group[:_BATCH]
        namespace = group[0].target.namespace
        arguments = [str(self.session.file), "--ids", namespace, "-", "--yes", "--json", "--timeout", str(_TIMEOUT)]
        ids = "".join(f"{refusal.shown_id}\n" for refusal in group)
        self._running = Child.start("repair", launcher("repair", arguments), ids), group

    def _read_results(self, now: float, launcher: Launcher) -> Iterator[str]:
        assert self._running is not None
        child, group = self._running
        has_ended = child.exit_code is not None
        for line in (line for line in child.lines() if line.stream == "out"):
            try:
                if isinstance(event := parse(line.text), Reread):
                    self._results.append(event)
            except BadLine:
                yield f"repair printed an unreadable line: {line.shown}"
        if not has_ended:
            if now - child.started > _HANG_SECONDS:
                child.kill(f"`towpath repair` had not ended after {_HANG_SECONDS:.0f} s and was killed")
            return
        results, self._results, self._running = self._results, [], None
        accepted = {result.id_bson for result in results if result.result == "repaired"}
        repaired = [refusal for refusal in group if refusal.target.id.hex() in accepted]
        for refusal in repaired:
            self._refusals.pop(refusal.target.key, None)
        self.repaired += len(repaired)
        if repaired:
            cause, namespace = repaired[0].cause, repaired[0].target.namespace
            self._pauses.pop(cause, None)
            yield f"repaired {counted(len(repaired), 'document')} of {namespace} that the destination had refused"
            rest = [refusal for refusal in self._refusals.values() if refusal.cause == cause and refusal.shown_id]
            if rest and not unreplicated.gone(self.session, [namespace]):
                self._start_repair(rest, launcher)
        if len(repaired) < len(group):
            for refusal in group:  # to the end, so that another document of the cause is tried next
                if (newest := self._refusals.pop(refusal.target.key, None)) is not None:
                    self._refusals[refusal.target.key] = newest
            pause = self._pause(group[0]).failed(now)
            reason = next((result.reason for result in results if result.result == "left"), child.end_reason)
            when = f"; retried in {pause:.0f} s" if pause else ""
            yield f"still refused: {self.words}; {group[0].target.namespace}: {reason}{when}"

    def _differing(self, refusals: Iterable[Refusal]) -> set[_DocumentId]:
        """Those whose documents differ now. Raises `ServerLost` while a cluster does not answer."""
        pipeline, differing = self.session.pipeline, set[_DocumentId]()
        by_namespace = attrgetter("target.namespace")
        groups = groupby(sorted(refusals, key=by_namespace), by_namespace)
        source, destination = self.session.source, self.session.destination
        clients = source.client(timeout=5, answer=ANSWER_S), destination.client(timeout=5, answer=ANSWER_S)
        rereads = Rereads(*clients, Recheck(), lost_for=0)
        for namespace, group in groups:
            pair = pair_of(pipeline, namespace)
            for chunk in chunks(refusal.target.id for refusal in group):
                differing.update((namespace, id_key(id)) for id in rereads.differing(pair, chunk))
        return differing

    @property
    def children(self) -> list[Child]:
        return [] if self._running is None else [self._running[0]]


def _by_cause(refusals: Iterable[Refusal]) -> dict[tuple[Namespace, str], list[Refusal]]:
    groups: dict[tuple[Namespace, str], list[Refusal]] = {}
    for refusal in refusals:
        groups.setdefault(refusal.cause, []).append(refusal)
    return groups
