"""Verify changes continuously: compare the documents that the log names, and again while they differ."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path

from towpath.config.events import Difference, Following
from towpath.log.barrier import Passing
from towpath.log.changed_keys import LogFollower, Unread
from towpath.log.field_rules import pair_of
from towpath.session import Session
from towpath.store import verdict_file
from towpath.store.verdict_file import FollowState
from towpath.verify.verdict import forget_found, note_found
from towpath_verifier import (
    Key,
    Namespace,
    Options,
    Outcome,
    Rereads,
    Same,
    Unresolved,
    chunks,
    id_key,
)

_GATHER_S = 1.0  # seconds for which records are collected before their documents are compared
_BATCH = 20_000  # most documents compared in one turn
_MAX_WAITING = 50_000  # documents that wait for another comparison; beyond it, no more records are read from the log
_RECHECK_S = 30.0  # seconds between two comparisons of everything that is known to differ
_LAST_TURNS = 3  # at the end, for what has come until then and is not applied or judged yet
_SAVE_S = 5.0  # seconds after which positions are stored again
_SAVE_SHARE = 10  # times as long as storing took passes until differences are stored again
_SHOWN = 10_000  # differences that are stored with the paths that differ; beyond it, only with their _id

_Id = tuple[Namespace, Key]


def follow(
    session: Session,
    begin: FollowState,
    known: Path,
    passed: Passing | None,
    report: Callable[[Difference], None],
    only: Sequence[str],
    options: Options,
    is_over: Callable[[], bool],
) -> Following:
    """Verify changes from `begin` on until `is_over`; return the verdict at that point.

    Starts with the differences in `known`, a verdict. Stores the differences, its positions in the log, and the running
    verdict that `status` shows. `report` receives each difference once it is proven. `only` holds patterns of source
    namespaces; empty means all. After an interrupt it is not known how far the verdict is behind.
    """
    clients = session.source.client(), session.destination.client()
    applied = passed.applied if passed else None
    selects = replace(session.pipeline.selection, only=tuple(only)).matches
    with LogFollower(session.pipeline, session.topics, begin.places, applied, selects) as log:
        rereads = options.rereads(*clients, passed, session.say)
        follower = _Follower(session, log, rereads, report, begin, passed.report_waiting if passed else None)
        with follower.stored(known), suppress(KeyboardInterrupt):
            try:
                while not is_over():
                    follower.turn()
                follower.finish()
            except SystemError:  # Kafka's client may turn the interrupt into one
                if not is_over():
                    raise
        return follower.verdict(following=False)


@dataclass(slots=True)
class _Follower:
    session: Session
    log: LogFollower
    rereads: Rereads
    report: Callable[[Difference], None]
    state: FollowState
    """The state at the start, or when it was stored last."""
    report_waiting: Callable[[Collection[str]], None] | None = None
    """Receives the topics whose records are not applied."""
    since: float = field(default_factory=time.time)
    compared: int = 0
    known: dict[_Id, Difference] = field(default_factory=dict)
    """What differs."""
    waiting: dict[_Id, bytes] = field(default_factory=dict)
    again: set[_Id] = field(default_factory=set)
    """Those that have differed again since: of that change, what they come to says nothing."""
    unresolved: dict[_Id, bytes] = field(default_factory=dict)
    """Documents that could not be judged, and have not been found equal or different since."""
    equal: set[_Id] = field(default_factory=set)
    """Documents that are equal now, but still in the verdict that this run continues."""
    changed: bool = True
    has_proven: bool = True
    """Whether a difference was proven since that was noted at the destination last; it was, of those at the start."""
    is_noted: bool = True
    """Whether that may be noted at the destination."""
    recheck_at: float = 0.0
    saved: float = float("-inf")
    save_seconds: float = 0.0
    """How long storing took last; it writes every difference."""
    is_finished: bool = False
    """Whether all that the log had at the end was looked at."""
    kafka_failure: str = ""
    """Why Kafka does not answer, once that has been reported."""

    @contextmanager
    def stored(self, known: Path) -> Iterator[None]:
        """Start with the known differences, and store the state at the end."""
        for difference in verdict_file.read(known):
            self._know((difference.namespace, id_key(difference.key)), difference)
        for namespace, group in groupby(sorted(self.state.waiting), itemgetter(0)):
            self._compare(namespace, [id for _, id in group])
        self.state = replace(self.state, places=self.log.places)
        self.recheck_at = time.monotonic() + (_RECHECK_S if not self.known else 0.0)
        self._save(following=True)
        try:
            yield
        finally:
            self._save(following=False)

    def turn(self) -> None:
        self._report_kafka()
        if len(self.rereads) < _MAX_WAITING:
            changed = self.log.take(_GATHER_S, _BATCH)
        else:
            changed = []
            self.log.refresh()
            time.sleep(self.rereads.pause() or 0)
        for namespace, group in groupby(sorted(changed, key=attrgetter("namespace")), attrgetter("namespace")):
            keys = [change.key for change in group]
            self._compare(namespace, keys)
            self.compared += len(keys)
        if self.report_waiting:
            self.report_waiting(self.log.stuck)
        if time.monotonic() > self.recheck_at:
            self._recheck()
        while self.rereads.pause() == 0:
            for _, outcome in self.rereads.step():
                self._resolved(outcome)
        # everything before these places is compared, and `waiting` holds what differed
        self.state = replace(self.state, places=self.log.places)
        self._save(following=True)

    def finish(self) -> None:
        """Compare what the log has now as well, as far as it is applied soon."""
        self.log.refresh(at_once=True)
        for _ in range(_LAST_TURNS):
            self.turn()
            if not (self.log.unread().records or self.waiting):
                break
        self.is_finished = True

    def _report_kafka(self) -> None:
        if bool(self.log.failure) != bool(self.kafka_failure):
            self.session.say(
                f"{self.log.failure}; continuing once it answers" if self.log.failure else "Kafka answers again"
            )
        self.kafka_failure = self.log.failure

    def _compare(self, namespace: Namespace, ids: Iterable[bytes]) -> None:
        pair = pair_of(self.session.pipeline, namespace)
        for chunk in chunks(ids):
            unequal = {(namespace, id_key(id)): id for id in self.rereads.differing(pair, chunk)}
            for id in chunk:
                if (key := (namespace, id_key(id))) not in unequal:
                    self._forget(key)
                    self.again.discard(key)
            self.again |= unequal.keys() & self.waiting.keys()
            new = {key: id for key, id in unequal.items() if key not in self.waiting}
            if new:
                self.waiting.update(new)
                self.rereads.add(pair, new.values())

    def _recheck(self) -> None:
        """Compare known differences and unresolved documents again: repairs outside the log are seen only here."""
        ids = {key: difference.key for key, difference in self.known.items()} | self.unresolved
        for namespace, group in groupby(sorted(ids, key=itemgetter(0)), itemgetter(0)):
            self._compare(namespace, [ids[key] for key in group])
        self.recheck_at = time.monotonic() + _RECHECK_S

    def _resolved(self, outcome: Outcome) -> None:
        key = outcome.namespace, id_key(outcome.id)
        if isinstance(outcome, Same) and key in self.again:
            self.rereads.add(pair_of(self.session.pipeline, outcome.namespace), [outcome.id])
            self.again.remove(key)
            return
        if isinstance(outcome, Same):
            self._forget(key)
        elif isinstance(outcome, Unresolved):
            self.unresolved[key] = outcome.id
        else:
            self.unresolved.pop(key, None)
            difference = verdict_file.difference(outcome, self.session.pipeline.renamed(outcome.namespace))
            if key not in self.known:
                self.report(difference)
            self._know(key, difference)
            self.has_proven = True
        self.again.discard(key)
        self.waiting.pop(key, None)  # last, so that an interrupt loses nothing

    def _know(self, key: _Id, difference: Difference) -> None:
        self.known[key] = difference if len(self.known) < _SHOWN else replace(difference, paths=())
        self.changed = True

    def _forget(self, key: _Id) -> None:
        self.unresolved.pop(key, None)
        if self.known.pop(key, None) is not None:
            self.equal.add(key)
            self.changed = True

    def verdict(self, *, following: bool) -> Following:
        counts = Counter(difference.kind for difference in self.known.values())
        behind = self.log.unread() if following or self.is_finished else Unread(None, None)
        return Following(
            since=self.since,
            at=time.time(),
            following=following,
            records=self.log.records,
            compared=self.compared,
            waiting=len(self.waiting.keys() - self.known.keys()),
            unresolved=len(self.unresolved),
            **{kind: counts[kind] for kind in verdict_file.KINDS},
            behind_records=behind.records,
            behind_seconds=None if behind.seconds is None else round(behind.seconds, 3),
        )

    def _save(self, *, following: bool) -> None:
        """Store the differences and positions first, in one file, so that positions are never ahead of them.

        Both files hold every difference: the more there are, the less often they are written.
        """
        verdict, name, began = self.verdict(following=following), self.session.pipeline.name, time.monotonic()
        pause = _SAVE_SHARE * self.save_seconds if self.changed else max(_SAVE_S, _SAVE_SHARE * self.save_seconds)
        if not following or began - self.saved > pause:
            waiting = [(namespace, id) for (namespace, _), id in {**self.unresolved, **self.waiting}.items()]
            self.state = replace(self.state, at=verdict.at, waiting=waiting)
            counts: dict[str, int] = {kind: getattr(verdict, kind) for kind in verdict_file.KINDS}
            counts["clean"] = not verdict.differences
            if self.known and self.has_proven:
                note_found(self.session, self.state.began)
                self.has_proven, self.is_noted = False, True
            verdict_file.write_followed(name, self.state, self.known.values(), counts)
            if self.equal:
                verdict_file.remove_repaired(verdict_file.path(name), self.equal, self.state.began)
                self.equal = set()
            if not self.known and self.is_noted:
                self.is_noted = not forget_found(self.session, [self.state.began])
            self.changed, self.saved = False, time.monotonic()
            self.save_seconds = self.saved - began
        verdict_file.write_running(name, verdict)
