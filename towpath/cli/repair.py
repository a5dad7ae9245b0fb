"""`towpath repair`"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import click

from towpath import events, state_files
from towpath.barrier import passing
from towpath.cli.options import json_option, opened, pipeline_argument, print_json, say
from towpath.events import Reread
from towpath.log import reread_requests
from towpath.pipeline import Pipeline
from towpath.repair import targets
from towpath.repair.rereads import NotRepaired, Outcome, Repaired
from towpath.repair.rereads import repair as repaired
from towpath.repair.targets import DocumentRef
from towpath.schema import unreplicated
from towpath.session import Session
from towpath.state_files import FOLLOW, lock
from towpath.verification import follow_state, verdict_file
from verifier.raw import Key, id_key
from verifier.values import extended_json

_SHOWN = 50  # documents that are told to people one by one


@click.command()
@pipeline_argument
@click.option(
    "--ids",
    type=(str, click.File(encoding="utf-8")),
    metavar="NAMESPACE FILE",
    help="Repair these documents: FILE has one _id per line, as Extended JSON; - is standard input.",
)
@click.option("--dead-letters", is_flag=True, help="Repair the documents that the destination refused.")
@click.option("--dry-run", is_flag=True, help="Print what would be re-read, and change nothing.")
@click.option(
    "--timeout", default=300.0, show_default=True, help="Seconds in which a batch must be re-read and applied."
)
@json_option
def repair(
    file: Path, ids: tuple[str, TextIO] | None, dead_letters: bool, dry_run: bool, timeout: float, as_json: bool
) -> None:
    """Re-read documents that differ from the source, and write them through the log.

    Run it after `verify` has found differences, or when `status` shows dead letters. Without --ids or --dead-letters
    it repairs the documents of the last verdict. The source connector re-reads them into the log, in order with all
    changes; a document that is gone at the source is deleted. Nothing else is written to the destination. Then the
    same documents are compared again.

    Exit codes: 0 all are the same now; 1 some are not repaired, with the reason for each; 2 it cannot be done.
    """
    if ids is not None and dead_letters:
        raise click.UsageError("give one of --ids and --dead-letters, not both")
    with opened(file) as it:
        documents = _wanted(it, ids, dead_letters=dead_letters)
        if dry_run:
            _show(documents, as_json=as_json)
            return
        reread_requests.refuse_unable(it.pipeline)
        with passing(it) as passed, _struck(it.pipeline, ids is None and not dead_letters) as mended:
            left = _report(it, repaired(it, documents, passed, timeout, say), mended, as_json=as_json)
        for line in unreplicated.lines(it):
            say(line)
    if left:
        raise click.exceptions.Exit(1)


def _wanted(it: Session, ids: tuple[str, TextIO] | None, *, dead_letters: bool) -> Iterator[DocumentRef]:
    if ids is not None:
        return targets.of_file(it.pipeline, *ids)
    return targets.of_dead_letters(it.pipeline, it.topics) if dead_letters else targets.of_verdicts(_named(it.pipeline))


def _named(pipeline: Pipeline) -> list[Path]:
    """The last verdict, and what `verify --follow` has found since."""
    followed = follow_state.path(pipeline.name)
    return [verdict_file.path(pipeline.name), *([followed] if followed.exists() else [])]


def _show(documents: Iterable[DocumentRef], *, as_json: bool) -> None:
    counts: Counter[str] = Counter()
    for one in documents:
        counts[one.namespace] += 1
        if as_json:
            print_json(_event(one))
    if not as_json:
        for namespace, count in counts.items():
            click.echo(f"{namespace}: {count:,} documents would be re-read")
        if not counts:
            click.echo("nothing to repair")


@contextmanager
def _struck(pipeline: Pipeline, of_verdict: bool) -> Iterator[set[tuple[str, Key]]]:
    """What is put into this set is taken out of the last verdict at the end, however it comes."""
    mended: set[tuple[str, Key]] = set()
    try:
        yield mended
    finally:
        if of_verdict and mended:
            last, *followed = _named(pipeline)
            verdict_file.remove_repaired(last, lambda namespace, id: (namespace, id_key(id)) in mended)
            with state_files.locked(lock(pipeline.name, FOLLOW)) as holder:
                for place in () if holder else followed:  # one that follows sees it for itself
                    verdict_file.remove_repaired(place, lambda namespace, id: (namespace, id_key(id)) in mended)
                    follow_state.update_counts(pipeline.name, verdict_file.counts(place))


def _report(it: Session, found: Iterable[Outcome], same: set[tuple[str, Key]], *, as_json: bool) -> int:
    """Tell of each document as it is known, and put it into `same` if it is; the number of those that are left."""
    start, mended, left = time.monotonic(), Counter[str](), Counter[str]()
    for one in found:
        (mended if isinstance(one, Repaired) else left)[one.document.namespace] += 1
        if isinstance(one, Repaired):
            same.add((one.document.namespace, id_key(one.document.id)))
        if as_json:
            print_json(_outcome(it.pipeline, one))
        elif isinstance(one, NotRepaired) and left.total() <= _SHOWN:
            click.echo(f"left     {one.document.namespace} {_id(one.document)}: {one.kind}: {one.reason}")
    seconds = round(time.monotonic() - start, 1)
    if as_json:
        print_json(events.Repaired(mended=mended.total(), left=left.total(), seconds=seconds))
        return left.total()
    if left.total() > _SHOWN:
        click.echo(f"         and {left.total() - _SHOWN:,} more")
    for namespace in sorted({*mended, *left}):
        click.echo(f"{namespace}: {mended[namespace]:,} mended, {left[namespace]:,} left")
    click.echo(f"{mended.total():,} mended, {left.total():,} left, in {seconds} s")
    return left.total()


def _event(one: DocumentRef) -> Reread:
    return Reread(namespace=one.namespace, id=verdict_file.shown_id(one.id), id_bson=one.id.hex())


def _outcome(pipeline: Pipeline, one: Outcome) -> Reread:
    shown = replace(_event(one.document), destination_namespace=pipeline.renames.destination(one.document.namespace))
    if isinstance(one, Repaired):
        return replace(shown, result="mended")
    return replace(shown, result="left", kind=one.kind, reason=one.reason)


def _id(one: DocumentRef) -> str:
    return extended_json(one.id) or one.id.hex()
