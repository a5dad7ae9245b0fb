"""Indexes become unique after the switch of a cutover: that reads them, and the pause must not grow with the data.

In the pause they only get `prepareUnique`, and refuse duplicates from then on. A TTL is restored after the switch, too:
until then an undo must be possible, and no undo brings back what a server has deleted. The marker names the conversions
that are left, with their commands. They can be repeated, so any command on any machine completes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from towpath.clients.mongo.client import Client, Cluster
from towpath.deploy.schema import Duplicates, Progress, Step, as_text, of_text, run
from towpath.errors import TowpathError
from towpath.session import Session
from towpath.store import cutover as cutovers
from towpath.store.cutover import SWITCHED, Conversion
from towpath.store.state_files import holder, lock, locked
from towpath_verifier import brief, described, unlike

# MongoDB's error_codes.yml: DuplicateKey, IndexNotFound, CommandFailed, BackgroundOperationInProgressForNamespace
_DUPLICATE_KEY, _NO_INDEX, _CHANGED, _BUILDING = 11000, 27, 125, 12587
_GONE = (26, _NO_INDEX, 166)  # NamespaceNotFound, IndexNotFound, CommandNotSupportedOnView
_LOCK = "conversion"


def conversions(steps: Iterable[Step]) -> tuple[Conversion, ...]:
    """What the marker stores of steps for after the switch: those of one index, or a rebuild, together; TTL first."""
    grouped: dict[tuple[bool, str, str], list[Step]] = {}
    for step in sorted(steps, key=lambda step: not step.expires):
        grouped.setdefault((step.expires, step.namespace, step.change.get("name", "")), []).append(step)
    return tuple(
        Conversion(
            namespace,
            (index,) if index else tuple(name for step in group for name in step.builds),
            enforced=any(step.converts for step in group),
            commands=as_text(group),
            expires=expires,
        )
        for (expires, namespace, index), group in grouped.items()
    )


def is_later(step: Step) -> bool:
    """Whether it always comes after the switch."""
    return step.converts or step.expires


def pending(session: Session) -> tuple[Conversion, ...]:
    """What is left to restore or to convert at the primary."""
    stored = cutovers.known(session)
    return stored.conversions if stored is not None and stored.state in SWITCHED else ()


def is_elsewhere(session: Session) -> bool:
    """Whether another command on this machine converts now."""
    return bool(holder(lock(session.pipeline.name, _LOCK)))


def by_hand(session: Session) -> Iterator[str]:
    """What the primary has refused, and the commands that would do it: nothing else knows them without the marker."""
    for conversion in pending(session):
        if conversion.problem:
            yield f"not done: {conversion.action}; by hand: {_commands(of_text(conversion.commands))}"


def _commands(steps: Iterable[Step]) -> str:
    return "; ".join(step.command.text for step in steps)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of a conversion."""

    words: str
    is_done: bool
    """Whether nothing is left of it."""


def complete(
    session: Session, on_progress: Progress = lambda done, total, description: None, *, only_ttl: bool = False
) -> Iterator[Attempt]:
    """Complete what is left, one after the other; yield what came of each once that is stored.

    Waits while another command on this machine does it. What a server refuses is stored as a problem. Raises
    `MongoError`, `TowpathError` for what passes without a change, and `Overtaken` once a fail back has begun or ended.
    """
    pipeline = session.pipeline
    if is_elsewhere(session):
        session.say("another command on this machine converts indexes; waiting until it has ended …")
    with locked(lock(pipeline.name, _LOCK), wait=True), session.destination.connected() as client:
        stored = cutovers.read(client, pipeline)
        if stored is None:
            return
        primary = session.source if stored.state == "source primary" else session.destination
        for conversion in stored.conversions:
            if only_ttl and not conversion.expires:
                continue
            cutovers.require_switched(client, pipeline, stored.state)
            attempt = _convert(primary, conversion, session.file, on_progress)
            cutovers.converted(client, pipeline, conversion, "" if attempt.is_done else attempt.words)
            yield attempt


def _convert(primary: Cluster, conversion: Conversion, file: Path, on_progress: Progress) -> Attempt:
    steps = of_text(conversion.commands)
    again = f"run towpath prepare {file}"  # a fail back ends with the marker, so that later only the command is known
    if primary.side == "source":
        again = f"run at the source: {_commands(steps)}"
    with primary.connected() as client:
        try:
            _run_all(client, conversion.namespace, steps, on_progress)
        except Duplicates as error:
            until = "New duplicates are refused" if conversion.enforced else "Until then duplicates are accepted"
            return Attempt(f"{error.what}. {until}; change or delete these documents, then {again}", is_done=False)
        except TowpathError as error:
            if (code := _code(error)) == _BUILDING:
                raise
            if code in _GONE:
                return Attempt(f"{conversion.names} does not exist any more: nothing is left to do", is_done=True)
            why = f"the {primary.side} refuses to {conversion.action}: {brief(error.__cause__)}"
            return Attempt(f"{why}; once it does not, {again}", is_done=False)
    return Attempt(conversion.done, is_done=True)


def _run_all(client: Client, namespace: str, steps: Sequence[Step], on_progress: Progress) -> None:
    """Raises `Duplicates`, and `TowpathError` for what the server refuses."""
    try:
        built = _built(client, namespace, steps)
        for step in steps:
            if not (step.drops and step.command.body["index"] in built):
                _run(client, step, on_progress)
    except TowpathError as error:
        if _code(error) != _DUPLICATE_KEY:
            raise
        for step in steps:
            if step.builds:  # not without the index: queries need it
                _run(client, _not_unique(step), on_progress)
        raise Duplicates(error.what) from error


def _built(client: Client, namespace: str, steps: Sequence[Step]) -> set[str]:
    """The indexes that another command has built as these steps do, or builds now: a drop would abort that.

    `createIndexes` waits for it.
    """
    wanted = {spec["name"]: spec for step in steps for spec in step.build_specs}
    found = described(client, [namespace]).get(namespace) if wanted else None
    indexes = found.ready.indexes if found else {}
    return {name for name, spec in indexes.items() if not unlike({**spec, "name": name}, wanted.get(name, {}))}


def _run(client: Client, step: Step, on_progress: Progress, *, again: bool = True) -> None:
    try:
        run(client, step, on_progress)
    except TowpathError as error:
        code = _code(error)
        if step.converts and code == _CHANGED and again:  # another command has converted it in the meantime
            _run(client, step, on_progress, again=False)
        elif not (step.drops and code == _NO_INDEX):  # an earlier attempt was interrupted after the drop
            raise


def _not_unique(step: Step) -> Step:
    indexes = [{name: value for name, value in spec.items() if name != "unique"} for spec in step.build_specs]
    return replace(step, command=replace(step.command, body={**step.command.body, "indexes": indexes}))


def _code(error: TowpathError) -> int | None:
    """The server's, which `run` leaves as the cause."""
    return getattr(error.__cause__, "code", None)
