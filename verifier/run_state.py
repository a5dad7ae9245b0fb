"""The ranges of a run that are being worked on: what workers say of them, and what became of their documents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from verifier.differences import Difference, Pair
from verifier.journal import Done, Journal
from verifier.order import Key, id_key
from verifier.plan import Plan
from verifier.proof import Outcome, Same, Unsettled
from verifier.settlement import Settling
from verifier.tally import Tally
from verifier.workers import Advanced, Finished, Message, Range, Said, Suspected

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
