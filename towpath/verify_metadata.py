"""Options, views and indexes of a pipeline's collections, for `verify --metadata`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import click

from connectors.clusters import connected
from connectors.spec import Pipeline
from towpath.verify_namespaces import pairs
from verifier.metadata import MetadataDifference, differences


def metadata(pipeline: Pipeline, only: Sequence[str], *, as_json: bool) -> int:
    """Print what differs besides documents, in namespaces that match one of `only`, if given; how much that is."""
    compared = pairs(pipeline, only, views=True)
    with (
        connected(pipeline.source_uri, "source") as source,
        connected(pipeline.destination_uri, "destination") as destination,
    ):
        found = differences(source, destination, compared)
    for line in _json(found) if as_json else _lines(found):
        click.echo(line)
    return len(found)


def _json(found: Sequence[MetadataDifference]) -> Iterator[str]:
    return (json.dumps(one.as_json(), ensure_ascii=False) for one in found)


def _lines(found: Sequence[MetadataDifference]) -> Iterator[str]:
    """Commands that several share stand once, behind the last of them."""
    last = {one.command: place for place, one in enumerate(found)}
    for place, one in enumerate(found):
        yield f"{one.pair.source}: {one.what}"
        if last[one.command] == place:
            yield from (f"    mend it at the destination: {line}" for line in one.command.splitlines())
    if found:
        yield ""
