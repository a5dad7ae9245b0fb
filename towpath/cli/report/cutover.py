"""A cutover as an HTML page: the gate, the steps with their times, and all events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from towpath.cli import report
from towpath.config.events import CutoverNote, Gate, Switch, TimedEvent
from towpath.config.events import Step as StepDone
from towpath.config.mongo_uri import without_credentials
from towpath.config.text import utc
from towpath.cutover.sides import Sides

_STOP_STEP = "stopping the writers"


@dataclass(frozen=True, slots=True)
class Step:
    """A step on the time line of all steps; `left` and `width` are per cent of the line."""

    name: str
    figures: str
    seconds: float
    left: float
    width: float
    paused: bool


def write_report(place: Path, sides: Sides, events: Sequence[TimedEvent]) -> None:
    """Write the page. Raises `TowpathError` when it cannot be written."""
    switch = next((event for event in events if isinstance(event, Switch)), None)
    report.write(
        place,
        "cutover",
        name=sides.forward.pipeline.name,
        headline=f"the {switch.primary} is primary" if switch else "not done",
        mark="same" if switch else "bad",
        facts=_facts(sides, events, switch),
        gates=[event.findings for event in events if isinstance(event, Gate)],
        steps=list(_steps(events)),
        events=[event for event in events if not isinstance(event, Gate)],
    )


def _facts(sides: Sides, events: Sequence[TimedEvent], switch: Switch | None) -> dict[str, str]:
    pipeline, marker = sides.forward.pipeline, sides.marker
    return {
        "source": without_credentials(pipeline.source.uri),
        "destination": without_credentials(pipeline.destination.uri),
        "begun": utc(events[0].reported_at.timestamp()) if events else "",
        "primary now": switch.primary if switch else "as before",
        "switched": utc(switch.reported_at.timestamp()) if switch else "never",
        "writes had stopped for": f"{switch.pause_seconds:.1f} s" if switch else "",
        "everything up to": f"{marker.cluster_time}, cluster time of the source"
        if marker and marker.cluster_time
        else "",
        "reverse pipeline": _reverse_pipeline(sides),
    }


def _reverse_pipeline(sides: Sides) -> str:
    if sides.reverse is None:
        return "none"
    if sides.marker is None or sides.marker.state != "destination primary":
        return ""
    return (
        f"{sides.reverse.pipeline.name} ({sides.reverse.file.name}); towpath cutover {sides.forward.file.name} --back"
    )


def _steps(events: Sequence[TimedEvent]) -> Iterator[Step]:
    steps = [event for event in events if isinstance(event, StepDone)]
    if not steps:
        return
    first, last = _start(steps[0]), steps[-1].reported_at
    requested = (
        event.reported_at for event in events if isinstance(event, CutoverNote) and event.event == "stop writes"
    )
    stopping = (step.reported_at - timedelta(milliseconds=1) for step in steps if step.step.startswith(_STOP_STEP))
    stopped = next(requested, next(stopping, last))
    percent = 100 / max((last - first).total_seconds(), 0.001)
    for step in steps:
        figures = ", ".join(f"{count:,} {name}" for name, count in step.counts.items())
        left = (_start(step) - first).total_seconds() * percent
        yield Step(step.step, figures, step.seconds, left, step.seconds * percent, step.reported_at > stopped)


def _start(step: StepDone) -> datetime:
    return step.reported_at - timedelta(seconds=step.seconds)
