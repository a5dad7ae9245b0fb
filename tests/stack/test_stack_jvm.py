"""Configuration of broker and worker."""

from __future__ import annotations

from pathlib import Path

from towpath.stack import plan
from towpath.stack.parts import Parts


def test_properties_are_written_as_java_reads_them(tmp_path: Path) -> None:
    file = plan.write_properties(tmp_path / "p", {"log.dirs": "/tmp/ä\\b 🙂"})
    assert file.read_text() == "log.dirs=/tmp/\\u00e4\\\\b \\ud83d\\ude42\n"


def test_a_worker_reads_secrets_of_its_stack_only_and_listens_on_this_machine_only(tmp_path: Path) -> None:
    values = plan.worker_properties(tmp_path / "secrets", "127.0.0.1:1", 2, tmp_path / "plugins")
    assert values["config.providers.file.param.allowed.paths"] == str(tmp_path / "secrets")
    assert values["listeners"] == "http://127.0.0.1:2"
    topics = {values[f"{kind}.storage.topic"] for kind in ("config", "offset", "status")}
    assert topics == {"connect-configs", "connect-offsets", "connect-status"}


def test_a_broker_takes_records_of_the_largest_document(tmp_path: Path) -> None:
    values = plan.broker_properties(tmp_path, 1, [2])
    assert int(values["message.max.bytes"]) > 16 * 1024 * 1024 + 16 * 1024
    assert values["message.max.bytes"] == values["replica.fetch.max.bytes"]


def test_a_jvm_shows_its_metrics_on_this_machine_and_only_when_it_is_asked_to(tmp_path: Path) -> None:
    parts = Parts(*(tmp_path / name for name in ("mongod", "java", "libs", "plugins", "agent.jar")))
    assert not [word for word in plan.java_command(parts, 256, "Main") if "agent" in word]
    (agent,) = [word for word in plan.java_command(parts, 256, "Main", metrics_port=9404) if "agent" in word]
    assert agent.startswith(f"-javaagent:{tmp_path}/agent.jar=127.0.0.1:9404:")
    assert Path(agent.rpartition(":")[2]).exists()


def test_new_objects_have_half_of_a_workers_heap(tmp_path: Path) -> None:
    parts = Parts(*(tmp_path / name for name in ("mongod", "java", "libs", "plugins", "agent.jar")))
    assert "-Xmn512m" in plan.java_command(parts, 1024, plan.WORKER)
    assert not [word for word in plan.java_command(parts, 1024, plan.BROKER) if word.startswith("-Xmn")]
