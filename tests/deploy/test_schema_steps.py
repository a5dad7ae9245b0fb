"""The commands that change a schema, without a server: in which order, at the same time, and how they end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import pytest
from pymongo.errors import AutoReconnect, OperationFailure

from tests.support.awaited import until
from tests.support.sessions import FakeCluster
from towpath.deploy import schema
from towpath.deploy.schema import Step, apply, at_once
from towpath.errors import TowpathError
from towpath_verifier import Command, Pair, Schemas
from towpath_verifier.descriptions import Described

Body = Mapping[str, Any]


class Server:
    """A client that keeps what it was sent, and answers as a test says."""

    def __init__(self, answer: Callable[[Body], Any] = lambda body: {}) -> None:
        self.answer, self.sent, self.under_way = answer, list[dict[str, Any]](), 0

    def __getitem__(self, database: str) -> Server:
        return self

    def command(self, body: Body) -> Any:
        self.sent.append({name: value for name, value in body.items() if name != "writeConcern"})
        self.under_way += 1
        try:
            return self.answer(body)
        finally:
            self.under_way -= 1


def step(name: str, operation: str, **arguments: Any) -> Step:
    return Step(f"shop.{name}", Command("shop", {operation: name, **arguments}))


def release(name: str) -> Step:
    return step(name, "collMod", index={"name": "n", "prepareUnique": False})


def refuse(code: int) -> None:
    raise OperationFailure("an index is built", code, {"errmsg": "an index is built"})


def test_what_is_refused_is_told_together_and_the_rest_is_done() -> None:
    server: Any = Server(lambda body: refuse(12587) if body["collMod"] in ("c1", "c5") else {})
    with pytest.raises(TowpathError) as raised:
        at_once(server, [release(f"c{number}") for number in range(20)])
    assert len(server.sent) == 20
    assert "c1" in str(raised.value) and "c5" in str(raised.value)
    server = Server(lambda body: refuse(12587))
    with pytest.raises(TowpathError, match=r"\nand 15 more$"):
        at_once(server, [release(f"c{number}") for number in range(20)])
    server = Server(lambda body: refuse(27))
    at_once(server, [release("gone")], may_be_gone=True)


def test_without_a_server_the_rest_is_not_tried() -> None:
    def away(body: Body) -> None:
        time.sleep(0.01)
        raise AutoReconnect("away")

    server: Any = Server(away)
    with pytest.raises(AutoReconnect):
        at_once(server, [release(f"c{number}") for number in range(100)])
    assert len(server.sent) < 30


@pytest.fixture
def alarms() -> Iterator[None]:
    """One after the other, as in a pause that has ended."""

    def ended(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ended)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.05)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarms")
@pytest.mark.parametrize("within", [None, 10.0])
def test_whatever_ends_it_no_command_is_under_way_afterwards(within: float | None) -> None:
    server: Any = Server(lambda body: time.sleep(0.6))
    with pytest.raises(KeyboardInterrupt):
        at_once(server, [release(f"c{number}") for number in range(100)], within=within)
    signal.setitimer(signal.ITIMER_REAL, 0)
    sent = len(server.sent)
    assert server.under_way == 0 and sent == schema.AT_ONCE
    time.sleep(0.1)
    assert len(server.sent) == sent


@pytest.mark.usefixtures("alarms")
def test_a_command_without_an_answer_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_END_S", 0.3)
    gate, begun = threading.Event(), time.monotonic()
    server: Any = Server(lambda body: gate.wait(30))
    with pytest.raises(KeyboardInterrupt):
        at_once(server, [release("c")])
    assert time.monotonic() - begun < 5
    gate.set()


def test_builds_of_several_collections_run_together_and_each_is_in_the_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema, "build_progress", lambda *_: (3, 10))
    monkeypatch.setattr(schema, "_POLL_S", 0.05)
    together, seen = threading.Barrier(3, timeout=5), list[tuple[int, int, str]]()

    def answer(body: Body) -> Any:
        if "createIndexes" in body:
            together.wait()
            until("the progress of all", lambda: any(description.count(",") == 2 for _, _, description in seen), 5)
        return {}

    names = ("a", "b", "c")
    steps = [step(name, "createIndexes", indexes=[{"name": "n", "key": {"n": 1}}]) for name in names]
    server = Server(answer)
    begun = list[str]()
    destination: Any = FakeCluster(server)
    apply(destination, steps, lambda one: begun.append(one.namespace), lambda *what: seen.append(what))
    assert sorted(begun) == [f"shop.{name}" for name in names]
    assert (9, 30, "indexes of shop.a, shop.b, shop.c") in seen


def test_steps_run_in_their_order() -> None:
    """A collection is capped before its limit changes; a drop, which ends a build, may come before other changes."""
    steps = [
        step("ring", "convertToCapped", size=4096),
        step("ring", "collMod", cappedMax=10),
        step("users", "dropIndexes", index="n"),
        step("users", "collMod", validationAction="warn"),
        step("users", "createIndexes", indexes=[{"name": "n"}]),
    ]
    server = Server()
    cluster: Any = FakeCluster(server)
    told = list[Step]()
    apply(cluster, steps, told.append)
    *others, build = [one.command.body for one in steps]
    assert server.sent == [*others, {**build, "commitQuorum": "majority"}] and told == steps
    assert [one.is_quick for one in steps] == [False, True, False, True, False]
    assert [one.takes_time for one in steps] == [True, False, False, False, True]


UNIQUE = {"key": {"n": 1}, "unique": True}
TTL = {"key": {"t": 1}, "expireAfterSeconds": 60}
PLAIN = {"key": {"m": 1}}


@pytest.mark.parametrize(
    ("ours", "theirs", "unexplained"),
    [
        ({"n": UNIQUE, "t": TTL}, {"n": {"key": {"n": 1}}, "t": {"key": {"t": 1}}}, []),
        ({"n": UNIQUE}, {"n": {"key": {"n": 1}, "prepareUnique": True}}, []),
        ({"m": PLAIN}, {}, ["the index m on"]),
        ({}, {"m": PLAIN}, ["the index m on"]),
        (None, {}, ["the collection is only at the destination"]),
        ({}, None, ["the collection is missing at the destination"]),
    ],
    ids=["relaxed", "to convert", "made", "made there", "dropped", "new"],
)
def test_a_final_plan_tells_what_replication_does_not_explain(ours: Any, theirs: Any, unexplained: list[str]) -> None:
    pair = Pair("shop.users", "shop.users")
    sides = [{} if found is None else {pair.source: Described("collection", {}, found)} for found in (ours, theirs)]
    both = Schemas((pair,), sides[0], sides[1], (7, 0))
    plan = schema.planned(both, final=True)
    assert len(plan.unexplained) == len(unexplained)
    assert all(words in one.what for words, one in zip(unexplained, plan.unexplained, strict=True))
    assert not schema.planned(both, overwrite=True).unexplained
    assert unexplained or not any(step.builds or step.drops for step in plan.steps)


def test_a_final_plan_tells_what_becomes_capped() -> None:
    pair = Pair("shop.ring", "shop.ring")
    capped = Described("collection", {"capped": {"size": 4096, "max": 5}}, {"n": UNIQUE})
    found = {pair.source: capped}, {pair.source: Described("collection", {}, {"n": {"key": {"n": 1}}})}
    plan = schema.planned(Schemas((pair,), *found, (7, 0)), final=True)
    assert plan.capped == "shop.ring" and not plan.unexplained
    assert [next(iter(step.command.body)) for step in plan.steps] == ["convertToCapped", "collMod", "createIndexes"]
