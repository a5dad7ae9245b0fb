"""What `check` and `deploy` ask the servers: nothing twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.support.pipeline import Pipeline, Settings
from tests.support.requests import counting
from towpath.checks.facts import Facts
from towpath.deploy import deployment
from towpath.deploy.deployment import Deployment

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
