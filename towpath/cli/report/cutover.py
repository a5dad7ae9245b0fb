"""What a cutover did, as a page of HTML: the gate, the steps with their times, all events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from towpath.cli import report
from towpath.cutover.events import Event
from towpath.cutover.sides import Sides
from towpath.mongo_uri import without_credentials
from towpath.text import utc


@dataclass(frozen=True, slots=True)
class Step:
    """A step on the time line of all steps: `left` and `width` are per cent of it."""

    name: str
    found: str
    seconds: float
    left: float
    width: float
    paused: bool


def write_report(place: Path, sides: Sides, events: Sequence[Event]) -> None:
    """Write the page. Raises `TowpathError` when it cannot be written."""
    switch = next((event for event in events if event.kind == "switch"), None)
    report.write(
        place,
        "cutover",
        name=sides.it.pipeline.name,
        headline=f"the {switch.figures['primary']} is primary" if switch else "not done",
        mark="same" if switch else "bad",
        facts=_facts(sides, events, switch),
        gates=[event.figures["checks"] for event in events if event.kind == "gate"],
        steps=list(_steps(events)),
        events=events,
    )


def _facts(sides: Sides, events: Sequence[Event], switch: Event | None) -> dict[str, str]:
    pipeline, marker = sides.it.pipeline, sides.marker
    return {
        "source": without_credentials(pipeline.source_uri),
        "destination": without_credentials(pipeline.destination_uri),
        "begun": utc(events[0].at) if events else "",
        "primary now": switch.figures["primary"] if switch else "as before",
        "switched": utc(switch.at) if switch else "never",
        "writes had stopped for": f"{switch.figures['pause_seconds']:.1f} s" if switch else "",
        "everything up to": f"{marker.moment}, cluster time of the source" if marker and marker.moment else "",
        "way back": _way_back(sides),
    }


def _way_back(sides: Sides) -> str:
    if sides.back is None:
        return "none"
    if sides.marker is None or sides.marker.state != "over":
        return ""
    return f"{sides.back.pipeline.name} ({sides.back.file.name}); towpath cutover {sides.it.file.name} --back"


def _steps(events: Sequence[Event]) -> Iterator[Step]:
    steps = [event for event in events if event.kind == "step"]
    if not steps:
        return
    first, last = steps[0].at - steps[0].figures["seconds"], steps[-1].at
    stopped = next((event.at for event in events if event.kind == "stop writes"), _stopped(steps, last))
    percent = 100 / max(last - first, 0.001)
    for event in steps:
        figures, seconds = event.figures, event.figures["seconds"]
        found = ", ".join(f"{value:,} {key}" for key, value in figures.items() if key not in ("step", "seconds"))
        left = (event.at - seconds - first) * percent
        yield Step(figures["step"], found, seconds, left, seconds * percent, event.at > stopped)


def _stopped(steps: Sequence[Event], otherwise: float) -> float:
    return next((one.at - 0.001 for one in steps if one.figures["step"].startswith("stopping the writers")), otherwise)
