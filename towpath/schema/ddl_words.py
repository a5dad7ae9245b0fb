"""What was done to a collection at the source, in words, with what brings both sides together."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from towpath.log import ddl_events as ddl
from towpath.log.ddl_events import Ddl
from towpath.pipeline import Pipeline
from towpath.text import counted
from verifier.metadata import MetadataDifference


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
