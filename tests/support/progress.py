"""How far an exactly-once pipeline has come, as the source's offsets and the destination's own notes tell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.support import rest
from tests.support.awaited import until
from tests.support.pipeline import Pipeline

State = Literal["none", "copy", "hand-over", "stream"]
Offsets = Sequence[tuple[dict[str, Any], dict[str, Any]]]
"""Partitions and offsets of a source connector."""
STATES: tuple[State, ...] = ("none", "copy", "hand-over", "stream")


@dataclass(frozen=True, slots=True)
class Applied:
    """Of one partition: the next offset that the sink will apply, and the epoch of the task that has it."""

    offset: int
    epoch: int


def state(pipeline: Pipeline) -> State:
    """How far the source connector says that it is."""
    return state_of(offsets(pipeline))


def state_of(found: Offsets) -> State:
    """`copy` from the first row to the last; `hand-over` while the stream has not passed the times of all rows."""
    root = next((offset for partition, offset in found if set(partition) == {"towpath"}), None)
    if root is None:
        return "none"
    under_way: list[str] = json.loads(root["namespaces"])
    planned = {it["namespace"]: offset["ranges"] for it, offset in found if set(it) == {"towpath", "namespace"}}
    ranges = [(it["namespace"], offset) for it, offset in found if "range" in it]
    done = Counter(namespace for namespace, offset in ranges if offset["done"])
    if not all(namespace in planned and done[namespace] >= planned[namespace] for namespace in under_way):
        return "copy" if any(offset["rows"] for _, offset in ranges) else "none"
    if root["phase"] == "copy":
        return "hand-over" if ranges else "none"
    return "hand-over" if under_way else "stream"


def copied(pipeline: Pipeline) -> int:
    """How many rows of the copy are in the log, while it is under way."""
    return sum(offset["rows"] for partition, offset in offsets(pipeline) if "range" in partition)


def reach(pipeline: Pipeline, wanted: State) -> None:
    """Wait until the pipeline is that far, or further where a state may pass unseen: only the copy is slow enough."""
    accepted = ["copy"] if wanted == "copy" else STATES[STATES.index(wanted) :]
    seen: list[State] = []

    def there() -> bool:
        seen[:] = [state(pipeline)]
        assert wanted != "copy" or seen[0] in ("none", "copy"), f"the copy was over before it was seen: {seen[0]}"
        return seen[0] in accepted

    try:
        # for each answer the worker reads its offsets topic: only the hand-over is over soon
        until(f"{wanted} of {pipeline.name}", there, every=0.05 if wanted == "hand-over" else 0.2)
    except AssertionError as error:
        url = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/status"
        raise AssertionError(f"{error}; it is {seen}; {rest.get(url, timeout=30).text}") from error
    print(f"{pipeline.name} reached {seen[0]}; wanted: {wanted}")


def applied(pipeline: Pipeline) -> dict[tuple[str, int], Applied]:
    """(topic, partition) → what the sink's transactions have noted at the destination."""
    notes = pipeline.destination_client["towpath"]["offsets"].find({"_id.pipeline": pipeline.name})
    return {(it["_id"]["topic"], it["_id"]["partition"]): Applied(it["offset"], it["epoch"]) for it in notes}


def await_applied(pipeline: Pipeline, more: int, timeout: float = 60) -> None:
    """Wait until the sink has come this many records further; `timeout` in seconds."""
    start = total(pipeline)
    until(f"{more} more records than {start} applied", lambda: total(pipeline) >= start + more, timeout, 0.1)


def total(pipeline: Pipeline) -> int:
    """How far the sink has come, over all partitions."""
    return sum(max(0, place.offset) for place in applied(pipeline).values())


def offsets(pipeline: Pipeline) -> Offsets:
    """What the source connector has committed; nothing where Connect does not say."""
    url = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/offsets"
    answer = rest.get(url, timeout=30)
    if answer.status_code in (404, 409, 500):  # not there yet, or the workers share out their work
        return []
    answer.raise_for_status()
    return [(it["partition"], it["offset"]) for it in answer.json()["offsets"] if it["offset"] is not None]
