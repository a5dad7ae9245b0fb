"""Connectors that Strimzi's operator owns: it reverts changes of configuration and state, and deletes unknown ones.

A restart is not a change: the operator lets it be.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from towpath.clients.connect.control import statuses
from towpath.clients.connect.rest import Connect
from towpath.config.pipeline import Pipeline
from towpath.errors import Refused

#: `spec.state` of a KafkaConnector.
State = Literal["running", "paused", "stopped"]


def refuse_change(pipeline: Pipeline, what: str) -> None:
    """Raise `Refused` where an operator owns the connectors, for a command that creates connectors or changes them."""
    if pipeline.has_operator:
        raise Refused(
            f"{what} changes or adds connectors of {pipeline.name}, and Strimzi's operator, which owns them, would undo"
            " that",
            'let the operator pause, and set [connect] owner = "towpath" for that time'
            " (docs/how-to/kubernetes.md#what-changes-connectors)",
        )


def refuse_state(pipeline: Pipeline, state: State) -> None:
    """Raise `Refused` where an operator owns the connectors: it sets their state, as their resources say."""
    if pipeline.has_operator:
        raise Refused(
            f"Strimzi's operator owns the connectors of {pipeline.name}, and sets their state",
            in_state(pipeline, state),
        )


def refuse_removal(pipeline: Pipeline, connect: Connect, *, log: bool) -> None:
    """Raise `Refused` where an operator would make removed connectors again.

    The log and the positions can be removed once the operator has stopped the connectors.
    """
    if not pipeline.has_operator:
        return
    if not log:
        raise Refused(
            f"Strimzi's operator owns the connectors of {pipeline.name}, and would make them again",
            f"run: {removal(pipeline)}",
        )
    existing = [status for status in statuses(connect, pipeline.connectors) if status.state != "MISSING"]
    if any(status.state != "STOPPED" for status in existing):
        raise Refused(
            f"the connectors of {pipeline.name} are not stopped, and Strimzi's operator owns them",
            f"{in_state(pipeline, 'stopped')}; then run this again",
        )


def in_state(pipeline: Pipeline, state: State) -> str:
    """What to run so that the operator brings the connectors into a state."""
    patch = f'\'{{"spec":{{"state":"{state}"}}}}\''
    return "run: " + "; ".join(f"kubectl patch {name} --type merge -p {patch}" for name in _resources(pipeline))


def removal(pipeline: Pipeline) -> str:
    """What to run so that the operator removes the connectors."""
    return f"kubectl delete {' '.join(_resources(pipeline))}"


def _resources(pipeline: Pipeline) -> Iterable[str]:
    return [f"kafkaconnector/{name}" for name in pipeline.connectors]
