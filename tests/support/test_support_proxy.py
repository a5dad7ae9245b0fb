"""The proxy passes all bytes on, and cuts, refuses, holds and slows connections when it is told to."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.proxy import HOST, Proxy


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """In front of a server that sends back what it gets."""
    with socket.create_server((HOST, 0)) as server:

        def answer(client: socket.socket) -> None:
            with client, suppress(OSError):
                while piece := client.recv(65536):
                    client.sendall(piece)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=[server.accept()[0]], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        with Proxy(lambda: int(server.getsockname()[1])) as running:
            yield running
        server.shutdown(socket.SHUT_RDWR)


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=5)


def echoed(client: socket.socket, sent: bytes) -> bytes:
    client.sendall(sent)
    found = b""
    while len(found) < len(sent):
        found += client.recv(65536) or pytest.fail("the connection ended")
    return found


def test_all_bytes_come_through_in_order(proxy: Proxy) -> None:
    sent = bytes(range(256)) * 400
    with connected(proxy) as client:
        assert echoed(client, sent) == sent
    assert proxy.passed == 2 * len(sent)


def test_a_cut_resets_what_is_open_and_nothing_else(proxy: Proxy) -> None:
    with connected(proxy) as client, connected(proxy) as other:
        assert (echoed(client, b"a"), echoed(other, b"b")) == (b"a", b"b")
        assert proxy.cut() == 2
        for one in (client, other):
            with pytest.raises(ConnectionResetError):
                one.recv(1)
    with connected(proxy) as later:
        assert echoed(later, b"c") == b"c"


def test_nothing_gets_in_while_it_refuses(proxy: Proxy) -> None:
    with proxy.refusing() as open_before:
        assert open_before == 0
        with connected(proxy) as client, suppress(ConnectionResetError):
            assert client.recv(1) == b""
    with connected(proxy) as later:
        assert echoed(later, b"c") == b"c"


def test_what_is_held_comes_later(proxy: Proxy) -> None:
    with connected(proxy) as client:
        assert echoed(client, b"a") == b"a"
        with proxy.holding():
            client.sendall(b"b")
            client.settimeout(0.3)
            with pytest.raises(TimeoutError):
                client.recv(1)
        client.settimeout(5)
        assert client.recv(1) == b"b"


def test_a_slow_connection_has_so_many_bytes_a_second(proxy: Proxy) -> None:
    with connected(proxy) as client, proxy.slow(0, 100_000):
        begun = time.monotonic()
        assert len(echoed(client, b"x" * 20_000)) == 20_000
        assert time.monotonic() - begun >= 0.4  # both ways
