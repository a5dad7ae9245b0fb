"""Plan what the destination needs besides documents: collections with their options, views, and indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from towpath.clients.mongo.client import Cluster
from towpath.deploy.schema.apply import Step
from towpath.deploy.schema.sides import pairs, schemas
from towpath.errors import Refused
from towpath.session import Session
from towpath_verifier import (
    AS_IT_IS,
    RELAXED,
    RELAXED_IN_PLACE,
    Command,
    IndexCache,
    MetadataDifference,
    Pair,
    Schemas,
    described,
    feature_version,
    omitted,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to create or change, what differs and stays, and what is deferred until the cutover."""

    collections: tuple[Step, ...]
    """Create collections and views, or change their options."""
    indexes: tuple[Step, ...]
    different: tuple[MetadataDifference, ...]
    """Differences that stay."""
    deferred: tuple[tuple[str, str], ...]
    """(namespace at the destination, description)"""
    undo: tuple[Step, ...] = ()
    """The steps that undo `steps`; only in a plan in place."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.collections, *self.indexes)

    def as_json(self) -> dict[str, Any]:
        return {
            "steps": [
                {"namespace": step.namespace, "command": step.command.text, "takes_time": step.takes_time}
                for step in self.steps
            ],
            "different": [difference.as_json() for difference in self.different],
            "deferred": [{"namespace": namespace, "what": description} for namespace, description in self.deferred],
            "undo": [{"namespace": step.namespace, "command": step.command.text} for step in self.undo],
        }


EMPTY = Plan((), (), (), ())

#: The indexes of this cluster that are known already, and have not changed since; None if none are.
KeptIndexes = Callable[[Cluster], IndexCache | None]


def nothing_kept(cluster: Cluster) -> None:
    """All indexes are read."""


def plan(session: Session, *, overwrite: bool = False, final: bool = False, kept: KeptIndexes = nothing_kept) -> Plan:
    """Compare both sides and plan the steps; nothing is changed.

    Existing objects that differ stay, unless `overwrite`. Even then a collection is never dropped. `final` restores
    the source's schema; the default is the relaxed schema, with which replicated changes do no harm. Raises
    `MongoError`.
    """
    try:
        replicated = pairs(session, (), views=True)
    except Refused:  # no collection yet, as with `deploy --allow-missing`
        return EMPTY
    metadata = schemas(session, replicated, (kept(session.source), kept(session.destination)))
    differences = metadata.differences(AS_IT_IS if final else RELAXED)
    relaxed = {} if final else metadata.source
    resolved, different = list[MetadataDifference](), list[MetadataDifference]()
    for difference in differences:
        (resolved if _is_resolved(difference, overwrite=overwrite or final) else different).append(difference)
    steps = _steps(resolved)
    return Plan(
        collections=tuple(step for step in steps if not _is_about_index(step)),
        indexes=_in_order([step for step in steps if _is_about_index(step)]),
        different=tuple(different),
        deferred=tuple(
            (pair.destination, description)
            for pair in replicated
            if pair.source in relaxed
            for description in omitted(relaxed[pair.source], RELAXED)
        ),
    )


def plan_in_place(session: Session, kept: KeptIndexes = nothing_kept) -> Plan:
    """Stop TTL and validators at an existing destination, such as a former source, and change nothing else.

    Only the namespaces come from the source. Store `undo` before the steps run: it holds the only record of the old
    settings, unless `plan` with `final` restores the source's. Raises `Refused` if no collection matches, and
    `MongoError`.
    """
    targets = tuple(Pair(pair.destination, pair.destination) for pair in pairs(session, ()))
    with session.destination.connected() as client:
        descriptions = described(client, [pair.source for pair in targets], kept(session.destination))
        before = Schemas(targets, descriptions, descriptions, feature_version(client))
    after = replace(
        before, destination={name: RELAXED_IN_PLACE.of(collection) for name, collection in descriptions.items()}
    )
    return Plan(
        collections=tuple(_steps(before.differences(RELAXED_IN_PLACE))),
        indexes=(),
        different=(),
        deferred=tuple(
            (name, text) for name, collection in descriptions.items() for text in omitted(collection, RELAXED_IN_PLACE)
        ),
        undo=tuple(_steps(after.differences(AS_IT_IS))),
    )


def _is_resolved(difference: MetadataDifference, *, overwrite: bool) -> bool:
    if any("drop" in command.body for command in difference.commands):
        return False
    return difference.destination is None or overwrite


def _steps(differences: Iterable[MetadataDifference]) -> list[Step]:
    """The commands in the order of the differences; a command that resolves several of them comes once."""
    steps: dict[str, list[Step]] = {}
    for difference in differences:
        mine = steps.setdefault(difference.pair.destination, [])
        for command in difference.commands:
            step = Step(difference.pair.destination, command)
            if step not in mine:
                mine.append(step)
    return [step for mine in steps.values() for step in mine]


def _is_about_index(step: Step) -> bool:
    return bool(step.builds or step.drops_index or step.change)


def _in_order(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps that take no time come first. An index is dropped just before it is built again."""
    return (
        *(step for step in steps if step.change and not step.converts),
        *(step for step in steps if step.converts),
        *(step for step in steps if step.drops_index),
        *_together(step for step in steps if step.builds),
    )


def _together(steps: Iterable[Step]) -> Iterator[Step]:
    """Build all indexes of a collection in one command, for which the server reads its documents only once."""
    merged: dict[str, list[Any]] = {}
    databases: dict[str, str] = {}
    for step in steps:
        merged.setdefault(step.namespace, []).extend(step.command.body["indexes"])
        databases[step.namespace] = step.command.database
    for namespace, indexes in merged.items():
        name = namespace.split(".", 1)[1]
        yield Step(namespace, Command(databases[namespace], {"createIndexes": name, "indexes": indexes}))
