"""Sessions whose services are stand-ins."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from towpath.config.pipeline import Pipeline
from towpath.session import Say, Session, unsaid


class FakeCluster:
    """A cluster with this client, or one at which every question raises `error`."""

    def __init__(self, client: Any = None, error: Exception | None = None, side: str = "source") -> None:
        self._client, self._error, self.side = client, error, side
        self.uri = self.address = f"mongodb://{side}"
        self.is_stuck = False
        """Whether something has left a lock of its client taken."""

    def client(self, **_: float) -> Any:
        return self._client

    def renew(self) -> None:
        self.is_stuck = False

    def connected(self, **_: float) -> Any:
        assert not self.is_stuck, "this call would wait for ever"
        if self._error is not None:
            raise self._error
        return nullcontext(self._client)

    briefly = connected


def session_of(
    pipeline: Pipeline,
    connect: Any = None,
    topics: Any = None,
    file: Path = Path("shop.toml"),
    say: Say = unsaid,
    *,
    source: Any = None,
    destination: Any = None,
) -> Session:
    """Without clusters given, those of the sides, each with the name of its side for a client."""
    source = source or FakeCluster("source", side="source")
    destination = destination or FakeCluster("destination", side="destination")
    return Session(pipeline, source, destination, connect, topics, file, say)
