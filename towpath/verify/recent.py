"""Verifies the documents that changed, as the log names them: once, or again and again as the log grows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter

from towpath.clients.kafka.consume import Window
from towpath.clients.kafka.topics import Place
from towpath.config.events import as_line
from towpath.errors import TowpathError
from towpath.log import changed_keys
from towpath.log.barrier import asking
from towpath.log.lag import pipeline_ends
from towpath.session import Session
from towpath.store import state_files, verdict_file
from towpath.verify.origin import current_fields
from towpath.verify.result import VerificationResult, as_fields
from towpath_verifier import (
    Difference,
    Namespace,
    Options,
    Pair,
    Passed,
    Rereads,
    Same,
    Tally,
    Unresolved,
    Verdict,
    Verification,
)


class RecentVerification:
    """Compares changed documents. Iterate over it for the differences as they are proven, then read `verdict`."""

    def __init__(
        self,
        session: Session,
        changed: Iterable[tuple[Namespace, bytes]],
        only: Sequence[str],
        options: Options,
        *,
        passed: Passed | None = None,
    ) -> None:
        """`changed`: source namespaces with `{_id: …}` in BSON, grouped by namespace (`towpath.log.changed_keys`).

        `only` holds patterns of source namespaces; empty means all.
        """
        self.verdict = Verdict([])
        self._session, self._changed = session, changed
        self._selection = replace(session.pipeline.selection, only=tuple(only))
        self._options, self._passed = options, passed
        self._tallies: dict[Namespace, Tally] = {}

    def __iter__(self) -> Iterator[Difference]:
        start = time.monotonic()
        try:
            clients = self._session.source.client(), self._session.destination.client()
            yield from self._run(self._options.rereads(*clients, self._passed, self._session.say))
        finally:
            self.verdict.seconds = time.monotonic() - start

    def _run(self, rereads: Rereads) -> Iterator[Difference]:
        for outcome in rereads.outcomes(self._selected()):
            tally = self._tally(outcome.namespace)
            if isinstance(outcome, Unresolved):
                tally.unresolved += 1
                tally.notes.append(f"{outcome.id.hex()} could not be judged: {outcome.why}")
            elif not isinstance(outcome, Same):
                tally.kinds[outcome.kind] += 1
                yield outcome

    def _selected(self) -> Iterator[tuple[Pair, Iterator[bytes]]]:
        for namespace, group in groupby(self._changed, itemgetter(0)):
            if self._selection.matches(namespace):
                tally = self._tally(namespace)
                yield tally.pair, _counted(tally, group)

    def _tally(self, namespace: Namespace) -> Tally:
        if namespace not in self._tallies:
            tally = Tally(Pair(namespace, self._session.pipeline.renamed(namespace)), self._options.way)
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

    def verify_newest(self, records: int) -> int:
        """Compare the documents of the newest `records` records."""
        ends = self._ends()
        return self._compare(changed_keys.ids(self.logged.pipeline, self.logged.topics, records, None), ends)

    def verify_new(self, log: Window | None = None) -> int:
        """Compare the documents of the records since the last comparison began, in this log; by default, up to now."""
        ends = self._ends() if log is None else log
        return self._compare(changed_keys.ids_after(self.logged.pipeline, self.logged.topics, self.start, ends), ends)

    def _ends(self) -> Window:
        return pipeline_ends(self.logged.pipeline, self.logged.topics)

    def _compare(self, changed: Iterable[tuple[Namespace, bytes]], ends: Window) -> int:
        """`ends`: of the log; the next comparison begins there."""
        session, logged, began = self.session, self.logged.pipeline, time.monotonic()
        if session is not self.logged:
            changed = ((logged.renamed(name), key) for name, key in changed)
        with asking(session) as passed:
            verification = RecentVerification(session, changed, (), Options(), passed=passed)
            compared = require_same(session, verification, "the newest records")
        self.start, self.duration_s = {place: end for place, (_, end) in ends.items()}, time.monotonic() - began
        return compared


def require_same(session: Session, verification: RecentVerification | Verification, of: str) -> int:
    """Run it, and return the number of documents compared. Raises `DocumentsDiffer`; `TowpathError` without a verdict.

    Differences are stored as the last verdict, which `repair` reads. They go to the file as they are found: a document
    may have 16 MB, and many may differ.
    """
    differences, verdict = iter(verification), verification.verdict
    if first := next(differences, None):
        destination = session.pipeline.renamed
        place = verdict_file.path(session.pipeline.name)
        example = f"{first.namespace} {verdict_file.shown_id(first.id)}"
        with state_files.writing(place, verdict_file.locked(place)) as file:
            while first:
                file.write(verdict_file.difference(first, destination(first.namespace)).line)
                first = next(differences, None)
            end = as_fields(VerificationResult(verdict)) | {"of": of, "ddl": [], "only": []} | current_fields(session)
            file.write(as_line(end))
        raise DocumentsDiffer(
            f"{verdict.differences:,} documents differ, such as {example}", f"run towpath repair {session.file}"
        )
    if verdict.errors:
        raise TowpathError(f"there is no verdict: {'; '.join(verdict.errors)}; run towpath verify {session.file}")
    return verdict.compared
