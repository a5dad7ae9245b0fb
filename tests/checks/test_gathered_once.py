"""What commands ask the servers: `check` nothing twice, others no list, no privileges and no offsets."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pymongo.uri_parser import parse_uri

from tests.support.pipeline import Pipeline, Settings
from tests.support.requests import counting
from towpath.checks.facts import Facts
from towpath.checks.rule import run
from towpath.cli import deploy, status, verify
from towpath.cutover.gate import GATE, PRECONDITIONS, Readiness
from towpath.cutover.steps import CutoverOptions
from towpath.deploy import deployment
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
        facts = Facts(session)
        assert deployment.plan(facts) and not list(deployment.differences(facts))
        assert repeated(asked) == []
    pipeline.deploy()
    pipeline.wait()
    changed = replace(pipeline, settings=Settings(write={"tasks": 3}))
    for one, changes in ((pipeline, 0), (changed, 1)):
        with counting(one.write()) as (session, asked):
            assert not [found for found in deployment.findings(Facts(session)) if found.level == "error"]
            assert repeated(asked) == []
        with counting(one.write()) as (session, asked):
            assert len(deployment.plan(Facts(session))) == changes
            assert repeated(asked) == []


LISTS = ("'listDatabases'", "'listCollections'", "'listIndexes'")
PRIVILEGES, OFFSETS, CONFIGURATION = "'connectionStatus'", "-source/offsets", "-source/config"


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
            assert set(counts(asked, OFFSETS, CONFIGURATION, *LISTS[:2]).values()) == {1}, asked


def test_the_gate_of_a_cutover_lists_each_side_once_and_asks_once_for_privileges(filled: Pipeline) -> None:
    options = CutoverOptions(newest=1, blocks=True)
    with counting(filled.file) as (session, asked):
        found = run((*GATE, *PRECONDITIONS), Readiness(session, None, options, answers=False))
        assert [one.subject for one in found if one.level == "error"] == ["verified"], found
        described = {request: count for request, count in counts(asked, *LISTS, PRIVILEGES).items() if count > 1}
        assert described == {}


def command(module: Any, session: Any, monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> None:
    monkeypatch.setattr(module, "opened", lambda _: nullcontext(session))
    name = module.__name__.rpartition(".")[2]
    assert not getattr(module, name).main([str(word) for word in words], standalone_mode=False)


def test_verify_lists_each_side_once(filled: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    with counting(filled.file) as (session, asked):
        command(verify, session, monkeypatch, filled.file, "--processes", "1")
        assert set(counts(asked, *LISTS).values()) == {1}, asked


def test_deploy_lists_the_source_once(filled: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the destination, first the databases of the pipeline, and then all."""
    [(_, port)] = parse_uri(filled.addresses.source)["nodelist"]
    with counting(filled.file) as (session, asked):
        command(deploy, session, monkeypatch, filled.file, "--dry-run")
        found = counts(asked, "'listDatabases'", "'listCollections'")
        assert {count for request, count in found.items() if f", {port})" in request} == {1}, asked
        assert max(count for request, count in found.items() if f", {port})" not in request) == 2, asked
