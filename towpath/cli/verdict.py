"""A verdict as text, which `towpath verify` prints at its end, and as an HTML page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.table import Column, Table
from rich.text import Text

from towpath.cli import report
from towpath.cli.options import print_tables
from towpath.config.mongo_uri import without_credentials
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, utc
from towpath.deploy.schema import Metadata
from towpath.store.verdict_file import KINDS
from towpath.verify.result import VerificationResult
from towpath_verifier import SCREENED, UNORDERED, Tally, Verdict

_MAX_VALUE = 100  # characters of a value on a line

SCREEN_LIMITS = (
    "screened: digests cover only the integer part of a number, not its type and not its fraction (5, 5.0 and 5.7 have"
    " one digest); NaN counts as 0, and a symbol as a string; run without --screen to compare all bytes"
)


def show(result: VerificationResult) -> None:
    """Print a verdict for people."""
    print_tables(_table(result.verdict.tallies))
    for line in (*_notes(result.verdict), *_examples(result), *_metadata(result.metadata), *_end(result)):
        click.echo(line)


def _table(tallies: Sequence[Tally]) -> Table:
    table = Table(Column("namespace", overflow="fold"), "documents", *KINDS, "verdict", box=None, padding=(0, 2, 0, 0))
    for tally in tallies:
        name = tally.pair.source
        if tally.pair.destination != name:
            name += f" → {tally.pair.destination}"
        numbers = [f"{n:,}" for n in (tally.documents, *(tally.kinds[kind] for kind in KINDS))]
        table.add_row(Text(name), *numbers, tally.verdict + (" (by dbHash)" if tally.way == "hashed" else ""))
    return table


def _notes(verdict: Verdict) -> Iterator[str]:
    yield from (f"note: {note}" for tally in verdict.tallies for note in tally.notes)
    yield from (f"no verdict: {error}" for error in verdict.errors)


def _examples(result: VerificationResult) -> Iterator[str]:
    for example in result.examples:
        yield ""
        yield f"{example.namespace} {_short(example.id)}: {example.kind}"
        for path, source, destination in example.paths:
            sides = f"{_short(source)} at the source, {_short(destination)} at the destination"
            yield f"    {path or 'the document'}: {sides}"
    if result.verdict.differences > len(result.examples):
        yield f"and {result.verdict.differences - len(result.examples):,} more"


def _metadata(metadata: Metadata | None) -> Iterator[str]:
    """A command that several differences share is printed once, after the last of them."""
    if metadata is None or not (metadata.differences or metadata.deferred):
        return
    yield ""
    for held in metadata.deferred:
        until = "until `prepare` converts it" if held.awaits_conversion else "until the cutover"
        yield f"{held.pair.source}: {held.what}; deferred {until}"
    last = {difference.command: number for number, difference in enumerate(metadata.differences)}
    for number, difference in enumerate(metadata.differences):
        yield f"{difference.pair.source}: {difference.what}"
        if last[difference.command] == number:
            yield from (f"    run at the destination: {line}" for line in difference.command.splitlines())


def _end(result: VerificationResult) -> Iterator[str]:
    verdict = result.verdict
    yield ""
    rate = f"{verdict.compared / verdict.seconds:,.0f} a second" if verdict.seconds else ""
    network = f"{verdict.read / verdict.compared:,.4g} bytes a document in replies" if verdict.read else ""
    numbers = ", ".join(part for part in (f"{verdict.seconds:,.1f} s", rate, network) if part)
    yield f"{result.headline}: {counted(verdict.compared, 'document')} in {numbers}{_metadata_summary(result)}"
    if result.headline == SCREENED:
        yield SCREEN_LIMITS


def _metadata_summary(result: VerificationResult) -> str:
    if result.metadata is None:
        return ""
    held = len(result.metadata.deferred)
    deferred = f", {held:,} more deferred until the cutover" if held else ""
    return f"; {counted(len(result.metadata.differences), 'difference')} in options, views and indexes{deferred}"


def _short(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"


def write_report(place: Path, pipeline: Pipeline, result: VerificationResult) -> None:
    """Write the page. Raises `TowpathError` when it cannot be written."""
    verdict, headline = result.verdict, result.headline
    report.write(
        place,
        "verdict",
        name=pipeline.name,
        headline=headline,
        mark={"same": "same", SCREENED: "screened", UNORDERED: "screened"}.get(headline, "bad"),
        facts=_facts(pipeline, result),
        errors=verdict.errors,
        note=SCREEN_LIMITS if headline == SCREENED else "",
        kinds=KINDS,
        tallies=verdict.tallies,
        bar=_bar,
        metadata=result.metadata.differences if result.metadata else (),
        examples=result.examples,
        more=verdict.differences - len(result.examples),
    )


def _facts(pipeline: Pipeline, result: VerificationResult) -> dict[str, str]:
    verdict = result.verdict
    rate = verdict.compared / verdict.seconds if verdict.seconds else 0
    return {
        "source": without_credentials(pipeline.source.uri),
        "destination": without_credentials(pipeline.destination.uri),
        "ended": utc(time.time()),
        "compared": f"{verdict.compared:,} documents in {verdict.seconds:,.1f} s, {rate:,.0f} a second",
        "differences": ", ".join(f"{verdict.total(kind):,} {kind}" for kind in KINDS),
        "options, views, indexes": _metadata_counts(result),
    }


def _metadata_counts(result: VerificationResult) -> str:
    if result.metadata is None:
        return "not compared"
    count = len(result.metadata.differences)
    differences = f"{count:,} differences" if count else "no differences"
    held = len(result.metadata.deferred)
    return f"{differences}; {held:,} deferred until the cutover" if held else differences


def _bar(tally: Tally) -> Iterator[tuple[str, int, float]]:
    """The parts of the bar: kind, number of documents, and per cent of the expected number."""
    total = max(tally.expected, tally.documents, 1)
    parts: dict[str, int] = {"same": tally.documents - tally.kinds.total()}
    parts |= {kind: tally.kinds[kind] for kind in KINDS}
    yield from ((kind, count, 100 * count / total) for kind, count in parts.items() if count > 0)
