"""What is written down about a stack, and what it is compared with."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import control
from towpath import stack
from towpath.stack import NoStack, Process, Stack, StackError, StackOptions, lifecycle, plan, record

PORTS = {"source-0": 1, "source-1": 2, "destination-0": 3, "kafka": 4, "kafka-controller": 5, "connect-0": 6}


def _stack(place: Path) -> Stack:
    options = StackOptions(place, source_nodes=2, plugins=place / "plugins", broker={"num.io.threads": "2"})
    kafka = Process("kafka", "kafka", ("java", "kafka.Kafka"), 4, place / "kafka.log", 77, 1.5, 9)
    return Stack.of(options, PORTS, {"kafka": kafka})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    record.write(_stack(tmp_path))
    assert record.read(tmp_path) == _stack(tmp_path)


def test_a_folder_that_was_moved_has_its_new_place(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    record.write(_stack(tmp_path / "before"))
    (tmp_path / "before").rename(tmp_path / "after")
    assert record.read(tmp_path / "after").directory == tmp_path / "after"


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    record.write(_stack(tmp_path))
    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(StackError, match=r"cannot write .*stack\.json: No space left on device"):
        record.write(replace(_stack(tmp_path), processes={}))
    assert record.read(tmp_path) == _stack(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["stack.json"]


def test_a_stack_has_the_addresses_of_its_ports(tmp_path: Path) -> None:
    found = _stack(tmp_path)
    assert found.to_json() == {
        "source": "mongodb://127.0.0.1:1,127.0.0.1:2/?replicaSet=source",
        "destination": "mongodb://127.0.0.1:3/?replicaSet=destination",
        "bootstrap": "127.0.0.1:4",
        "connect": "http://127.0.0.1:6",
        "processes": {"kafka": {"pid": 77, "log": str(tmp_path / "kafka.log")}},
    }


def test_a_stack_shows_metrics_where_it_was_asked_to(tmp_path: Path) -> None:
    options = StackOptions(tmp_path, source_nodes=2, metrics=True)
    ports = PORTS | {"kafka-metrics": 7, "connect-0-metrics": 8}
    assert set(options.port_names) == set(ports)
    found = Stack.of(options, ports, {})
    assert found.metrics_urls == {"kafka": "http://127.0.0.1:7/metrics", "connect-0": "http://127.0.0.1:8/metrics"}
    assert _stack(tmp_path).metrics_urls == {}


def test_a_monitored_stack_shows_the_metrics_of_all_its_processes_and_has_a_prometheus(tmp_path: Path) -> None:
    options = StackOptions(tmp_path, source_nodes=2, monitor=True)
    ports = PORTS | {"kafka-metrics": 7, "connect-0-metrics": 8, "prometheus": 9}
    assert set(options.port_names) == set(ports)
    found = Stack.of(options, ports, {})
    assert found.prometheus == found.to_json()["prometheus"] == "http://127.0.0.1:9"
    assert set(found.metrics_urls) == {"kafka", "connect-0"}


def test_a_stack_without_the_prometheus_that_it_needs_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match=r"no prometheus on PATH; install it .*apt-get install prometheus"):
        stack.up(StackOptions(tmp_path / "stack", monitor=True))
    assert stack.options_of(tmp_path / "stack") is None


def test_prometheus_leaves_its_file_of_targets_as_a_user_has_written_it(tmp_path: Path) -> None:
    file, targets = tmp_path / "prometheus.json", tmp_path / "towpath-targets.json"
    plan.write_prometheus(file, {"connect": {"connect-0": 8}})
    assert json.loads(targets.read_text()) == [{"targets": ["127.0.0.1:9300"]}]
    targets.write_text("[]")
    plan.write_prometheus(file, {"connect": {"connect-0": 8}})
    assert targets.read_text() == "[]"
    own, workers = json.loads(file.read_text())["scrape_configs"]
    assert own == {"job_name": "towpath", "file_sd_configs": [{"files": [str(targets)]}]}
    assert workers["static_configs"] == [{"targets": ["127.0.0.1:8"], "labels": {"process": "connect-0"}}]


def test_a_folder_without_a_stack_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoStack, match=rf"there is no stack in {tmp_path}; `towpath stack up --dir {tmp_path}`"):
        stack.status(tmp_path)
    with pytest.raises(NoStack):
        control.kill(tmp_path / "absent", "kafka")
    assert stack.down(tmp_path / "absent") == []
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("text", ["", "{", "{}", '{"format": 1, "settings": {}, "processes": {}}'])
def test_a_damaged_file_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / record.FILE).write_text(text)
    with pytest.raises(StackError, match=r"stack\.json is damaged"):
        record.read(tmp_path)


def test_a_process_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"no process 'kafak'; it has kafka"):
        record.write(_stack(tmp_path))
        control.kill(tmp_path, "kafak")


def test_node_counts_and_ports_of_a_stopped_stack_stay_but_workers_and_heaps_may_change(tmp_path: Path) -> None:
    known = _stack(tmp_path)
    same = known.options
    lifecycle._require_same(replace(same, connect_workers=3, connect_heap_mb=2048), known)
    with pytest.raises(StackError, match="source_nodes is 2, not 3; use another folder"):
        lifecycle._require_same(replace(same, source_nodes=3), known)
    with pytest.raises(StackError, match="port_base is None, not 27000"):
        lifecycle._require_same(replace(same, port_base=27000), known)


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(StackError, match=r"cannot create .*taken"):
        stack.up(StackOptions(tmp_path / "taken"))
