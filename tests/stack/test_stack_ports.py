"""Which ports a stack takes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from towpath.errors import StackError
from towpath.stack import processes


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which this test listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_free_ports_differ_and_can_be_listened_on() -> None:
    found = processes.free_ports(20)
    assert len(set(found)) == 20
    for port in found:
        socket.create_server(("127.0.0.1", port)).close()


def test_free_ports_leave_out_the_ones_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = processes.free_ports(2)
    with socket.create_server(("127.0.0.1", first)):
        monkeypatch.setattr(processes, "PORTS", range(first, first + 1))
        with pytest.raises(StackError, match="no 1 free ports"):
            processes.free_ports(1)
    monkeypatch.setattr(processes, "PORTS", range(second, second + 1))
    assert processes.free_ports(1) == [second]


def test_a_base_counts_up_in_the_order_of_the_names() -> None:
    assert processes.ports_for(["b", "a", "c"], 27017, {}) == {"b": 27017, "a": 27018, "c": 27019}


def test_known_ports_are_kept_when_more_are_needed() -> None:
    assert processes.ports_for(["a"], None, {"a": 5000}) == {"a": 5000}
    assert processes.ports_for(["a", "b", "c"], 27017, {"a": 27017, "b": 27018})["c"] == 27019
    chosen = processes.ports_for(["a", "b"], None, {"a": 5000})
    assert chosen["a"] == 5000
    assert chosen["b"] in processes.PORTS


@pytest.mark.parametrize("base", [80, 65535])
def test_a_base_that_leaves_no_room_is_refused(base: int) -> None:
    with pytest.raises(StackError, match=f"2 ports from {base} on"):
        processes.ports_for(["a", "b"], base, {})


def test_a_port_in_use_is_told_with_what_needs_it_and_who_holds_it(taken: int) -> None:
    with pytest.raises(StackError, match=rf"kafka needs port {taken} of 127\.0\.0\.1, .* by pid {os.getpid()} \("):
        processes.require_free_ports({"source-0": processes.free_ports(1)[0], "kafka": taken})


def test_accepts_tells_whether_a_process_listens(taken: int) -> None:
    assert processes.accepts(taken)
    assert not processes.accepts(processes.free_ports(1)[0])
