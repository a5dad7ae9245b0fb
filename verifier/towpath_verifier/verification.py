"""Many namespaces compared by many processes: plan, read, re-read until proven, tally."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pymongo.errors import PyMongoError

from towpath_verifier import proof
from towpath_verifier.differences import Difference, Namespace, Pair
from towpath_verifier.plan import ListedPair, Options, Plan, list_pairs, plan
from towpath_verifier.progress import Compared, Journal, Progress, Range, Tally, Verdict
from towpath_verifier.proof import Outcome, Same, Unresolved
from towpath_verifier.raw import Key, id_key
from towpath_verifier.reads import (
    Client,
    Unsuitable,
    by_database,
    cluster_time,
    collection,
    size,
    verifier_error,
    with_retries,
)
from towpath_verifier.rereads import Passed, Recheck, Rereads
from towpath_verifier.workers import Job, Message, running

_HELD, _HELD_BYTES = 100_000, 64 << 20  # ids that wait for a re-read; beyond that the workers wait
_QUIET = "the option quiet requires that nothing writes"
_TICK = 0.25  # seconds between two reports of progress


def same_by_hash(source: Client, destination: Client, pairs: Sequence[Pair]) -> Mapping[Pair, bool]:
    """Which pairs hold the same documents, byte for byte; of one with a mask or a filter, that would prove nothing."""
    pairs = [pair for pair in pairs if pair.is_whole]
    try:
        ours = _hashes(source, [pair.source for pair in pairs])
        theirs = _hashes(destination, [pair.destination for pair in pairs])
    except PyMongoError as error:
        raise verifier_error("hash collections with dbHash", error) from error
    return {pair: ours.get(pair.source) == theirs.get(pair.destination) for pair in pairs}


def _hashes(client: Client, namespaces: Iterable[Namespace]) -> dict[Namespace, str]:
    """`dbHash` of each of these collections that exists: a hash of the bytes of all documents in `_id` order."""
    return {
        f"{database}.{name}": digest
        for database, names in by_database(namespaces).items()
        for name, digest in client[database].command("dbHash", collections=names)["collections"].items()
    }


def watch(client: Client, namespaces: Sequence[Namespace], side: str, lost_for: float) -> Callable[[], None]:
    """Watch these namespaces from now on; what is returned raises `Unsuitable` when something has been written since.

    So it does when the server cannot show it. Raises `Unsuitable` for a standalone, which has no change streams to show
    writes, and `ServerLost` for a server that is unreachable for `lost_for` seconds.
    """
    since = with_retries(f"read the {side}'s cluster time", lost_for, lambda: cluster_time(client))
    if since is None:
        raise Unsuitable(f"the {side} is a standalone mongod, on which writes cannot be seen; {_QUIET}", where=side)

    def refuse_writes() -> None:
        try:
            written = proof.written(client, namespaces, since, cluster_time(client) or since)
        except PyMongoError as error:
            raise verifier_error(f"look for writes to the {side}", error, side) from error
        except proof.Unknown as error:
            raise Unsuitable(f"cannot see whether anything is written to the {side}: {error}", where=side) from error
        if written:
            raise Unsuitable(
                f"{', '.join(sorted(written))} was written to at the {side} during the run, and {_QUIET}",
                "stop the writers and wait until the destination has caught up, or compare without it",
                where=side,
            )

    return refuse_writes


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
        self.verdict = Verdict([Tally(pair, options.way_of(pair)) for pair in pairs])
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
        options, lost_for = self._options, self._options.lost_for
        listed = [pair for pair in list_pairs(source, destination, list(self._tallies), lost_for) if self._suits(pair)]
        passed, refusals = self._passed, list[Callable[[], None]]()
        if options.quiet:
            ours, theirs = ([each.pair.source for each in listed], [each.pair.destination for each in listed])
            refusals.append(watch(source, ours, "source", lost_for))
            refusals.append(watch(destination, theirs, "destination", lost_for))
            listed = self._hashed(source, destination, listed)
            passed, options = None, replace(options, recheck=Recheck(first=0, tries=1))
        yield from self._compared(source, destination, listed, options.rereads(source, destination, passed, self._say))
        for refuse_writes in refusals:
            refuse_writes()
        later = list_pairs(source, destination, [before.pair for before in listed], lost_for)
        for before, after in zip(listed, later, strict=True):
            self._tallies[before.pair].errors += before.gone(after)
        if (journal := self._options.kept_journal) and not self.verdict.errors:
            journal.end()

    def _suits(self, listed: ListedPair) -> bool:
        tally = self._tallies[listed.pair]
        tally.notes += listed.notes
        if listed.obstacle:
            tally.errors.append(listed.obstacle)
        return not listed.obstacle

    def _hashed(self, source: Client, destination: Client, listed: Sequence[ListedPair]) -> list[ListedPair]:
        """Those whose hashes differ; the tallies of the others are complete."""
        same = same_by_hash(source, destination, [each.pair for each in listed])
        for pair in (each.pair for each in listed if same.get(each.pair)):
            action, count = f"count the documents of {pair.source}", partial(size, collection(source, pair.source))
            counts, tally = with_retries(action, self._options.lost_for, count), self._tallies[pair]
            tally.way = "hashed"
            tally.expected = tally.documents = counts.documents
        return [each for each in listed if not same.get(each.pair)]

    def _compared(
        self, source: Client, destination: Client, listed: Sequence[ListedPair], rereads: Rereads
    ) -> Iterator[Difference]:
        options = self._options
        repeatable = [each.pair for each in listed if not each.ordered_alike]
        ranges = RangeStates(self._tallies, rereads, options.kept_journal, self._say, repeatable)
        with running() as workers:  # first: they get ready while the ranges are planned
            planned = plan(source, destination, listed, options)
            self.verdict.since = planned.since
            if options.resume and not planned.finished:
                self._say("no interrupted run has finished a range: all ranges are read")
            ranges.begin(planned)
            unread = len(planned.ranges)
            workers.compare(self._job, planned.ranges, min(options.processes, unread))
            while unread or len(rereads):
                pause = rereads.pause()
                if unread and len(rereads) < _HELD and rereads.size < _HELD_BYTES:
                    message = workers.message(min(_TICK, _TICK if pause is None else pause))
                    unread -= isinstance(message, tuple) and message[1] is None
                    ranges.take(message)
                else:
                    time.sleep(min(_TICK, pause or 0))
                yield from ranges.resolved()
                self._progress(ranges)
        self._progress(ranges, last=True)

    def _progress(self, ranges: RangeStates, *, last: bool = False) -> None:
        if not last and time.monotonic() - self._reported_at < _TICK:
            return
        self._reported_at, verdict = time.monotonic(), self.verdict
        expected = sum(tally.expected for tally in verdict.tallies)
        counts = verdict.compared, expected, ranges.ranges, ranges.done, len(ranges.rereads)
        self._tell(Progress(*counts, seconds=self._reported_at - verdict.began))


_NAMED = 5  # so many documents of a namespace that could not be judged are reported one by one


@dataclass(slots=True)
class _State:
    """A range; it is done when it is read to its end and none of its documents waits for a re-read."""

    range: Range
    compared: Compared = field(default_factory=Compared)
    waiting: int = 0
    finished: bool = False


@dataclass(slots=True)
class RangeStates:
    """All ranges of a run. Workers may name a document of `repeatable` pairs twice: a collation orders their `_id`s."""

    tallies: Mapping[Pair, Tally]
    rereads: Rereads
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
            self._count(self.tallies[work.pair], finished)
            if finished.differing:
                again = replace(work, number=-1 - work.number)  # no range's number: the journal does not get it twice
                self._states[again.number] = _State(again, waiting=len(finished.differing))
                self.rereads.add(work.pair, finished.differing, again.number)
        self.ranges, self.done = len(plan.ranges) + len(plan.finished), len(plan.finished)
        self._states |= {work.number: _State(work) for work in plan.ranges}

    def take(self, message: Message | None) -> None:
        """Take in a worker's message."""
        if isinstance(message, str):
            self.say(message)
        elif isinstance(message, tuple):
            number, part = message
            state = self._states[number]
            if part is None:
                state.finished = True
                self.done += 1
                self._finish(number)
                return
            self._count(state.compared, part)
            self._count(tally := self.tallies[state.range.pair], part)
            if part.away:
                state.compared.away = True
                pair = state.range.pair
                why = f"{pair.source} or {pair.destination} was renamed or dropped while it was read"
                tally.errors += [why] if why not in tally.errors else []
            if part.differing:
                state.waiting += len(part.differing)
                self.rereads.add(state.range.pair, part.differing, number)

    def resolved(self) -> Iterator[Difference]:
        """Re-read documents that are due, and yield the differences that are proven."""
        for number, outcome in self.rereads.step():
            state = self._states[number]
            state.waiting -= 1
            if not isinstance(outcome, Same) and self._is_new(state.range.pair, outcome):
                state.compared.differing.append(outcome.id)
                yield from self._count_outcome(self.tallies[state.range.pair], outcome)
            self._finish(number)

    def _count_outcome(self, tally: Tally, outcome: Difference | Unresolved) -> Iterator[Difference]:
        if not isinstance(outcome, Unresolved):
            tally.kinds[outcome.kind] += 1
            yield outcome
            return
        tally.unresolved += 1
        if tally.unresolved <= _NAMED:
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

    @staticmethod
    def _count(sums: Compared | Tally, more: Compared) -> None:
        sums.documents += more.documents
        sums.read += more.read

    def _finish(self, number: int) -> None:
        state = self._states[number]
        if state.finished and not state.waiting:
            del self._states[number]
            if self.journal and not state.compared.away:
                self.journal.add(number, state.compared)
