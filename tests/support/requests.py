"""Counts the requests that a session sends to MongoDB, Kafka and Connect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from towpath.clients.mongo import client as mongo
from towpath.session import Session, opened

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
def counting(file: Path) -> Iterator[tuple[Session, Counter[str]]]:
    """A session of that pipeline file, and every request that it sends from now on, by its content."""
    asked: Counter[str] = Counter()

    def count(request: httpx.Request) -> None:
        asked[f"{request.method} {request.url} {request.read()!r}"] += 1

    def client(uri: str, **options: Any) -> MongoClient[dict[str, Any]]:
        return MongoClient(uri, event_listeners=[Commands(asked)], **options)

    with pytest.MonkeyPatch.context() as patch, opened(file) as session:
        patch.setattr(mongo, "MongoClient", client)
        session.connect._client.event_hooks = {"request": [count]}
        session.topics.__dict__["_admin"] = Admin(session.topics._admin, asked)
        yield session, asked
