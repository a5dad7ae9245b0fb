"""Make at the destination what the source has besides documents: collections with their options, views, indexes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure

from connectors.clusters import connected
from connectors.errors import Refused
from connectors.spec import Pipeline
from towpath.building import Told, build, untold
from towpath.errors import TowpathError
from towpath.verify_namespaces import pairs
from verifier.commands import Command
from verifier.harmless import HARMLESS, held_back
from verifier.metadata import AS_IT_IS, Looked, MetadataDifference

_UNAUTHORISED = 13  # MongoDB's error_codes.yml
_ROLE = "grant the role dbAdmin on its database, or the least that README names"


@dataclass(frozen=True, slots=True)
class Step:
    """One command for the destination, and what it is about."""

    namespace: str
    command: Command

    @property
    def builds(self) -> tuple[str, ...]:
        """The names of the indexes that it builds."""
        return tuple(one["name"] for one in self.command.body.get("indexes", ()))

    @property
    def drops_index(self) -> bool:
        """Whether it makes room for an index that is built again, so that the two go together."""
        return "dropIndexes" in self.command.body

    @property
    def words(self) -> str:
        if self.builds:
            return f"build {', '.join(self.builds)} on {self.namespace}"
        return f"{next(iter(self.command.body))} {self.namespace}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be made, what is there and differs, and what waits for the cutover."""

    collections: tuple[Step, ...]
    """Collections with their options, and views; with what is there and may be changed, those changes as well."""
    indexes: tuple[Step, ...]
    different: tuple[MetadataDifference, ...]
    """Left as they are."""
    held_back: tuple[tuple[str, str], ...]
    """Namespace at the destination and words."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.collections, *self.indexes)

    def as_json(self) -> dict[str, Any]:
        return {
            "steps": [{"namespace": one.namespace, "command": one.command.text} for one in self.steps],
            "different": [one.as_json() for one in self.different],
            "held_back": [{"namespace": namespace, "what": what} for namespace, what in self.held_back],
        }


NOTHING = Plan((), (), (), ())


def plan(pipeline: Pipeline, *, overwrite: bool = False, final: bool = False) -> Plan:
    """Compare and say what to do; nothing is changed.

    What is at the destination and differs stays, unless `overwrite`, and what would take dropping a collection stays
    even so. `final` is the form that the source has; else the one that takes replicated changes unharmed. Raises
    `MongoUnreachable`.
    """
    try:
        wanted = pairs(pipeline, (), views=True)
    except Refused:  # no collection yet, as with `deploy --allow-missing`
        return NOTHING
    with (
        connected(pipeline.source_uri, "source") as source,
        connected(pipeline.destination_uri, "destination") as destination,
    ):
        looked = Looked.at(source, destination, wanted)
    found = looked.differences(AS_IT_IS if final else HARMLESS)
    here = {} if final else looked.source
    chosen = [one for one in found if _is_made(one, overwrite=overwrite or final)]
    steps = list(_steps(chosen))
    return Plan(
        collections=tuple(one for one in steps if not (one.builds or one.drops_index)),
        indexes=(
            *(one for one in steps if one.drops_index),
            *_together(one for one in steps if one.builds),
        ),
        different=tuple(one for one in found if one not in chosen),
        held_back=tuple(
            (pair.destination, words)
            for pair in wanted
            if pair.source in here
            for words in held_back(here[pair.source])
        ),
    )


def _is_made(one: MetadataDifference, *, overwrite: bool) -> bool:
    if any("drop" in command.body for command in one.commands):
        return False
    return one.destination is None or overwrite


def _steps(chosen: Iterable[MetadataDifference]) -> Iterator[Step]:
    """Each command once, in the order of the differences: some go with several of them."""
    done: list[tuple[str, Command]] = []
    for one in chosen:
        for command in one.commands:
            if (one.pair.destination, command) not in done:
                done.append((one.pair.destination, command))
                yield Step(one.pair.destination, command)


def _together(steps: Iterable[Step]) -> Iterator[Step]:
    """All indexes of a collection in one command: the server then reads its documents once."""
    merged: dict[str, list[Any]] = {}
    databases: dict[str, str] = {}
    for step in steps:
        merged.setdefault(step.namespace, []).extend(step.command.body["indexes"])
        databases[step.namespace] = step.command.database
    for namespace, indexes in merged.items():
        name = namespace.split(".", 1)[1]
        yield Step(namespace, Command(databases[namespace], {"createIndexes": name, "indexes": indexes}))


def run(pipeline: Pipeline, steps: Sequence[Step], tell: Told = untold) -> None:
    """Run these at the destination. `tell` is told how far building an index has come.

    Raises `TowpathError` with the command that the destination refuses, and `MongoUnreachable`; what was made stays,
    and running it again makes the rest.
    """
    with connected(pipeline.destination_uri, "destination") as client:
        for step in steps:
            try:
                _one(client, step, tell)
            except OperationFailure as error:
                raise TowpathError(_refusal(step, error)) from error


def _one(client: MongoClient[dict[str, Any]], step: Step, tell: Told) -> None:
    if step.builds:
        build(client, step.command, tell)
    else:
        client[step.command.database].command(dict(step.command.body))


def _refusal(step: Step, error: OperationFailure) -> str:
    words = (error.details or {}).get("errmsg", str(error))
    advice = f"; {_ROLE}" if error.code == _UNAUTHORISED else ""
    return f"the destination refuses to {step.words}: {words}{advice} ([destination] uri). It was: {step.command.text}"
