"""A verification of the documents that changed, such as those of the newest records of the log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from towpath.session import Session
from towpath_verifier import (
    Difference,
    Namespace,
    Options,
    Pair,
    Passed,
    Same,
    Settling,
    Tally,
    Unsettled,
    Verdict,
    chunks,
)

_MAX_WAITING = 50_000  # documents that wait for another comparison


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
            yield from self._run(self._options.settling(*clients, self._passed, self._session.say))
        finally:
            self.verdict.seconds = time.monotonic() - start

    def _run(self, settling: Settling) -> Iterator[Difference]:
        for namespace, group in groupby(self._changed, itemgetter(0)):
            if not self._selection.matches(namespace):
                continue
            tally = self._tally(namespace)
            for chunk in chunks(key for _, key in group):
                different = settling.differing_with_retries(tally.pair, chunk)
                tally.documents += len(chunk)
                if different:
                    settling.add(tally.pair, different)
                yield from self._settled(settling, down_to=_MAX_WAITING)
        yield from self._settled(settling, down_to=0)

    def _settled(self, settling: Settling, down_to: int) -> Iterator[Difference]:
        while len(settling) > down_to:
            time.sleep(settling.pause() or 0)
            for _, outcome in settling.step():
                tally = self._tally(outcome.namespace)
                if isinstance(outcome, Unsettled):
                    tally.unsettled += 1
                    tally.notes.append(f"{outcome.id.hex()} could not be judged: {outcome.why}")
                elif not isinstance(outcome, Same):
                    tally.kinds[outcome.kind] += 1
                    yield outcome

    def _tally(self, namespace: Namespace) -> Tally:
        if namespace not in self._tallies:
            tally = Tally(Pair(namespace, self._session.pipeline.renamed(namespace)), self._options.way)
            self._tallies[namespace] = tally
            self.verdict.tallies.append(tally)
        return self._tallies[namespace]
