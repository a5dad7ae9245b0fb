"""`towpath rules`"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from towpath.cli.options import json_option, opened, pipeline_argument, print_json
from towpath.clients.mongo.replica_set import RAW, collections
from towpath.errors import Refused
from towpath.log.field_rules import filter_text, only_of, pair_of, rules_for, selected
from towpath.log.records import readable
from towpath.session import Session
from towpath_verifier import id_key

_STAYS = "(does not leave: it does not match the filter)"


@click.command()
@pipeline_argument
@click.option("--show", metavar="NAMESPACE", help="Print documents of this collection of the source, before and after.")
@click.option("--sample", default=5, type=click.IntRange(1, 1000), help="How many documents --show prints.")
@json_option
def rules(file: Path, show: str | None, sample: int, as_json: bool) -> None:
    """Show which documents the rules of PIPELINE let leave the source, and which of their fields.

    Without --show: the rules for each collection of the source. Nothing is changed, and no deployed pipeline is needed:
    run it before you deploy. --show prints values that the rules keep at the source.

    Exit codes: 0 done; 2 it cannot be done.
    """
    with opened(file) as session:
        found = list(_documents(session, show, sample) if show else _collections(session))
    if as_json:
        print_json({"documents" if show else "collections": found})
        return
    for each in found:
        for line in each.values() if show else (f"{each['namespace']}: {_words(each)}",):
            click.echo(_STAYS if line is None else line)
        if show:
            click.echo("")
    if not found:
        click.echo(f"{show} holds no document" if show else "no collection of the source has rules")


def _collections(session: Session) -> Iterator[dict[str, Any]]:
    with session.source.connected() as client:
        names = (each.namespace for each in collections(client) if each.kind != "view")
        captured = sorted(filter(session.pipeline.selection.matches, names))
    for namespace in captured:
        actions = {path: what for rule in rules_for(session.pipeline, namespace) for path, what in rule.actions.items()}
        only = only_of(session.pipeline, namespace)
        if actions or only:
            yield {"namespace": namespace, "rules": actions} | ({"only": filter_text(only)} if only else {})


def _words(collection: dict[str, Any]) -> str:
    words = [f"{action.split(' ', 1)[0]} {path}" for path, action in collection["rules"].items()]
    return ", ".join([*words, f"only {collection['only']}"] if "only" in collection else words)


def _documents(session: Session, namespace: str, count: int) -> Iterator[dict[str, Any]]:
    pair = pair_of(session.pipeline, namespace)
    if pair.is_whole or not session.pipeline.selection.matches(namespace):
        raise Refused(
            f"no rule of {session.pipeline.name} is for {namespace}",
            "`towpath rules PIPELINE` lists the collections that have rules",
        )
    database, name = namespace.split(".", 1)
    with session.source.connected() as client:
        documents: Any = client[database].get_collection(name, codec_options=RAW)
        found = [document.raw for document in documents.find({}, limit=count)]
        leaving = {id_key(raw) for raw in selected(documents, found, pair.only)}
    for raw in found:
        after = readable(pair.left(raw), canonical=False) if id_key(raw) in leaving else None
        yield {"before": readable(raw, canonical=False), "after": after}
