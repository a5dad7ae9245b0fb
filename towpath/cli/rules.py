"""`towpath rules`"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from towpath.cli.options import json_option, opened, pipeline_argument, print_json
from towpath.clients.mongo.replica_set import collections
from towpath.errors import Refused
from towpath.log.field_rules import mask_of, rules_for
from towpath.log.records import readable
from towpath.session import Session

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


@click.command()
@pipeline_argument
@click.option("--show", metavar="NAMESPACE", help="Print documents of this collection of the source, before and after.")
@click.option("--sample", default=5, type=click.IntRange(1, 1000), help="How many documents --show prints.")
@json_option
def rules(file: Path, show: str | None, sample: int, as_json: bool) -> None:
    """Show what the rules of PIPELINE leave of documents.

    Without --show: the rules for each collection of the source. Nothing is changed, and no deployed pipeline is needed:
    look before you deploy. What --show prints holds the values that the rules keep at the source.

    Exit codes: 0 done; 2 it cannot be done.
    """
    with opened(file) as session:
        found = list(_documents(session, show, sample) if show else _collections(session))
    if as_json:
        print_json({"documents" if show else "collections": found})
        return
    for each in found:
        for line in each.values() if show else (f"{each['namespace']}: {_words(each)}",):
            click.echo(line)
        if show:
            click.echo("")
    if not found:
        click.echo(f"{show} holds no document" if show else "no collection of the source has rules")


def _collections(session: Session) -> Iterator[dict[str, Any]]:
    with session.source.connected() as client:
        names = (each.namespace for each in collections(client) if each.kind != "view")
        selected = sorted(filter(session.pipeline.selection.matches, names))
    for namespace in selected:
        actions = {path: what for rule in rules_for(session.pipeline, namespace) for path, what in rule.actions.items()}
        if actions:
            yield {"namespace": namespace, "rules": actions}


def _words(collection: dict[str, Any]) -> str:
    return ", ".join(f"{action.split(' ', 1)[0]} {path}" for path, action in collection["rules"].items())


def _documents(session: Session, namespace: str, count: int) -> Iterator[dict[str, Any]]:
    mask = mask_of(session.pipeline, namespace)
    if mask is None or not session.pipeline.selection.matches(namespace):
        raise Refused(
            f"no rule of {session.pipeline.name} is for {namespace}",
            "`towpath rules PIPELINE` lists the collections that have rules",
        )
    database, name = namespace.split(".", 1)
    with session.source.connected() as client:
        documents: Any = client[database].get_collection(name, codec_options=_RAW)
        for document in documents.find({}, limit=count):
            raw = bytes(document.raw)
            yield {"before": readable(raw, canonical=False), "after": readable(mask(raw), canonical=False)}
