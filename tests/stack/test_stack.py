"""The embedded stack as real processes. The tests of this file share one stack and leave it up, as they found it."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pymongo import MongoClient, WriteConcern
from pymongo.errors import OperationFailure

from tests.support import control, mongod, rest, schema
from tests.support.awaited import until
from tests.support.mongod import Root
from tests.support.started import started
from tests.support.workers import add_worker, plugin_path
from towpath import stack as embedded
from towpath.stack import parts, record
from towpath.stack.processes import free_ports
from towpath.stack.tools import version

pytestmark = pytest.mark.servers

TOWPATH = Path(sys.executable).parent / "towpath"


def _towpath(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOWPATH, "stack", *words], capture_output=True, text=True, check=False, timeout=200)


def _quiet(words: str) -> None:
    pass


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a stack that the command line has brought up."""
    place = tmp_path_factory.mktemp("own") / "stäck"
    done = _towpath("up", "--dir", place, "--json")
    try:
        assert done.returncode == 0, done.stderr
        (place.parent / "up.json").write_text(done.stdout.splitlines()[-1])
        yield place
    finally:
        embedded.down(place)


@pytest.fixture
def running(directory: Path) -> embedded.Stack:
    """The stack of this file, all of it up."""
    return embedded.up(embedded.StackOptions(directory))


def test_the_last_line_of_up_tells_addresses_and_processes(running: embedded.Stack) -> None:
    told = json.loads((running.directory.parent / "up.json").read_text())
    assert set(told) == {"source", "destination", "bootstrap", "connect", "processes"}
    assert set(told["processes"]) == {"source-0", "destination-0", "kafka", "connect-0"}
    for name, process in told["processes"].items():
        assert psutil.pid_exists(process["pid"]), name
        assert Path(process["log"]).stat().st_size > 0, name


def test_every_service_does_its_work(running: embedded.Stack) -> None:
    for uri in (running.source, running.destination):
        with MongoClient[dict[str, object]](uri) as client:
            things = client.shop.get_collection("things", write_concern=WriteConcern("majority", wtimeout=10_000))
            assert things.insert_one({"a": 1}).acknowledged
    plugins = {it["class"] for it in rest.get(f"{running.connect}/connector-plugins", timeout=30).json()}
    assert plugins >= {
        "io.debezium.connector.mongodb.MongoDbConnector",
        "com.mongodb.kafka.connect.MongoSinkConnector",
    }


def test_kafka_takes_a_record_of_the_largest_document(running: embedded.Stack) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic("large", 1, 1)])["large"].result(30)
    refusals: list[object] = []
    producer = Producer({"bootstrap.servers": running.bootstrap, "message.max.bytes": 17 * 1024 * 1024})
    producer.produce("large", os.urandom(16 * 1024 * 1024 + 16 * 1024), on_delivery=lambda e, _: refusals.append(e))
    assert producer.flush(60) == 0
    assert refusals == [None]


def test_plugins_share_one_driver_and_there_is_no_test_jar(running: embedded.Stack) -> None:
    found = parts.parts(_quiet)
    drivers = [jar.name for jar in found.plugins.rglob("mongodb-driver-core*.jar")]
    assert drivers == [f"mongodb-driver-core-{version('mongodb-driver.version')}.jar"]
    jars = [jar.name for jar in (*found.libs.glob("*.jar"), *found.plugins.rglob("*.jar"))]
    assert [name for name in jars if "-test" in name or "junit" in name or name.endswith("-all.jar")] == []


def test_a_second_up_says_that_it_is_up_and_starts_nothing(running: embedded.Stack) -> None:
    done = _towpath("up", "--dir", running.directory, "--json")
    assert done.returncode == 0, done.stderr
    assert "is up already" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == running.to_json()


def test_up_with_other_options_is_refused_with_words(running: embedded.Stack) -> None:
    done = _towpath("up", "--dir", running.directory, "--source-nodes", "3")
    assert done.returncode == 2
    assert "was started with other options: source_nodes is 1, not 3; stop it first" in done.stderr


@pytest.mark.nightly
def test_a_killed_process_shows_in_status_and_up_brings_back_only_that_one(running: embedded.Stack) -> None:
    with MongoClient[dict[str, object]](running.source) as client:
        client.kept.things.insert_one({"_id": 1})
    control.kill(running.directory, "source-0")
    done = _towpath("status", "--dir", running.directory, "--json")
    schema.refuse(("stack", "--json"), done.stdout.splitlines()[-1])
    told = json.loads(done.stdout.splitlines()[-1])["processes"]
    assert (done.returncode, [name for name, it in told.items() if not it["running"]]) == (1, ["source-0"])

    again = embedded.up(embedded.StackOptions(running.directory))

    assert again.running
    assert [name for name, it in again.processes.items() if it.pid != running.processes[name].pid] == ["source-0"]
    assert again.source == running.source
    with MongoClient[dict[str, object]](again.source) as client:
        assert client.kept.things.count_documents({}) == 1
    assert _towpath("status", "--dir", running.directory).returncode == 0


def test_a_stopped_process_lives_and_goes_on(running: embedded.Stack) -> None:
    control.kill(running.directory, "destination-0", signal.SIGSTOP)
    assert embedded.status(running.directory).running
    control.kill(running.directory, "destination-0", signal.SIGCONT)
    with MongoClient[dict[str, object]](running.destination) as client:
        assert client.admin.command("ping")["ok"] == 1


def test_a_process_is_started_again_on_its_port_and_a_running_one_is_not(running: embedded.Stack) -> None:
    before = running.processes["destination-0"]
    after = control.restart(running.directory, "destination-0")
    assert (after.port, after.command, after.pid != before.pid) == (before.port, before.command, True)
    with pytest.raises(embedded.StackError, match="cannot start destination-0: it runs already"):
        control.start(running.directory, "destination-0")


def test_a_process_that_dies_while_it_starts_is_told_with_its_last_lines(running: embedded.Stack) -> None:
    control.kill(running.directory, "source-0")
    metadata = running.directory / "data" / "source-0" / "storage.bson"
    kept = metadata.read_bytes()
    metadata.write_bytes(b"no such thing")
    try:
        with pytest.raises(
            embedded.StackError, match=r"source-0 \(pid \d+\) ended; the last lines of its log(.|\n)*\n  \{"
        ):
            embedded.up(embedded.StackOptions(running.directory))
    finally:
        metadata.write_bytes(kept)
    living = {name for name, it in embedded.status(running.directory).processes.items() if it.running}
    assert living == set(running.processes) - {"source-0"}


def test_a_fixed_port_in_use_is_told_with_its_holder_and_nothing_is_started(tmp_path: Path) -> None:
    base = free_ports(1)[0]
    with socket.create_server(("127.0.0.1", base + 2)):
        done = _towpath("up", "--dir", tmp_path / "other", "--port-base", str(base))
    assert done.returncode == 2
    assert f"kafka needs port {base + 2} of 127.0.0.1, which is in use by pid {os.getpid()}" in done.stderr
    assert _towpath("status", "--dir", tmp_path / "other").returncode == 2


def test_servers_with_users_let_no_one_else_in(tmp_path: Path) -> None:
    root = Root("root", "p@ss/word")
    with mongod.start_replica_set(tmp_path / "set", root=root) as guarded:
        with MongoClient[dict[str, object]](guarded.uri) as client:
            assert client.admin.command("hello")["setName"] == "rs0"
            assert client.shop.things.insert_one({}).acknowledged
        (port,) = (process.port for process in guarded.processes.values())
        stranger = MongoClient[dict[str, object]]("127.0.0.1", port, directConnection=True)
        with stranger, pytest.raises(OperationFailure, match="requires authentication"):
            stranger.shop.things.find_one()
    assert not any(process.running for process in guarded.processes.values())


def test_a_standalone_is_no_replica_set(tmp_path: Path) -> None:
    with mongod.start_standalone(tmp_path) as alone, MongoClient[dict[str, object]](alone.uri) as client:
        assert "setName" not in client.admin.command("hello")


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_up_that_was_ended_in_the_middle_leaves_nothing_that_down_does_not_find(
    tmp_path: Path, number: signal.Signals
) -> None:
    command: list[str | Path] = [TOWPATH, "stack", "up", "--dir", tmp_path]
    try:
        with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as up:
            assert up.stderr is not None
            next(line for line in up.stderr if "is ready after" in line)
            begun = [process for process in embedded.status(tmp_path).processes.values() if process.running]
            up.send_signal(number)
            assert up.wait(60) == (2 if number == signal.SIGINT else -number)
        assert begun
        assert any(process.running for process in begun) == (number == signal.SIGKILL)
    finally:
        embedded.down(tmp_path)
    assert not any(process.running for process in begun)


def test_down_stops_every_process_even_one_whose_pid_was_never_written_down(running: embedded.Stack) -> None:
    place = running.directory
    known = record.read(place)
    record.write(known.with_process(dataclasses.replace(known.processes["kafka"], pid=None, created=None)))

    done = _towpath("down", "--dir", place)

    assert done.returncode == 0, done.stderr
    assert set(done.stdout.removeprefix("stopped ").strip().split(", ")) == set(running.processes)
    assert not any(process.running for process in running.processes.values())
    assert "no process is running in" in _towpath("down", "--dir", place).stdout
    assert _towpath("status", "--dir", place).returncode == 1


@pytest.mark.nightly
def test_what_was_down_comes_up_with_the_same_ports_and_data(
    running: embedded.Stack, directory: Path, nightly: bool
) -> None:
    with MongoClient[dict[str, object]](running.source) as client:
        client.kept.documents.insert_one({"_id": 1})
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
    before = embedded.status(directory)
    embedded.down(directory)
    monitored = nightly and shutil.which("prometheus") is not None
    after = embedded.up(embedded.StackOptions(directory, monitor=monitored))
    if monitored:
        jobs = until("scrapes", lambda: up_by_job(after.prometheus))
        assert jobs.keys() == {"connect", "kafka", "towpath"}  # the last is up where someone's `run` listens on 9300
        assert (jobs["connect"], jobs["kafka"]) == ("1", "1")
        assert after.prometheus in _towpath("status", "--dir", directory).stdout
    assert (after.source, after.destination, after.bootstrap) == (before.source, before.destination, before.bootstrap)
    with MongoClient[dict[str, object]](after.source) as client:
        assert client.kept.documents.count_documents({}) == 1
    assert "kept" in AdminClient({"bootstrap.servers": after.bootstrap}).list_topics(timeout=30).topics


def up_by_job(url: str) -> dict[str, str] | None:
    """Job → `up`, once each process was scraped, or was not to be."""
    found = rest.get(f"{url}/api/v1/query", params={"query": "up"}, timeout=30).json()["data"]["result"]
    jobs = {series["metric"]["job"]: series["value"][1] for series in found}
    return jobs if len(jobs) == 3 and jobs["connect"] == "1" else None


@pytest.mark.nightly
def test_a_killed_worker_comes_back_with_exported_plugins_and_another_can_join_it(
    directory: Path, tmp_path: Path
) -> None:
    """The last test of this file: the stack has one worker more from here on."""
    options = embedded.options_of(directory)
    assert options is not None and embedded.up(options).running
    embedded.export_plugins(tmp_path, print)
    monitoring = {file.name for file in (tmp_path / "towpath" / "monitoring").iterdir()}
    assert monitoring >= {"jmx_prometheus_javaagent.jar", "workers.yaml", "alerts.yaml", "dashboard.json"}
    with plugin_path(directory, "connect-0", tmp_path):
        control.kill(directory, "connect-0")
        control.start(directory, "connect-0")
        plugins = rest.get(f"{embedded.status(directory).connect}/connector-plugins", timeout=30).json()
        assert "io.towpath.source.MongoSource" in {it["class"] for it in plugins}
    url = add_worker(directory).connect_urls[1]
    assert rest.get(f"{url}/health", timeout=30).json()["status"] == "healthy"
    assert embedded.status(directory).running
