"""`towpath cutover`: no acknowledged write is lost or done twice, there and back, and whatever ends it half-way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from bson import ObjectId
from confluent_kafka.admin import AdminClient

from tests.support import control, rest
from tests.support.acknowledged import AcknowledgedWriter
from tests.support.awaited import until
from tests.support.cutover import PATIENCE_S, Cutover, cutover, fail_back, indexes
from tests.support.pipeline import Pipeline, towpath
from tests.support.swapping import Swapping
from tests.support.ticker import Ticker
from towpath.clients.mongo import write_block
from towpath.stack import Stack

pytestmark = pytest.mark.servers


@contextmanager
def ready(pipeline: Pipeline, per_second: int = 1000) -> Iterator[AcknowledgedWriter]:
    """A deployed pipeline, verified, with a unique index and one with TTL; and a writer, which writes not yet."""
    writer = AcknowledgedWriter(pipeline.source_client, pipeline.name, "orders", per_second=per_second)
    writer.fill()
    orders, users = pipeline.source("orders"), pipeline.source("users")
    orders.create_index("until", name="expired", expireAfterSeconds=3600)
    users.insert_many([{"_id": n, "email": f"e{n}"} for n in range(100)])
    users.create_index("email", name="by email", unique=True)
    pipeline.deploy()
    pipeline.wait()
    towpath("prepare", pipeline.file)
    towpath("verify", pipeline.file)
    try:
        yield writer
    finally:
        write_block.unblock(pipeline.source_client)
        back = pipeline.file.with_name(f"{pipeline.file.stem}-back.toml")
        if back.exists():
            towpath("remove", back, "--topics", "--yes")


def left_as_it_is(pipeline: Pipeline) -> None:
    """No command starts the sink after a cutover, and its capture runs."""
    towpath("pause", pipeline.file)
    assert "the sink stays stopped" in towpath("resume", pipeline.file).stdout
    towpath("remove", pipeline.file)
    assert f"{pipeline.name}-sink stays stopped" in towpath("deploy", pipeline.file).stderr
    states = {one["name"]: one["state"] for one in pipeline.status(expect=1)["connectors"]}
    assert states == {f"{pipeline.name}-sink": "STOPPED", f"{pipeline.name}-source": "RUNNING"}


def not_returned(pipeline: Pipeline, folder: Path) -> None:
    """Where the server would refuse Towpath's own writes as well, and while someone continues to write."""
    with cutover(pipeline, folder, "--back", "--block-writes") as running:
        checks = {one["subject"]: one for one in running.event("gate")["findings"]}
        told = running.ended(1)
    assert [name for name, one in checks.items() if one["level"] == "error"] == ["own writes"]
    assert "while writes to the destination are blocked, Towpath has to write there" in checks["own writes"]["finding"]
    assert "--stop-with" in checks["own writes"]["advice"] and "nothing is changed" in told[-1]["words"]
    with cutover(pipeline, folder, "--back", "--stop-with", "true") as running:
        told = running.ended(1)
    assert f"{pipeline.namespace('orders')} got the " in told[-1]["words"], told
    assert told[-2]["words"].startswith("everything is as before: the destination is primary; start the writers again")


def not_skipped(pipeline: Pipeline, folder: Path) -> None:
    """A document that something has written at the old source, and not the reverse pipeline."""
    pipeline.source("users").insert_one({"_id": "stray", "email": "stray"})
    with cutover(pipeline, folder, "--back", "--stop-with", "true") as running:
        told = running.ended(1)
    assert "the source has changes that did not come from the reverse pipeline" in told[-1]["words"], told
    assert "stray" in told[-1]["words"] and "stop writes" not in [one["event"] for one in told], told
    towpath("repair", pipeline.file.with_name(f"{pipeline.file.stem}-back.toml"), "--yes")
    assert pipeline.source("users").find_one({"_id": "stray"}) is None


def not_of_other_collections(pipeline: Pipeline, folder: Path) -> None:
    """What the reverse pipeline has left out for a while, it may lack: a verdict of before does not count."""
    back = pipeline.file.with_name(f"{pipeline.file.stem}-back.toml")
    text = back.read_text()
    towpath("verify", back)
    back.write_text(text.replace('"towpath.*"', f'"towpath.*", "{pipeline.namespace("none")}"'))
    towpath("deploy", back)
    said = towpath("cutover", pipeline.file, "--back", "--dry-run", expect=2).stderr
    assert f"exclude has {pipeline.namespace('none')}" in said
    back.write_text(text)
    assert "was deployed with other namespaces" in towpath("cutover", pipeline.file, "--back", expect=2).stderr
    towpath("deploy", back)
    with cutover(pipeline, folder, "--back", "--stop-with", "true") as running:
        [red] = [one for one in running.event("gate")["findings"] if one["level"] == "error"]
        running.ended(1)
    assert red["subject"] == "verified" and "included or excluded without a copy" in red["finding"]
    towpath("verify", back)


def test_there_and_back_without_loss(pipeline: Pipeline, tmp_path: Path, nightly: bool) -> None:
    source, destination = pipeline.source_client, pipeline.destination_client
    report = tmp_path / "cutover.html"
    with ready(pipeline, per_second=1000 if nightly else 200) as writer, writer:
        form = indexes(pipeline, source)
        with cutover(pipeline, tmp_path, "--block-writes", "--report", str(report)) as there:
            with Ticker(0.02, Swapping(pipeline.source("users"), 100).swap) as swaps:
                there.until(lambda one: str(one.get("step", "")).startswith("preparing the reverse pipeline"))
                swaps.wait_for(20)
            switch = there.event("switch")
            writer.send(destination)
            end = there.ended(0)[-1]
        assert switch["primary"] == "destination" and "--back" in end["words"]
        # nothing is deleted by TTL before the switch
        assert [one["step"] for one in there.told if one["event"] == "step"][-10:] == [
            "waiting until the sink has stopped",
            "fencing the sink",
            "starting the reverse pipeline",
            "verifying the rest of the log",
            "refusing duplicates at the new primary",
            "waiting for the reverse pipeline",
            "restoring the schema of the new primary",
            "checking for late writes",
            "restoring the TTL of the new primary",
            "converting indexes to unique",
        ]
        assert indexes(pipeline, destination) == form
        print(f"writes had stopped for {writer.gaps} s; the tool says {switch['pause_seconds']} s")
        assert "the destination is primary" in report.read_text()
        writer.wait_for_more(500 if nightly else 200)
        for command in (("repair", "--dead-letters"), ("resnapshot", "--yes")):
            said = towpath(command[0], pipeline.file, *command[1:], expect=2).stderr
            assert "its sink must stay stopped" in said
        left_as_it_is(pipeline)
        assert "0 schema changes to resolve" in towpath("ddl", pipeline.file).stdout, "what was relaxed stays there"
        assert pipeline.status(expect=1)["cutover"]["state"] == "destination primary"
        if nightly:
            not_returned(pipeline, tmp_path)
            not_skipped(pipeline, tmp_path)
            not_of_other_collections(pipeline, tmp_path)
        fail_back(pipeline, tmp_path, writer, "--quiet")
        writer.wait_for_more(200)
    writer.assert_all_at(source)
    pipeline.wait()
    pipeline.assert_same("orders", "users", at_least=300)
    assert indexes(pipeline, source) == form
    assert pipeline.status()["cutover"] is None


@pytest.mark.nightly
def test_back_without_the_capture_of_the_old_source(pipeline: Pipeline) -> None:
    """As the documentation says where its history is lost: what was the reverse pipeline is cut over itself."""
    with ready(pipeline):
        form, back = (
            indexes(pipeline, pipeline.source_client),
            pipeline.file.with_name(f"{pipeline.file.stem}-back.toml"),
        )
        towpath("cutover", pipeline.file, "--stop-with", "true")
        towpath("remove", pipeline.file, "--topics", "--yes")
        pipeline.destination("orders").insert_one({"_id": "later"})
        towpath("verify", back)
        towpath("cutover", back, "--stop-with", "true")
        again = back.with_name(f"{back.stem}-back.toml")
        try:
            assert pipeline.source("orders").find_one({"_id": "later"}) is not None
            assert indexes(pipeline, pipeline.source_client) == form
            pipeline.source("orders").insert_one({"_id": "last"})
            towpath("wait", again)
            assert pipeline.destination("orders").find_one({"_id": "last"}) is not None, "a way back from there"
        finally:
            towpath("remove", again, "--topics", "--yes")


STEPS = (
    "verifying the newest records",
    "preparing the reverse pipeline",
    "blocking writes",
    "applying the rest of the log",
    "stopping the sink",
    "fencing the sink",
    "starting the reverse pipeline",
    "refusing duplicates at the new primary",
    "restoring the schema of the new primary",
)


def begun(pipeline: Pipeline, folder: Path, step: str) -> Cutover:
    """A cutover that has done that step and continues with the next."""
    running = Cutover(pipeline, folder, "--block-writes")
    running.until(lambda one: str(one.get("step", "")).startswith(step))
    return running


def new_user(pipeline: Pipeline) -> None:
    one = ObjectId()
    pipeline.source("users").insert_one({"_id": one, "email": str(one)})


def assert_as_before(pipeline: Pipeline) -> None:
    """The source takes writes, the pipeline continues, and nothing is left of the cutover."""
    new_user(pipeline)
    pipeline.wait()
    pipeline.assert_same("orders", "users", at_least=100)
    found = pipeline.status()
    assert (found["state"], found["cutover"], found["dead_letters"]) == ("running", None, 0)
    users = pipeline.namespace("users")
    at_destination = indexes(pipeline, pipeline.destination_client)[users]
    assert not any(one.get("unique") or one.get("prepareUnique") for one in at_destination.values())
    assert any(one.get("unique") for one in indexes(pipeline, pipeline.source_client)[users].values())
    here = indexes(pipeline, pipeline.source_client)[pipeline.namespace("orders")]
    assert here["expired"]["expireAfterSeconds"] == 3600
    connectors = rest.get(f"{pipeline.addresses.connect}/connectors", timeout=90).raise_for_status().json()
    assert not [name for name in connectors if name.startswith(f"{pipeline.name}-back")]


def interrupted(pipeline: Pipeline, folder: Path, step: str) -> None:
    running = begun(pipeline, folder, step)
    running.process.send_signal(signal.SIGINT)
    told = running.ended(1)
    assert told[-2]["words"].startswith("everything is as before: the source is primary")
    assert_as_before(pipeline)


def interrupted_unread(pipeline: Pipeline, folder: Path, step: str) -> None:
    """As by Ctrl-C in `towpath cutover … | tee log`, which ends `tee` as well; then the terminal closes."""
    running = begun(pipeline, folder, step)
    assert running.process.stdout is not None
    running.process.stdout.close()
    running.process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    running.process.send_signal(signal.SIGHUP)
    assert running.process.wait(PATIENCE_S) == 1
    assert_as_before(pipeline)


def killed(pipeline: Pipeline, folder: Path, step: str) -> None:
    running = begun(pipeline, folder, step)
    running.process.kill()
    running.process.wait()
    assert "if it was interrupted" in towpath("cutover", pipeline.file, "--dry-run", expect=1).stdout
    said = towpath("cutover", pipeline.file, "--undo").stdout
    assert "everything is as before: the source is primary" in said
    assert_as_before(pipeline)


def kept(pipeline: Pipeline) -> dict[str, Any]:
    """All that a check must leave as it is, but for positions, which advance."""
    addresses, state = pipeline.addresses, Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state"))
    folders = pipeline.file.parent, addresses.secrets, state / "towpath" / pipeline.name
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    names = rest.get(f"{addresses.connect}/connectors", params={"expand": ["info", "status"]}, timeout=90).json()
    topics = AdminClient({"bootstrap.servers": addresses.bootstrap}).list_topics(timeout=30).topics
    clients = pipeline.source_client, pipeline.destination_client
    return {
        "files": {str(file): file.read_bytes() for file in files if file.suffix not in (".err", ".lock")},
        "connectors": {name: one for name, one in names.items() if pipeline.name in name},
        "topics": {name: len(one.partitions) for name, one in topics.items() if pipeline.name in name},
        "documents": [client[pipeline.name].command("dbHash")["collections"] for client in clients],
        "forms": [indexes(pipeline, client) for client in clients],
        "towpath": [
            [
                (name, [one["_id"] for one in client.towpath[name].find()])
                for name in client.towpath.list_collection_names()
            ]
            for client in clients
        ],
    }


def refused(pipeline: Pipeline, folder: Path) -> None:
    """What is not ready is red and nothing is begun, or changed by looking."""
    pipeline.destination("users").create_index("more", name="more")
    time.sleep(1.1)  # the verification is older than the second that is asked for
    before = kept(pipeline)
    missing = str(folder / "nowhere" / "x")
    options = ("--verified-within", "1s", "--stop-with", missing, "--report", missing, "--json")
    found = towpath("cutover", pipeline.file, *options, expect=1).stdout.splitlines()
    checks = {one["subject"]: one for one in json.loads(found[0])["findings"]}
    red = [name for name, one in checks.items() if one["level"] == "error"]
    assert red == ["verified", "metadata", "commands", "report"]
    assert "the index more" in checks["metadata"]["finding"] and f"{', '.join(red)} are red" in found[-1]
    assert missing in checks["commands"]["finding"] and missing in checks["report"]["finding"]
    assert kept(pipeline) == before
    pipeline.destination("users").drop_index("more")
    before = kept(pipeline)
    assert "everything is ready" in towpath("cutover", pipeline.file, "--dry-run").stdout
    assert kept(pipeline) == before


@contextmanager
def without_sink(pipeline: Pipeline) -> Iterator[None]:
    """Nothing is applied during this."""
    sink = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-sink"
    httpx.put(f"{sink}/pause", timeout=90).raise_for_status()
    try:
        yield
    finally:
        httpx.put(f"{sink}/resume", timeout=90).raise_for_status()


def seconds_until(told: list[dict[str, Any]], words: str, since: datetime) -> float:
    at = next(datetime.fromisoformat(one["at"]) for one in told if one["words"].startswith(words))
    return (at - since).total_seconds()


def seen_late(pipeline: Pipeline, folder: Path) -> None:
    """A write to a collection that came in the pause, while the sink continues with nothing."""
    with cutover(pipeline, folder) as running:
        running.event("stop writes")
        with without_sink(pipeline):
            new_user(pipeline)
            running.answer()
            running.at("applying the rest of the log")
            pipeline.source("audit_12").insert_one({"_id": 5})
            written = datetime.now(UTC)
            told = running.ended(1)
    seconds = seconds_until(told, "everything is as before", written)
    print(f"all was as before {seconds:.2f} s after the late write")
    late = f"{pipeline.namespace('audit_12')} got the insert of _id 5 at {written:%Y-%m-%d}"
    changed = (
        f"{pipeline.namespace('audit_12')} got the create at the source"  # whoever follows the source sees one first
    )
    assert late in told[-1]["words"] or changed in told[-1]["words"]
    assert seconds < 10, told


def ended_by_a_schema(pipeline: Pipeline, folder: Path) -> None:
    """Which changes on either side while someone is asked to stop the writers."""
    for collection, side in ((pipeline.source("users"), "source"), (pipeline.destination("users"), "destination")):
        with cutover(pipeline, folder) as running:
            running.event("stop writes")
            collection.create_index("more", name="more")
            told = running.ended(1)
        assert f"{pipeline.namespace('users')} got the createIndexes at the {side}; begin again" in told[-1]["words"]
        collection.drop_index("more")


def ended_at_its_limit(pipeline: Pipeline, folder: Path) -> None:
    with cutover(pipeline, folder, "--max-pause", "3s") as running:
        running.event("stop writes")
        with without_sink(pipeline):
            new_user(pipeline)
            running.answer()
            stopped = datetime.now(UTC)
            told = running.ended(1)
    seconds = seconds_until(told, "everything is as before", stopped)
    print(f"all was as before {seconds:.2f} s after the beginning of a pause of 3 s at most")
    assert (
        "has reached its limit of 3 s while applying the rest of the log (not caught up in time: " in told[-1]["words"]
    )
    assert 3 <= seconds < 15, told
    with cutover(pipeline, folder, "--max-pause", "1s", "--stop-with", "sleep 600") as running:
        told = running.ended(1)
    assert "has reached its limit of 1 s while stopping the writers;" in told[-1]["words"]


@pytest.mark.nightly
def test_an_interrupt_a_kill_and_whatever_is_red_leave_all_as_it_was(pipeline: Pipeline, tmp_path: Path) -> None:
    with ready(pipeline):
        refused(pipeline, tmp_path)
        assert "nothing to undo" in towpath("cutover", pipeline.file, "--undo").stdout
        assert "cannot fail back" in towpath("cutover", pipeline.file, "--back", expect=2).stderr
        seen_late(pipeline, tmp_path)
        assert_as_before(pipeline)
        pipeline.assert_same("audit_12", at_least=1)
        ended_by_a_schema(pipeline, tmp_path)
        assert_as_before(pipeline)
        ended_at_its_limit(pipeline, tmp_path)
        assert_as_before(pipeline)
        interrupted(pipeline, tmp_path, "restoring the schema of the new primary")
        interrupted_unread(pipeline, tmp_path, "applying the rest of the log")
        killed(pipeline, tmp_path, "starting the reverse pipeline")


@pytest.mark.nightly
def test_an_interrupt_and_a_kill_at_every_step(pipeline: Pipeline, tmp_path: Path) -> None:
    with ready(pipeline):
        for step in STEPS:
            interrupted(pipeline, tmp_path, step)
            killed(pipeline, tmp_path, step)


@pytest.mark.nightly
def test_without_connect_the_source_takes_writes_and_the_rest_is_told(
    pipeline: Pipeline, tmp_path: Path, stack: Stack
) -> None:
    with ready(pipeline):
        running = begun(pipeline, tmp_path, "blocking writes")
        control.kill(stack.directory, "connect-0", signal.SIGKILL)
        try:
            told = running.ended(2)
            new_user(pipeline)
        finally:
            control.start(stack.directory, "connect-0")
        assert any(one["event"] == "not undone" for one in told)
        towpath("cutover", pipeline.file, "--undo")
        assert_as_before(pipeline)


@pytest.mark.nightly
def test_a_destination_that_sleeps_holds_writes_up_no_longer_than_the_limit(
    pipeline: Pipeline, tmp_path: Path, stack: Stack
) -> None:
    with ready(pipeline):
        running = Cutover(pipeline, tmp_path, "--block-writes", "--max-pause", "10s")
        running.until(lambda one: str(one.get("step", "")).startswith("blocking writes"))
        control.kill(stack.directory, "destination-0", signal.SIGSTOP)
        try:
            stopped = datetime.now(UTC)
            until("writes to be taken", lambda: not write_block.is_on(pipeline.source_client), 60, 0.1)
            print(f"writes are taken after {(datetime.now(UTC) - stopped).total_seconds():.1f} s")
            assert (datetime.now(UTC) - stopped).total_seconds() < 30
        finally:
            control.kill(stack.directory, "destination-0", signal.SIGCONT)
        status = running.process.wait(PATIENCE_S)
        if status == 2:
            towpath("cutover", pipeline.file, "--undo")
        else:
            assert status == 1
        assert_as_before(pipeline)


@pytest.mark.nightly
def test_of_two_tools_only_the_later_goes_on(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ready(pipeline):
        first = Cutover(pipeline, tmp_path)
        first.event("stop writes")
        assert "another `towpath cutover`" in towpath("cutover", pipeline.file, expect=2).stderr
        state = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state"))
        shutil.copytree(state / "towpath", tmp_path / "elsewhere" / "towpath", ignore=shutil.ignore_patterns("*.lock"))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # as on another machine
        with cutover(pipeline, tmp_path) as second:
            second.event("stop writes")
            first.answer()
            first.ended(2)
            second.answer()
            second.ended(0)
        before = kept(pipeline)
        assert "everything is ready" in towpath("cutover", pipeline.file, "--back", "--dry-run").stdout
        assert kept(pipeline) == before
        towpath("cutover", pipeline.file, "--back", "--stop-with", "true")
        assert_as_before(pipeline)
