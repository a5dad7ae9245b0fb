"""A member of a replica set that answers `hello`, and everything else with an empty cursor; no MongoDB is needed."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import bson

_HEADER = struct.Struct("<iiii")
_OP_REPLY, _OP_MSG = 1, 2013
PRIMARY = {"setName": "rs", "isWritablePrimary": True, "hosts": ["one.example:1"]}
SECONDARY = {"setName": "rs", "isWritablePrimary": False, "secondary": True, "hosts": ["one.example:1"]}
HIDDEN = SECONDARY | {"hidden": True}
STARTING = {"setName": "rs", "isWritablePrimary": False, "secondary": False, "hosts": ["one.example:1"]}
UNINITIATED = {"isWritablePrimary": False, "secondary": False, "isreplicaset": True}
STANDALONE = {"isWritablePrimary": True}


class Reachable:
    """What stand-ins for a client need, to be read from: it is not connected directly to a member."""

    options = SimpleNamespace(direct_connection=None)


@dataclass
class Member:
    state: dict[str, Any]
    address: str = ""
    commands: list[dict[str, Any]] = field(default_factory=list)
    """Those that it got, without `hello`."""

    @property
    def asked(self) -> list[str]:
        """Their names."""
        return [next(iter(command)) for command in self.commands]

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        name = next(iter(command))
        if name.lower() in ("hello", "ismaster"):
            limits = {"maxBsonObjectSize": 1 << 24, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000}
            versions = {"minWireVersion": 0, "maxWireVersion": 21, "helloOk": True, "ok": 1.0}
            return self.state | limits | versions | {"localTime": datetime.now(UTC)}
        self.commands.append(command)
        return {"cursor": {"id": 0, "ns": "shop.$cmd", "firstBatch": []}, "ok": 1.0}


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with suppress(ConnectionError):
            while head := self.rfile.read(_HEADER.size):
                length, number, _, operation = _HEADER.unpack(head)
                body = self.rfile.read(length - _HEADER.size)
                member: Member = self.server.member  # type: ignore[attr-defined]
                if operation == _OP_MSG:
                    answer = bytes(5) + bson.encode(member.answer(bson.decode(body[5 : 5 + _length(body, 5)])))
                    self._send(_OP_MSG, number, answer)
                else:  # OP_QUERY, with which a driver begins: flags, the name, two numbers, the command
                    start = body.index(b"\0", 4) + 9
                    answer = bson.encode(member.answer(bson.decode(body[start : start + _length(body, start)])))
                    self._send(_OP_REPLY, number, struct.pack("<iqii", 8, 0, 0, 1) + answer)

    def _send(self, operation: int, number: int, body: bytes) -> None:
        self.wfile.write(_HEADER.pack(_HEADER.size + len(body), 1, number, operation) + body)


def _length(body: bytes, at: int) -> int:
    return int(struct.unpack_from("<i", body, at)[0])


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


@contextmanager
def member(state: dict[str, Any]) -> Iterator[Member]:
    """A member in this state, which can be changed."""
    with _Server(("127.0.0.1", 0), _Connection) as server:
        server.member = made = Member(state, f"127.0.0.1:{server.server_address[1]}")  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()
