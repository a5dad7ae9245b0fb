"""The folders with a release's archives that a stack takes instead of what Maven brings: whole, or nothing starts."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import version as installed
from pathlib import Path

import pytest

from towpath.errors import StackError
from towpath.stack import parts
from towpath.stack.tools import version

KAFKA = f"kafka_2.13-{version('kafka.version')}.jar"
JARS = (
    f"libs/{KAFKA}",
    "libs/connect-runtime-1.jar",
    "libs/log4j-slf4j-impl-1.jar",
    "agent/jmx_prometheus_javaagent-1.jar",
)


def _unpacked(folder: Path, jars: Sequence[str] = JARS) -> Path:
    for name in jars:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / name, "w") as jar:
            jar.writestr("name", "text")
    return folder


@pytest.mark.parametrize("inside", [".", "towpath-kafka-1.2.3"])
def test_kafka_is_found_in_the_folder_or_in_the_one_that_the_archive_contains(tmp_path: Path, inside: str) -> None:
    place = _unpacked(tmp_path / inside)
    assert parts._unpacked_kafka(tmp_path) == place


@pytest.mark.parametrize("missing", JARS)
def test_kafka_that_lacks_a_jar_is_refused(tmp_path: Path, missing: str) -> None:
    _unpacked(tmp_path, [name for name in JARS if name != missing])
    with pytest.raises(StackError, match=f"missing or damaged: {Path(missing).stem.rpartition('-')[0]}"):
        parts._unpacked_kafka(tmp_path)


def test_kafka_of_another_version_is_refused(tmp_path: Path) -> None:
    (_unpacked(tmp_path) / "libs" / KAFKA).rename(tmp_path / "libs" / "kafka_2.13-4.2.0.jar")
    with pytest.raises(StackError, match=rf"missing or damaged: {KAFKA}; unpack towpath-kafka-{installed('towpath')}"):
        parts._unpacked_kafka(tmp_path)


@pytest.mark.parametrize(
    ("option", "lacking"),
    [
        ("--kafka", KAFKA),
        ("--plugins", "debezium-connector-mongodb, mongo-kafka-connect, mongodb-driver-sync, towpath-transforms"),
    ],
)
def test_up_with_a_folder_that_holds_something_else_says_what_to_unpack_and_starts_nothing(
    tmp_path: Path, option: str, lacking: str
) -> None:
    done = _up(tmp_path, option, _unpacked(tmp_path / "folder", ["other-1.jar"]))
    archive = {"--kafka": "kafka", "--plugins": "mongodb"}[option]
    assert done.stderr.strip() == (
        f"towpath: {tmp_path}/folder is not whole; missing or damaged: {lacking};"
        f" unpack towpath-{archive}-{installed('towpath')}.zip of a release there"
    )
    assert done.returncode == 2
    assert not (tmp_path / "stack" / "stack.json").exists()
    assert not (tmp_path / "cache").exists()


def test_up_with_a_jar_that_is_cut_short_names_it(tmp_path: Path) -> None:
    kafka = _unpacked(tmp_path / "folder")
    (kafka / "libs" / "scala-1.jar").write_bytes(b"PK")
    done = _up(tmp_path, "--kafka", kafka)
    assert "missing or damaged: scala-1.jar; unpack" in done.stderr
    assert done.returncode == 2


def test_up_with_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = _up(tmp_path, "--kafka", tmp_path / "nowhere")
    assert "does not exist" in done.stderr
    assert done.returncode == 2


def _up(place: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    towpath = Path(sys.executable).parent / "towpath"
    command = [towpath, "stack", "up", "--dir", place / "stack", *words]
    own = os.environ | {"TOWPATH_CACHE": str(place / "cache")}
    return subprocess.run(command, env=own, capture_output=True, text=True, check=False, timeout=60)
