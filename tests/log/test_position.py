"""How far a source connector has come, read from what Debezium commits."""

import base64

import bson
import pytest

from towpath.clients.connect.rest import Connector, Task
from towpath.clients.mongo.client import ClusterTime
from towpath.errors import TowpathError
from towpath.log.lag import gaps
from towpath.log.source_offsets import SourcePosition, resume_token_time, source_position


def token(text):
    return base64.b64encode(bson.encode({"_data": text})).decode()


# as a server of version 6.0.5 handed it out
SEEN = "826A2086B8000000022B042C0100296E5A1004"


def test_the_time_in_a_resume_token():
    assert resume_token_time(token(SEEN)) == ClusterTime(0x6A2086B8, 2)


@pytest.mark.parametrize("bad", ["not base64!", token("82"), token("1F" + SEEN[2:]), base64.b64encode(b"x").decode()])
def test_a_token_that_cannot_be_read_is_said(bad):
    with pytest.raises(TowpathError, match="resume token"):
        resume_token_time(bad)


def test_the_token_counts_not_the_seconds_beside_it():
    assert source_position({"sec": -1, "ord": -1, "resume_token": token(SEEN)}).time == ClusterTime(0x6A2086B8, 2)
    assert source_position({"sec": 7, "ord": 3}).time == ClusterTime(7, 3)


def test_a_moment_has_passed_only_when_a_later_one_is_out():
    position = SourcePosition(ClusterTime(10, 5), snapshot_running=False)
    assert position.has_passed(ClusterTime(10, 4))
    assert not position.has_passed(ClusterTime(10, 5)), "another event of that time may still come"
    assert not position.has_passed(ClusterTime(11, 0))


def test_nothing_has_passed_while_the_snapshot_runs():
    offset = {"sec": 99, "ord": 1, "initsync": True}
    assert not source_position(offset).has_passed(ClusterTime(10, 5))


def test_gaps_begin_at_what_is_applied_and_not_before_the_log_does():
    ends = {("t", 0): (0, 5), ("t", 1): (3, 9), ("t", 2): (0, 4), ("t", 3): (2, 2)}
    assert gaps(ends, {("t", 0): 5, ("t", 1): 1, ("t", 3): 0}) == {("t", 1): (3, 9), ("t", 2): (0, 4)}


def test_a_connector_without_tasks_does_not_run():
    assert not Connector("a", "RUNNING", "w", ()).running
    assert Connector("a", "RUNNING", "w", (Task(0, "RUNNING", "w"),)).running
    assert not Connector("a", "RUNNING", "w", (Task(0, "RUNNING", "w"), Task(1, "PAUSED", "w"))).running
