"""The socket of the server and its connections, which are bounded in number, size and time: whoever opens many, reads
nothing or sends slowly takes neither memory nor files from the supervisor."""

from __future__ import annotations

import asyncio
import json
import socket

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from towpath.errors import TowpathError
from towpath.monitor.access import Receive, Scope, Send, answer

MOST_CONNECTIONS = 400
_MOST_REFUSED = 100  # further ones, that get an answer; an own process has about 1,000 files
REQUEST_SECONDS = 10.0
"""In which a request has to come whole, from the connection or its first byte on."""
UNREAD_SECONDS = 30
"""After which a connection is closed whose client takes nothing of what is sent."""
_BUFFER = 64 * 1024  # bytes that the kernel keeps for one client


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises `TowpathError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, address = found[0]
        listening = socket.socket(family, kind)
        # connections inherit these
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        listening.bind(address)
        listening.listen(1_024)
        return listening
    except OSError as error:
        raise TowpathError(
            f"cannot listen at {host}:{port}: {error.strerror or error}", "choose another address: --listen"
        ) from error


class Connection(H11Protocol):
    """Refuses when there are too many, and closes itself when its client does not send a whole request in time."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS + _MOST_REFUSED:
            transport.abort()
            return
        if len(self.connections) > MOST_CONNECTIONS:
            self.app = _full
        self._await_request()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._await_request()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(REQUEST_SECONDS, self._refuse_late)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse_late(self) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer has begun
            body = json.dumps({"error": f"a request has to come whole within {REQUEST_SECONDS:g} s"}).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, 503, f"{MOST_CONNECTIONS} connections are open; try again later", {"retry-after": "5"})
