"""Connectors: their states, and waits for them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from towpath.clients.connect.rest import Connect, Connector, Passing, failure
from towpath.errors import ConnectUnreachable, NoSuchConnector, NotYet, TowpathError

T = TypeVar("T")
_STOPS = 60.0  # seconds until a connector and its tasks must have stopped
_STOPPING_PAUSE = 0.05  # writers may wait for it
_START_S = 30.0  # within which tasks start on a worker that has much to do
_SHORTEST_PAUSE = 0.02  # a poll costs the worker a few milliseconds
_UNASSIGNED_S = 20.0  # longer than a rebalance takes, unless a worker is gone


def statuses(connect: Connect, names: Iterable[str]) -> list[Connector]:
    """The state of each connector."""
    return [connect.status(name) for name in names]


def missing(connect: Connect, connectors: Iterable[Connector], advice: str) -> NoSuchConnector | None:
    """The error for the first connector that does not exist; None when all do."""
    for connector in connectors:
        if connector.state == "MISSING" and connect.config(connector.name) is None:
            return NoSuchConnector(f"there is no connector {connector.name} at {connect.url}", advice=advice)
    return None


@dataclass(slots=True)
class Unassigned:
    """Which connectors have been UNASSIGNED for so long, themselves or a task, that a restart is worth it.

    Either no worker has them: then a restart helps nothing, and also restarts the tasks that run. Or they run, and
    Connect does not know: a worker writes UNASSIGNED and then RUNNING to the status topic, and retries each without
    regard to the other. While a broker restarts, UNASSIGNED can be written last, and stays until the connector is
    restarted (seen with Kafka 4.3.1).
    """

    _next: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When to restart each, and how long to wait then."""

    def due(self, connectors: Iterable[Connector], now: float) -> list[str]:
        """Those to restart now, of all connectors; each again after twice as long. `now` in seconds of one clock."""
        found = {connector.name for connector in connectors if connector.unassigned}
        first = now + _UNASSIGNED_S, 2 * _UNASSIGNED_S
        self._next = {name: self._next.get(name, first) for name in found}
        due = sorted(name for name, (at, _) in self._next.items() if now >= at)
        for name in due:
            pause = self._next[name][1]
            self._next[name] = now + pause, 2 * pause
        return due


@dataclass(slots=True)
class Wait:
    """Waits for a condition, until a connector has failed or the time is over; times are in seconds.

    It continues to wait during errors that may pass, such as a worker that rebalances or does not answer.
    """

    connect: Connect
    names: Collection[str]
    """The connectors that must not fail."""
    timeout: float
    late: str
    """The beginning of the message when the time is over."""
    pause: float = 0.2
    """The longest between two polls, or a hundredth of the time waited so far; the first ones are a quarter of it."""
    failed_for: float = 5.0
    """How long a failure must last: it may be of tasks that a change is about to replace."""
    replaced: Collection[Connector] = ()
    """The connectors before such a change. What failed then must last longer: Connect shows it until the new tasks have
    started."""
    passing: tuple[type[TowpathError], ...] = (ConnectUnreachable, Passing)
    say: Callable[[str], object] = lambda _: None
    _end: float = field(init=False)
    _began: float = field(default_factory=time.monotonic, init=False)
    _reported: bool = field(default=False, init=False)
    _healthy_at: float = field(default_factory=time.monotonic, init=False)
    _unassigned: Unassigned = field(default_factory=Unassigned, init=False)

    def __post_init__(self) -> None:
        self.extend()

    def extend(self) -> None:
        """Start the time again."""
        self._end = time.monotonic() + self.timeout

    def until(self, condition: Callable[[], T]) -> T:
        """The result of `condition`, once it no longer raises `NotYet` with the state that it found.

        Raises `NoSuchConnector` and `TowpathError` with the reason for connectors that are gone or have failed, and
        the last error when the time is over.
        """
        self._began = time.monotonic()
        while True:
            try:
                return condition()
            except TowpathError as error:
                if isinstance(error, NoSuchConnector) or not isinstance(error, (NotYet, *self.passing)):
                    raise
                self._pause(error)

    def _pause(self, last: TowpathError) -> None:
        connectors: list[Connector] = []
        failed: TowpathError | None = None
        try:
            connectors = statuses(self.connect, self.names)
            failed = missing(self.connect, connectors, "was it removed in the meantime?") or failure(connectors)
            for name in self._unassigned.due(connectors, time.monotonic()):
                with suppress(TowpathError):  # as while the leading worker is away: the next time
                    self.connect.restart(name, only_failed=False)
        except self.passing as error:
            last = error
        is_error = not isinstance(last, NotYet)
        if is_error and not self._reported:
            self.say(f"{last}; waiting for it, up to {self.timeout:.0f} s")
        self._reported = is_error
        now = time.monotonic()
        self._healthy_at = self._healthy_at if failed else now
        if failed and now >= self._healthy_at + patience(connectors, self.replaced, self.failed_for):
            raise failed
        if now > self._end:
            states = ", ".join(f"{c.name} is {c.state} with {len(c.tasks)} tasks" for c in connectors if not c.running)
            raise type(last)(f"{self.late}: {'; '.join(filter(None, (str(last), states)))}") from last
        waited = now - self._began
        time.sleep(min(max(self.pause, waited / 100), max(_SHORTEST_PAUSE, waited / 4)))


def patience(now: Iterable[Connector], before: Iterable[Connector], failed_for: float) -> float:
    """How long, in seconds, the failures of these connectors must last: longer if all were there `before`."""
    known = {(connector.name, failure) for connector in before for failure in connector.failures}
    found = {(connector.name, failure) for connector in now for failure in connector.failures}
    return max(failed_for, _START_S) if found and found <= known else failed_for


def wait_running(
    connect: Connect, names: Collection[str], timeout: float, *, replaced: Collection[Connector] = ()
) -> None:
    """Wait until these connectors and their tasks are RUNNING; `timeout` in seconds.

    `replaced` are the connectors before a change, whose failures may still be shown.
    Raises `TowpathError` with the reason when one has failed and stays so, `NotYet` when the time is over.
    """
    late = f"not running after {timeout:.0f} s"
    _wait(Wait(connect, names, timeout, late, replaced=replaced), lambda connector: connector.running)


def wait_stopped(connect: Connect, name: str) -> None:
    """Wait until a connector is STOPPED, and its tasks are gone."""
    late = f"not stopped after {_STOPS:.0f} s"
    waiting = Wait(connect, [name], _STOPS, late, pause=_STOPPING_PAUSE, failed_for=math.inf)
    _wait(waiting, lambda connector: connector.state == "STOPPED" and not connector.tasks)


def _wait(waiting: Wait, is_so: Callable[[Connector], bool]) -> None:
    def check() -> None:
        if not all(map(is_so, statuses(waiting.connect, waiting.names))):
            raise NotYet("")

    waiting.until(check)


def stop(connect: Connect, name: str) -> None:
    """Stop a connector, and wait until its tasks are gone."""
    connect.stop(name)
    wait_stopped(connect, name)
