"""Who writes which namespaces of a destination, so that pipelines of other Connect clusters are seen as well.

`towpath.writers` holds one document per pipeline and per replay: `{_id: name, kafka, source, include, exclude, only,
renames, partitions, creating, topics, since, removed}`. `deploy` writes it before anything else exists of the pipeline.
`remove` marks it as removed, and deletes it together with the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from typing import Any, Self

from pymongo.collection import Collection

from towpath.clients.mongo.client import Client
from towpath.config.namespaces import Selection, meet
from towpath.config.pipeline import Pipeline
from towpath.store.positions import WRITERS, collection_of

#: What removes the registration of a pipeline that no longer exists, in mongosh at the destination.
MONGOSH_FORGET = 'db.getSiblingDB("towpath").writers.deleteOne({{_id: "{name}"}})'


@dataclass(frozen=True, slots=True)
class Registration:
    """One writer of a destination. Two are equal if they write the same, from the same Kafka cluster."""

    name: str
    """Of the pipeline; of the connector, for a replay."""
    kafka: str
    """The id of the Kafka cluster that holds the log."""
    source: str
    selection: Selection
    """Of the source's names."""
    renames: Mapping[str, str]
    partitions: int
    """Of each change topic; 0 in a registration of a version that did not store it."""
    removed: bool = False
    """Whether it writes no longer: `remove` has left its log."""
    topics: frozenset[str] = field(default=frozenset(), compare=False)
    """The ids of the topics that are known to be made for it."""
    creating: frozenset[str] = field(default=frozenset(), compare=False)
    """The names of those that `deploy` began to create, whose ids it has not stored yet."""

    @classmethod
    def of(cls, pipeline: Pipeline, kafka: str, source: object, only: Iterable[str] = ()) -> Self:
        """`only`: the patterns of a replay."""
        selection = Selection(pipeline.collections.include, pipeline.collections.exclude, tuple(only))
        count = pipeline.kafka.partitions
        return cls(pipeline.name, kafka, str(source), selection, pipeline.collections.rename, count)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            name=str(document["_id"]),
            kafka=document["kafka"],
            source=document["source"],
            selection=Selection(tuple(document["include"]), tuple(document["exclude"]), tuple(document["only"])),
            renames=dict(document["renames"]),
            partitions=int(document.get("partitions", 0)),
            removed=bool(document["removed"]),
            topics=frozenset(document["topics"]),
            creating=frozenset(document["creating"]),
        )

    def writes(self, target: str) -> bool:
        """Whether it writes a namespace, by the destination's name."""
        renames = self.renames
        names = [old for old, new in renames.items() if new == target] + ([] if target in renames else [target])
        return any(map(self.selection.matches, names))

    def shared(self, other: Registration, names: Iterable[str]) -> list[str]:
        """Which of these namespaces, and of those that the patterns name, both write (by the destination's names)."""
        ours, theirs = self.selection.include, other.selection.include
        patterns = [pair for pair in product(ours, theirs) if "*" in pair[0] + pair[1]]
        samples = {*names, *ours, *theirs, *self.renames.values(), *other.renames.values()}
        samples |= {name for pair in patterns if (name := meet(*pair))}
        return sorted(name for name in samples if self.writes(name) and other.writes(name))


def read_all(client: Client) -> dict[str, Registration]:
    """Name → registration."""
    return {found.name: found for found in map(Registration.read, _writers(client).find())}


def register(client: Client, registration: Registration, creating: Iterable[str] = ()) -> None:
    """Write the registration. `creating`: the names of topics that will be created for it now."""
    selection = registration.selection
    values = {
        "kafka": registration.kafka,
        "source": registration.source,
        "include": list(selection.include),
        "exclude": list(selection.exclude),
        "only": list(selection.only),
        "renames": [[old, new] for old, new in registration.renames.items()],
        "partitions": registration.partitions,
        "removed": False,
    }
    adding = {"topics": {"$each": []}, "creating": {"$each": sorted(creating)}}
    change = {"$set": values, "$setOnInsert": {"since": datetime.now(UTC)}, "$addToSet": adding}
    _writers(client).update_one({"_id": registration.name}, change, upsert=True)


def note(client: Client, name: str, ids: Mapping[str, str], *, removed: bool = False) -> None:
    """Add topics (name → id) to a registration, if there is one; with `removed`, it writes no longer."""
    change: dict[str, Any] = {
        "$addToSet": {"topics": {"$each": sorted(ids.values())}},
        "$pull": {"creating": {"$in": sorted(ids)}},
    }
    _writers(client).update_one({"_id": name}, change | ({"$set": {"removed": True}} if removed else {}))


def note_cleaned(client: Client, name: str, until: datetime) -> None:
    """Store that Kafka's cleaner may have come to what was appended before this time, as its lag is raised."""
    _writers(client).update_one({"_id": name}, {"$max": {"cleanedBefore": until}})


def cleaned_before(client: Client, name: str) -> datetime | None:
    """The latest time that `note_cleaned` has stored; None without one."""
    found = _writers(client).find_one({"_id": name}) or {}
    time: datetime | None = found.get("cleanedBefore")
    return time


def forget(client: Client, name: str) -> None:
    _writers(client).delete_one({"_id": name})


def _writers(client: Client) -> Collection[dict[str, Any]]:
    return collection_of(client, WRITERS, wtimeout_ms=10_000)
