"""What is printed for people, where no terminal is: whole numbers, unwrapped reasons."""

import json
import re
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

from tests.checks.test_check_judgements import PIPELINE
from tests.support.sessions import session_of
from towpath import stack as embedded
from towpath.cli import status as status_command
from towpath.cli.options import print_tables
from towpath.cli.stack import _show
from towpath.clients.connect.rest import Connector, Task
from towpath.deploy.schema_changes import SchemaChanges
from towpath.log.dead_letters import Cause
from towpath.log.source_offsets import Splices
from towpath.run import report
from towpath.run.report import Awaiting, Copied, Copy, Lag, Raw, Waiting
from towpath.stack.processes import Process
from towpath.store.positions import Counts, TaskState, TransactionTimes


def test_pids_ports_and_logs_are_never_cut(capsys):
    log = Path("/a/long/folder") / ("x" * 120) / "kafka.log"
    process = Process("kafka", "kafka", ("java",), 31826, log, 1234567, 1.0)
    place = "mongodb://127.0.0.1:1/?replicaSet=source"
    options = embedded.StackOptions(Path("/a"))
    urls = ("http://127.0.0.1:3",)
    _show(embedded.Stack(options, {}, {"kafka": process}, place, place, "127.0.0.1:2", urls))
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("kafka"))
    assert line.split()[:3] == ["kafka", "1234567", "31826"]
    assert str(log) in line


def status(**more):
    """Of a pipeline that runs and has nothing to do. `more` are other fields of the report, or of its `raw`."""
    raw = {"changes": SchemaChanges(), "uncaptured_seconds": 0.0}
    raw |= {field.name: more.pop(field.name) for field in fields(Raw) if field.name in more and field.name != "ddl"}
    known = {
        "name": "shop",
        "state": "running",
        "copy": Copy(True, (), ()),
        "lag": Lag(0, 0.0, 0.0),
        "records_per_second": 0.0,
    }
    known |= {"dead_letters": 0, "dead_letters_complete": True, "log_breaks": (), "raw": Raw(**raw)}
    return replace(report.unknown(session_of(PIPELINE)), **known | more)


def state(task, counts, retried_at=None, reason=""):
    return TaskState(task, counts, retried_at, reason, {}, TransactionTimes({}, 0.0))


def shown(capsys, **more):
    print_tables(status_command.screen(status(**more)))
    return capsys.readouterr().out


def tidy(screen):
    return "".join(line.rstrip() + "\n" for line in screen.splitlines())


def test_the_progress_of_a_copy(capsys):
    busy = Copied("shop.a", 500, 1000, 1, 2, 4, 2, 50.0, retries=2, reason="[source] no primary")
    copies = (busy, Copied("shop.b", 70, 70, 1, 1, 3, 3), Copied("shop.c", 0, 0, 0, 0, None, 0))
    said = shown(capsys, copy=Copy(False, copies, (Awaiting("shop.b", "9:10"), Awaiting("shop.x", "10:2"))))
    assert "570 of about 1,070 in 3 collections, 50 a second, 10 s left" in said
    assert "500 of about 1,000, 2 of 4 ranges, 50 a second, 10 s left" in said
    assert "retried 2 times, last reason: [source] no primary" in said
    assert "and 2 more, done: 1, not started: 1" in said
    assert "shop.b and 1 more; linear history once the stream has passed 10:2" in said


def test_ten_thousand_collections_are_a_few_lines(capsys):
    copies = tuple(Copied(f"shop.c{n}", n, 2 * n, 1, 2, 4, 2, 1.0) for n in range(1, 10_001))
    said = shown(capsys, copy=Copy(False, copies, ()))
    assert len(said.splitlines()) < 40
    assert "in 10,000 collections" in said
    assert "and 9,980 more" in said


def test_what_was_refused_retried_and_waits(capsys):
    causes = (Cause("shop.a", "121", "Document failed validation", 5), Cause("", "", "x", 2))
    counts = Counts(batches=9, records=9, writes=9, refused=7, retries=3)
    task = state(1, counts, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "no primary. The full response is {}")
    waiting = (Waiting("shop-source", 4, "capture lags"),)
    found = {"dead_letters": 7, "dead_letter_causes": causes, "sink_tasks": (task,)}
    found |= {"requests_waiting": waiting, "requests_skipped": 3}
    found["epochs"] = {"shop.shop.a": {n: n + 1 for n in range(4)}}
    said = shown(capsys, **found)
    assert re.search("dead letters +7, repaired ones included\n", said)
    assert re.search("dead letters +0\n", shown(capsys))
    assert "5: Document failed validation (121)" in said
    assert "towpath tail PIPELINE --dead-letters" in said
    assert "retried 3 times, last at 2026-01-02 03:04:05 UTC: no primary." in said
    assert "full response" not in said
    assert "4 requests wait for shop-source: capture lags" in said
    assert "TWP-REQUEST: 3 re-read requests could not be answered" in said
    assert "1 to 4 on 4 partitions" in said
    told = json.loads(json.dumps(report.as_json(status(**found))))
    assert told["epochs"] == {"shop.shop.a": {"0": 1, "1": 2, "2": 3, "3": 4}}
    assert (told["dead_letters"], told["sink_tasks"][0]["counts"]["retries"]) == (7, 3)
    assert told["requests_waiting"] == [{"connector": "shop-source", "requests": 4, "reason": "capture lags"}]
    assert told["requests_skipped"] == 3
    assert "TWP-REQUEST" not in shown(capsys, requests_skipped=0)


def test_what_the_sink_wrote_is_told_for_all_its_tasks_together(capsys):
    one = Counts(10, 1200, 30, 12, 5, 20, 5, bytes=3_000_000, bytes_out=2_900_000, batch_ms=400)
    other = Counts(10, 4, 2, 10, updates=2, bytes=200_000, batch_ms=100, without_document=1)
    tasks = tuple(state(task, counts) for task, counts in enumerate((one, other)))
    lines = [line.rstrip() for line in shown(capsys, sink=one + other, sink_tasks=tasks).splitlines()]
    assert "sink          1,204 records in 32 writes (37.6 a write), 5 inserts, 22 updates, 5 deletes" in lines
    assert " " * 14 + "20 transactions of 60 records and 25 ms on average, 22 waves" in lines
    assert " " * 14 + "3.2 MB in, 2.9 MB out; 1 found no document" in lines
    nothing_written = Counts(batches=1, records=3, refused=3)
    assert "sink          3 records in 0 writes\n" in shown(capsys, sink=nothing_written)
    assert "sink" not in shown(capsys)


def test_what_splices_saved_is_a_line(capsys):
    assert "splices" not in shown(capsys)
    assert "splices       5 arrays as splices, 1.2 MB saved\n" in shown(capsys, splices=Splices(5, 1_200_000))
    lines = [line.rstrip() for line in shown(capsys, splices=Splices(0, 0, 3)).splitlines()]
    forgotten = "3 forgotten for want of space ([capture] splice_cache)"
    assert f"splices       0 arrays as splices, 0 bytes saved; {forgotten}" in lines


def test_the_recovery_point_is_a_line_once_all_is_copied(capsys):
    assert "recovery      2.0 s would be lost with the source\n" in tidy(shown(capsys, lag=Lag(0, 2.0, 0.0)))
    limited = tidy(shown(capsys, lag=Lag(0, 2.0, 0.0, 1_200), recovery_point_seconds=10.0))
    assert "recovery      2.0 s (1,200 changes) would be lost with the source (limit 10 s)\n" in limited
    assert "takeover      about 10 s if the source were lost now\n" in tidy(shown(capsys, lag=Lag(5, 2.0, 3.0)))
    copying = shown(capsys, lag=Lag(0, 2.0, 0.0, 1_200), copy=Copy(False, (), ()))
    assert "recovery" not in copying and "takeover" not in copying


def test_an_unknown_lag_is_not_zero(capsys):
    assert "lag           unknown" in shown(capsys, lag=Lag(None, 0.0))
    assert report.as_json(Lag(None, 0.0))["seconds"] is None


def test_the_code_of_a_failure_decides_what_is_to_be_run(capsys):
    for trace, advice in (
        (
            "a.B: TWP-DELETES-MISSED: gone",
            "help; run: towpath restart PIPELINE --accept-missed-deletes; towpath verify",
        ),
        ("a.B: Command failed with error 286 (ChangeStreamHistoryLost)", "help; run: towpath resnapshot PIPELINE; "),
        ("a.B: the disk is full", "Fix the cause, then run: towpath restart PIPELINE"),
    ):
        connector = Connector("shop-sink", "RUNNING", "w", (Task(0, "FAILED", "w", trace),))
        assert advice in shown(capsys, connectors=(connector,))
    (told,) = report.as_json(status(connectors=(connector,)))["connectors"]
    assert told["failures"] == [{"what": "a.B: the disk is full", "code": ""}]
    assert "trace" not in told.keys() | told["tasks"][0].keys()


def test_a_reason_is_one_line(capsys):
    task = Task(0, "FAILED", "w", "x.Y: " + "a long reason " * 20)
    failed = Connector("shop-source", "RUNNING", "w", (task,))
    assert f"shop-source: {task.trace.strip()}" in shown(capsys, state="failed", connectors=(failed,))
