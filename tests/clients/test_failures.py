"""What a connector's stack trace tells: the telling line, and the code that decides what helps."""

from __future__ import annotations

import httpx
import pytest

from towpath.clients.connect.control import patience
from towpath.clients.connect.rest import Connector, Failure, Task, code_of, failure, faults, message

CONNECT = "org.apache.kafka.connect.errors"


def test_a_trace_is_told_by_its_deepest_cause():
    trace = (
        "org.apache.X: outer\n\tat a.b\nCaused by: c.Y: middle\n\tat c.d\nCaused by: e.Z: the wrong password\n\tat f"
    )
    assert Failure.of(trace) == Failure("e.Z: the wrong password", "")
    assert Failure.of("org.apache.X: only\n\tat a.b").what == "org.apache.X: only"
    assert Failure.of(f"{CONNECT}.DataException: shop.a: no\n\tat a.b").what == "shop.a: no"
    assert Failure.of("") == Failure("", "")


@pytest.mark.parametrize("password", ["hun%ter2", "hun@ter2", "hun/ter2", "hun ter2", "hun:ter2", "hun?t#er2"])
@pytest.mark.parametrize("scheme", ["mongodb", "mongodb+srv"])
def test_a_uri_that_cannot_be_used_is_told_without_its_password(password, scheme):
    """What mongo-kafka says of it."""
    said = "Invalid value {}db.example/?w=5 for configuration connection.uri: an at-sign (@) must be urlencoded"
    whole, shown = said.format(f"{scheme}://root:{password}@"), said.format(f"{scheme}://")
    failure = Failure.of(f"{CONNECT}.ConnectException: no\nCaused by: a.ConfigException: {whole}\n\tat x")
    assert failure == Failure(f"a.ConfigException: {shown}", "TWP-CONFIG")
    assert message(httpx.Response(400, json={"message": whole})) == shown
    value = {"name": "connection.uri", "errors": [whole]}
    assert faults({"configs": [{"value": value}]}) == {"connection.uri": [shown]}


@pytest.mark.parametrize(
    "trace",
    [
        "io.towpath.sink.LogBounds$Broken: TWP-LOG-GAP: it is gone",
        f"{CONNECT}.ConnectException: TWP-LOG-GAP: it is gone\n\tat x\nCaused by: com.mongodb.X: no\n\tat y",
        f"{CONNECT}.ConnectException: o\nCaused by: a.B: TWP-LOG-GAP: it is gone\nCaused by: m.X: error 286",
    ],
)
def test_what_bears_a_code_is_told_also_where_it_has_a_cause(trace):
    assert Failure.of(trace) == Failure("TWP-LOG-GAP: it is gone", "TWP-LOG-GAP")


@pytest.mark.parametrize(
    ("trace", "code"),
    [
        (
            "com.mongodb.MongoQueryException: Query failed with error code 286 and error message 'no'",
            "TWP-HISTORY-LOST",
        ),
        (
            "com.mongodb.MongoCommandException: Command failed with error 286 (ChangeStreamHistoryLost)",
            "TWP-HISTORY-LOST",
        ),
        ("x.Y: Offset token is old; the oplog: it may no longer be in the oplog", "TWP-HISTORY-LOST"),
        ("org.apache.kafka.common.config.ConfigException: Missing required configuration a", "TWP-CONFIG"),
        ("java.lang.NoClassDefFoundError: org/bson/Document", "TWP-CONFIG"),
        (f"{CONNECT}.ConnectException: Failed to find any class that implements Connector", "TWP-CONFIG"),
        (f"{CONNECT}.ConnectException: a document holds ConfigException", ""),
        (f"{CONNECT}.ConnectException: the document names TWP-LOG-GAP: no failure", ""),
        ("com.mongodb.MongoCommandException: Command failed with error 2860 (Other)", ""),
    ],
)
def test_what_others_fail_with_has_the_code_of_the_same_remedy(trace, code):
    assert Failure.of(trace).code == code


def test_a_code_of_a_message_stands_at_its_front():
    assert code_of("TWP-CONFIG: it is set") == "TWP-CONFIG"
    assert code_of("it is TWP-CONFIG: so") == code_of("TWP-CONFIG") == ""


def _with_tasks_that_failed(name: str, *traces: str) -> Connector:
    return Connector(name, "RUNNING", "w", tuple(Task(n, "FAILED", "w", trace) for n, trace in enumerate(traces)))


def test_what_failed_before_a_change_is_waited_for_until_new_tasks_have_started():
    before = [_with_tasks_that_failed("source", "no certificate", "no login"), _with_tasks_that_failed("sink")]
    assert patience(before, before, 5) == 30
    assert patience([_with_tasks_that_failed("source", "no login")], before, 5) == 30
    assert patience([_with_tasks_that_failed("source", "no login", "no topic")], before, 5) == 5
    assert patience([*before, _with_tasks_that_failed("sink", "no login")], before, 5) == 5, "of another connector"
    assert patience([Connector("sink", "MISSING", "w", ())], before, 5) == 5
    assert patience(before, (), 0) == 0


def test_what_has_failed_is_one_error_with_the_code_and_the_place():
    traces = "a.B: the disk is full", "a.B: TWP-COLLATION: no", "a.B: the disk is full"
    tasks = tuple(Task(n, "FAILED", "w", trace) for n, trace in enumerate(traces))
    found = failure([Connector("well", "RUNNING", "w", ()), Connector("sink", "RUNNING", "w", tasks)])
    assert str(found) == "sink has failed: a.B: the disk is full; TWP-COLLATION: no"
    assert (found.where, found.code) == ("sink", "TWP-COLLATION")
    assert failure([Connector("well", "RUNNING", "w", ())]) is None
