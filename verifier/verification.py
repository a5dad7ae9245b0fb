"""Many namespaces compared by many processes: planned, read, looked at again until settled, tallied."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from verifier.differences import Difference, Pair
from verifier.hashes import Watch, same_by_hash, watch
from verifier.journal import Done, Journal
from verifier.order import Key, id_key
from verifier.pairs import Looked, look
from verifier.plan import Plan, about, plan
from verifier.proof import Outcome, Same, Unsettled
from verifier.ranges import RANGE_BYTES, size
from verifier.reads import Client, collection
from verifier.settlement import Passed, Recheck, Settling
from verifier.tally import Progress, Tally, Verdict
from verifier.workers import Advanced, Finished, Job, Message, Range, Said, Suspected, running

_HELD, _HELD_BYTES = 100_000, 64 << 20  # documents that wait to be looked at again; beyond it the workers wait
_TICK = 0.25  # seconds between two words of progress


@dataclass(frozen=True, slots=True)
class Options:
    """How to compare. `lost_for`: seconds that a server may be lost."""

    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    recheck: Recheck = field(default_factory=Recheck)
    ignore_field_order: bool = False
    screen: bool = False
    quiet: bool = False
    lost_for: float = 60.0
    range_bytes: int = RANGE_BYTES
    journal: Path | None = None
    resume: bool = False


class Verification:
    """One run: iterate over it for the differences as they settle, then see `verdict`.

    `passed` tells whether the pipeline between the two sides has passed a moment of the source's; without it a
    difference counts after all tries. Starts processes: a script calls it under `if __name__ == "__main__"`.
    Raises `VerifierError`; what was done until then is in the journal, if there is one.
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
        chosen = options or Options()
        self.verdict = Verdict([Tally(pair, "screened" if chosen.screen else "compared") for pair in pairs])
        self._options, self._tell, self._say = chosen, tell, say
        self._job = Job(source_uri, destination_uri, chosen.ignore_field_order, chosen.screen, chosen.lost_for)
        self._passed = passed
        self._tallies = {tally.pair: tally for tally in self.verdict.tallies}
        self._told = 0.0

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
        looked = [one for one in look(source, destination, pairs, self._options.lost_for) if self._suits(one)]
        watches = self._watch(source, destination, looked) if self._options.quiet else []
        if watches:
            looked = self._hashed(source, destination, looked)
        recheck = Recheck(first=0, tries=1) if watches else self._options.recheck
        settling = Settling(
            source,
            destination,
            recheck,
            None if watches else self._passed,
            self._options.ignore_field_order,
            self._options.lost_for,
            say=self._say,
        )
        yield from self._compared(source, destination, looked, settling)
        for one in watches:
            one.refuse_writes()
        later = look(source, destination, [one.pair for one in looked], self._options.lost_for)
        for before, after in zip(looked, later, strict=True):
            self._tallies[before.pair].trouble += before.gone(after)
        if self._journal and not self.verdict.trouble:
            self._journal.end()

    @property
    def _journal(self) -> Journal | None:
        return Journal(self._options.journal) if self._options.journal and not self._options.quiet else None

    def _suits(self, looked: Looked) -> bool:
        tally = self._tallies[looked.pair]
        tally.notes += looked.notes
        if looked.cannot:
            tally.trouble.append(looked.cannot)
        return not looked.cannot

    def _watch(self, source: Client, destination: Client, looked: Sequence[Looked]) -> list[Watch]:
        return [
            watch(source, [one.pair.source for one in looked], "source"),
            watch(destination, [one.pair.destination for one in looked], "destination"),
        ]

    def _hashed(self, source: Client, destination: Client, looked: Sequence[Looked]) -> list[Looked]:
        """Those of which the hashes differ; the others are told to be the same."""
        same = same_by_hash(source, destination, [one.pair for one in looked])
        for one in looked:
            if same[one.pair]:
                found, tally = size(collection(source, one.pair.source)), self._tallies[one.pair]
                tally.way = "hashed"
                tally.expected, tally.documents, tally.size = found.documents, found.documents, found.bytes
        return [one for one in looked if not same[one.pair]]

    def _compared(
        self, source: Client, destination: Client, looked: Sequence[Looked], settling: Settling
    ) -> Iterator[Difference]:
        chosen = self._options
        twice = [one.pair for one in looked if not one.ordered_alike]
        underway = Underway(self._tallies, settling, self._journal, self._say, twice)
        planned = plan(
            source,
            destination,
            looked,
            range_bytes=chosen.range_bytes,
            lost_for=chosen.lost_for,
            journal=self._journal,
            resume=chosen.resume,
            run=about(looked, ignore_field_order=chosen.ignore_field_order, screen=chosen.screen),
        )
        if chosen.resume and not planned.done:
            self._say("no range was done by an interrupted run: all are read")
        underway.begin(planned)
        unread = len(planned.ranges)
        with running(self._job, planned.ranges, min(chosen.processes, unread)) as workers:
            while unread or len(settling):
                pause = settling.pause()
                if unread and len(settling) < _HELD and settling.size < _HELD_BYTES:
                    message = workers.message(min(_TICK, _TICK if pause is None else pause))
                    unread -= isinstance(message, Finished)
                    underway.take(message)
                else:
                    time.sleep(min(_TICK, pause or 0))
                yield from underway.settled()
                self._progress(underway)
        self._progress(underway, last=True)

    def _progress(self, underway: Underway, *, last: bool = False) -> None:
        if not last and time.monotonic() - self._told < _TICK:
            return
        self._told = time.monotonic()
        tallies = self.verdict.tallies
        self._tell(
            Progress(
                self.verdict.compared,
                sum(tally.expected for tally in tallies),
                sum(tally.size for tally in tallies),
                self.verdict.read,
                underway.ranges,
                underway.done,
                len(underway.settling),
                self._told - self.verdict.began,
            )
        )


_TOLD = 5  # documents that could not be judged, and are told one by one


@dataclass(slots=True)
class _State:
    """A range; it is done when it was read to its end and none of its documents waits any more."""

    range: Range
    documents: int = 0
    size: int = 0
    read: int = 0
    waiting: int = 0
    finished: bool = False
    differing: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Underway:
    """`twice`: pairs of which a document may be named twice, as a collation orders their `_id`s."""

    tallies: Mapping[Pair, Tally]
    settling: Settling
    journal: Journal | None
    say: Callable[[str], None]
    twice: Collection[Pair] = ()
    ranges: int = 0
    done: int = 0
    _states: dict[int, _State] = field(default_factory=dict)
    _known: set[tuple[Pair, Key]] = field(default_factory=set)

    def begin(self, plan: Plan) -> None:
        """Take up a plan; what differed in ranges that an earlier run has read is looked at again."""
        for pair, documents in plan.expected.items():
            self.tallies[pair].expected = documents
        for work, done in plan.done:
            self._count(work.pair, done.documents, done.size, done.read)
            if done.differing:
                again = replace(work, number=-1 - work.number)  # no range's number: it is not noted as done twice
                self._states[again.number] = _State(again, waiting=len(done.differing))
                self.settling.add(work.pair, done.differing, again.number)
        self.ranges, self.done = len(plan.ranges) + len(plan.done), len(plan.done)
        self._states |= {work.number: _State(work) for work in plan.ranges}

    def take(self, message: Message | None) -> None:
        """Take in what a worker says."""
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
            case Said():
                self.say(message.words)

    def settled(self) -> Iterator[Difference]:
        """Look at documents that are due, and yield those that are proven to differ."""
        for number, outcome in self.settling.step():
            state = self._states[number]
            state.waiting -= 1
            if not isinstance(outcome, Same) and self._is_new(state.range.pair, outcome):
                state.differing.append(outcome.id)
                yield from self._tell(self.tallies[state.range.pair], outcome)
            self._finish(number)

    def _tell(self, tally: Tally, outcome: Difference | Unsettled) -> Iterable[Difference]:
        if not isinstance(outcome, Unsettled):
            tally.kinds[outcome.kind] += 1
            return (outcome,)
        tally.unsettled += 1
        if tally.unsettled <= _TOLD:
            self.say(f"a document of {outcome.namespace} could not be judged: {outcome.why}")
        return ()

    def _is_new(self, pair: Pair, outcome: Outcome) -> bool:
        if pair not in self.twice:
            return True
        known, one = self._known, (pair, id_key(outcome.id))
        if one in known:
            self.tallies[pair].documents -= 1
            return False
        known.add(one)
        return True

    def _count(self, pair: Pair, documents: int, size: int, read: int) -> None:
        tally = self.tallies[pair]
        tally.documents, tally.size, tally.read = tally.documents + documents, tally.size + size, tally.read + read

    def _finish(self, number: int) -> None:
        state = self._states[number]
        if state.finished and not state.waiting:
            del self._states[number]
            if self.journal:
                self.journal.done(Done(number, state.documents, state.size, state.read, tuple(state.differing)))
