"""Commands that talk to a real Connect worker through an unwell proxy: words and a status, and a repeat repairs it.

With `TOWPATH_FUZZ_TIMES`, every command meets every fault, else a share of the pairs: each at a separate request; now
the request did not reach the worker, now only its answer is lost.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from confluent_kafka import Producer

from tests.support import commands
from tests.support.awaited import until
from tests.support.fuzz import SEED, TIMES
from tests.support.pipeline import Pipeline, towpath
from tests.support.unwell import unwell
from towpath.clients.connect import control
from towpath.clients.connect.control import Wait, wait_running
from towpath.clients.connect.rest import Connect
from towpath.config.loading import read
from towpath.errors import ConnectUnreachable, NoSuchConnector, NotYet

pytestmark = pytest.mark.servers

#: A slow answer is waited for 90 s, so that it is none for this test; see tests/clients/test_connect_unwell.py.
FAULTS = ("rebalance", "error", "gateway", "half", "nothing", "garbage", "list", "object", "no such thing")
#: What is done, through the proxy and then again without it.
COMMANDS: dict[str, tuple[str, ...]] = {
    "deploy": (),
    "status": (),
    "wait": ("--timeout", "60"),
    "pause": (),
    "resume": (),
    "restart": (),
    "remove": ("--topics", "--yes"),
}


def pairs(random: Random) -> list[tuple[str, str]]:
    every = [(command, fault) for command in COMMANDS for fault in FAULTS]
    if TIMES > 1:
        return every
    return [(command, random.choice(FAULTS)) for command in ("deploy", "remove")]


@pytest.fixture
def docs(pipeline: Pipeline) -> Pipeline:
    pipeline.source("docs").insert_many([{"_id": i} for i in range(20)])
    return pipeline


@pytest.mark.nightly
def test_a_command_that_met_a_fault_says_so_and_its_repeat_repairs_it(docs: Pipeline) -> None:
    random, outcomes = Random(SEED), Counter[str]()
    for command, fault in pairs(random):
        if command != "deploy":
            towpath("deploy", docs.write())
        outcomes[one(docs, command, fault, random)] += 1
        if command == "pause":
            towpath("resume", docs.file)
    towpath("deploy", docs.write())
    docs.wait()
    docs.assert_same("docs", at_least=20)
    print(f"commands with a worker that is unwell: {dict(outcomes)}")


def one(docs: Pipeline, command: str, fault: str, random: Random) -> str:
    if command == "deploy":
        towpath("remove", docs.write(), "--topics", "--yes")
    at, before = random.randrange(6), random.random() < 0.5
    with unwell(docs.addresses.connect, lambda n, *_: fault if n == at else None, before=before) as proxy:
        through = replace(docs, addresses=replace(docs.addresses, connect=proxy.url))
        name = f"{command}: {fault} at request {at}, {'' if before else 'not '}before the worker"
        ended = any_status(through, command)
        shown = bool(proxy.shown)
    again = towpath(command, docs.write(), *COMMANDS[command])
    assert "Traceback" not in again.stderr, name
    return f"{'met' if shown else 'missed'}, ended with {ended}"


def any_status(through: Pipeline, command: str) -> int:
    """Runs a command that may fail: 0 where the fault was waited for or missed, else 1 or 2, with words."""
    done = commands.run([command, str(through.write()), *COMMANDS[command]], 240)
    assert done.returncode in (0, 1, 2), f"{command} ended with {done.returncode}: {done.stderr}"
    assert "Traceback" not in done.stderr, f"{command} fell over: {done.stderr}"
    assert done.returncode < 2 or "towpath: " in done.stderr or done.stdout, f"{command} failed without a word"
    return done.returncode


@pytest.mark.nightly
def test_a_worker_that_does_not_answer_for_a_moment_is_waited_for(docs: Pipeline) -> None:
    towpath("deploy", docs.write())
    with (
        unwell(docs.addresses.connect, lambda n, *_: "nothing" if n < 5 else None) as proxy,
        Connect(proxy.url) as connect,
    ):
        wait_running(connect, read(docs.file).connectors, 60)
        assert len(proxy.shown) == 5


def test_a_worker_that_does_not_answer_at_all_is_given_up_in_time(docs: Pipeline) -> None:
    with (
        unwell(None, lambda *_: "nothing") as proxy,
        Connect(proxy.url) as connect,
        pytest.raises(ConnectUnreachable, match=r"^not running after 1 s: cannot reach Kafka Connect"),
    ):
        wait_running(connect, read(docs.write()).connectors, 1)


def test_a_connector_that_is_gone_is_not_waited_for(docs: Pipeline) -> None:
    def nothing_yet() -> None:
        raise NotYet("nothing yet")

    said: list[str] = []
    with (
        unwell(docs.addresses.connect, lambda n, *_: "nothing" if n == 0 else None) as proxy,
        Connect(proxy.url) as connect,
        pytest.raises(NoSuchConnector, match=f"there is no connector {docs.name}-sink"),
    ):
        Wait(connect, [f"{docs.name}-sink"], 60, "too late", failed_for=0, say=said.append).until(nothing_yet)
    assert [line for line in said if line.endswith("waiting for it, up to 60 s")] == said != []


def test_a_connector_that_connect_shows_as_unassigned_for_long_is_restarted(
    docs: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a worker leaves it that wrote its states out of order."""
    monkeypatch.setattr(control, "_UNASSIGNED_S", 2)
    towpath("deploy", docs.write())
    sink = f"{docs.name}-sink"
    with Connect(docs.addresses.connect) as connect:
        known = connect.status(sink)
        shown = {"state": "UNASSIGNED", "trace": None, "worker_id": known.worker, "generation": 1}
        producer = Producer({"bootstrap.servers": docs.addresses.bootstrap, "partitioner": "murmur2_random"})
        producer.produce("connect-status", key=f"status-connector-{sink}", value=json.dumps(shown))
        assert producer.flush(30) == 0
        until("the state that was written", lambda: connect.status(sink).state == "UNASSIGNED" or None)
        wait_running(connect, read(docs.file).connectors, 60)
