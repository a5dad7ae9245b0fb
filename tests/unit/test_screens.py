"""What is printed for people, where no terminal is: whole numbers, unwrapped reasons."""

from pathlib import Path

import stack as embedded
from connectors.connect import Connector, Task
from connectors.status import Status
from stack.processes import Process
from towpath import status as status_verb
from towpath.stack import _show


def test_pids_ports_and_logs_are_never_cut(capsys):
    log = Path("/a/long/folder") / ("x" * 120) / "kafka.log"
    process = Process("kafka", "kafka", ("java",), 31826, log, 1234567, 1.0)
    place = "mongodb://127.0.0.1:1/?replicaSet=source"
    _show(embedded.Stack(Path("/a"), place, place, "127.0.0.1:2", ("http://127.0.0.1:3",), {"kafka": process}))
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("kafka"))
    assert line.split()[:3] == ["kafka", "1234567", "31826"]
    assert str(log) in line


def test_a_reason_is_one_line(capsys):
    task = Task(0, "FAILED", "w", "x.Y: " + "a long reason " * 20)
    found = Status(
        name="shop",
        mode="plain",
        state="failed",
        snapshot_done=True,
        lag_records=0,
        apply_seconds=0.0,
        records_per_second=0.0,
        connectors=(Connector("shop-source", "RUNNING", "w", (task,)),),
    )
    status_verb.show(found)
    assert f"shop-source: {task.trace.strip()}" in capsys.readouterr().out
