"""`towpath repair`"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import click

from towpath.checks import target
from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json, say
from towpath.config import events
from towpath.config.events import Reread
from towpath.config.mongo_uri import without_credentials
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, first_few
from towpath.deploy import unreplicated
from towpath.errors import Refused, TowpathError
from towpath.log import reread_requests
from towpath.log.barrier import passing, wait
from towpath.session import Session, unsaid
from towpath.store import cutover as cutovers
from towpath.store import state_files, verdict_file
from towpath.store.state_files import FOLLOW, lock
from towpath.verify import repair as rereads
from towpath.verify.repair import DocumentRef
from towpath.verify.verdict import forget_found
from towpath_verifier import Key, extended_json, id_key

_MAX_LINES = 50  # documents, or namespaces, with a separate line
_SHOWN = 5  # namespaces in one line
_SOON_S = 10.0  # in which a pipeline that does not lag applies a delete


@click.command()
@pipeline_argument
@click.option(
    "--ids",
    type=(str, click.File(encoding="utf-8")),
    metavar="NAMESPACE FILE",
    help="Repair these documents: FILE has one _id per line, as Extended JSON; - is standard input.",
)
@flag("--dead-letters", help="Repair the documents that the destination refused.")
@flag("--yes", help="Do not ask before documents that are only at the destination are deleted.")
@flag("--dry-run", help="Print what would be re-read, and change nothing.")
@click.option("--timeout", default=300.0, help="Seconds in which a batch must be re-read and applied.")
@json_option
def repair(
    file: Path,
    ids: tuple[str, TextIO] | None,
    dead_letters: bool,
    yes: bool,
    dry_run: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Re-read documents that differ from the source, and write them through the log.

    Run it after `verify` has found differences, or when `status` shows dead letters. Without --ids or --dead-letters
    it repairs the documents of the last verdict. The source connector re-reads them into the log, in order with all
    changes; a document that is gone at the source is deleted, after confirmation. Nothing else is written to the
    destination. Then the same documents are compared again.

    Exit codes: 0 all are the same now; 1 some are not repaired, with the reason for each; 2 it cannot be done.
    """
    if ids is not None and dead_letters:
        raise click.UsageError("give one of --ids and --dead-letters, not both")
    with opened(file) as session:
        if not dry_run:
            reread_requests.refuse_unable(session.pipeline)
            target.require_own(session)
            cutovers.refuse(session)
        verdicts = dict[Path, str | None]()
        kinds = dict[DocumentRef, str]()
        documents: Iterable[DocumentRef]
        if ids is not None:
            documents = rereads.of_file(session.pipeline, *ids)
        elif dead_letters:
            documents = rereads.of_dead_letters(session.pipeline, session.topics)
        else:
            verdicts, kinds = _found(session)
            documents = kinds
        if dry_run:
            _show(documents, as_json=as_json)
            return
        if not yes:  # read once, before the question: what is repaired is what was confirmed
            documents = kinds = {document: kinds.get(document, "") for document in documents}
            _confirm(session, kinds, can_ask=ids is None or ids[1].name != "<stdin>")
        repaired = set[tuple[str, Key]]()
        try:
            with passing(session) as passed:
                failed = _report(rereads.repair(session, documents, passed, timeout), repaired, as_json=as_json)
        finally:
            if verdicts:
                _remove(session, verdicts, repaired)
        for line in unreplicated.lines(session):
            say(line)
    if failed:
        raise click.exceptions.Exit(1)


def _found(session: Session) -> tuple[dict[Path, str | None], dict[DocumentRef, str]]:
    """The last verdicts (file → id), and what they have found, with its kind. Raises `Refused` if one is replaced."""
    verdicts = rereads.of_these_clusters(session, _verdict_files(session.pipeline))
    found = rereads.of_verdicts(verdicts)
    if any(verdict_file.counts(place).get("id") != id for place, id in verdicts.items()):
        raise Refused("another verdict has come while this one was read", "run the same command again")
    return verdicts, found


def _confirm(session: Session, documents: Mapping[DocumentRef, str], *, can_ask: bool) -> None:
    """Before documents are deleted, say what is repaired from where to where, and ask.

    Each comes with its kind in a verdict, or an empty one. The source may have lost more of them since.
    """
    now = list(rereads.extra_now(session, (document for document, kind in documents.items() if kind != "extra")))
    if now:
        with suppress(TowpathError):  # what the source has just deleted is on its way
            wait(session, _SOON_S, unsaid)
        now = list(rereads.extra_now(session, now))
    found = rereads.by_kind({**documents, **dict.fromkeys(now, "extra")})
    if not (extras := sum(counts["extra"] for counts in found.values())):
        return
    pipeline = session.pipeline
    source, where = (without_credentials(side.uri) for side in (pipeline.source, pipeline.destination))
    say(f"repairing from the source {source} to the destination {where}:")
    for namespace, counts in list(found.items())[:_MAX_LINES]:
        renamed = pipeline.renamed(namespace)
        kinds = [f"{counts[kind]:,} {kind}" for kind in verdict_file.KINDS if counts[kind]]
        kinds += [counted(counts[""], "other")] if counts[""] else []
        say(f"  {namespace}{f' → {renamed}' if renamed != namespace else ''}: {', '.join(kinds)}")
    if len(found) > _MAX_LINES:
        say(f"  and {len(found) - _MAX_LINES:,} more namespaces")
    names = [namespace for namespace, counts in found.items() if counts["extra"]]
    if gone := unreplicated.gone(session, names):
        say(
            f"the source has dropped or renamed {first_few(sorted(gone), _SHOWN)}, or never had it: the destination may"
            f" have the last copy of these documents; `towpath ddl {session.file}` shows what has happened"
        )
    of = first_few(list(map(pipeline.renamed, names)), _SHOWN)
    what = f"{counted(extras, 'document')} of {of} that only {where} has"
    if not can_ask:
        raise Refused(f"this would delete {what}; nothing was changed", "--yes does it without a question")
    click.confirm(f"Delete {what}?", abort=True, err=True)


def _verdict_files(pipeline: Pipeline) -> list[Path]:
    """The last verdict, and the file of the differences that `verify --follow` has found since."""
    followed = verdict_file.followed_path(pipeline.name)
    return [verdict_file.path(pipeline.name), *([followed] if followed.exists() else [])]


def _show(documents: Iterable[DocumentRef], *, as_json: bool) -> None:
    counts: Counter[str] = Counter()
    for document in documents:
        counts[document.namespace] += 1
        if as_json:
            print_json(document.event)
    if not as_json:
        for namespace, count in counts.items():
            click.echo(f"{namespace}: {counted(count, 'document')} would be re-read")
        if not counts:
            click.echo("nothing to repair")


def _remove(session: Session, verdicts: Mapping[Path, str | None], repaired: set[tuple[str, Key]]) -> None:
    """Remove repaired documents from these verdicts (file → id), unless others have replaced them."""
    name, is_done = session.pipeline.name, dict[str | None, bool]()
    with state_files.locked(lock(name, FOLLOW)) as holder:
        for place, id in verdicts.items():
            is_followed, left = place == verdict_file.followed_path(name), None
            if not (is_followed and holder):  # a running `verify --follow` removes them itself
                left = verdict_file.remove_repaired(place, repaired, id)
            if is_followed and left is not None:
                verdict_file.update_running(name, verdict_file.counts(place))
            is_done[id] = is_done.get(id, True) and left == 0
    if done := [id for id, is_all in is_done.items() if id and is_all]:
        forget_found(session, done)


def _report(outcomes: Iterable[Reread], repaired_ids: set[tuple[str, Key]], *, as_json: bool) -> int:
    """Print each outcome; add the repaired documents to `repaired_ids`. Returns the number of those not repaired."""
    start, repaired, failed = time.monotonic(), Counter[str](), Counter[str]()
    for outcome in outcomes:
        id, is_repaired = bytes.fromhex(outcome.id_bson), outcome.result == "repaired"
        (repaired if is_repaired else failed)[outcome.namespace] += 1
        if is_repaired:
            repaired_ids.add((outcome.namespace, id_key(id)))
        if as_json:
            print_json(outcome)
        elif not is_repaired and failed.total() <= _MAX_LINES:
            shown = extended_json(id) or outcome.id_bson
            click.echo(f"left     {outcome.namespace} {shown}: {outcome.kind}: {outcome.reason}")
    seconds = round(time.monotonic() - start, 1)
    if as_json:
        print_json(events.Repaired(repaired=repaired.total(), left=failed.total(), seconds=seconds))
        return failed.total()
    if failed.total() > _MAX_LINES:
        click.echo(f"         and {failed.total() - _MAX_LINES:,} more")
    for namespace in sorted({*repaired, *failed}):
        click.echo(f"{namespace}: {repaired[namespace]:,} repaired, {failed[namespace]:,} left")
    click.echo(f"{repaired.total():,} repaired, {failed.total():,} left, in {seconds} s")
    return failed.total()
