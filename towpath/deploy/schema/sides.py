"""What a pipeline has on both sides: its namespaces, and how their options, views and indexes differ.

All of it can be read with few privileges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from towpath.clients.mongo.client import ANSWER_S
from towpath.clients.mongo.replica_set import Collection, collections
from towpath.config.namespaces import Selection
from towpath.config.pipeline import Pipeline
from towpath.errors import MongoError, Refused, TowpathError
from towpath.session import Session
from towpath.store.positions import DATABASE
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


def pairs(session: Session, only: Sequence[str], *, views: bool = False) -> list[Pair]:
    """Every namespace of the pipeline that exists at either side, with its name at the destination.

    `only` holds patterns of source namespaces; empty means all. Views are not replicated, and are included only with
    `views`. Raises `Refused` when there are none.
    """
    pipeline = session.pipeline
    selection = replace(pipeline.selection, only=tuple(only))
    with session.source.connected(answer=ANSWER_S) as client:
        ours = at_source(client, selection, views=views)
    with session.destination.connected(answer=ANSWER_S) as client:
        theirs = at_destination(client, pipeline, selection, views=views)
    namespaces = sorted({*ours, *theirs})
    if not namespaces:
        patterns = ", ".join(only) or ", ".join(pipeline.collections.include)
        raise Refused(f"neither side has a collection of the pipeline {pipeline.name} that matches {patterns}")
    return [Pair(namespace, pipeline.renamed(namespace)) for namespace in namespaces]


def at_source(client: Client, selection: Selection, *, views: bool) -> dict[str, Collection]:
    """The pipeline's collections at the source, by name."""
    return {
        entry.namespace: entry for entry in collections(client) if _is_part(selection, entry.namespace, entry, views)
    }


def at_destination(client: Client, pipeline: Pipeline, selection: Selection, *, views: bool) -> dict[str, Collection]:
    """The pipeline's collections at the destination, by their source names."""
    # the user may lack the privilege to list the collections of the bookkeeping database
    databases = [name for name in client.list_database_names() if name != DATABASE]
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
    """Differences of options, views and indexes; `deferred` are intended until the cutover (`towpath prepare`)."""

    differences: Sequence[MetadataDifference]
    deferred: Sequence[MetadataDifference]


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
