"""Server-Sent Events: every update is made once, and each client gets it as fast as it reads.

A client that reads slowly keeps only the newest update of each kind, and the newest events: it loses updates, and the
server keeps no more for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_CLIENTS = 200
_MOST_PENDING = 200  # updates
_KEEP_ALIVE = 15.0  # seconds; proxies close what is silent, and a client that is gone is noticed


@dataclass(frozen=True, slots=True)
class Update:
    """`key`: a newer update of the same key takes its place. `audience`: `page` or `api`, and the pipeline."""

    key: str
    text: bytes
    audience: str
    pipeline: str

    @classmethod
    def of(cls, key: str, event: str, value: Any, *, audience: str, pipeline: str) -> Update:
        data = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
        return cls(key, f"event: {event}\ndata: {data}\n\n".encode(), audience, pipeline)


@dataclass(slots=True, eq=False)
class Client:
    """A client that follows one pipeline, or all (empty)."""

    audience: str
    pipeline: str
    pending: dict[str, Update] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    def follows(self, update: Update) -> bool:
        return self.audience == update.audience and self.pipeline in ("", update.pipeline)


class Full(Exception):
    """No more clients can follow."""


@dataclass(slots=True)
class Updates:
    """All clients; used in the server's event loop."""

    dropped: int = 0
    _clients: set[Client] = field(default_factory=set)

    @property
    def clients(self) -> int:
        return len(self._clients)

    def send(self, updates: Sequence[Update]) -> None:
        for client in self._clients:
            for update in filter(client.follows, updates):
                if client.pending.pop(update.key, None) is not None:
                    self.dropped += 1
                client.pending[update.key] = update
                if len(client.pending) > _MOST_PENDING:
                    del client.pending[next(iter(client.pending))]
                    self.dropped += 1
            if client.pending:
                client.wake.set()

    def join(self, audience: str, pipeline: str, first: Iterable[Update]) -> Client:
        """A client that follows from now on; `first` are the updates that show the present state. Raises `Full`."""
        if len(self._clients) >= MOST_CLIENTS:
            raise Full(f"{MOST_CLIENTS} clients follow already; close a page, or try again later")
        client = Client(audience, pipeline, {update.key: update for update in first})
        self._clients.add(client)
        return client

    def leave(self, client: Client) -> None:
        self._clients.discard(client)

    async def stream(self, client: Client) -> AsyncIterator[bytes]:
        """The updates for a client, as fast as they are taken."""
        yield b"retry: 1000\n\n"
        while not client.closed:
            if not client.pending:
                client.wake.clear()
                try:
                    await asyncio.wait_for(client.wake.wait(), _KEEP_ALIVE)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
            updates, client.pending = client.pending, {}
            if updates:
                yield b"".join(update.text for update in updates.values())

    def close(self) -> None:
        """End all streams."""
        for client in self._clients:
            client.closed = True
            client.wake.set()
