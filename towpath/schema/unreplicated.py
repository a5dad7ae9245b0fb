"""Schema changes at the source that the destination has not followed, with the commands to run.

Reported until they are settled: both sides turn out the same, or somebody accepts it (`towpath ddl --accept`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bson.timestamp import Timestamp

from towpath import state_files
from towpath.barrier import passing
from towpath.errors import NoSuchConnector, TowpathError
from towpath.log import source_offsets
from towpath.log import source_offsets as ddl
from towpath.log.source_offsets import Ddl, read_state
from towpath.mongo.client import briefly
from towpath.namespaces import Selection
from towpath.pipeline import Pipeline
from towpath.session import Session
from towpath.text import counted
from towpath.verification import verdict_file
from towpath.verification.scope import metadata
from verifier.metadata import MetadataDifference

_DOCUMENTS = (source_offsets.DROP, source_offsets.RENAME, source_offsets.UNSEEN)


def told(session: Session) -> tuple[Ddl, ...]:
    """All that the source connectors have seen."""
    states = [read_state(session.connect, name) for name in session.pipeline.source_connectors]
    return source_offsets.in_order(state.ddl for state in states if state.ddl)


def passed(session: Session) -> tuple[str, ...]:
    """The marks of what the pipeline is behind of: no record from before it can still come to the destination.

    Empty where nobody answers, which is told elsewhere.
    """
    try:
        return tuple(one.mark for one in _passed(session, told(session)))
    except TowpathError:
        return ()


def _passed(session: Session, asked: Sequence[Ddl]) -> list[Ddl]:
    if not asked:
        return []
    with passing(session, silent=True) as is_past:
        return [one for one in asked if is_past(Timestamp(one.time.seconds, one.time.ordinal))]


def look(session: Session, found: Iterable[Ddl], *, remember: bool = True) -> tuple[Unfollowed, ...]:
    """What of this is not settled. What turns out to be is remembered on this machine, unless told otherwise.

    Raises `TowpathError` when a side cannot be asked.
    """
    name, known = session.pipeline.name, list(found)
    old = settled(name)
    left = [one for one in known if one.mark not in old]
    if not left:
        return ()
    verdict = _verdict(name)
    left = [one for one in left if not (verdict and verdict.settles(one, session.pipeline.selection))]
    past = {one.mark for one in _passed(session, left)}  # before the destination is asked
    sides = _sides(session.pipeline, left)
    shown = [told for one in left if (told := judged(session.pipeline, session.file, one, sides)) is not None]
    waiting = {one.mark for one in left} - past | {one.ddl.mark for one in shown}
    new = {one.mark for one in known} - waiting
    if remember and new - old:
        settle(name, new)
    return tuple(shown)


def _sides(pipeline: Pipeline, asked: Sequence[Ddl]) -> Sides:
    names = {name for one in asked for name in one.namespaces if pipeline.selection.matches(name)}
    with briefly(pipeline.source_uri, "source") as client:
        here = frozenset(name for name in names if _count(client, name) is not None)
    with briefly(pipeline.destination_uri, "destination") as client:
        counts = {name: _count(client, pipeline.renames.destination(name)) for name in names}
    there = {name: count for name, count in counts.items() if count is not None}
    described = [one.namespace for one in asked if one.kind not in _DOCUMENTS]
    present = [name for name in described if name in here or name in there]
    return Sides(here, there, metadata(pipeline, present).differences if present else ())


def _count(client: Any, namespace: str) -> int | None:
    """About how many documents a collection holds; None when there is none."""
    database, name = namespace.split(".", 1)
    if name not in client[database].list_collection_names(filter={"name": name}):
        return None
    return int(client[database][name].estimated_document_count())


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What a full verification has left differing in what it compared; `done` had been done, and was behind the
    pipeline, when it began."""

    done: frozenset[str]
    only: tuple[str, ...]
    differing: frozenset[str]

    def settles(self, one: Ddl, selection: Selection) -> bool:
        if one.mark not in self.done or one.kind not in _DOCUMENTS:
            return False
        if one.kind == source_offsets.UNSEEN:
            return not self.only and not self.differing
        compared = Selection(self.only or ("*.*",))
        ours = [name for name in one.namespaces if selection.matches(name)]
        return all(compared.matches(name) and name not in self.differing for name in ours)


def _verdict(name: str) -> _Verdict | None:
    place = verdict_file.path(name)
    try:
        counts = verdict_file.counts(place)
        if not counts.get("ddl") or counts.get("trouble"):
            return None
        differing = frozenset(named.namespace for named in verdict_file.read(place))
    except TowpathError:  # there is none, or it is being written
        return None
    return _Verdict(frozenset(counts["ddl"]), tuple(counts["only"]), differing)


def _place(name: str) -> Path:
    return state_files.folder(name) / "ddl.json"


def settled(name: str) -> set[str]:
    """The marks of what is settled. Raises `TowpathError` for a file that is broken."""
    place = _place(name)
    try:
        return set(json.loads(place.read_text())["settled"])
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TowpathError(f"cannot read {place}: {error}", "remove it, and what was settled is told again") from error


def settle(name: str, marks: Iterable[str]) -> None:
    with state_files.writing(_place(name)) as file:
        file.write(json.dumps({"settled": sorted(marks)}))


def as_json(session: Session, found: Sequence[Ddl]) -> list[dict[str, Any]]:
    """Each as `Unfollowed` tells it; where a side cannot be asked, just what was done, settled or not."""
    try:
        return [one.as_json() for one in look(session, found)]
    except TowpathError:
        return [one.as_json() for one in found]


def lines(session: Session, found: Iterable[Ddl] | None = None) -> Iterator[str]:
    """A line for each of what was found, or is told now; or why that cannot be told."""
    try:
        yield from (one.line for one in look(session, told(session) if found is None else found))
    except NoSuchConnector:
        return  # nobody watches
    except TowpathError as error:
        yield f"what was done to the source's collections cannot be compared: {error}"


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """One thing, in words, and the commands that bring both sides together."""

    ddl: Ddl
    words: str
    commands: tuple[str, ...]
    at_destination: bool = False
    """Whether the commands are for MongoDB's shell there; else they are Towpath's."""

    def as_json(self) -> dict[str, Any]:
        return {
            **self.ddl.as_json(),
            "words": self.words,
            "commands": list(self.commands),
            "at_destination": self.at_destination,
        }

    @property
    def line(self) -> str:
        where = " at the destination" if self.at_destination else ""
        return f"source: {self.words}; run{where}: {'; '.join(self.commands)}"


@dataclass(frozen=True, slots=True)
class Sides:
    """What both sides hold now of the namespaces in question, by the source's names."""

    source: frozenset[str]
    """Those that the source has."""
    destination: Mapping[str, int]
    """About how many documents the destination has; of those that it has."""
    metadata: Sequence[MetadataDifference]


def judged(pipeline: Pipeline, file: Path, one: Ddl, sides: Sides) -> Unfollowed | None:
    """What is to be told of it; None when both sides are as if nothing had been done."""
    if one.kind == ddl.UNSEEN:
        words = f"its history was lost before {one.at:%Y-%m-%d %H:%M:%S} UTC: drops and renames may have gone unseen"
        return Unfollowed(one, words, _commands(file, ("verify", ()), ("repair", ())))
    if one.kind == ddl.DROP:
        return _drop(pipeline, file, one, sides)
    return _rename(pipeline, file, one, sides) if one.kind == ddl.RENAME else _definition(file, one, sides)


def _drop(pipeline: Pipeline, file: Path, one: Ddl, sides: Sides) -> Unfollowed | None:
    left = sides.destination.get(one.namespace, 0)
    if not left:
        return None
    there = counted(left, "document")
    if one.namespace in sides.source:
        words = f"and is there again; of the {there} at the destination, some may be of its former life"
    else:
        words = f"the destination still has {there}"
    return Unfollowed(one, f"{_said(one, 'was dropped')}; {words}", _mend(pipeline, file, one))


def _rename(pipeline: Pipeline, file: Path, one: Ddl, sides: Sides) -> Unfollowed | None:
    """The new name took the place of whatever was there before (as `$out` does), so that counts tell nothing of it."""
    gone = one.namespace not in sides.source and not sides.destination.get(one.namespace)
    if gone and not pipeline.selection.matches(one.to):
        return None
    words = f"{_said(one, f'was renamed to {one.to}')}; no record tells of it"
    return Unfollowed(one, words, _mend(pipeline, file, one))


def _definition(file: Path, one: Ddl, sides: Sides) -> Unfollowed | None:
    of_indexes = one.kind.endswith("Indexes")
    ours = (found for found in sides.metadata if found.pair.source == one.namespace)
    differ = [found for found in ours if found.kind == "index" or not of_indexes]  # collMod changes indexes as well
    if not differ:
        return None
    done = {"create": "was created with options", "modify": "was changed by collMod"}
    changed = done.get(one.kind, f"had its indexes changed ({one.kind})")
    words = f"{_said(one, changed)}; at the destination, {'; '.join(found.what for found in differ)}"
    commands = dict.fromkeys(line for found in differ for line in found.command.splitlines())
    return Unfollowed(one, words, tuple(commands), at_destination=True)


def _said(one: Ddl, what: str) -> str:
    return f"{one.namespace} {what} at {one.at:%Y-%m-%d %H:%M:%S} UTC"


def _mend(pipeline: Pipeline, file: Path, one: Ddl) -> tuple[str, ...]:
    ours = [name for name in one.namespaces if pipeline.selection.matches(name)]
    options = tuple(word for name in ours for word in ("-n", name))
    first = [("deploy", ())] if one.to in ours else []
    return _commands(file, *first, ("verify", options), ("repair", ()))


def _commands(file: Path, *verbs: tuple[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(shlex.join(["towpath", verb, str(file), *options]) for verb, options in verbs)
