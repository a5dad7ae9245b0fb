"""The history check accepts what a pipeline may do, and finds each class of violation, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.history.check import History, Kind, Logged, Place, State, Time, violations, whole

KEPT = 4
#: One transaction of the source: which lists it appends to, one after another.
Appends = list[int]
PLACES: list[Place] = [("lists", 0), ("lists", 1), ("more", 0), ("capped", 0)]
SOURCES = st.lists(st.lists(st.sampled_from(range(len(PLACES))), min_size=1, max_size=4), min_size=1, max_size=25)


def at_source(transactions: list[Appends]) -> Iterator[State]:
    held: dict[Place, tuple[int, ...]] = dict.fromkeys(PLACES, ())
    number = 0
    for turn, appends in enumerate(transactions):
        for at in appends:
            place = PLACES[at]
            held[place] = (*held[place], number)[-KEPT if place[0] == "capped" else 0 :]
            number += 1
            yield State(place, held[place], (100, turn))


def replicated(source: list[State], rows: int, batches: list[int], points: set[int]) -> History:
    """What a pipeline makes of it: rows as of the first changes, then events; a sink that writes them in batches.

    After some batches all that was captured up to then is applied.
    """
    first = [state for state in source if state.time <= source[min(rows, len(source) - 1)].time]
    newest = {state.place: state for state in first}
    log = [Logged(it.place, it.elements, it.time, 0, at, False) for at, it in enumerate(newest.values())]
    ends: dict[str, tuple[int, Time]] = {}
    for state in source[len(first) :]:
        end, before = ends.get(state.place[0], (len(log), (0, 0)))
        offset = end + (before != state.time)  # a marker of Kafka takes the offset between two transactions
        log.append(Logged(state.place, state.elements, state.time, 0, offset, True))
        ends[state.place[0]] = offset + 1, state.time
    applied, at, reached = list[State](), 0, list[Time]()
    for turn, batch in enumerate([*batches, len(log)]):
        until = min(at + batch, len(log))
        if turn in points:  # all of a time, and all rows
            until = max(until, len(newest))
            while 0 < until < len(log) and log[until].time == log[until - 1].time:
                until += 1
            reached.append((200, turn))
        applied += [State(it.place, it.elements, (200, turn)) for it in log[at:until]]
        at = until
    return History({n for it in source for n in it.elements}, source, log, applied, reached)


@st.composite
def histories(draw: st.DrawFn) -> History:
    batches = draw(st.lists(st.integers(0, 8), max_size=8))
    points = draw(st.sets(st.integers(0, 8)))
    return replicated(list(at_source(draw(SOURCES))), draw(st.integers(0, 10)), batches, points)


def kinds(history: History) -> set[Kind]:
    return {it.kind for it in violations(history)}


@given(histories())
def test_what_a_pipeline_does_is_no_violation(history: History) -> None:
    assert list(violations(history)) == []
    seen = whole(history, at_least=1)
    assert seen.appends == len({n for it in history.source for n in it.elements})
    assert seen.points == len(history.points)


@given(histories(), st.data())
def test_a_change_that_is_missing_at_the_end_is_lost(history: History, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(history.destination)).place
    for where in ("destination", "log"):
        states: list[State] = list(getattr(history, where))
        last = max(at for at, it in enumerate(states) if it.place == place)
        gone = replace(history, points=(), **{where: states[:last] + states[last + 1 :]})
        assert "lost" in kinds(gone)


@given(histories(), st.data())
def test_a_number_that_is_missing_in_a_state_is_lost(history: History, data: st.DataObject) -> None:
    state = data.draw(st.sampled_from([*history.destination, *(history.log or ())]))
    assume(len(state.elements) > 1)
    out = data.draw(st.integers(0, len(state.elements) - 2))
    assert kinds(changed(history, state, state.elements[:out] + state.elements[out + 1 :])) == {"lost"}


@given(histories(), st.data())
def test_a_number_that_is_there_twice_is_found(history: History, data: st.DataObject) -> None:
    state = data.draw(st.sampled_from([*history.destination, *(history.log or ())]))
    twice = data.draw(st.sampled_from(state.elements))
    assert "twice" in kinds(changed(history, state, (*state.elements, twice)))


@given(histories(), st.data())
def test_numbers_in_another_order_are_found(history: History, data: st.DataObject) -> None:
    state = data.draw(st.sampled_from([*history.destination, *(history.log or ())]))
    assume(len(state.elements) > 1)
    at = data.draw(st.integers(0, len(state.elements) - 2))
    first, second = state.elements[at : at + 2]
    swapped = (*state.elements[:at], second, first, *state.elements[at + 2 :])
    assert "reordered" in kinds(changed(history, state, swapped))


@given(histories(), st.data())
def test_a_state_that_comes_again_later_went_back(history: History, data: st.DataObject) -> None:
    """Also as the last one: then it is what the destination ends with."""
    place = data.draw(st.sampled_from(PLACES))
    mine = [it for it in history.destination if it.place == place]
    assume(len(mine) > 1)
    again = State(place, data.draw(st.sampled_from(mine[:-1])).elements, (300, 0))
    assert "went back" in kinds(replace(history, destination=[*history.destination, again]))


@given(histories(), st.data())
def test_an_update_that_is_in_the_log_twice_is_found(history: History, data: st.DataObject) -> None:
    """Even though a second `$set` of the same element changes nothing."""
    assert history.log is not None
    updates = [at for at, it in enumerate(history.log) if it.is_event]
    assume(updates)
    at = data.draw(st.sampled_from(updates))
    again = replace(history.log[at], offset=1_000_000, time=(999, 9))
    assert "twice" in kinds(replace(history, log=[*history.log[: at + 1], again, *history.log[at + 1 :]]))


@given(SOURCES, st.data())
def test_a_transaction_of_which_a_part_is_there_is_found(transactions: list[Appends], data: st.DataObject) -> None:
    source = list(at_source(transactions))
    times = sorted({it.time for it in source if len({one.place for one in source if one.time == it.time}) > 1})
    assume(times)
    time = data.draw(st.sampled_from(times))
    up_to = [State(it.place, it.elements, (200, at)) for at, it in enumerate(source) if it.time <= time]
    rest = [State(it.place, it.elements, (300, at)) for at, it in enumerate(source)]
    # at the point, the list that the transaction has changed last has none of it
    first = next(at for at, it in enumerate(source) if it.time == time and it.place == up_to[-1].place)
    part = [it for at, it in enumerate(up_to) if at < first or it.place != up_to[-1].place]
    found = kinds(History(set(), source, None, [*part, *rest[first:]], [(250, 0)]))
    assert "half a transaction" in found


@given(SOURCES, st.data())
def test_a_list_that_is_behind_the_others_is_found(transactions: list[Appends], data: st.DataObject) -> None:
    source = list(at_source([appends[:1] for appends in transactions]))
    place = data.draw(st.sampled_from(PLACES))
    assume(source[-1].place != place and place in {it.place for it in source})
    at_point = [State(it.place, it.elements, (200, at)) for at, it in enumerate(source) if it.place != place]
    rest = [State(it.place, it.elements, (300, at)) for at, it in enumerate(source) if it.place == place]
    assert kinds(History(set(), source, None, [*at_point, *rest], [(250, 0)])) == {"of two times"}
    assert kinds(History(set(), source, None, [*at_point, *rest], [(350, 0)])) == set()


def changed(history: History, state: State, elements: tuple[int, ...]) -> History:
    """The history with other elements in one state, of the log or of the destination, and without points."""
    other = replace(state, elements=elements)
    log = [other if it is state else it for it in history.log or ()]
    # it is all that its moment has left
    moment = state.place, state.time
    destination = [
        other if it is state else it
        for it in history.destination
        if it is state or state in (history.log or ()) or (it.place, it.time) != moment
    ]
    return replace(history, log=log, destination=destination, points=())


ONE, TWO = ("lists", 0), ("lists", 1)
SOURCE = [
    State(ONE, (1,), (100, 1)),
    State(TWO, (2,), (100, 2)),
    State(ONE, (1, 3), (100, 3)),
    State(TWO, (2, 4), (100, 3)),
    State(ONE, (1, 3, 5, 6), (100, 4)),
]


def good() -> History:
    log = [
        Logged(it.place, it.elements, it.time, 0, at, it.elements not in ((1,), (2,))) for at, it in enumerate(SOURCE)
    ]
    log[-1] = replace(log[-1], offset=9)
    destination = [State(it.place, it.elements, (200, it.time[1])) for it in SOURCE]
    return History({1, 2, 3, 4, 5, 6}, SOURCE, log, destination, [(200, 2), (200, 3), (200, 4)])


def planted() -> Iterator[tuple[Kind, str, History]]:
    """Each class of violation, and how it reads."""
    fine = good()
    assert fine.log is not None
    last = fine.destination[-1]
    yield "lost", "source: lost: 7 was acknowledged", replace(fine, acknowledged={7})
    yield "lost", "destination: lost: ('lists', 0) ends as state 1", replace(fine, destination=fine.destination[:-1])
    yield "lost", "log: lost: ('lists', 0) ends as state 1", replace(fine, log=fine.log[:-1])
    for elements, kind, words in (
        ((), "lost", "has no list"),
        ((1, 5, 6), "lost", "lacks 3 before 6"),
        ((1, 3, 5, 6, 3), "twice", "has 3 more than once"),
        ((3, 1, 5, 6), "reordered", "has 3 before what was appended earlier"),
        ((1, 3, 5, 6, 2), "from nowhere", "has 2, which was not appended to it"),
        ((1, 3, 5), "another state", "ends with 5, the middle of an append of several"),
    ):
        yield (
            kind,
            words,
            replace(fine, destination=[*fine.destination, replace(last, elements=elements, time=(201, 0))]),
        )
    again = replace(fine.destination[0], time=(201, 0))
    yield "went back", "is state 0 after state 2", replace(fine, destination=[*fine.destination, again])
    yield "went back", "log: went back", replace(fine, log=[*fine.log, replace(fine.log[0], offset=10)])
    twice = replace(fine.log[-1], offset=10, time=(100, 5))
    yield "twice", "changes nothing", replace(fine, log=[*fine.log, twice])
    moved = [*fine.log[:3], replace(fine.log[3], offset=5), fine.log[4]]
    yield "half a transaction", "not beside the records of its time", replace(fine, log=moved)
    late = [*fine.destination[:3], replace(fine.destination[3], time=(200, 5)), last]
    at_three = replace(fine, destination=sorted(late, key=lambda it: it.time), points=[(200, 3)])
    yield "half a transaction", "lacks its change of (100, 3)", at_three
    yield "of two times", "lacks its change of (100, 3)", replace(at_three, points=[(200, 4)])


PLANTED = list(planted())


@pytest.mark.parametrize(("kind", "words", "history"), PLANTED, ids=[f"{kind}: {words}" for kind, words, _ in PLANTED])
def test_each_violation_has_its_name(kind: Kind, words: str, history: History) -> None:
    found = list(violations(history))
    assert [it for it in found if it.kind == kind and words in str(it)], found
    with pytest.raises(AssertionError, match="violations in the history of the lists"):
        whole(history, at_least=1)


def test_every_class_is_planted_and_the_history_they_are_planted_in_is_whole() -> None:
    assert {kind for kind, _, _ in PLANTED} == set(get_args(Kind))
    seen = whole(good(), at_least=6)
    assert (seen.appends, seen.transactions, seen.records, seen.states, seen.points) == (6, 1, 5, 5, 3)
    with pytest.raises(AssertionError, match="there are not 7"):
        whole(good(), at_least=7)


def test_a_transaction_may_insert_a_document_between_its_updates_of_another() -> None:
    """All of its records are beside one another, whatever their kind; a row of its time may be anywhere."""
    source = [
        State(ONE, (1,), (100, 1)),
        State(ONE, (1, 2), (100, 2)),
        State(TWO, (3,), (100, 2)),
        State(ONE, (1, 2, 4), (100, 2)),
    ]
    log = [Logged(it.place, it.elements, it.time, 0, at, at > 0) for at, it in enumerate(source)]
    row = replace(log[-1], offset=9, is_event=False)
    assert kinds(History(set(), source, [*log, row], source)) == set()
    apart = [*log[:3], replace(log[3], offset=4)]
    assert kinds(History(set(), source, apart, source)) == {"half a transaction"}


def test_a_capped_list_that_kept_too_much_is_another_state() -> None:
    source = [State(ONE, tuple(range(max(0, n - KEPT), n)), (100, n)) for n in range(1, 8)]
    kept = [replace(it, elements=tuple(range(n + 1))) for n, it in enumerate(source)]
    assert kinds(History(set(), source, None, kept)) == {"another state", "lost"}
    assert kinds(History(set(), source, None, source)) == set()


def test_what_a_transaction_of_the_sink_writes_in_between_is_not_seen() -> None:
    between = State(ONE, (3, 1), (200, 3))
    fine = good()
    assert not kinds(replace(fine, destination=[*fine.destination[:2], between, *fine.destination[2:]]))
    assert kinds(replace(fine, destination=[*fine.destination, replace(between, time=(200, 9))])) == {"reordered"}


def test_a_change_that_appends_nothing_is_no_history() -> None:
    with pytest.raises(ValueError, match="appends nothing"):
        list(violations(History(set(), [*SOURCE, SOURCE[-1]], None, [])))
