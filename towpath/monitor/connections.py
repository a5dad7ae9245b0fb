"""The socket of the server and its connections, which are bounded in number, size and time: whoever opens many, reads
nothing or sends slowly takes neither memory nor files from the supervisor."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from towpath.errors import TowpathError
from towpath.monitor.access import LONGEST_BODY, Receive, Scope, Send, answer

MOST_CONNECTIONS = 400
_MOST_REFUSED = 100  # further ones, that get an answer; an own process has about 1,000 files
REQUEST_SECONDS = 10.0
"""In which a request has to come whole, from the connection or its first byte on."""
UNREAD_SECONDS = 30
"""After which a connection is closed whose client takes nothing of what is sent."""
_LINGER_SECONDS = 2.0  # in which a client that is refused may go on to send
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


class _Lingering:
    """A transport that closes when its client has stopped sending: closing earlier would reset the connection, and the
    client could lose the answer that refuses its request."""

    def __init__(self, transport: asyncio.Transport, connection: h11.Connection) -> None:
        self._transport, self._connection = transport, connection
        self._end: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._end is not None or self._transport.is_closing()

    def close(self) -> None:
        is_answered = self._connection.our_state in (h11.MUST_CLOSE, h11.CLOSED)
        if self.is_closing() or not is_answered or self._connection.their_state not in (h11.SEND_BODY, h11.ERROR):
            self._end_now()
            return
        self._end = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.close)
        self._transport.resume_reading()
        if self._transport.can_write_eof():  # not with TLS
            self._transport.write_eof()

    def _end_now(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._transport.close()


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
        self.transport = cast(asyncio.Transport, _Lingering(transport, self.conn))
        self._await_request()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._await_request()
        else:
            self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        """Called while the error of h11 is handled."""
        if getattr(sys.exc_info()[1], "error_status_hint", 400) == 431:
            words = f"the headers of a request may have {LONGEST_BODY:,} bytes"
            self._refuse(431, b"Request Header Fields Too Large", words)
        else:
            self._refuse(400, b"Bad Request", "this is not a request of HTTP/1.1")

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
        self._refuse(408, b"Request Timeout", f"a request has to come whole within {REQUEST_SECONDS:g} s")

    def _refuse(self, status: int, reason: bytes, words: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer has begun
            body = json.dumps({"error": words}).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=status, headers=headers, reason=reason),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, 503, f"{MOST_CONNECTIONS} connections are open; try again later", {"retry-after": "5"})
