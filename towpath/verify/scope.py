"""What a verification compares, and the origin of its verdict: clusters, collections, selection, deployment.

All of it can be read with few privileges. A cluster is identified by its replica set and the UUIDs of its collections,
which are new for each collection. A deployment is identified by the ids of the pipeline's topics, which are new for
each topic: `remove --topics` and `deploy` start another one. Within a deployment, a new history begins at the
destination when changes may be missing there or it is rebuilt (`towpath.bookkeeping.verdict`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self
from uuid import uuid4

from towpath.clients.mongo.client import ANSWER_S
from towpath.clients.mongo.replica_set import Collection, ReplicaSet, collections, replica_set
from towpath.config.namespaces import Selection
from towpath.config.pipeline import Pipeline
from towpath.errors import MongoError, Refused, TowpathError
from towpath.log.topic_settings import pipeline_topics
from towpath.session import Session
from towpath.store import verdict
from towpath_verifier import (
    RELAXED,
    RELAXED_IN_PLACE,
    Client,
    IndexCache,
    MetadataDifference,
    Pair,
    Schemas,
    described,
    feature_version,
)

_SIDES = ("source", "destination")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """`sets`: side → replica set; `uuids`: side → namespace → UUID; `topics`: topic → id; `history`: see `verdict`."""

    sets: Mapping[str, str]
    uuids: Mapping[str, Mapping[str, str]]
    topics: Mapping[str, str]
    selection: Mapping[str, Any]
    history: str

    @classmethod
    def read(cls, session: Session, topic_ids: Mapping[str, str] | None = None) -> Self:
        """The origin as of now. `topic_ids`: those of the pipeline's topics, if already known.

        Raises `TowpathError` when a cluster or Kafka does not answer.
        """
        pipeline = session.pipeline
        with session.source.briefly() as client:
            source = str(replica_set(client, "source"))
            ours = _at_source(client, pipeline.selection, views=False)
        with session.destination.briefly() as client:
            destination = str(replica_set(client, "destination"))
            theirs = _at_destination(client, pipeline, pipeline.selection, views=False)
            history = verdict.history(client, pipeline)
        if topic_ids is None:
            topic_ids = session.topics.ids(pipeline_topics(pipeline, session.topics.all()))
        uuids = {
            side: {collection.namespace: collection.uuid for collection in by_name.values() if collection.uuid}
            for side, by_name in zip(_SIDES, (ours, theirs), strict=True)
        }
        sets = dict(zip(_SIDES, (source, destination), strict=True))
        return cls(sets, uuids, topic_ids, _selection(pipeline), history)

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Self | None:
        """None for a verdict whose origin could not be read."""
        return None if value is None else cls(**value)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def doubt(self, now: Origin) -> str:
        """Why a verdict of this origin does not count for the pipeline as it is now; empty if it counts."""
        return self.deployment_doubt(now) or self.history_doubt(now.history) or next(self._changed(now), "")

    def deployment_doubt(self, now: Origin) -> str:
        """As `doubt`, but only for the clusters and the log."""
        for side in _SIDES:
            before, after = self.sets[side], now.sets[side]
            if not ReplicaSet.parse(before).is_same(ReplicaSet.parse(after)):
                return f"the {side} was {before}, and is {after}"
        if not self.topics:
            return "it was made while the pipeline was not deployed"
        common = sorted(self.topics.keys() & now.topics.keys())
        if not common:
            return "the pipeline's log is gone: it was removed since"
        recreated = (name for name in common if self.topics[name] != now.topics[name])
        if name := next(recreated, ""):
            return f"the pipeline was removed and deployed again since: the topic {name} is another one"
        return ""

    def history_doubt(self, now: str) -> str:
        """As `doubt`, but only for the history at the destination, which is `now`."""
        if self.history == now:
            return ""
        return f"the destination has another history since {now}" if now else "the destination has an older history"

    def created(self, now: Origin) -> list[str]:
        """The collections, by their names at the source, that exist now, and did not when this origin was read."""
        before, after = ({name for side in _SIDES for name in one.uuids[side]} for one in (self, now))
        return sorted(after - before)

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
        "include": list(pipeline.collections.include),
        "exclude": list(pipeline.collections.exclude),
        "rename": dict(pipeline.collections.rename),
    }


def try_origin(session: Session, topic_ids: Mapping[str, str] | None = None) -> tuple[Origin | None, str]:
    """As `Origin.read`; or None, and why the origin cannot be read."""
    try:
        return Origin.read(session, topic_ids), ""
    except TowpathError as error:
        return None, str(error)


def current_fields(session: Session) -> dict[str, Any]:
    """The fields `id` and `origin` for the last line of a new verdict."""
    now, _ = try_origin(session)
    return {"id": uuid4().hex, "origin": now and now.as_json()}


_BOOKKEEPING = "towpath"  # the destination's database of positions and verdicts


def pairs(session: Session, only: Sequence[str], *, views: bool = False) -> list[Pair]:
    """Every namespace of the pipeline that exists at either side, with its name at the destination.

    `only` holds patterns of source namespaces; empty means all. Views are not replicated, and are included only with
    `views`. Raises `Refused` when there are none.
    """
    pipeline = session.pipeline
    selection = replace(pipeline.selection, only=tuple(only))
    with session.source.connected(answer=ANSWER_S) as client:
        ours = _at_source(client, selection, views=views)
    with session.destination.connected(answer=ANSWER_S) as client:
        theirs = _at_destination(client, pipeline, selection, views=views)
    namespaces = sorted({*ours, *theirs})
    if not namespaces:
        patterns = ", ".join(only) or ", ".join(pipeline.collections.include)
        raise Refused(f"neither side has a collection of the pipeline {pipeline.name} that matches {patterns}")
    return [Pair(namespace, pipeline.renamed(namespace)) for namespace in namespaces]


def _at_source(client: Client, selection: Selection, *, views: bool) -> dict[str, Collection]:
    """The pipeline's collections at the source, by name."""
    return {
        entry.namespace: entry for entry in collections(client) if _is_part(selection, entry.namespace, entry, views)
    }


def _at_destination(client: Client, pipeline: Pipeline, selection: Selection, *, views: bool) -> dict[str, Collection]:
    """The pipeline's collections at the destination, by their source names."""
    # the user may lack the privilege to list the collections of the bookkeeping database
    databases = [name for name in client.list_database_names() if name != _BOOKKEEPING]
    old_names = {new: old for old, new in pipeline.collections.rename.items()}
    named = [(old_names.get(entry.namespace, entry.namespace), entry) for entry in collections(client, databases)]
    return {
        name: entry
        for name, entry in named
        if _is_part(selection, name, entry, views) and pipeline.renamed(name) == entry.namespace
    }


def _is_part(selection: Selection, name: str, collection: Collection, views: bool) -> bool:
    return (views or collection.kind != "view") and selection.matches(name)


def schemas(
    session: Session, compared: Sequence[Pair], kept: tuple[IndexCache | None, IndexCache | None] = (None, None)
) -> Schemas:
    """What both servers say of these pairs, at about the same time, without the indexes that are `kept` (see
    `described`) of source and destination. Raises `MongoError`.
    """
    with session.source.connected(answer=ANSWER_S) as client:
        ours = described(client, [pair.source for pair in compared], kept[0])
    with session.destination.connected(answer=ANSWER_S) as client:
        theirs = described(client, [pair.destination for pair in compared], kept[1])
        return Schemas(tuple(compared), ours, theirs, feature_version(client))


@dataclass(frozen=True, slots=True)
class Metadata:
    """Differences of options, views and indexes; `held_back` are intended until the cutover (`towpath prepare`)."""

    differences: Sequence[MetadataDifference]
    held_back: Sequence[MetadataDifference]


def metadata(session: Session, only: Sequence[str]) -> Metadata:
    """Compare options, views and indexes, of the namespaces that match one of `only`, if given.

    Raises `TowpathError` when a side cannot be read.
    """
    compared = pairs(session, only, views=True)
    try:
        both = schemas(session, compared)
    except MongoError as error:
        raise TowpathError(
            f"{error}. Options, views and indexes are compared with listCollections and listIndexes;"
            " --no-metadata leaves them out"
        ) from error
    differences = both.differences()
    lasting = set.intersection(
        *({_subject(difference) for difference in both.differences(form)} for form in (RELAXED, RELAXED_IN_PLACE))
    )
    return Metadata(
        [difference for difference in differences if _subject(difference) in lasting],
        [difference for difference in differences if _subject(difference) not in lasting],
    )


def _subject(difference: MetadataDifference) -> tuple[Pair, str, str]:
    return difference.pair, difference.kind, difference.name
