"""What `verify` compares besides documents: options, views and indexes of a pipeline's collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from towpath.errors import MongoUnreachable, TowpathError
from towpath.mongo.client import ANSWER, connected
from towpath.pipeline import Pipeline
from towpath.verification.namespaces import pairs
from verifier import Pair
from verifier.metadata import Looked, MetadataDifference
from verifier.relaxed_schema import HARMLESS, HARMLESS_IN_PLACE


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
