"""Verifies the documents that changed, as the log names them: once, or again and again as the log grows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from uuid import uuid4

from towpath.clients.kafka.consume import Window
from towpath.clients.kafka.topics import Place
from towpath.config.events import as_line
from towpath.errors import TowpathError
from towpath.log import changed_keys
from towpath.log.barrier import passing
from towpath.log.field_rules import pair_of
from towpath.log.lag import pipeline_ends
from towpath.session import Session
from towpath.store import verdict_file
from towpath.verify.result import VerificationResult, as_event
from towpath.verify.verdict import note_found, try_origin
from towpath_verifier import (
    Difference,
    Namespace,
    Options,
    Pair,
    Passed,
    Same,
    Tally,
    Unresolved,
    Verdict,
    Verification,
)


@dataclass(slots=True)
class RecentVerification:
    """Compares changed documents. Iterate over it for the differences as they are proven, then read `verdict`."""

    session: Session
    changed: Iterable[tuple[Namespace, bytes]]
    """Source namespaces with `{_id: …}` in BSON, grouped by namespace (`towpath.log.changed_keys`). The destination has
    these changes: before that, both sides may be equal because it lags."""
    only: Sequence[str]
    """Patterns of source namespaces; empty for all."""
    options: Options
    passed: Passed | None = None
    verdict: Verdict = field(default_factory=lambda: Verdict([]))
    _tallies: dict[Namespace, Tally] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Difference]:
        start = time.monotonic()
        try:
            clients = self.session.source.client(), self.session.destination.client()
            rereads = self.options.rereads(*clients, self.passed, self.session.say)
            for outcome in rereads.outcomes(self._selected()):
                tally = self._tally(outcome.namespace)
                if isinstance(outcome, Unresolved):
                    tally.unresolved += 1
                    tally.notes.append(f"{outcome.id.hex()} could not be judged: {outcome.why}")
                elif not isinstance(outcome, Same):
                    tally.kinds[outcome.kind] += 1
                    yield outcome
        finally:
            self.verdict.seconds = time.monotonic() - start

    def _selected(self) -> Iterator[tuple[Pair, Iterator[bytes]]]:
        selection = replace(self.session.pipeline.selection, only=tuple(self.only))
        for namespace, group in groupby(self.changed, itemgetter(0)):
            if selection.matches(namespace):
                tally = self._tally(namespace)
                yield tally.pair, _counted(tally, group)

    def _tally(self, namespace: Namespace) -> Tally:
        if namespace not in self._tallies:
            pair = pair_of(self.session.pipeline, namespace)
            tally = Tally(pair, self.options.way_of(pair))
            self._tallies[namespace] = tally
            self.verdict.tallies.append(tally)
        return self._tallies[namespace]


def _counted(tally: Tally, changed: Iterable[tuple[Namespace, bytes]]) -> Iterator[bytes]:
    for _, key in changed:
        tally.documents += 1
        yield key


class DocumentsDiffer(TowpathError):
    """Both sides differ; the differences are stored as the last verdict."""


@dataclass(slots=True)
class IncrementalVerification:
    """Each comparison covers the documents that a log names since the previous comparison began.

    Both methods return the number of documents compared, and raise what `require_same` raises.
    """

    session: Session
    """The pipeline whose sides are compared."""
    logged: Session
    """The pipeline whose log names the documents: the same one, or that of the other direction."""
    start: Mapping[Place, int] = field(default_factory=dict)
    """Where the first `verify_new` begins in each partition, if not at the log's beginning."""
    duration_s: float = 0.0
    """How long the last comparison took."""

    def verify_newest(self, records: int, log: Window) -> int:
        """Compare the documents of the newest `records` records in this log, which the sink has applied."""
        return self._compare(changed_keys.ids(self.logged.pipeline, self.logged.topics, records, None, log), log)

    def verify_new(self, log: Window | None = None) -> int:
        """Compare the documents of the records since the last comparison began, in this log, which is applied.

        By default up to now, for a log of the other direction: it names what the destination has already.
        """
        ends = pipeline_ends(self.logged.pipeline, self.logged.topics) if log is None else log
        return self._compare(changed_keys.ids_after(self.logged.pipeline, self.logged.topics, self.start, ends), ends)

    def _compare(self, changed: Iterable[tuple[Namespace, bytes]], ends: Window) -> int:
        """`ends`: of the log; the next comparison begins there."""
        session, logged, began = self.session, self.logged.pipeline, time.monotonic()
        if session is not self.logged:
            changed = ((logged.renamed(name), key) for name, key in changed)
        with passing(session) as passed:
            verification = RecentVerification(session, changed, (), Options(), passed=passed)
            compared = require_same(session, verification, "the newest records")
        self.start, self.duration_s = {place: end for place, (_, end) in ends.items()}, time.monotonic() - began
        return compared


def require_same(session: Session, verification: RecentVerification | Verification, of: str) -> int:
    """Run it, and return the number of documents compared. Raises `DocumentsDiffer`; `TowpathError` without a verdict.

    Differences are stored as the last verdict, which `repair` reads, and noted at the destination. They go to the file
    as they are found: a document may have 16 MB, and many may differ.
    """
    differences, verdict = iter(verification), verification.verdict
    if first := next(differences, None):
        destination = session.pipeline.renamed
        example = f"{first.namespace} {verdict_file.shown_id(first.id)}"
        note_found(session, id := uuid4().hex)
        with verdict_file.writing(session.pipeline.name) as file:
            while first:
                file.write(verdict_file.difference(first, destination(first.namespace)).line)
                first = next(differences, None)
            note_found(session, id)  # the last of them
            last, (origin, _) = as_event(VerificationResult(verdict), of, id=id), try_origin(session)
            file.write(as_line(last.as_json() | {"origin": origin and origin.as_json()}))
        raise DocumentsDiffer(
            f"{verdict.differences:,} documents differ, such as {example}", f"run towpath repair {session.file}"
        )
    if verdict.errors:
        raise TowpathError(f"there is no verdict: {'; '.join(verdict.errors)}; run towpath verify {session.file}")
    return verdict.compared
