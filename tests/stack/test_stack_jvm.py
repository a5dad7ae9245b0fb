"""Configuration of broker and worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from towpath.stack import plan, startup
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


def test_java_has_a_cache_for_each_kind_of_process_unless_an_agent_makes_it_useless(tmp_path: Path) -> None:
    parts = Parts(*(tmp_path / name for name in ("mongod", "java", "libs", "plugins", "agent.jar", "caches")))
    for main, cache in ((plan.WORKER, "connect.aot"), (plan.BROKER, "kafka.aot"), ("Tool", "kafka.aot")):
        assert f"-XX:AOTCache={tmp_path}/caches/{cache}" in plan.java_command(parts, 256, main)
    assert not [word for word in plan.java_command(parts, 256, plan.WORKER, metrics_port=9404) if "AOT" in word]
    assert not [word for word in plan.java_command(replace(parts, caches=None), 256, plan.WORKER) if "AOT" in word]


def _parts(place: Path, release: str) -> Parts:
    """With a Java of this release that does nothing but fail."""
    (place / "bin").mkdir()
    (place / "bin" / "java").write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    (place / "bin" / "java").chmod(0o755)
    (place / "release").write_text(f'IMPLEMENTOR="Us"\nJAVA_VERSION="{release}"\n')
    (place / "libs").mkdir()
    return Parts(place / "mongod", place / "bin" / "java", place / "libs", place / "plugins", place / "agent.jar")


def test_an_older_java_has_no_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOWPATH_CACHE", str(tmp_path / "cache"))
    said: list[str] = []
    old = _parts(tmp_path, "17.0.9")
    assert startup.with_caches(old, said.append) == old
    (tmp_path / "release").unlink()
    assert startup.with_caches(old, said.append) == old
    assert said == [] and not (tmp_path / "cache").exists()


def test_a_stack_starts_also_where_no_caches_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOWPATH_CACHE", str(tmp_path / "cache"))
    said: list[str] = []
    broken = _parts(tmp_path, "25.0.2")
    assert startup.with_caches(broken, said.append) == broken
    assert said[-1].startswith("Kafka and Connect start more slowly than they could: cannot format the broker")
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.suffix != ".lock" and file.is_file()]


def test_new_objects_have_half_of_a_workers_heap(tmp_path: Path) -> None:
    parts = Parts(*(tmp_path / name for name in ("mongod", "java", "libs", "plugins", "agent.jar")))
    assert "-Xmn512m" in plan.java_command(parts, 1024, plan.WORKER)
    assert not [word for word in plan.java_command(parts, 1024, plan.BROKER) if word.startswith("-Xmn")]
