"""What `verify` compares besides documents: options, views and indexes of a pipeline's collections."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.clusters import connected
from connectors.errors import MongoUnreachable
from connectors.spec import Pipeline
from towpath.errors import TowpathError
from towpath.verify_namespaces import pairs
from verifier.metadata import MetadataDifference, differences


def metadata(pipeline: Pipeline, only: Sequence[str]) -> list[MetadataDifference]:
    """What differs besides documents, in namespaces that match one of `only`, if given.

    Raises `TowpathError` when a side does not tell.
    """
    compared = pairs(pipeline, only, views=True)
    try:
        with (
            connected(pipeline.source_uri, "source") as source,
            connected(pipeline.destination_uri, "destination") as destination,
        ):
            return differences(source, destination, compared)
    except MongoUnreachable as error:
        raise TowpathError(
            f"{error}. Options, views and indexes are compared with listCollections and listIndexes;"
            " --no-metadata leaves them out"
        ) from error
