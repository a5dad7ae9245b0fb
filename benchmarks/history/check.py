"""Whether log and destination had the source's appends, each once and in order: a pure function of what was collected.

A state of a list ends with the number that was appended last. So it is known which state of the source it claims to be,
and it has to be that one exactly: the states of a capped list are windows of the order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

#: A collection, and the `_id` of a document in it.
Place = tuple[str, int]
Elements = tuple[int, ...]
#: A cluster time: seconds and ordinal.
Time = tuple[int, int]
Kind = Literal[
    "lost", "twice", "reordered", "went back", "half a transaction", "of two times", "from nowhere", "another state"
]
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class State:
    """A document's list after a change, and the cluster time of the change at its place. No elements: no document."""

    place: Place
    elements: Elements
    time: Time


@dataclass(frozen=True, slots=True)
class Logged(State):
    """After a record of the log, whose time is that of its header."""

    partition: int
    offset: int
    is_event: bool
    """Made from a change of the source, and not from a read."""


@dataclass(frozen=True, slots=True)
class Violation:
    kind: Kind
    where: Literal["source", "log", "destination"]
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class History:
    """What was collected."""

    acknowledged: Collection[int]
    """The numbers whose appends the source acknowledged to a client."""
    source: Sequence[State]
    """In the order of the oplog."""
    log: Sequence[Logged] | None
    """Each partition in its order. None: not read."""
    destination: Sequence[State]
    """In the order of the change stream."""
    points: Sequence[Time] = ()
    """Cluster times of the destination at which it was to be the source as of one time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How much a history has shown."""

    appends: int
    transactions: int
    """Of the source, with appends to more than one list, or several to one."""
    records: int
    """Of the log."""
    states: int
    """Of lists at the destination."""
    points: int


def whole(history: History, *, at_least: int) -> Seen:
    """What the history has shown; fails if it has a violation, or fewer appends."""
    found = list(violations(history))
    listed = "\n".join(map(str, found[:_SHOWN]))
    assert not found, f"{len(found)} violations in the history of the lists; the first:\n{listed}"
    times = Counter(state.time for state in history.source)
    seen = Seen(
        appends=len({number for state in history.source for number in state.elements}),
        transactions=sum(count > 1 for count in times.values()),
        records=len(history.log or ()),
        states=sum(1 for _ in _visible(history.destination)),
        points=len(history.points),
    )
    assert seen.appends >= at_least, f"nothing is wrong with {seen.appends} appends, but there are not {at_least}"
    return seen


def violations(history: History) -> Iterator[Violation]:
    """All of them, place by place."""
    source = _Source.of(history.source)
    missing = set(history.acknowledged) - {number for ranks in source.ranks.values() for number in ranks}
    for number in sorted(missing):
        yield Violation("lost", "source", f"{number} was acknowledged, and no list ever had it")
    if history.log is not None:
        yield from _in_log(source, history.log)
    yield from _at_destination(source, history)


@dataclass(slots=True)
class _Source:
    """The states that the source had, of each document in their order."""

    states: dict[Place, list[State]] = field(default_factory=lambda: defaultdict(list))
    ranks: dict[Place, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """The turn of each number among the appends to its list."""
    ends: dict[Place, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """The last number of each state → the index of that state."""

    @classmethod
    def of(cls, states: Iterable[State]) -> _Source:
        """Raises `ValueError` for a change that appends nothing: no state would show it."""
        source = cls()
        for state in states:
            ranks = source.ranks[state.place]
            if not state.elements or state.elements[-1] in ranks:
                raise ValueError(f"a change of {state.place} at {state.time} appends nothing")
            source.ends[state.place][state.elements[-1]] = len(source.states[state.place])
            source.states[state.place].append(state)
            for number in state.elements:
                ranks.setdefault(number, len(ranks))
        return source

    def judge(self, state: State) -> int | tuple[Kind, str]:
        """Which of the source's states it is, or what is wrong with it."""
        name, elements, ranks = f"{state.place} at {state.time}", state.elements, self.ranks[state.place]
        if not elements:
            return "lost", f"{name} has no list"
        index = self.ends[state.place].get(elements[-1])
        if index is not None and self.states[state.place][index].elements == elements:
            return index
        if len(set(elements)) < len(elements):
            return "twice", f"{name} has {next(n for n in elements if elements.count(n) > 1)} more than once"
        if unknown := [number for number in elements if number not in ranks]:
            return "from nowhere", f"{name} has {unknown[0]}, which was not appended to it"
        if (known := sorted(elements, key=ranks.__getitem__)) != list(elements):
            late = next(n for n, in_turn in zip(elements, known, strict=True) if n != in_turn)
            return "reordered", f"{name} has {late} before what was appended earlier"
        if index is None:
            return "another state", f"{name} ends with {elements[-1]}, the middle of an append of several"
        expected = self.states[state.place][index].elements
        if missing := set(expected) - set(elements):
            return "lost", f"{name} lacks {min(missing, key=ranks.__getitem__)} before {elements[-1]}"
        return "another state", f"{name} has {len(elements)} numbers, the source had {len(expected)} then"


def _in_log(source: _Source, log: Sequence[Logged]) -> Iterator[Violation]:
    newest: dict[Place, int] = {}
    events: dict[tuple[str, int, Time], int] = {}
    for record in log:
        there = f"{record.place} at offset {record.offset} of partition {record.partition}"
        if record.is_event:
            # what one transaction of the source has changed is in one of Kafka's, whose end would take an offset
            turn = record.place[0], record.partition, record.time
            if events.get(turn, record.offset - 1) != record.offset - 1:
                yield Violation("half a transaction", "log", f"{there}: not beside the records of its time")
            events[turn] = record.offset
        match source.judge(record):
            case int(index):
                before = newest.get(record.place, -1)
                if index < before:
                    yield Violation("went back", "log", f"{there} is state {index} after state {before}")
                elif index == before and record.is_event:
                    yield Violation("twice", "log", f"{there} changes nothing")
                newest[record.place] = max(index, before)
            case kind, what:
                yield Violation(kind, "log", f"{what} ({there})")
    yield from _ends(source, newest, "log")


def _at_destination(source: _Source, history: History) -> Iterator[Violation]:
    newest: dict[Place, int] = {}
    points = sorted(history.points)
    for state in _visible(history.destination):
        while points and points[0] < state.time:
            yield from _at_point(source, newest, points.pop(0))
        match source.judge(state):
            case int(index):
                before = newest.get(state.place, -1)
                if index < before:
                    what = f"{state.place} at {state.time} is state {index} after state {before}"
                    yield Violation("went back", "destination", what)
                newest[state.place] = index
            case kind, what:
                yield Violation(kind, "destination", what)
    for point in points:
        yield from _at_point(source, newest, point)
    yield from _ends(source, newest, "destination")


def _visible(states: Iterable[State]) -> Iterable[State]:
    """What each moment has left of a document: no one sees what a transaction writes in between."""
    return {(state.place, state.time): state for state in states}.values()


def _at_point(source: _Source, newest: Mapping[Place, int], point: Time) -> Iterator[Violation]:
    """Whether there is one time of the source as of which all documents are."""
    shown = [(source.states[place][index].time, place) for place, index in newest.items()]
    if not shown:
        return
    latest, of = max(shown)
    for place, states in source.states.items():
        following = newest.get(place, -1) + 1
        if following < len(states) and states[following].time <= latest:
            kind: Kind = "half a transaction" if states[following].time == latest else "of two times"
            what = f"at {point} {of} is as of {latest}, and {place} lacks its change of {states[following].time}"
            yield Violation(kind, "destination", what)


def _ends(source: _Source, newest: Mapping[Place, int], where: Literal["log", "destination"]) -> Iterator[Violation]:
    for place, states in source.states.items():
        if (index := newest.get(place, -1)) < len(states) - 1:
            what = f"{place} ends as state {index}, the source's last one is {len(states) - 1}"
            yield Violation("lost", where, what)
