"""Indexes become unique after the switch of a cutover: that reads them, and the pause must not grow with the data.

In the pause they only get `prepareUnique`, and refuse duplicates from then on. The marker names the conversions that
are left, with their commands. They can be repeated, so any command on any machine completes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from towpath.clients.mongo.client import Client, Cluster
from towpath.clients.mongo.privileges import if_allowed
from towpath.deploy.schema import Duplicates, Progress, Step, as_text, of_text, run
from towpath.errors import TowpathError
from towpath.session import Session
from towpath.store import cutover as cutovers
from towpath.store.cutover import SWITCHED, Conversion
from towpath.store.state_files import alone, holder, lock

_DUPLICATE_KEY, _NO_INDEX, _CHANGED = 11000, 27, 125  # MongoDB's error_codes.yml; the last: CommandFailed
_LOCK = "conversion"


def conversions(steps: Iterable[Step]) -> tuple[Conversion, ...]:
    """What the marker stores of steps for after the switch: those of one index, or a rebuild, together."""
    grouped: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        grouped.setdefault((step.namespace, step.change.get("name", "")), []).append(step)
    return tuple(
        Conversion(
            namespace,
            tuple(name for step in group for name in ((index,) if index else step.builds)),
            enforced=bool(index),
            commands=as_text(group),
        )
        for (namespace, index), group in grouped.items()
    )


def pending(session: Session) -> tuple[Conversion, ...]:
    """What is left to convert at the primary, by the marker; nothing for a user who may not read it."""
    with session.destination.connected() as client:
        marker = if_allowed(lambda: cutovers.read(client, session.pipeline))
    return marker.conversions if marker is not None and marker.state in SWITCHED else ()


def is_elsewhere(session: Session) -> bool:
    """Whether another command on this machine converts now."""
    return bool(holder(lock(session.pipeline.name, _LOCK)))


def complete(session: Session, on_progress: Progress = lambda done, total, description: None) -> Iterator[Conversion]:
    """Convert what is left, one after the other; yield each once its result is stored, with `problem` if it has one.

    Raises `MongoError`, and `TowpathError` while another command on this machine does it.
    """
    pipeline = session.pipeline
    with alone(pipeline.name, _LOCK, "cutover`, `run` or `prepare"), session.destination.connected() as client:
        marker = cutovers.read(client, pipeline)
        if marker is None or marker.state not in SWITCHED:
            return
        primary = session.destination if marker.state == "destination primary" else session.source
        for conversion in marker.conversions:
            if not cutovers.is_in(client, pipeline, marker.state):  # a fail back has begun
                return
            problem = _convert(primary, conversion, session.file, on_progress)
            cutovers.converted(client, pipeline, conversion, problem)
            yield replace(conversion, problem=problem)


def _convert(primary: Cluster, conversion: Conversion, file: Path, on_progress: Progress) -> str:
    """Why it cannot be converted; empty if it is. The documents with duplicates are named."""
    steps = of_text(conversion.commands)
    again = f"towpath prepare {file}"  # a fail back ends with the marker, so that later only the command is known
    if primary.side == "source":
        again = f"at the source: {'; '.join(step.command.text for step in steps)}"
    again = f"change or delete these documents, then run {again}"
    with primary.connected() as client:
        try:
            for step in steps:
                _run(client, step, on_progress)
        except Duplicates as error:
            return f"{error.what}. New duplicates are refused; {again}"
        except TowpathError as error:
            if getattr(error.__cause__, "code", None) != _DUPLICATE_KEY:
                raise
            for step in steps:  # not without the index: queries need it
                _run(client, _not_unique(step), on_progress)
            return f"{error.what}. Until then duplicates are accepted; {again}"
    return ""


def _run(client: Client, step: Step, on_progress: Progress, *, again: bool = True) -> None:
    try:
        run(client, step, on_progress)
    except TowpathError as error:
        code = getattr(error.__cause__, "code", None)
        if step.converts and code == _CHANGED and again:  # another command has converted it in the meantime
            _run(client, step, on_progress, again=False)
        elif not (step.drops and code == _NO_INDEX):  # an earlier attempt was interrupted after the drop
            raise


def _not_unique(step: Step) -> Step:
    indexes = [{name: value for name, value in index.items() if name != "unique"} for index in step.build_specs]
    if not indexes:
        return step
    return replace(step, command=replace(step.command, body={**step.command.body, "indexes": indexes}))
