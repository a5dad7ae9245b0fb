"""What commands ask the servers: `check` nothing twice, others no list, no privileges and no offsets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.pipeline import Pipeline, Settings
from tests.support.requests import counting
from towpath.checks.facts import Facts
from towpath.cli import status
from towpath.deploy import deployment
from towpath.deploy.deployment import Deployment
from towpath.run.status import read_status

pytestmark = pytest.mark.servers


def repeated(asked: Counter[str]) -> list[str]:
    assert len(asked) > 20, asked
    return [request for request, count in asked.items() if count > 1]


def test_no_request_is_repeated(pipeline: Pipeline) -> None:
    """Before the first deployment, and after it; with a change to make, and without one."""
    for name in ("docs", "more"):
        pipeline.source(name).insert_one({"_id": 1})
    with counting(pipeline.write()) as (session, asked):
        assert not [one for one in deployment.findings(Facts(session)) if one.level == "error"]
        assert repeated(asked) == []
    with counting(pipeline.write()) as (session, asked):
        planned = Deployment(Facts(session))
        assert planned.plan() and not planned.differences()
        assert repeated(asked) == []
    pipeline.deploy()
    pipeline.wait()
    changed = replace(pipeline, settings=Settings(write={"tasks": 3}))
    for one, changes in ((pipeline, 0), (changed, 1)):
        with counting(one.write()) as (session, asked):
            assert not [found for found in deployment.findings(Facts(session)) if found.level == "error"]
            assert repeated(asked) == []
        with counting(one.write()) as (session, asked):
            assert len(Deployment(Facts(session)).plan()) == changes
            assert repeated(asked) == []


LISTS = ("'listDatabases'", "'listCollections'")
OFFSETS, CONFIGURATION = "-source/offsets", "-source/config"


def counts(asked: Counter[str], *words: str) -> dict[str, int]:
    """How often requests with one of these words were sent."""
    found = {request: count for request, count in asked.items() if any(word in request for word in words)}
    assert all(any(word in request for request in found) for word in words), found
    return found


@pytest.fixture
def filled(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    pipeline.source("docs").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    return pipeline


def test_status_asks_for_the_offsets_once(filled: Pipeline) -> None:
    for show in (status._complete, status._screen):
        with counting(filled.file) as (session, asked):
            show(session, read_status(session))
            assert set(counts(asked, OFFSETS, CONFIGURATION, *LISTS).values()) == {1}, asked
