"""Which namespaces a verification compares, and what else of them: options, views and indexes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from towpath.errors import MongoUnreachable, Refused, TowpathError
from towpath.mongo.client import ANSWER, Collection, collections, connected
from towpath.namespaces import Selection
from towpath.pipeline import Pipeline
from verifier import Pair
from verifier.metadata import Looked, MetadataDifference
from verifier.relaxed_schema import HARMLESS, HARMLESS_IN_PLACE

_OWN = "towpath"  # the destination's database of positions and verdicts


def pairs(pipeline: Pipeline, only: Sequence[str], *, views: bool = False) -> list[Pair]:
    """Every namespace of the pipeline that either side has, with its name at the destination.

    `only` holds patterns of namespaces at the source; empty takes all in. Views of the source are no part of any
    pipeline, and are named only with `views`. Raises `Refused` when there are none.
    """
    selection = Selection(pipeline.include, pipeline.exclude, tuple(only))
    with connected(pipeline.source_uri, "source", answer=ANSWER) as client:
        ours = [one.namespace for one in collections(client) if _is_part(one, selection, views)]
    with connected(pipeline.destination_uri, "destination", answer=ANSWER) as client:
        # what is kept about positions and verdicts needs no rights beyond reading and writing them
        databases = [name for name in client.list_database_names() if name != _OWN]
        theirs = list(_named_by_source(pipeline, selection, collections(client, databases), views))
    found = sorted({*ours, *theirs})
    if not found:
        asked = ", ".join(only) or ", ".join(pipeline.include)
        raise Refused(f"neither side has a collection of the pipeline {pipeline.name} that matches {asked}")
    return [Pair(namespace, pipeline.renames.destination(namespace)) for namespace in found]


def _is_part(found: Collection, selection: Selection, views: bool) -> bool:
    return (views or found.kind != "view") and selection.matches(found.namespace)


def _named_by_source(
    pipeline: Pipeline, selection: Selection, found: Iterable[Collection], views: bool
) -> Iterable[str]:
    """The source's names of what the destination holds, whether the source has it or not."""
    renamed = {new: old for old, new in pipeline.renames.by_source.items()}
    for collection in found:
        name = renamed.get(collection.namespace, collection.namespace)
        mine = (views or collection.kind != "view") and selection.matches(name)
        if mine and pipeline.renames.destination(name) == collection.namespace:
            yield name


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
            connected(pipeline.source_uri, "source", answer=ANSWER) as source,
            connected(pipeline.destination_uri, "destination", answer=ANSWER) as destination,
        ):
            looked = Looked.at(source, destination, compared)
    except MongoUnreachable as error:
        raise TowpathError(
            f"{error}. Options, views and indexes are compared with listCollections and listIndexes;"
            " --no-metadata leaves them out"
        ) from error
    found = looked.differences()
    lasting = set.intersection(
        *({_subject(one) for one in looked.differences(form)} for form in (HARMLESS, HARMLESS_IN_PLACE))
    )
    return Metadata(
        [one for one in found if _subject(one) in lasting], [one for one in found if _subject(one) not in lasting]
    )


def _subject(one: MetadataDifference) -> tuple[Pair, str, str]:
    return one.pair, one.kind, one.name
