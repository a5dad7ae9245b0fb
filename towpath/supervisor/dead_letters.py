"""What the destination refused and is still not the same: tried again, cause by cause, until it is taken.

A cause is tried with one document, since each that is refused again is another dead letter. Once one is taken, the
others follow. Dead letters whose documents are the same by now are forgotten.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from towpath.events import BadLine, Reread, parse
from towpath.log import dead_letters
from towpath.mongo.client import briefly
from towpath.repair.targets import DocumentRef, document_of
from towpath.session import Session
from towpath.supervisor.children import Child
from towpath.supervisor.restarts import Backoff
from towpath.text import counted
from verifier import Namespace, Pair, Recheck
from verifier.raw import Key, id_key
from verifier.reads import chunks
from verifier.settlement import Settling
from verifier.values import extended_json

_FIRST, _LONGEST = 5.0, 1800.0  # seconds between two tries of a cause
_KEPT = 50_000  # documents that are remembered; of more only the newest
_AT_ONCE = 1_000  # documents of one cause that are repaired together
_TIMEOUT = 120  # seconds for them to be re-read and applied
_HANGS = 900.0  # seconds after which a repair that has not ended hangs

_Id = tuple[Namespace, Key]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A document that was set aside, with what the destination said."""

    wanted: DocumentRef
    code: str
    reason: str

    @property
    def cause(self) -> tuple[Namespace, str]:
        return self.wanted.namespace, self.code

    @property
    def shown_id(self) -> str | None:
        """As `repair --ids` reads it; None where Extended JSON does not tell it exactly."""
        return extended_json(self.wanted.id)


@dataclass(slots=True)
class SetAside:
    it: Session
    mended: int = 0
    _next: int = 0
    """The first dead letter that was not read."""
    _known: dict[_Id, Refusal] = field(default_factory=dict)
    _pauses: dict[tuple[Namespace, str], Backoff] = field(default_factory=dict)
    _trying: tuple[Child, list[Refusal]] | None = None
    _said: list[Reread] = field(default_factory=list)
    """What it has printed of documents so far."""

    @property
    def left(self) -> int:
        return len(self._known)

    def rows(self, now: float) -> Iterator[str]:
        """A line for each cause."""
        for cause, group in _by_cause(self._known.values()).items():
            pause = self._pauses.get(cause)
            due = "being tried" if pause is None or pause.due is None else f"again in {max(0.0, pause.due - now):.0f} s"
            yield f"{len(group):,} of {_words(group[0])}; {due}"

    def read(self, now: float, seconds: float = math.inf) -> Iterator[str]:
        """Take in new dead letters; tells of each new cause. What is not read within `seconds` is left to the next
        call."""
        end, until = dead_letters.end(self.it.pipeline, self.it.topics), time.monotonic() + seconds
        if end <= self._next:
            return
        fresh: dict[_Id, Refusal] = {}
        for letter in dead_letters.letters(self.it.pipeline, self.it.topics, follow=False, start=self._next):
            if time.monotonic() > until:
                end = letter.at
                break
            wanted = document_of(self.it.pipeline, letter.place[0], letter.key)
            if wanted is not None and self.it.pipeline.selection.matches(wanted.namespace):
                mark = wanted.namespace, id_key(wanted.id)
                fresh.pop(mark, None)
                fresh[mark] = Refusal(wanted, letter.code, letter.reason)
                if len(fresh) > _KEPT:
                    del fresh[next(iter(fresh))]
        new = {mark: one for mark, one in fresh.items() if mark not in self._known}
        left = self._differing(new.values())
        self._next = end  # now, because either side may be away just then
        self._known |= {mark: one for mark, one in fresh.items() if mark in self._known or mark in left}
        for group in _by_cause(one for mark, one in new.items() if mark in left).values():
            pause = self._pause(group[0]).failed(now)
            when = "" if pause is None else f"; tried again in {pause:.0f} s"
            yield f"set aside {counted(len(group), 'document')} of {_words(group[0])}{when}"

    def _pause(self, one: Refusal) -> Backoff:
        return self._pauses.setdefault(one.cause, Backoff(_FIRST, _LONGEST, well=0))

    def turn(self, now: float) -> Iterator[str]:
        """Go on with what is being tried, or begin with what is due; tells what came of it."""
        if self._trying is not None:
            yield from self._judge(now)
            return
        for group in _by_cause(self._known.values()).values():
            pause = self._pause(group[0])
            pause.failed(now)
            if pause.is_due(now):
                self._forget_same(group)
                group = [one for one in group if self._mark(one) in self._known and one.shown_id is not None]
                pause.tried()
                if group:
                    self._begin(group[:1])
                return

    def _begin(self, group: list[Refusal]) -> None:
        group = group[:_AT_ONCE]
        namespace = group[0].wanted.namespace
        arguments = [str(self.it.file), "--ids", namespace, "-", "--json", "--timeout", str(_TIMEOUT)]
        ids = "".join(f"{one.shown_id}\n" for one in group)
        self._trying = Child.start("repair", arguments, ids), group

    def _judge(self, now: float) -> Iterator[str]:
        assert self._trying is not None
        child, group = self._trying
        has_ended = child.ended is not None
        for line in (line for line in child.lines() if line.stream == "out"):
            try:
                if isinstance(found := parse(line.text), Reread):
                    self._said.append(found)
            except BadLine:
                yield f"repair printed what is not a line of its JSON: {line.shown}"
        if not has_ended:
            if now - child.began > _HANGS:
                child.give_up(f"`towpath repair` had not ended after {_HANGS:.0f} s, and was killed")
            return
        said, self._said, self._trying = self._said, [], None
        taken = {one.id_bson for one in said if one.result == "mended"}
        mended = [one for one in group if one.wanted.id.hex() in taken]
        for one in mended:
            self._known.pop(self._mark(one), None)
        self.mended += len(mended)
        if mended:
            self._pauses.pop(group[0].cause, None)
            yield f"mended {counted(len(mended), 'document')} of {group[0].wanted.namespace} that had been set aside"
            rest = [one for one in self._known.values() if one.cause == group[0].cause and one.shown_id is not None]
            if rest:
                self._begin(rest)
        if len(mended) < len(group):
            self._rotate(group)
            pause = self._pause(group[0]).failed(now)
            why = next((one.reason for one in said if one.result == "left"), child.why)
            left = counted(len(self._known), "document")
            again = f"; tried again in {pause:.0f} s" if pause else ""
            yield f"still set aside: {left}; of {group[0].wanted.namespace}: {why}{again}"

    def _rotate(self, group: list[Refusal]) -> None:
        """Another document of the cause is tried next."""
        for one in group:
            if (known := self._known.pop(self._mark(one), None)) is not None:
                self._known[self._mark(one)] = known

    def _forget_same(self, group: Iterable[Refusal]) -> None:
        asked = list(group)
        left = self._differing(asked)
        for one in asked:
            if self._mark(one) not in left:
                self._known.pop(self._mark(one), None)

    def _differing(self, asked: Iterable[Refusal]) -> set[_Id]:
        """Those whose documents differ now."""
        pipeline, found = self.it.pipeline, set[_Id]()
        groups = groupby(sorted(asked, key=lambda one: one.wanted.namespace), lambda one: one.wanted.namespace)
        with (
            briefly(pipeline.source_uri, "source") as source,
            briefly(pipeline.destination_uri, "destination") as destination,
        ):
            settling = Settling(source, destination, Recheck(), None)
            for namespace, group in groups:
                pair = Pair(namespace, pipeline.renames.destination(namespace))
                for chunk in chunks(one.wanted.id for one in group):
                    found.update((namespace, id_key(id)) for id in settling.differing(pair, chunk))
        return found

    @staticmethod
    def _mark(one: Refusal) -> _Id:
        return one.wanted.namespace, id_key(one.wanted.id)

    @property
    def children(self) -> list[Child]:
        return [] if self._trying is None else [self._trying[0]]


def _by_cause(refusals: Iterable[Refusal]) -> dict[tuple[Namespace, str], list[Refusal]]:
    groups: dict[tuple[Namespace, str], list[Refusal]] = {}
    for one in refusals:
        groups.setdefault(one.cause, []).append(one)
    return groups


def _words(one: Refusal) -> str:
    code = f" ({one.code})" if one.code else ""
    return f"{one.wanted.namespace}: {one.reason}{code}"
