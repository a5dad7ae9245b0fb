"""Connectors that are there: their states, waited for, stopped, resumed, their offsets moved and forgotten."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import tenacity

from connectors.rest import Connect, Connector, failure
from towpath.errors import ConnectError, NoSuchConnector, NotYet
from towpath.pipeline import Pipeline

_PAUSE = 0.2  # seconds between two looks
_FAILED_FOR = 5.0  # seconds: a failure may be that of the tasks that a change is about to replace


def statuses(connect: Connect, names: Iterable[str]) -> list[Connector]:
    """The state of each connector; one that Connect does not know is MISSING."""
    return [_status(connect, name) for name in names]


def _status(connect: Connect, name: str) -> Connector:
    try:
        return connect.status(name)
    except NoSuchConnector:
        return Connector(name, "MISSING", "", ())


def wait_running(connect: Connect, pipeline: Pipeline, timeout: float, names: Iterable[str] | None = None) -> None:
    """Wait until all connectors, or those of these names, and their tasks are RUNNING; `timeout` in seconds.

    Raises `TowpathError` with the reason when one has failed and stays so, `NotYet` when the time is over.
    """
    end, well = time.monotonic() + timeout, time.monotonic()
    awaited = tuple(pipeline.connectors if names is None else names)
    while True:
        found = statuses(connect, awaited)
        failed = failure(found)
        well = well if failed else time.monotonic()
        if failed and time.monotonic() > well + _FAILED_FOR:
            raise failed
        if all(connector.running for connector in found):
            return
        if time.monotonic() > end:
            words = ", ".join(f"{c.name} {c.state} with {len(c.tasks)} tasks" for c in found)
            raise NotYet(f"not running after {timeout:.0f} s: {words}")
        time.sleep(_PAUSE)


def wait_state(connect: Connect, name: str, state: str, timeout: float = 60) -> None:
    """Wait until a connector is in a state, and when that is STOPPED until its tasks are gone; `timeout` in seconds."""
    end = time.monotonic() + timeout
    while (found := _status(connect, name)).state != state or (state == "STOPPED" and found.tasks):
        if time.monotonic() > end:
            raise NotYet(f"{name} is {found.state} after {timeout:.0f} s, and {state} was asked for")
        time.sleep(_PAUSE)


def stop_sink(pipeline: Pipeline, connect: Connect) -> None:
    """Stop the pipeline's sink; once this returns, none of its tasks is left that Connect knows of."""
    connect.stop(pipeline.sink_connector)
    wait_state(connect, pipeline.sink_connector, "STOPPED")


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
