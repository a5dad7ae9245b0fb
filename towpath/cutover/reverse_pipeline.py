"""The reverse pipeline: a pipeline of the other direction, which begins when nobody writes.

To begin it, by whoever knows that nobody writes:

    make_ready             while all goes on: topics, the sink, which has nothing to do, the source connectors, STOPPED
    barrier.wait           of the pipeline: its sink has applied all
    control.stop_sink      of the pipeline; its capture goes on
    begin                  from here on, what is written at its destination is replicated to its source

To fail back, when nobody writes once more:

    barrier.wait           of the reverse pipeline: its sink has applied all
    deployment.remove      the reverse pipeline, with its log
    barrier.wait_captured  of the pipeline: what the reverse pipeline wrote is in its log as well
    skip_to_end            the pipeline's sink skips that, because it came from its destination
    control.resume_sink    of the pipeline

So the two sinks never write at the same time, and neither ever reads what the other wrote. Its pipeline file is
written from the pipeline's: sides swapped, renames inverted.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from connectors.control import Wait, forget_offsets, statuses, wait_running, wait_stopped
from connectors.rest import Connect
from towpath.bookkeeping import positions
from towpath.config import loading as pipeline_file
from towpath.deploy.deployment import Change, Deployment
from towpath.deploy.inventory import Inventory
from towpath.errors import NotYet, Refused, TowpathError
from towpath.kafka.topics import Topics
from towpath.log.lag import pipeline_ends
from towpath.log.source_offsets import read_state
from towpath.mongo.client import connected
from towpath.namespaces import Renames, Selection
from towpath.pipeline import ClusterTime, Pipeline
from towpath.replay import rebuild_marker
from towpath.topic_settings import pipeline_topics

_PAUSE = 0.1  # seconds between two looks
_REMOVE = "`towpath remove --topics` with the file of the way back removes that; then begin again"


def plan(back: Pipeline, connect: Connect, topics: Topics) -> list[Change]:
    """What `make_ready` has to make.

    Raises `Refused` when there is anything of an earlier way back, whose position or records would be taken for this
    one's, and what a deployment raises.
    """
    there = [name for name in back.source_connectors if connect.config(name) is not None]
    for connector in statuses(connect, there):  # a status stays for a while when a connector is removed
        if connector.state not in ("MISSING", "STOPPED"):
            raise Refused(f"{connector.name} is {connector.state}: the way back is there already; {_REMOVE}")
    _refuse_used(back, topics)
    return Deployment(
        Inventory(back, connect, topics, allow_missing=True, create_stopped=back.source_connectors)
    ).plan()


def make_ready(
    back: Pipeline, connect: Connect, topics: Topics, say: Callable[[str], None], timeout: float = 120
) -> None:
    """Make all that the way back needs, so that `begin` has nothing left to do but to start; again: what is missing.

    `timeout` is in seconds. Raises what `plan` raises.
    """
    for change in plan(back, connect, topics):
        say(change.description)
        change.apply()
    for name in back.source_connectors:
        wait_stopped(connect, name)
        if connect.offsets(name):  # of a connector of this name that was removed without its log
            forget_offsets(connect, name)
            say(f"forgot the position of an earlier {name}")
    wait_running(connect, back, timeout, [back.sink_connector])


def begin(back: Pipeline, there: Pipeline, connect: Connect, topics: Topics, timeout: float) -> ClusterTime:
    """Start the capture of the way back that `make_ready` made; return its beginning, in its source's time.

    Everything written there after this returns comes back, and nothing of what the sink of the way `there` wrote,
    which must be STOPPED. Nobody may write meanwhile. `timeout` is in seconds. Raises `Refused` when it is not so, or
    something is there already that was captured before; `NotYet` and `TowpathError` when it does not begin.
    """
    refuse_unstopped(connect, [there.sink_connector, *back.source_connectors])
    for name in back.source_connectors:
        if connect.offsets(name):
            raise Refused(f"{name} has captured before, and would go on there, before this moment; {_REMOVE}")
    _refuse_used(back, topics)
    waiting = Wait(
        connect, back.source_connectors, timeout, "the way back has not begun in time", pause=_PAUSE, failed_for=0
    )
    for name in back.source_connectors:
        connect.resume(name)
    return waiting.until(lambda: _beginning(back, connect))


def _beginning(back: Pipeline, connect: Connect) -> ClusterTime:
    """Since when what is written at its source is captured. Raises `NotYet` until all of its source connectors have
    begun."""
    starts = {name: read_state(connect, name).start for name in back.source_connectors}
    known = [start for start in starts.values() if start is not None]
    if len(known) < len(starts):
        raise NotYet(f"{', '.join(name for name, start in starts.items() if start is None)} has not committed anything")
    return min(known)


def skip_to_end(pipeline: Pipeline, connect: Connect, topics: Topics) -> int:
    """Have the sink, which must be STOPPED, pass over all that is in the log; return the number of partitions.

    Nobody may write at the source, and capture must have passed all that was written there (`barrier.wait_captured`):
    what it captures later is applied. Ends are those of all that was written and not the stable ones, which may be in
    front of what was committed last. Raises `Refused`.
    """
    refuse_unmovable(pipeline, connect)
    now = datetime.now(UTC)
    ends = pipeline_ends(pipeline, topics, stable=False)
    with connected(pipeline.destination_uri, "destination") as client:
        positions.skip_to(client, pipeline, {place: end for place, (_, end) in ends.items()}, now)
    return len(ends)


def refuse_unmovable(pipeline: Pipeline, connect: Connect) -> None:
    """Raise `Refused` unless the sink can pass over what is in the log."""
    refuse_unstopped(connect, [pipeline.sink_connector])
    with connected(pipeline.destination_uri, "destination") as client:
        if rebuild_marker.marker(client, pipeline) is not None:
            raise Refused(
                f"{pipeline.name} is being rebuilt, and its sink has to apply the log from its beginning;"
                " `towpath replay --rebuild` ends that first"
            )


def refuse_unstopped(connect: Connect, names: Iterable[str]) -> None:
    """Raise `Refused` unless these connectors are there, and STOPPED without a task."""
    for connector in statuses(connect, names):
        if connector.state != "STOPPED" or connector.tasks:
            raise Refused(f"{connector.name} is {connector.state} with {len(connector.tasks)} tasks, and not STOPPED")


def _refuse_used(back: Pipeline, topics: Topics) -> None:
    """Raise `Refused` when the log holds records, or the sink positions: they are of an earlier way back."""
    existing = topics.all()
    mine = [existing[name] for name in pipeline_topics(back, topics.all()) if name not in back.heartbeat_topics]
    used = sorted({topic for (topic, _), (_, end) in topics.ends(mine, stable=False).items() if end > 0})
    if used:
        raise Refused(f"{', '.join(used[:3])} hold records of an earlier way back; {_REMOVE}")
    with connected(back.destination_uri, "destination") as client:
        if any(position.offset > 0 for position in positions.positions(client, back).values()):
            raise Refused(f"the sink {back.sink_connector} has positions of an earlier way back; {_REMOVE}")


_LONGEST = 64  # characters of a pipeline's name
_AS_THEY_ARE = ("kafka", "connect", "write")


def back_file(path: Path) -> str:
    """The TOML of the pipeline that leads back: from the destination of this file's pipeline to its source.

    It has the same folder, where the files that it names are, and copies nothing. Its log is not compacted: it lives
    for as long as the way back is open. Raises `BadPipelineFile`, and `Refused` where there can be no way back.
    """
    pipeline = pipeline_file.read(path)
    if not pipeline.exactly_once:
        raise Refused(
            f'{pipeline.name} has mode = "plain", whose sink applies changes at least once, so that no moment divides'
            ' what it wrote from what others write: only pipelines with mode = "exactly-once" have a way back'
        )
    selection, renames = reverse(pipeline.selection, pipeline.renames)
    whole = renamed(pipeline.whole_documents, pipeline.selection, pipeline.renames)
    said = tomllib.loads(path.read_text(encoding="utf-8"))
    sections: dict[str, Mapping[str, Any]] = {
        "source": said["destination"],
        "destination": said["source"],
        "collections": {"include": selection.include, "exclude": selection.exclude},
        "collections.rename": renames.by_source,
        "capture": {"copy": "none", "whole_documents": whole},
        **{name: said[name] for name in _AS_THEY_ARE if name in said},
        "log": _some(said.get("log", {}), "retention"),
        "run": _some(said.get("run", {}), "verify", "repair"),
    }
    head = f"# The way back of the pipeline {pipeline.name}, from {path.name}.\n"
    return head + f"name = {_value(_name(pipeline.name))}\n" + "".join(map(_section, sections, sections.values()))


def back_path(path: Path) -> Path:
    """Where it lies: beside the file."""
    return path.with_name(f"{path.stem}-back.toml")


def write_back_file(path: Path) -> Path:
    """Write it beside the file, for its owner only; one that says the same stays.

    Raises `TowpathError` for one that says something else, besides what `back_file` raises.
    """
    file, text = back_path(path), other_refused(path)
    try:
        if not file.exists():
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        raise TowpathError(f"cannot write {file}: {error.strerror}") from error
    return file


def other_refused(path: Path) -> str:
    """`back_file`, where it can be written. Raises `TowpathError` when there is a file that says something else."""
    file, text = back_path(path), back_file(path)
    try:
        if file.exists() and file.read_text(encoding="utf-8") != text:
            raise TowpathError(f"{file} is there and is not the way back of {path} as it is now; move it away")
    except OSError as error:
        raise TowpathError(f"cannot read {file}: {error.strerror}") from error
    return text


def _name(name: str) -> str:
    found = f"{name}-back"
    if len(found) > _LONGEST:
        raise Refused(
            f"the way back of {name} would be called {found}, and a name has {_LONGEST} characters at most: a pipeline"
            f" with a way back needs a name of {_LONGEST - len('-back')} at most"
        )
    return found


def _some(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: section[key] for key in keys if key in section}


def _section(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"{_value(key) if '.' in key else key} = {_value(value)}\n" for key, value in values.items()]
    return f"\n[{name}]\n" + "".join(lines) if lines else ""


def _value(value: Any) -> str:
    """As TOML has it: JSON is, for texts of printable characters, whole numbers, truth values and lists of those."""
    return json.dumps(value, ensure_ascii=False)


#: Where sinks keep their positions, at the side that they write to. Patterns may take it in; it is nobody's document.
_OURS = "towpath.*"


def reverse(selection: Selection, renames: Renames) -> tuple[Selection, Renames]:
    """What is captured at the destination: exactly what a pipeline of these writes there; and the renames back.

    A pattern that the collections keep their names under stays, and takes in later ones as well. Raises `Refused` where
    patterns cannot say it.
    """
    moved = _moved(selection, renames)
    back = {new: old for old, new in moved.items()}
    for old, new in moved.items():
        if back[new] != old:
            raise Refused(f"{old} and {back[new]} are both written to {new}, so there is no way back; see [rename]")
    kept = tuple(pattern for pattern in selection.include if pattern not in moved)
    include = (*kept, *(new for new in back if not Selection(kept).matches(new)))
    left = tuple(old for old in moved if old not in back and Selection(kept).matches(old))
    found = Selection(include, (*(pattern for pattern in selection.exclude if pattern not in back), *left, _OURS))
    for new, old in back.items():
        if not found.matches(new):
            raise Refused(
                f"there is no way back for {old}: it is written to {new}, which a pattern of [collections] exclude"
                " takes in; name in exclude what is to be left out without a *"
            )
    return found, Renames(back)


def renamed(patterns: Iterable[str], selection: Selection, renames: Renames) -> tuple[str, ...]:
    """Patterns of namespaces at the source, as patterns at the destination that take in the same collections."""
    given, moved = tuple(patterns), _moved(selection, renames)
    names = (new for old, new in moved.items() if Selection(given).matches(old))
    return tuple(dict.fromkeys((*(pattern for pattern in given if pattern not in moved), *names)))


def _moved(selection: Selection, renames: Renames) -> dict[str, str]:
    """The renames that mean something: of what is taken in, to another name."""
    return {old: new for old, new in renames.by_source.items() if old != new and selection.matches(old)}
