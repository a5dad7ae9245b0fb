"""What a cutover did, as one self-contained page of HTML, to attach to a change ticket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from connectors.secrets import without_credentials
from towpath.cutover.sides import Sides
from towpath.cutover.telling import Event
from towpath.errors import TowpathError

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 65em; padding: 0 1em; color: #222; }
h1 span { padding: .1em .5em; border-radius: .25em; color: #fff; background: #b3261e; }
h1 span.ok { background: #1b7f3b; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .3em .8em .3em 0; text-align: left; }
th { border-bottom: 1px solid #999; } td.n { text-align: right; white-space: nowrap; } td.w { width: 40%; }
.bar { position: relative; height: .9em; background: #eee; }
.bar i { position: absolute; height: 100%; min-width: 2px; background: #6fbf8b; } .pause .bar i { background: #e08a00; }
.red { color: #b3261e; font-weight: bold; } .ok { color: #1b7f3b; } h1 .ok { color: #fff; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2em 1.5em; } dd { margin: 0; }
"""


def write_report(place: Path, sides: Sides, events: Sequence[Event]) -> None:
    """Write the page. Raises `TowpathError` when it cannot be written."""
    try:
        place.write_text("".join(_page(sides, events)), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise TowpathError(f"cannot write the report {place}: {error}") from error


def _page(sides: Sides, events: Sequence[Event]) -> Iterator[str]:
    name = escape(sides.it.pipeline.name)
    switch = next((one for one in events if one.kind == "switch"), None)
    headline = f"the {switch.figures['primary']} is primary" if switch else "not done"
    yield f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}: {escape(headline)}</title>'
    yield f"<style>{_STYLE}</style></head><body>\n"
    yield f'<h1>{name}: <span class="{"ok" if switch else "bad"}">{escape(headline)}</span></h1>\n'
    yield from _facts(sides, events, switch)
    yield from _gate(events)
    yield from _steps(events)
    yield "<h2>All that was told</h2>\n<table>"
    for one in events:
        if one.kind != "gate":
            mark = ' class="red"' if one.kind == "left" else ""
            yield f"<tr><td class=n>{_clock(one.at)}</td><td{mark}>{escape(one.words)}</td></tr>\n"
    yield "</table>\n</body></html>\n"


def _facts(sides: Sides, events: Sequence[Event], switch: Event | None) -> Iterator[str]:
    pipeline, marker = sides.it.pipeline, sides.marker
    facts = {
        "source": without_credentials(pipeline.source_uri),
        "destination": without_credentials(pipeline.destination_uri),
        "begun": _moment(events[0].at) if events else "",
        "primary now": switch.figures["primary"] if switch else "as before",
        "switched": _moment(switch.at) if switch else "never",
        "writes had stopped for": f"{switch.figures['pause_seconds']:.1f} s" if switch else "",
        "everything up to": f"{marker.moment}, cluster time of the source" if marker and marker.moment else "",
        "way back": _way_back(sides),
    }
    yield "<dl>"
    yield from (f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items() if value)
    yield "</dl>\n"


def _way_back(sides: Sides) -> str:
    if sides.back is None:
        return "none"
    if sides.marker is None or sides.marker.state != "over":
        return ""
    return f"{sides.back.pipeline.name} ({sides.back.file.name}); towpath cutover {sides.it.file.name} --back"


def _gate(events: Sequence[Event]) -> Iterator[str]:
    for event in events:
        if event.kind == "gate":
            yield "<h2>Before</h2>\n<table><tr><th></th><th>looked at</th><th>found</th></tr>\n"
            for one in event.figures["checks"]:
                mark = '<td class="ok">ok</td>' if one["good"] else '<td class="red">red</td>'
                yield f"<tr>{mark}<td>{escape(one['name'])}</td><td>{escape(one['found'])}</td></tr>\n"
            yield "</table>\n"


def _steps(events: Sequence[Event]) -> Iterator[str]:
    steps = [one for one in events if one.kind == "step"]
    if not steps:
        return
    first, last = steps[0].at - steps[0].figures["seconds"], steps[-1].at
    stop = next((one.at for one in events if one.kind == "stop writes"), _stopped(steps, last))
    yield "<h2>Steps</h2>\n<p>Those in the pause in writes are orange.</p>\n"
    yield '<table><tr><th>step</th><th class="n">seconds</th><th>found</th><th></th></tr>\n'
    for one in steps:
        figures, seconds = one.figures, one.figures["seconds"]
        found = ", ".join(f"{value:,} {key}" for key, value in figures.items() if key not in ("step", "seconds"))
        left, width = _place(one.at - seconds, first, last), 100 * seconds / max(last - first, 0.001)
        bar = f'<div class="bar"><i style="left:{left:.2f}%;width:{width:.2f}%"></i></div>'
        row = ' class="pause"' if one.at > stop else ""
        cells = f"<td>{escape(figures['step'])}</td><td class=n>{seconds:.1f}</td><td>{escape(found)}</td>"
        yield f"<tr{row}>{cells}<td class=w>{bar}</td></tr>\n"
    yield "</table>\n"


def _stopped(steps: Sequence[Event], otherwise: float) -> float:
    return next((one.at - 0.001 for one in steps if one.figures["step"].startswith("stopping the writers")), otherwise)


def _place(at: float, first: float, last: float) -> float:
    return 100 * (at - first) / max(last - first, 0.001)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]


def _moment(at: Any) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
