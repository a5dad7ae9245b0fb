"""Connectors that are there: their states, waited for, stopped, resumed, their offsets moved and forgotten."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import tenacity

from connectors.rest import Connect, Connector, Passing, failure
from towpath.errors import ConnectError, ConnectUnreachable, NoSuchConnector, NotYet, TowpathError
from towpath.pipeline import Pipeline

T = TypeVar("T")
_STOPS = 60.0  # seconds until a connector and its tasks must have stopped


def statuses(connect: Connect, names: Iterable[str]) -> list[Connector]:
    """The state of each connector; one that Connect does not know is MISSING."""
    return [_status(connect, name) for name in names]


def _status(connect: Connect, name: str) -> Connector:
    try:
        return connect.status(name)
    except NoSuchConnector:
        return Connector(name, "MISSING", "", ())


@dataclass(slots=True)
class Wait:
    """Waits until something has come about, a connector has failed, or the time is over; times are in seconds.

    Trouble that may pass, such as a worker that rebalances or does not answer, is waited out until the time is over.
    """

    connect: Connect
    names: Collection[str]
    """The connectors that must not fail."""
    timeout: float
    late: str
    """What the message begins with when the time is over."""
    pause: float = 0.2
    failed_for: float = 5.0
    """A failure may be that of the tasks that a change is about to replace."""
    passing: tuple[type[TowpathError], ...] = (ConnectUnreachable, Passing)
    say: Callable[[str], object] = lambda _: None
    _end: float = field(init=False)
    _told: bool = field(default=False, init=False)
    _well: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self.extend()

    def extend(self) -> None:
        """The time begins anew."""
        self._end = time.monotonic() + self.timeout

    def until(self, look: Callable[[], T]) -> T:
        """What `look` returns, as soon as it does not raise `NotYet` with what it saw.

        Raises `NoSuchConnector` and `TowpathError` with the reason for connectors that are gone or have failed, and
        what was raised last when the time is over.
        """
        while True:
            try:
                return look()
            except TowpathError as error:
                if isinstance(error, NoSuchConnector) or not isinstance(error, (NotYet, *self.passing)):
                    raise
                self._go_on(error)

    def _go_on(self, last: TowpathError) -> None:
        found, failed = list[Connector](), None
        try:
            found = statuses(self.connect, self.names)
            failed = self._failure(found)
        except self.passing as error:
            last = error
        is_trouble = not isinstance(last, NotYet)
        if is_trouble and not self._told:
            self.say(f"{last}; waiting for it, up to {self.timeout:.0f} s")
        self._told = is_trouble
        now = time.monotonic()
        self._well = self._well if failed else now
        if failed and now >= self._well + self.failed_for:
            raise failed
        if now > self._end:
            standing = ", ".join(f"{c.name} is {c.state} with {len(c.tasks)} tasks" for c in found if not c.running)
            raise type(last)(f"{self.late}: {'; '.join(filter(None, (str(last), standing)))}") from last
        time.sleep(self.pause)

    def _failure(self, found: Iterable[Connector]) -> TowpathError | None:
        for connector in found:
            if connector.state == "MISSING" and self.connect.config(connector.name) is None:
                words = f"there is no connector {connector.name} at {self.connect.url}"
                return NoSuchConnector(words, advice="was it removed meanwhile?")
        return failure(found)


def wait_running(connect: Connect, pipeline: Pipeline, timeout: float, names: Iterable[str] | None = None) -> None:
    """Wait until all connectors, or those of these names, and their tasks are RUNNING; `timeout` in seconds.

    Raises `TowpathError` with the reason when one has failed and stays so, `NotYet` when the time is over.
    """
    awaited = tuple(pipeline.connectors if names is None else names)

    def running() -> None:
        if not all(connector.running for connector in statuses(connect, awaited)):
            raise NotYet("")

    Wait(connect, awaited, timeout, f"not running after {timeout:.0f} s").until(running)


def wait_stopped(connect: Connect, name: str) -> None:
    """Wait until a connector is STOPPED, and its tasks are gone."""

    def stopped() -> None:
        (found,) = statuses(connect, [name])
        if found.state != "STOPPED" or found.tasks:
            raise NotYet("")

    Wait(connect, [name], _STOPS, f"not stopped after {_STOPS:.0f} s", failed_for=math.inf).until(stopped)


def stop_sink(pipeline: Pipeline, connect: Connect) -> None:
    """Stop the pipeline's sink; once this returns, none of its tasks is left that Connect knows of."""
    connect.stop(pipeline.sink_connector)
    wait_stopped(connect, pipeline.sink_connector)


def resume_sink(pipeline: Pipeline, connect: Connect, timeout: float) -> None:
    """Resume the pipeline's sink where its positions are, and wait until it runs; `timeout` in seconds."""
    connect.resume(pipeline.sink_connector)
    wait_running(connect, pipeline, timeout, [pipeline.sink_connector])


#: A sink's consumers leave their group a while after its tasks have stopped; until then Connect answers 500.
_while_leaving = tenacity.retry(
    retry=tenacity.retry_if_exception(lambda error: isinstance(error, ConnectError) and error.status == 500),
    wait=tenacity.wait_fixed(0.2),
    stop=tenacity.stop_after_delay(60),
    reraise=True,
)


@_while_leaving
def forget_offsets(connect: Connect, name: str) -> None:
    """Forget a STOPPED connector's positions, if it has any.

    Connect answers 500 for ever about a source connector that was made STOPPED and never had a task.
    """
    if connect.offsets(name):
        connect.forget_offsets(name)


@_while_leaving
def move_offsets(connect: Connect, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Have a STOPPED sink's consumers go on at these offsets."""
    connect.move_offsets(name, offsets)
