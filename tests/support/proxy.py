"""A proxy between any two parts, whose connections can be cut, refused, held up and slowed down."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, TypeVar

Found = TypeVar("Found")

HOST = "127.0.0.1"
_PIECE = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: closing sends RST


class Proxy:
    """Listens on a separate port from entry to exit of a `with`; `target` tells the port where connections go."""

    def __init__(self, target: Callable[[], int]) -> None:
        self.passed = 0
        """Bytes, both ways."""
        self._target = target
        self._refuses = False
        self._delay, self._per_second = 0.0, 0
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._flows = self._do(_event())
        self._server = self._do(asyncio.start_server(self._accept, HOST, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def cut(self) -> int:
        """Reset every connection that is open; how many there were."""
        return self._do(self._cut())

    @contextmanager
    def refusing(self) -> Iterator[int]:
        """Every connection is reset, old ones and new ones; the number of old ones."""
        self._refuses = True
        try:
            yield self.cut()
        finally:
            self._refuses = False

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Nothing goes through, either way, and nothing is said about it; at the end all continues."""
        self._loop.call_soon_threadsafe(self._flows.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._flows.set)

    @contextmanager
    def slow(self, delay: float, per_second: int) -> Iterator[None]:
        """Each piece comes so many seconds later, and a connection has so many bytes a second."""
        self._delay, self._per_second = delay, per_second
        try:
            yield
        finally:
            self._delay, self._per_second = 0.0, 0

    def _do(self, what: Coroutine[Any, Any, Found]) -> Found:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _close(self) -> None:
        self._server.close()
        await self._cut()

    async def _cut(self) -> int:
        for writer in list(self._open):
            raw = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        return len(self._open) // 2

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            onward, back = await asyncio.open_connection(HOST, self._target())
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, back}
        self._open |= ends
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(onward, writer))
        finally:
            self._open -= ends
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, RuntimeError):
            while piece := await reader.read(_PIECE):
                if self._per_second:
                    await asyncio.sleep(self._delay + len(piece) / self._per_second)
                await self._flows.wait()
                self.passed += len(piece)
                writer.write(piece)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()


async def _event() -> asyncio.Event:
    found = asyncio.Event()
    found.set()
    return found
