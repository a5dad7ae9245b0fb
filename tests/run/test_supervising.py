"""When a failed connector is tried again, and when that is no use; what `run` tells, and when."""

import json
from dataclasses import replace

import pytest

from towpath.cli.options import print_json
from towpath.clients.connect.control import Unassigned
from towpath.clients.connect.rest import Connector, Failure, Task
from towpath.config.events import Difference, Note, TimedEvent
from towpath.config.loading import read
from towpath.errors import BadPipelineFile
from towpath.run.children import Events
from towpath.run.restarts import Backoff, lasting

FILE = """
name = "shop"
source = {uri = "mongodb://127.0.0.1:1/?replicaSet=a"}
destination = {uri = "mongodb://127.0.0.1:2/"}
collections = {include = ["shop.*"]}
kafka = {bootstrap = "127.0.0.1:9092"}
connect = {url = "http://127.0.0.1:8083"}
"""


def test_pauses_double_up_to_the_longest():
    pause, now, told = Backoff(first=2, longest=60, reset_after=600), 100.0, []
    for _ in range(8):
        told.append(pause.failed(now))
        assert pause.failed(now + 1) is None, "it is told once"
        assert not pause.is_due(now + told[-1] - 0.1)
        now += told[-1]
        assert pause.is_due(now)
        pause.tried()
    assert told == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_thousand_failures_are_no_overflow():
    pause = Backoff(first=2, longest=300, reset_after=600, tries=10_000)
    assert pause.failed(0) == 300


def test_what_was_well_for_long_enough_begins_anew_and_a_flapping_one_does_not():
    pause = Backoff(first=2, longest=300, reset_after=600)
    for _ in range(3):
        pause.failed(0)
        pause.tried()
    pause.healthy(10)
    pause.healthy(609)
    assert pause.failed(609) == 16
    pause.tried()
    pause.healthy(620)
    pause.healthy(1219)
    assert pause.tries == 4
    pause.healthy(1220)
    assert pause.failed(1221) == 2


def test_what_became_well_by_itself_is_not_tried():
    pause = Backoff(first=2, longest=300, reset_after=600)
    pause.failed(0)
    pause.healthy(1)
    assert not pause.is_due(100)


LOST = (
    "io.debezium.DebeziumException: Error while attempting to process\n"
    "Caused by: com.mongodb.MongoCommandException: Command failed with error 286 (ChangeStreamHistoryLost): 'Resume of"
    " change stream was not possible, as the resume point may no longer be in the oplog.' on server 127.0.0.1:1"
)
GAP = "io.towpath.sink.LogBounds$Broken: TWP-LOG-GAP: records of shop.shop.orders-0 are gone from the log"
BAD = "org.apache.kafka.common.config.ConfigException: Invalid value shop for configuration towpath.rename: no JSON"
REFUSES = (
    "org.apache.kafka.connect.errors.ConnectException: 300 of 300 records were refused; that is more than"
    " towpath.refused.percent allows, so it may not be about single documents: fix the cause and restart the task"
)
STEPPED = "Caused by: com.mongodb.MongoNotPrimaryException: Command failed with error 10107 (NotWritablePrimary)"


@pytest.mark.parametrize(
    ("trace", "commands"),
    [
        (LOST, ["resnapshot", "verify"]),
        (BAD, ["check", "deploy"]),
        (GAP, ["restart", "verify", "repair"]),
        ("x: TWP-DELETES-MISSED: deletes may be missing", ["restart", "verify", "repair"]),
        ("x: TWP-HISTORY-LOST: the source's oplog no longer holds the changes", ["resnapshot", "verify"]),
        ("x: TWP-OTHER-HISTORY: the source's oplog has no entry of 1:1", ["verify", "resnapshot"]),
        ("x: TWP-COLLATION: shop.orders cannot be captured", ["check", "deploy"]),
        ("x: TWP-SHARED-POSITION: another task has taken over", ["restart"]),
        ("x: TWP-POSITION-LOST: the destination no longer", ["remove", "deploy", "replay", "prepare", "verify"]),
        ("x: TWP-CONFIG: transaction.boundary is 'interval'", ["check", "deploy"]),
        ("x: TWP-NOT-EXACTLY-ONCE: this worker writes without transactions", ["check"]),
    ],
)
def test_what_no_restart_repairs_says_what_does(trace, commands):
    found = lasting([Failure.of(trace).code])
    assert [name for name, *_ in found.commands] == commands


def test_the_first_failure_that_lasts_decides():
    assert lasting(["", "TWP-OTHER", "TWP-COLLATION", "TWP-LOG-GAP"]).commands == (("check",), ("deploy",))


@pytest.mark.parametrize("trace", [REFUSES, STEPPED, "java.lang.NullPointerException", "code 2860", "TWP-OTHER: x", ""])
def test_everything_else_is_restarted(trace):
    assert lasting([Failure.of(trace).code]) is None


def test_each_thing_is_told_once_until_it_changes():
    told = []
    events = Events(told.append)
    for words in ("", "a", "a", "b", "", "", "a"):
        events.report_state(Note(event="failed", about="sink", words=words, reason="r"), "well again")
    assert [event.words for event in told] == ["a", "b", "well again", "a"]
    assert (told[0].about, told[0].reason) == ("sink", "r")


def test_what_a_child_has_found_is_handed_on_with_words(capsys):
    found = Difference(namespace="a.b", destination_namespace="a.b", id=5, id_bson="00", kind="extra", paths=())
    Events(print_json).report(replace(found, words="differs: x"))
    found = json.loads(capsys.readouterr().out)
    assert (found["event"], found["words"], found["kind"]) == ("difference", "differs: x", "extra")
    assert found["at"].startswith("20")


def test_only_the_newest_events_stay_on_the_screen():
    events = Events(lambda event: None)
    for number in range(100):
        events.report(Note(event="problem", words=str(number)))
    newest: list[TimedEvent] = list(events.newest)
    assert [event.words for event in newest] == [str(number) for number in range(92, 100)]


@pytest.fixture
def keeps(tmp_path):
    def read_from(extra):
        file = tmp_path / "shop.toml"
        file.write_text(FILE + extra)
        file.chmod(0o600)
        found = read(file)
        return found.runs_compact, found.run.verify, found.run.repair

    return read_from


def test_what_run_keeps_going(keeps):
    assert keeps("") == (False, False, True)
    assert keeps("log = {compact = true}") == (True, False, True)
    assert keeps("log = {compact = true}\nrun = {compact = false, verify = true, repair = false}") == (
        False,
        True,
        False,
    )
    with pytest.raises(BadPipelineFile, match=r"compact = true needs"):
        keeps("run = {compact = true}")
    with pytest.raises(BadPipelineFile, match="unknown key"):
        keeps("run = {compacts = true}")


def test_only_what_stays_unassigned_is_restarted_and_each_time_after_twice_as_long() -> None:
    """A restart is also one of the tasks that run, while a worker is gone for Connect's default of five minutes."""

    def shown(name: str, state: str, task: str = "RUNNING") -> Connector:
        return Connector(name, state, "w", (Task(0, "RUNNING", "w"), Task(1, task, "w")))

    unassigned, lost = Unassigned(), [shown("a", "UNASSIGNED"), shown("b", "RUNNING", "UNASSIGNED")]
    well = [shown("c", "RUNNING"), shown("d", "PAUSED", "PAUSED"), shown("e", "FAILED")]
    assert unassigned.due([*lost, *well], 0) == unassigned.due([*lost, *well], 19.9) == []
    assert unassigned.due([*lost, *well], 20) == ["a", "b"]
    assert unassigned.due(lost, 59.9) == []
    assert unassigned.due([shown("a", "RUNNING"), lost[1]], 60) == ["b"]
    assert unassigned.due(lost, 79.9) == [], "a was well in between"
    assert unassigned.due(lost, 81) == []
    assert unassigned.due(lost, 100) == ["a"]
    assert [now for now in range(101, 301) if "b" in unassigned.due(lost, now)] == [140, 300]
