"""What `check` and `deploy` ask the servers: nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from tests.support.pipeline import Pipeline, Settings
from towpath.checks.facts import Facts
from towpath.clients.mongo import client as mongo
from towpath.deploy import deployment
from towpath.deploy.deployment import Deployment
from towpath.session import Session, opened

pytestmark = pytest.mark.servers

_OF_DRIVER = ("hello", "ping", "endSessions", "getMore", "killCursors", "saslStart", "saslContinue")
_OF_SESSION = ("lsid", "$clusterTime", "$readPreference", "txnNumber")


class Commands(CommandListener):
    """Every command that a client of MongoDB sends."""

    def __init__(self, asked: Counter[str]) -> None:
        self.asked = asked

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name not in _OF_DRIVER:
            body = {key: value for key, value in event.command.items() if key not in _OF_SESSION}
            self.asked[f"{event.connection_id} {event.database_name} {body}"] += 1

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass


class Admin:
    """Kafka's client, whose requests are counted."""

    def __init__(self, client: Any, asked: Counter[str]) -> None:
        self._client, self._asked = client, asked

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*values: Any, **named: Any) -> Any:
            if name == "list_offsets":
                places = {(place.topic, place.partition): type(spec).__name__ for place, spec in values[0].items()}
                self._asked[f"{name} {sorted(places.items())} {named['isolation_level']}"] += 1
            elif name not in ("poll", "create_topics"):
                self._asked[f"{name} {values}"] += 1
            return method(*values, **named)

        return call


@contextmanager
def counting(pipeline: Pipeline, patch: pytest.MonkeyPatch) -> Iterator[tuple[Session, Counter[str]]]:
    asked: Counter[str] = Counter()

    def count(request: httpx.Request) -> None:
        asked[f"{request.method} {request.url} {request.read()!r}"] += 1

    def client(uri: str, **options: Any) -> MongoClient[dict[str, Any]]:
        return MongoClient(uri, event_listeners=[Commands(asked)], **options)

    patch.setattr(mongo, "MongoClient", client)
    with opened(pipeline.write()) as session:
        session.connect._client.event_hooks = {"request": [count]}
        session.topics.__dict__["_admin"] = Admin(session.topics._admin, asked)
        yield session, asked


def repeated(asked: Counter[str]) -> list[str]:
    assert len(asked) > 20, asked
    return [request for request, count in asked.items() if count > 1]


def test_no_request_is_repeated(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first deployment, and after it; with a change to make, and without one."""
    for name in ("docs", "more"):
        pipeline.source(name).insert_one({"_id": 1})
    with counting(pipeline, monkeypatch) as (session, asked):
        assert not [one for one in deployment.findings(Facts(session)) if one.level == "error"]
        assert repeated(asked) == []
    with counting(pipeline, monkeypatch) as (session, asked):
        planned = Deployment(Facts(session))
        assert planned.plan() and not planned.differences()
        assert repeated(asked) == []
    pipeline.deploy()
    pipeline.wait()
    changed = replace(pipeline, settings=Settings(write={"tasks": 3}))
    for one, changes in ((pipeline, 0), (changed, 1)):
        with counting(one, monkeypatch) as (session, asked):
            assert not [found for found in deployment.findings(Facts(session)) if found.level == "error"]
            assert repeated(asked) == []
        with counting(one, monkeypatch) as (session, asked):
            assert len(Deployment(Facts(session)).plan()) == changes
            assert repeated(asked) == []
