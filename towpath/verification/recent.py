"""Verifies just the documents that the newest records of the log are about, and reads no others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from towpath.mongo.client import connected
from towpath.namespaces import Selection
from towpath.session import Session
from verifier import Difference, Namespace, Options, Pair, Passed, Tally, Verdict
from verifier.proof import Same, Unsettled
from verifier.reads import Client, chunks
from verifier.server_loss import patiently
from verifier.settlement import Settling

_HELD = 50_000  # documents that wait to be looked at again, at most


class RecentVerification:
    """One run: iterate over it for the differences as they settle, then see `verdict`, as of a `Verification`."""

    def __init__(
        self,
        it: Session,
        touched: Iterable[tuple[Namespace, bytes]],
        only: Sequence[str],
        options: Options,
        *,
        passed: Passed | None = None,
    ) -> None:
        """`touched` are the source's namespaces and `{_id: …}` in BSON (see `towpath.log.recent_documents`), those of a
        namespace together; `only` holds patterns of namespaces; empty takes all in."""
        self.verdict = Verdict([])
        self._it, self._touched = it, touched
        self._selection = Selection(it.pipeline.include, it.pipeline.exclude, tuple(only))
        self._options, self._passed = options, passed
        self._tallies: dict[Namespace, Tally] = {}

    def __iter__(self) -> Iterator[Difference]:
        began = time.monotonic()
        pipeline = self._it.pipeline
        try:
            with (
                connected(pipeline.source_uri, "source") as source,
                connected(pipeline.destination_uri, "destination") as destination,
            ):
                yield from self._run(self._settling(source, destination))
        finally:
            self.verdict.seconds = time.monotonic() - began

    def _settling(self, source: Client, destination: Client) -> Settling:
        how = self._options
        return Settling(
            source, destination, how.recheck, self._passed, how.ignore_field_order, how.lost_for, say=self._it.say
        )

    def _run(self, settling: Settling) -> Iterator[Difference]:
        for namespace, group in groupby(self._touched, lambda one: one[0]):
            if not self._selection.matches(namespace):
                continue
            tally = self._tally(namespace)
            for chunk in chunks(key for _, key in group):

                def differing(pair: Pair = tally.pair, chunk: list[bytes] = chunk) -> list[bytes]:
                    return settling.differing(pair, chunk)

                unlike = patiently(f"read documents of {namespace}", settling.lost_for, differing, self._it.say)
                tally.documents += len(chunk)
                if unlike:
                    settling.add(tally.pair, unlike)
                yield from self._settled(settling, down_to=_HELD)
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
            tally = Tally(Pair(namespace, self._it.pipeline.renames.destination(namespace)))
            self._tallies[namespace] = tally
            self.verdict.tallies.append(tally)
        return self._tallies[namespace]
