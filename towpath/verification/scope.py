"""What a verification compares, and what its verdict belongs to: clusters, collections, selection, life of a pipeline.

Each is known by what the least privileges show. A cluster is its replica set and the UUIDs of its collections, which
MongoDB makes anew with each collection. A life is the ids of the pipeline's topics, which Kafka makes anew with each
topic: `remove --topics` and `deploy` begin another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self
from uuid import uuid4

from pymongo.errors import PyMongoError

from towpath.errors import MongoUnreachable, Refused, TowpathError
from towpath.mongo.client import ANSWER_S, Collection, ReplicaSet, briefly, collections, connected, replica_set
from towpath.namespaces import Selection
from towpath.pipeline import Pipeline
from towpath.session import Session
from towpath.topic_settings import pipeline_topics
from verifier import Pair
from verifier.metadata import RELAXED, RELAXED_IN_PLACE, MetadataDifference, Schemas
from verifier.reads import Client

_SIDES = ("source", "destination")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """`sets` and `uuids` go by side: the replica set, and namespace → UUID; `topics`: topic → id."""

    sets: Mapping[str, str]
    uuids: Mapping[str, Mapping[str, str]]
    topics: Mapping[str, str]
    selection: Mapping[str, Any]

    @classmethod
    def look(cls, it: Session, topic_ids: Mapping[str, str] | None = None) -> Self:
        """What both clusters and Kafka show now; `topic_ids`: of the pipeline's topics, where they were asked for
        already. Raises `TowpathError` where one does not answer."""
        pipeline = it.pipeline
        with (
            briefly(pipeline.source_uri, "source") as source,
            briefly(pipeline.destination_uri, "destination") as destination,
        ):
            try:
                sets = {
                    side: str(replica_set(client, side))
                    for side, client in zip(_SIDES, (source, destination), strict=True)
                }
                held = _held(pipeline, Selection(pipeline.include, pipeline.exclude), source, destination, views=False)
            except PyMongoError as error:
                raise TowpathError(f"cannot ask both clusters which collections they hold: {error}") from error
        if topic_ids is None:
            topic_ids = it.topics.ids(pipeline_topics(pipeline, it.topics.all()))
        uuids = {
            side: {one.namespace: one.uuid for one in found.values() if one.uuid}
            for side, found in zip(_SIDES, held, strict=True)
        }
        return cls(sets, uuids, topic_ids, _selection(pipeline))

    @classmethod
    def of(cls, found: Any) -> Self | None:
        """As it was kept; None for a verdict of a version that kept none."""
        try:
            return cls(found["sets"], found["uuids"], found["topics"], found["selection"])
        except (KeyError, TypeError):
            return None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def doubt(self, now: Origin) -> str:
        """Why a verdict of this origin says nothing of the pipeline as it is now; empty when it counts."""
        return self.doubt_of_life(now) or next(self._changed(now), "")

    def doubt_of_life(self, now: Origin) -> str:
        """As `doubt`, for what goes on when single collections are dropped and made anew, or others are selected."""
        for side in _SIDES:
            before, after = self.sets[side], now.sets[side]
            if not ReplicaSet.parse(before).is_same(ReplicaSet.parse(after)):
                return f"the {side} was {before}, and is {after}"
        if not self.topics:
            return "it was made while the pipeline was not deployed"
        common = sorted(self.topics.keys() & now.topics.keys())
        if not common:
            return "the pipeline's log is gone: it was removed since"
        other = [name for name in common if self.topics[name] != now.topics[name]]
        return f"the pipeline was removed and deployed anew since: the topic {other[0]} is another one" if other else ""

    def _changed(self, now: Origin) -> Iterator[str]:
        for side in _SIDES:
            before, after = self.uuids[side], now.uuids[side]
            gone = [name for name, uuid in before.items() if after.get(name) != uuid]
            if gone:
                more = f" and {len(gone) - _SHOWN:,} more" if len(gone) > _SHOWN else ""
                yield f"at the {side} {', '.join(sorted(gone)[:_SHOWN])}{more} was dropped since, or is another one"
        if self.selection != now.selection:
            yield "the pipeline file named other collections then"


def _selection(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "include": list(pipeline.include),
        "exclude": list(pipeline.exclude),
        "rename": dict(pipeline.renames.by_source),
    }


def look(it: Session, topic_ids: Mapping[str, str] | None = None) -> tuple[Origin | None, str]:
    """What a verdict belongs to now, as `Origin.look` does; or None, and why that cannot be told."""
    try:
        return Origin.look(it, topic_ids), ""
    except TowpathError as error:
        return None, str(error)


def of_now(it: Session) -> dict[str, Any]:
    """What makes the last line of a verdict one of the pipeline as it is now."""
    now, _ = look(it)
    return {"id": uuid4().hex, "origin": now and now.as_json()}


_OWN = "towpath"  # the destination's database of positions and verdicts


def pairs(pipeline: Pipeline, only: Sequence[str], *, views: bool = False) -> list[Pair]:
    """Every namespace of the pipeline that either side has, with its name at the destination.

    `only` holds patterns of namespaces at the source; empty takes all in. Views of the source are no part of any
    pipeline, and are named only with `views`. Raises `Refused` when there are none.
    """
    selection = Selection(pipeline.include, pipeline.exclude, tuple(only))
    with (
        connected(pipeline.source_uri, "source", answer=ANSWER_S) as source,
        connected(pipeline.destination_uri, "destination", answer=ANSWER_S) as destination,
    ):
        ours, theirs = _held(pipeline, selection, source, destination, views=views)
    found = sorted({*ours, *theirs})
    if not found:
        asked = ", ".join(only) or ", ".join(pipeline.include)
        raise Refused(f"neither side has a collection of the pipeline {pipeline.name} that matches {asked}")
    return [Pair(namespace, pipeline.renames.destination(namespace)) for namespace in found]


def _held(
    pipeline: Pipeline, selection: Selection, source: Client, destination: Client, *, views: bool
) -> tuple[dict[str, Collection], dict[str, Collection]]:
    """What each side holds of the pipeline, by the source's names, whether the source has it or not."""

    def is_part(name: str, found: Collection) -> bool:
        return (views or found.kind != "view") and selection.matches(name)

    ours = {one.namespace: one for one in collections(source) if is_part(one.namespace, one)}
    # what is kept about positions and verdicts needs no rights beyond reading and writing them
    databases = [name for name in destination.list_database_names() if name != _OWN]
    renamed = {new: old for old, new in pipeline.renames.by_source.items()}
    named = [(renamed.get(one.namespace, one.namespace), one) for one in collections(destination, databases)]
    theirs = {
        name: one for name, one in named if is_part(name, one) and pipeline.renames.destination(name) == one.namespace
    }
    return ours, theirs


@dataclass(frozen=True, slots=True)
class Metadata:
    """What differs besides documents, and what does so on purpose while changes stream in (`towpath prepare`)."""

    differences: Sequence[MetadataDifference]
    held_back: Sequence[MetadataDifference]


def metadata(pipeline: Pipeline, only: Sequence[str]) -> Metadata:
    """Compare what there is besides documents, in namespaces that match one of `only`, if given.

    Raises `TowpathError` when a side does not tell.
    """
    compared = pairs(pipeline, only, views=True)
    try:
        with (
            connected(pipeline.source_uri, "source", answer=ANSWER_S) as source,
            connected(pipeline.destination_uri, "destination", answer=ANSWER_S) as destination,
        ):
            looked = Schemas.read(source, destination, compared)
    except MongoUnreachable as error:
        raise TowpathError(
            f"{error}. Options, views and indexes are compared with listCollections and listIndexes;"
            " --no-metadata leaves them out"
        ) from error
    found = looked.differences()
    lasting = set.intersection(
        *({_subject(one) for one in looked.differences(form)} for form in (RELAXED, RELAXED_IN_PLACE))
    )
    return Metadata(
        [one for one in found if _subject(one) in lasting], [one for one in found if _subject(one) not in lasting]
    )


def _subject(one: MetadataDifference) -> tuple[Pair, str, str]:
    return one.pair, one.kind, one.name
