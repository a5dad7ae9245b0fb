"""Many namespaces compared by many processes: plan, read, re-read until settled, tally."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from towpath_verifier.differences import Difference, Pair
from towpath_verifier.hashes import Watch, same_by_hash, watch
from towpath_verifier.journal import FinishedRange, Journal
from towpath_verifier.plan import ListedPair, Plan, about, list_pairs, plan
from towpath_verifier.proof import Outcome, Same, Unsettled
from towpath_verifier.ranges import RANGE_BYTES, size
from towpath_verifier.raw import Key, id_key
from towpath_verifier.reads import Client, collection, with_retries
from towpath_verifier.settlement import Passed, Recheck, Settling
from towpath_verifier.tally import Progress, Tally, Verdict, Way
from towpath_verifier.workers import Advanced, Finished, Job, Message, Notice, Range, Suspected, running

_HELD, _HELD_BYTES = 100_000, 64 << 20  # ids that wait for a re-read; beyond that the workers wait
_TICK = 0.25  # seconds between two reports of progress


@dataclass(frozen=True, slots=True)
class Options:
    """How to compare. Raises `ValueError` for values out of range."""

    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Worker processes, 1 or more; no more than there are ranges are started."""
    recheck: Recheck = field(default_factory=Recheck)
    """Pauses between the reads of a document that differed; not used with `quiet`."""
    ignore_field_order: bool = False
    """Documents that differ in nothing but the order of fields are equal."""
    screen: bool = False
    """Compare digests that the servers compute (`$toHashedIndexKey`); they see only the integral part of a number."""
    quiet: bool = False
    """Nobody writes: compare whole collections by `dbHash`, and read only those that differ."""
    lost_for: float = 60.0
    """Seconds for which a server may be unreachable before the run ends with `ServerLost`."""
    range_bytes: int = RANGE_BYTES
    """About how many bytes of documents one range has, by the server's count; 1 or more."""
    journal: Path | None = None
    """A file that lets an interrupted run go on; removed when all namespaces have a verdict. Not used with `quiet`."""
    resume: bool = False
    """Go on where the run in `journal` ended; it must be a run over the same collections, compared in the same way."""
    origin: Any = None
    """What else both runs must agree in, as a JSON value: for example, what the destination was restored from."""

    @property
    def way(self) -> Way:
        """How documents are compared, unless their hashes are equal."""
        return "screened" if self.screen else "unordered" if self.ignore_field_order else "compared"

    def settling(
        self, source: Client, destination: Client, passed: Passed | None, say: Callable[[str], None]
    ) -> Settling:
        """Re-reads with these options. `passed` as in `Passed`; `say` receives messages for people."""
        return Settling(source, destination, self.recheck, passed, self.ignore_field_order, self.lost_for, say)

    def __post_init__(self) -> None:
        if self.processes < 1 or self.range_bytes < 1 or not self.lost_for >= 0:  # which NaN is not either
            raise ValueError(f"{self} is not valid: processes and range_bytes are 1 or more, lost_for is 0 or more")


class Verification:
    """One run: iterate over it once for the differences as they are proven, then read `verdict`.

    It starts processes, which import the main module again: a script calls it under `if __name__ == "__main__"`. Name
    each pair once. With `passed` (see `Passed`) a proof holds for any replication lag; without it a difference counts
    after all tries of `Options.recheck`. `tell` receives the progress about four times a second, `say` messages for
    people, for example that a server is unreachable.

    The iteration raises `ServerLost` when a server is unreachable for too long, `Unsuitable` when `quiet` does not
    work, `WorkerDied` when a worker process ends unexpectedly, and `VerifierError` when a server refuses a command or
    the journal cannot be used. Finished ranges are in the journal then, if there is one.
    """

    def __init__(
        self,
        source_uri: str,
        destination_uri: str,
        pairs: Sequence[Pair],
        options: Options | None = None,
        *,
        passed: Passed | None = None,
        tell: Callable[[Progress], None] = lambda progress: None,
        say: Callable[[str], None] = lambda words: None,
    ) -> None:
        options = options or Options()
        self.verdict = Verdict([Tally(pair, options.way) for pair in pairs])
        self._options, self._tell, self._say = options, tell, say
        self._job = Job(source_uri, destination_uri, options.ignore_field_order, options.screen, options.lost_for)
        self._passed = passed
        self._tallies = {tally.pair: tally for tally in self.verdict.tallies}
        self._reported_at = 0.0

    def __iter__(self) -> Iterator[Difference]:
        began = time.monotonic()
        source, destination = self._job.clients()
        try:
            with source, destination:
                yield from self._run(source, destination)
        finally:
            self.verdict.seconds = time.monotonic() - began

    def _run(self, source: Client, destination: Client) -> Iterator[Difference]:
        pairs = list(self._tallies)
        listed = [pair for pair in list_pairs(source, destination, pairs, self._options.lost_for) if self._suits(pair)]
        watches = self._watch(source, destination, listed) if self._options.quiet else []
        if watches:
            listed = self._hashed(source, destination, listed)
        options = replace(self._options, recheck=Recheck(first=0, tries=1)) if watches else self._options
        settling = options.settling(source, destination, None if watches else self._passed, self._say)
        yield from self._compared(source, destination, listed, settling)
        for watched in watches:
            watched.refuse_writes()
        later = list_pairs(source, destination, [before.pair for before in listed], self._options.lost_for)
        for before, after in zip(listed, later, strict=True):
            self._tallies[before.pair].trouble += before.gone(after)
        if self._journal and not self.verdict.trouble:
            self._journal.end()

    @property
    def _journal(self) -> Journal | None:
        return Journal(self._options.journal) if self._options.journal and not self._options.quiet else None

    def _suits(self, listed: ListedPair) -> bool:
        tally = self._tallies[listed.pair]
        tally.notes += listed.notes
        if listed.obstacle:
            tally.trouble.append(listed.obstacle)
        return not listed.obstacle

    def _watch(self, source: Client, destination: Client, listed: Sequence[ListedPair]) -> list[Watch]:
        return [
            watch(source, [each.pair.source for each in listed], "source", self._options.lost_for),
            watch(destination, [each.pair.destination for each in listed], "destination", self._options.lost_for),
        ]

    def _hashed(self, source: Client, destination: Client, listed: Sequence[ListedPair]) -> list[ListedPair]:
        """Those whose hashes differ; the tallies of the others are complete."""
        same = same_by_hash(source, destination, [each.pair for each in listed])
        for pair in (each.pair for each in listed if same[each.pair]):
            action, count = f"count the documents of {pair.source}", partial(size, collection(source, pair.source))
            counts, tally = with_retries(action, self._options.lost_for, count), self._tallies[pair]
            tally.way = "hashed"
            tally.expected, tally.documents, tally.size = counts.documents, counts.documents, counts.bytes
        return [each for each in listed if not same[each.pair]]

    def _compared(
        self, source: Client, destination: Client, listed: Sequence[ListedPair], settling: Settling
    ) -> Iterator[Difference]:
        options = self._options
        repeatable = [each.pair for each in listed if not each.ordered_alike]
        ranges = RangeStates(self._tallies, settling, self._journal, self._say, repeatable)
        with running() as workers:  # first: they get ready while the ranges are planned
            planned = plan(
                source,
                destination,
                listed,
                range_bytes=options.range_bytes,
                lost_for=options.lost_for,
                journal=self._journal,
                resume=options.resume,
                run=about(
                    listed,
                    ignore_field_order=options.ignore_field_order,
                    screen=options.screen,
                    origin=options.origin,
                ),
            )
            self.verdict.since = planned.since
            if options.resume and not planned.finished:
                self._say("no interrupted run has finished a range: all ranges are read")
            ranges.begin(planned)
            unread = len(planned.ranges)
            workers.compare(self._job, planned.ranges, min(options.processes, unread))
            while unread or len(settling):
                pause = settling.pause()
                if unread and len(settling) < _HELD and settling.size < _HELD_BYTES:
                    message = workers.message(min(_TICK, _TICK if pause is None else pause))
                    unread -= isinstance(message, Finished)
                    ranges.take(message)
                else:
                    time.sleep(min(_TICK, pause or 0))
                yield from ranges.settled()
                self._progress(ranges)
        self._progress(ranges, last=True)

    def _progress(self, ranges: RangeStates, *, last: bool = False) -> None:
        if not last and time.monotonic() - self._reported_at < _TICK:
            return
        self._reported_at, verdict = time.monotonic(), self.verdict
        expected, size = (sum(getattr(tally, name) for tally in verdict.tallies) for name in ("expected", "size"))
        counts = verdict.compared, expected, size, verdict.read, ranges.ranges, ranges.done, len(ranges.settling)
        self._tell(Progress(*counts, seconds=self._reported_at - verdict.began))


_NAMED = 5  # so many documents of a namespace that could not be judged are reported one by one


@dataclass(slots=True)
class _State:
    """A range; it is done when it is read to its end and none of its documents waits for a re-read."""

    range: Range
    documents: int = 0
    size: int = 0
    read: int = 0
    waiting: int = 0
    finished: bool = False
    differing: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class RangeStates:
    """All ranges of a run. Workers may name a document of `repeatable` pairs twice: a collation orders their `_id`s."""

    tallies: Mapping[Pair, Tally]
    settling: Settling
    journal: Journal | None
    say: Callable[[str], None]
    repeatable: Collection[Pair] = ()
    ranges: int = 0
    done: int = 0
    _states: dict[int, _State] = field(default_factory=dict)
    _known: set[tuple[Pair, Key]] = field(default_factory=set)

    def begin(self, plan: Plan) -> None:
        """Take up a plan; documents that differed in ranges that an earlier run has read are re-read."""
        for pair, documents in plan.expected.items():
            self.tallies[pair].expected = documents
        for work, finished in plan.finished:
            self._count(work.pair, finished.documents, finished.size, finished.read)
            if finished.differing:
                again = replace(work, number=-1 - work.number)  # no range's number: the journal does not get it twice
                self._states[again.number] = _State(again, waiting=len(finished.differing))
                self.settling.add(work.pair, finished.differing, again.number)
        self.ranges, self.done = len(plan.ranges) + len(plan.finished), len(plan.finished)
        self._states |= {work.number: _State(work) for work in plan.ranges}

    def take(self, message: Message | None) -> None:
        """Take in a worker's message."""
        match message:
            case Advanced():
                state = self._states[message.number]
                state.documents, state.size = state.documents + message.documents, state.size + message.size
                state.read += message.read
                self._count(state.range.pair, message.documents, message.size, message.read)
            case Suspected():
                state = self._states[message.number]
                state.waiting += len(message.ids)
                self.settling.add(state.range.pair, message.ids, message.number)
            case Finished():
                self._states[message.number].finished = True
                self.done += 1
                self._finish(message.number)
            case Notice():
                self.say(message.text)

    def settled(self) -> Iterator[Difference]:
        """Re-read documents that are due, and yield the differences that are proven."""
        for number, outcome in self.settling.step():
            state = self._states[number]
            state.waiting -= 1
            if not isinstance(outcome, Same) and self._is_new(state.range.pair, outcome):
                state.differing.append(outcome.id)
                yield from self._count_outcome(self.tallies[state.range.pair], outcome)
            self._finish(number)

    def _count_outcome(self, tally: Tally, outcome: Difference | Unsettled) -> Iterator[Difference]:
        if not isinstance(outcome, Unsettled):
            tally.kinds[outcome.kind] += 1
            yield outcome
            return
        tally.unsettled += 1
        if tally.unsettled <= _NAMED:
            self.say(f"a document of {outcome.namespace} could not be judged: {outcome.why}")

    def _is_new(self, pair: Pair, outcome: Outcome) -> bool:
        if pair not in self.repeatable:
            return True
        document = (pair, id_key(outcome.id))
        if document in self._known:
            self.tallies[pair].documents -= 1
            return False
        self._known.add(document)
        return True

    def _count(self, pair: Pair, documents: int, size: int, read: int) -> None:
        tally = self.tallies[pair]
        tally.documents, tally.size, tally.read = tally.documents + documents, tally.size + size, tally.read + read

    def _finish(self, number: int) -> None:
        state = self._states[number]
        if state.finished and not state.waiting:
            del self._states[number]
            if self.journal:
                counts = state.documents, state.size, state.read
                self.journal.add(FinishedRange(number, *counts, tuple(state.differing)))
