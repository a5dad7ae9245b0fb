"""Keeps verifying what changes: what the log names is compared, and looked at again until it is settled."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from towpath.events import Difference
from towpath.log.changed_keys import LogFollower
from towpath.mongo.client import connected
from towpath.namespaces import Selection
from towpath.session import Session
from towpath.verification import follow_state, verdict_file
from towpath.verification.follow_state import FollowState, Running
from verifier import Namespace, Options, Pair, Passed
from verifier.proof import Outcome, Same, Unsettled
from verifier.raw import Key, id_key
from verifier.reads import chunks, patiently
from verifier.settlement import Settling

_EVERY = 1.0  # seconds for which records are gathered before their documents are compared
_AT_ONCE = 20_000  # documents that are compared at once
_HELD = 50_000  # documents that wait to be looked at again; beyond it no more are read from the log
_AGAIN = 30.0  # seconds between two looks at all that is known to differ
_SAVED = 5.0  # seconds after which positions are kept anew
_SHOWN = 10_000  # differences that are kept with the paths that differ; of more only the names

_Id = tuple[Namespace, Key]


def follow(
    it: Session,
    begin: FollowState,
    known: Path,
    passed: Passed | None,
    tell: Callable[[Difference], None],
    only: Sequence[str],
    options: Options,
) -> Running:
    """Verify what is changed from where `begin` is on until interrupted; the verdict as it was then.

    Starts with the differences in `known`, a verdict; keeps what differs, where in the log it is, and the running
    verdict, which `status` shows. `tell` is given each difference once it has settled. `only` holds patterns of
    namespaces at the source; empty takes all in.
    """
    with (
        connected(it.pipeline.source_uri, "source") as source,
        connected(it.pipeline.destination_uri, "destination") as destination,
        LogFollower(it.pipeline, it.topics, begin.places) as log,
    ):
        settling = Settling(
            source, destination, options.recheck, passed, options.ignore_field_order, options.lost_for, say=it.say
        )
        selection = Selection(it.pipeline.include, it.pipeline.exclude, tuple(only))
        follower = _Follower(it, log, settling, tell, selection, begin)
        with follower.kept(known), suppress(KeyboardInterrupt):
            while True:
                follower.turn()
        return follower.verdict(following=False)


@dataclass(slots=True)
class _Follower:
    it: Session
    log: LogFollower
    settling: Settling
    tell: Callable[[Difference], None]
    selection: Selection
    state: FollowState
    """Where it began, or was when it was kept last."""
    since: float = field(default_factory=time.time)
    compared: int = 0
    known: dict[_Id, Difference] = field(default_factory=dict)
    """What differs."""
    waiting: dict[_Id, bytes] = field(default_factory=dict)
    unsettled: dict[_Id, bytes] = field(default_factory=dict)
    """What could not be judged, and has not been found equal or different since."""
    mended: set[_Id] = field(default_factory=set)
    """What turned out the same, and is still named by the verdict that this goes on from."""
    changed: bool = True
    again: float = 0.0
    saved: float = 0.0
    away: str = ""
    """Why Kafka did not answer, once that is told."""

    @contextmanager
    def kept(self, known: Path) -> Iterator[None]:
        """Begin with what is known to differ, and leave what is true at the end."""
        for named in verdict_file.read(known):
            self._know((named.namespace, id_key(named.key)), named)
        for namespace, group in groupby(sorted(self.state.waiting), lambda one: one[0]):
            self._compare(namespace, [id for _, id in group])
        self.state = replace(self.state, places=self.log.places)
        self.again = time.monotonic() + (_AGAIN if not self.known else 0.0)
        self._save(following=True)
        try:
            yield
        finally:
            self._save(following=False)

    def turn(self) -> None:
        self._tell_of_kafka()
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
        self.state = replace(self.state, places=self.log.places)  # all before is compared, and what differed is held
        self._save(following=True)

    def _tell_of_kafka(self) -> None:
        if bool(self.log.trouble) != bool(self.away):
            self.it.say(
                f"{self.log.trouble}; this goes on once it answers" if self.log.trouble else "Kafka answers again"
            )
        self.away = self.log.trouble

    def _compare(self, namespace: Namespace, ids: Iterable[bytes]) -> None:
        pair = Pair(namespace, self.it.pipeline.renames.destination(namespace))
        for chunk in chunks(ids):

            def differing(chunk: list[bytes] = chunk) -> list[bytes]:
                return self.settling.differing(pair, chunk)

            found = patiently(f"read documents of {namespace}", self.settling.lost_for, differing, self.it.say)
            unlike = {(namespace, id_key(one)): one for one in found}
            for one in chunk:
                if (mark := (namespace, id_key(one))) not in unlike:
                    self._forget(mark)
            fresh = {mark: one for mark, one in unlike.items() if mark not in self.waiting}
            if fresh:
                self.waiting.update(fresh)
                self.settling.add(pair, fresh.values())

    def _look_again(self) -> None:
        """What was mended other than through the log is seen only so, and so is what could not be judged."""
        ids = {mark: one.key for mark, one in self.known.items()} | self.unsettled
        for namespace, group in groupby(sorted(ids, key=lambda mark: mark[0]), lambda mark: mark[0]):
            self._compare(namespace, [ids[mark] for mark in group])
        self.again = time.monotonic() + _AGAIN

    def _settled(self, outcome: Outcome) -> None:
        mark = outcome.namespace, id_key(outcome.id)
        if isinstance(outcome, Same):
            self._forget(mark)
        elif isinstance(outcome, Unsettled):
            self.unsettled[mark] = outcome.id
        else:
            self.unsettled.pop(mark, None)
            found = verdict_file.difference(outcome, self.it.pipeline.renames.destination(outcome.namespace))
            if mark not in self.known:
                self.tell(found)
            self._know(mark, found)
        self.waiting.pop(mark, None)  # last, so that an interrupt loses nothing

    def _know(self, mark: _Id, found: Difference) -> None:
        self.known[mark] = found if len(self.known) < _SHOWN else replace(found, paths=())
        self.changed = True

    def _forget(self, mark: _Id) -> None:
        self.unsettled.pop(mark, None)
        if self.known.pop(mark, None) is not None:
            self.mended.add(mark)
            self.changed = True

    def verdict(self, *, following: bool) -> Running:
        counts = Counter(one.kind for one in self.known.values())
        behind = self.log.lag()
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
        """First what differs and the positions, in one file: it is never ahead of what was compared."""
        found, name = self.verdict(following=following), self.it.pipeline.name
        if self.changed or not following or time.monotonic() - self.saved > _SAVED:
            left = {**self.unsettled, **self.waiting}
            self.state = replace(self.state, at=found.at, waiting=[(mark[0], id) for mark, id in left.items()])
            follow_state.write(name, self.state, self.known.values(), _counts(found))
            self.changed, self.saved = False, time.monotonic()
        if self.mended:
            place, mended = verdict_file.path(name), self.mended
            verdict_file.strike(place, lambda namespace, id: (namespace, id_key(id)) in mended, self.state.began)
            self.mended = set()
        follow_state.write_running(name, found)


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
