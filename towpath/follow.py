"""Keeps verifying what changes: what the log names is compared, and looked at again until it is settled."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from connectors.clusters import connected
from connectors.following import Following
from connectors.lag import pipeline_ends
from connectors.namespaces import Selection
from connectors.topics import Place
from towpath import kept, running, verdicts
from towpath.opened import Opened, say
from towpath.running import Running
from verifier import Difference, Namespace, Pair, Passed, Recheck
from verifier.judging import Outcome, Same, Unsettled
from verifier.lost import patiently
from verifier.order import Key, id_key
from verifier.reading import chunks
from verifier.settling import Settling
from verifier.shown import extended_json

_EVERY = 1.0  # seconds for which records are gathered before their documents are compared
_AT_ONCE = 20_000  # documents that are compared at once
_HELD = 50_000  # documents that wait to be looked at again; beyond it no more are read from the log
_AGAIN = 30.0  # seconds between two looks at all that is known to differ
_SHOWN = 10_000  # differences that are kept with the paths that differ; of more only the names

_Id = tuple[Namespace, Key]


def starts(it: Opened) -> dict[Place, int]:
    """The ends of the log now: what a full pass that begins now may miss comes after them."""
    return {place: end for place, (_, end) in pipeline_ends(it.pipeline, it.topics).items()}


def follow(
    it: Opened,
    begin: Mapping[Place, int],
    passed: Passed | None,
    tell: Callable[[Difference], None],
    only: Sequence[str],
    *,
    recheck: Recheck | None = None,
    ignore_field_order: bool = False,
) -> Running:
    """Verify what is changed from these offsets on until interrupted; the verdict as it was then.

    Starts with the differences of the last verdict, keeps that verdict up to date, and the running one, which
    `status` shows. `tell` is given each difference once it has settled. `only` holds patterns of namespaces at the
    source; empty takes all in.
    """
    with (
        connected(it.pipeline.source_uri, "source") as source,
        connected(it.pipeline.destination_uri, "destination") as destination,
        Following(it.pipeline, it.topics, begin) as log,
    ):
        settling = Settling(source, destination, recheck or Recheck(), passed, ignore_field_order, say=say)
        selection = Selection(it.pipeline.include, it.pipeline.exclude, tuple(only))
        follower = _Follower(it, log, settling, tell, selection)
        with follower.kept(), suppress(KeyboardInterrupt):
            while True:
                follower.turn()
        return follower.verdict(following=False)


@dataclass(slots=True)
class _Follower:
    it: Opened
    log: Following
    settling: Settling
    tell: Callable[[Difference], None]
    selection: Selection
    since: float = field(default_factory=time.time)
    compared: int = 0
    known: dict[_Id, dict[str, Any]] = field(default_factory=dict)
    """What differs, as lines of a verdict."""
    waiting: set[_Id] = field(default_factory=set)
    unsettled: set[_Id] = field(default_factory=set)
    """What could not be judged, and has not been found equal or different since."""
    changed: bool = True
    again: float = 0.0
    base: dict[str, Any] = field(default_factory=dict)
    """What the full pass before was of: with what differs since, this is as good."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Begin with the last verdict, and leave what is true at the end."""
        place = verdicts.path(self.it.pipeline.name)
        self.base = {
            name: value for name, value in verdicts.counts(place).items() if name in ("ddl", "only", "trouble")
        }
        for named in verdicts.read(place):
            self._know((named.namespace, id_key(named.id)), _line(named))
        self.again = time.monotonic() + _AGAIN
        try:
            yield
        finally:
            self._save(following=False)

    def turn(self) -> None:
        if len(self.settling) < _HELD:
            touched = self.log.take(_EVERY, _AT_ONCE)
        else:
            touched = []
            time.sleep(self.settling.pause() or 0)
        for namespace, group in groupby(sorted(touched, key=lambda one: one.namespace), lambda one: one.namespace):
            if self.selection.matches(namespace):
                keys = [one.key for one in group]
                self._compare(namespace, keys)
                self.compared += len(keys)
        if time.monotonic() > self.again:
            self._look_again()
        while self.settling.pause() == 0:
            for _, outcome in self.settling.step():
                self._settled(outcome)
        self._save(following=True)

    def _compare(self, namespace: Namespace, ids: Iterable[bytes]) -> None:
        pair = Pair(namespace, self.it.pipeline.renames.destination(namespace))
        for chunk in chunks(ids):

            def differing(chunk: list[bytes] = chunk) -> list[bytes]:
                return self.settling.differing(pair, chunk)

            found = patiently(f"read documents of {namespace}", self.settling.lost_for, differing, say)
            unlike = {(namespace, id_key(one)): one for one in found}
            for one in chunk:
                if (mark := (namespace, id_key(one))) not in unlike:
                    self._forget(mark)
            fresh = {mark: one for mark, one in unlike.items() if mark not in self.waiting}
            self.waiting.update(fresh)
            if fresh:
                self.settling.add(pair, fresh.values())

    def _look_again(self) -> None:
        """What was mended other than through the log is seen only so."""
        for namespace, group in groupby(sorted(self.known, key=lambda mark: mark[0]), lambda mark: mark[0]):
            self._compare(namespace, [bytes.fromhex(self.known[mark]["id_bson"]) for mark in list(group)])
        self.again = time.monotonic() + _AGAIN

    def _settled(self, outcome: Outcome) -> None:
        mark = outcome.namespace, id_key(outcome.id)
        self.waiting.discard(mark)
        self.unsettled.discard(mark)
        if isinstance(outcome, Same):
            self._forget(mark)
        elif isinstance(outcome, Unsettled):
            self.unsettled.add(mark)
        else:
            if mark not in self.known:
                self.tell(outcome)
            self._know(mark, verdicts.as_json(outcome, self.it.pipeline.renames.destination(outcome.namespace)))

    def _know(self, mark: _Id, line: dict[str, Any]) -> None:
        self.known[mark] = line if len(self.known) < _SHOWN else {**line, "paths": []}
        self.changed = True

    def _forget(self, mark: _Id) -> None:
        self.unsettled.discard(mark)
        self.changed = self.known.pop(mark, None) is not None or self.changed

    def verdict(self, *, following: bool) -> Running:
        counts = Counter(line["kind"] for line in self.known.values())
        behind = self.log.behind()
        return Running(
            since=self.since,
            at=time.time(),
            following=following,
            records=self.log.records,
            compared=self.compared,
            waiting=len(self.waiting),
            unsettled=len(self.unsettled),
            missing=counts["missing"],
            extra=counts["extra"],
            different=counts["different"],
            order=counts["order"],
            behind_records=behind.records,
            behind_seconds=round(behind.seconds, 3),
        )

    def _save(self, *, following: bool) -> None:
        found, name = self.verdict(following=following), self.it.pipeline.name
        running.write(name, found)
        if self.changed:
            with kept.writing(verdicts.path(name)) as file:
                for line in self.known.values():
                    file.write(verdicts.line(line))
                file.write(verdicts.line(self.base | _counts(found)))
            self.changed = False


def _line(named: verdicts.Named) -> dict[str, Any]:
    shown = extended_json(named.id)
    return {
        "namespace": named.namespace,
        "destination_namespace": named.destination_namespace,
        "id": None if shown is None else json.loads(shown),
        "id_bson": named.id.hex(),
        "kind": named.kind,
        "paths": [list(one) for one in named.paths],
    }


def _counts(found: Running) -> dict[str, Any]:
    """The last line of a verdict."""
    seconds = max(found.at - found.since, 0.001)
    return {
        "clean": not found.differences,
        "compared": found.compared,
        **{kind: getattr(found, kind) for kind in ("missing", "extra", "different", "order")},
        "seconds": round(seconds, 1),
        "documents_per_second": round(found.compared / seconds, 1),
    }
