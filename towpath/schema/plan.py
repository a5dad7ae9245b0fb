"""Make at the destination what the source has besides documents: collections with their options, views, indexes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from towpath.errors import Refused
from towpath.mongo.client import connected
from towpath.pipeline import Pipeline
from towpath.schema.apply import Step
from towpath.verification.scope import pairs
from verifier import Pair
from verifier.metadata import (
    AS_IT_IS,
    RELAXED,
    RELAXED_IN_PLACE,
    MetadataDifference,
    Schemas,
    held_back,
    in_place,
    stopped,
)
from verifier.repair_commands import Command


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
    undo: tuple[Step, ...] = ()
    """What puts back all that `steps` change; of a plan in place only."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.collections, *self.indexes)

    def as_json(self) -> dict[str, Any]:
        return {
            "steps": [
                {"namespace": one.namespace, "command": one.command.text, "takes_time": one.takes_time}
                for one in self.steps
            ],
            "different": [one.as_json() for one in self.different],
            "held_back": [{"namespace": namespace, "what": what} for namespace, what in self.held_back],
            "undo": [{"namespace": one.namespace, "command": one.command.text} for one in self.undo],
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
        looked = Schemas.read(source, destination, wanted)
    found = looked.differences(AS_IT_IS if final else RELAXED)
    here = {} if final else looked.source
    chosen = [one for one in found if _is_made(one, overwrite=overwrite or final)]
    steps = list(_steps(chosen))
    return Plan(
        collections=tuple(one for one in steps if not _is_about_index(one)),
        indexes=_in_order(one for one in steps if _is_about_index(one)),
        different=tuple(one for one in found if one not in chosen),
        held_back=tuple(
            (pair.destination, words)
            for pair in wanted
            if pair.source in here
            for words in held_back(here[pair.source])
        ),
    )


def plan_in_place(pipeline: Pipeline) -> Plan:
    """Stop TTL and validators at a destination that was there first, such as a former source; nothing else changes.

    The source is asked for names only. Keep `undo` before the steps are run: afterwards nobody here knows what was set.
    `plan` with `final` sets what the source has. Raises `Refused` without any collection, and `MongoUnreachable`.
    """
    there = tuple(Pair(one.destination, one.destination) for one in pairs(pipeline, ()))
    with connected(pipeline.destination_uri, "destination") as client:
        found = Schemas.read(client, client, there)
    after = replace(found, destination={name: in_place(one) for name, one in found.destination.items()})
    return Plan(
        collections=tuple(_steps(found.differences(RELAXED_IN_PLACE))),
        indexes=(),
        different=(),
        held_back=tuple((name, words) for name, one in found.destination.items() for words in stopped(one)),
        undo=tuple(_steps(after.differences(AS_IT_IS))),
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


def _is_about_index(one: Step) -> bool:
    return bool(one.builds or one.drops_index or one.change)


def _in_order(steps: Iterable[Step]) -> tuple[Step, ...]:
    """What takes no time first; what drops an index just before it is built again."""
    found = list(steps)
    return (
        *(one for one in found if one.change and not one.converts),
        *(one for one in found if one.converts),
        *(one for one in found if one.drops_index),
        *_together(one for one in found if one.builds),
    )


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
