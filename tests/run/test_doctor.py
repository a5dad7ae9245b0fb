"""`towpath doctor`: what is in the archive, also of a pipeline whose servers are away."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.support.pipeline import towpath
from tests.support.servers import free_port
from towpath.config.loading import Places, write_pipeline_file
from towpath.run.doctor import _logs


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of a pipeline where nothing answers at any address."""
    a, b, c, d = (free_port() for _ in range(4))
    options = "replicaSet=a&serverSelectionTimeoutMS=500"
    source, destination = (f"mongodb://me:s3cr3t@127.0.0.1:{port}/?{options}" for port in (a, b))
    places = Places(source, destination, f"127.0.0.1:{c}", f"http://127.0.0.1:{d}")
    return write_pipeline_file(tmp_path / "shop.toml", include=["shop.*"], places=places)


@pytest.mark.nightly
def test_a_pipeline_whose_servers_are_away_is_collected_with_the_errors(file: Path, tmp_path: Path) -> None:
    logs, archive = tmp_path / "logs", tmp_path / "report.zip"
    logs.mkdir()
    (logs / "connect.log").write_text("password=other-s3cr3t\nstarted\n")
    (logs / "data.bin").write_text("no log")
    assert towpath("doctor", file, "--log", logs, "--output", archive).stdout.strip() == str(archive)
    assert archive.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(archive) as opened:
        found = {name: opened.read(name).decode() for name in opened.namelist()}
    names = ["versions.json", "pipeline.json", "connectors.json", "topics.json", "status.txt", "check.txt"]
    assert list(found) == [*names, "logs/00-connect.log"]
    assert [name for name, text in found.items() if "s3cr3t" in text] == []
    versions = json.loads(found["versions.json"])
    assert versions["packages"]["towpath"]
    assert all("cannot reach" in versions[side]["error"]["what"] for side in ("source", "connect"))
    assert json.loads(found["pipeline.json"])["collections"] == {"include": ["shop.*"], "exclude": [], "rename": {}}
    assert "cannot reach Kafka" in found["topics.json"]
    assert found["status.txt"].endswith("exit code 2\n")
    assert '"level": "error"' in found["check.txt"]
    assert found["logs/00-connect.log"].endswith("\nstarted\n")


def test_a_long_log_begins_with_a_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a line could be the rest of a secret, which nothing marks any more."""
    log = tmp_path / "connect.log"
    log.write_text("mongodb://me:a-s3cr3t@h/\nsecond\nthird\n")
    for size, text in ((16, "second\nthird\n"), (13, "second\nthird\n"), (12, "third\n"), (100, log.read_text())):
        monkeypatch.setattr("towpath.run.doctor._LOG_BYTES", size)
        assert list(_logs([log])) == [("logs/00-connect.log", text)]


def test_an_archive_that_exists_and_a_log_that_does_not_are_errors(file: Path, tmp_path: Path) -> None:
    archive = tmp_path / "report.zip"
    archive.write_text("mine")
    assert "File exists; name another file" in towpath("doctor", file, "--output", archive, expect=2).stderr
    assert archive.read_text() == "mine"
    assert "does not exist" in towpath("doctor", file, "--log", tmp_path / "no.log", expect=2).stderr
