"""A verdict in words: what `towpath verify` prints at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from towpath.text import counted
from towpath.verification.scope import Metadata
from towpath.verification.verdict_file import KINDS, VerificationResult
from verifier import Tally, Verdict

_UNWRAPPED = 1000  # columns, where no terminal wraps the lines
_WIDTH = 100  # characters of a value on a line

UNSEEN = (
    "screened: digests cover only the integer part of a number, not its type and not its fraction (5, 5.0 and 5.7 have"
    " one digest); NaN counts as 0, and a symbol as a string; run without --screen to compare all bytes"
)


def show(found: VerificationResult) -> None:
    """Print a verdict for people."""
    console = Console()
    console.width = console.width if console.is_terminal else _UNWRAPPED
    console.print(_table(found.verdict.tallies))
    for line in (*_notes(found.verdict), *_examples(found), *_metadata(found.metadata), *_end(found)):
        click.echo(line)


def _table(tallies: Sequence[Tally]) -> Table:
    table = Table("namespace", "documents", *KINDS, "verdict", box=None, padding=(0, 4, 0, 0))
    for tally in tallies:
        name = tally.pair.source
        if tally.pair.destination != name:
            name += f" → {tally.pair.destination}"
        numbers = [f"{n:,}" for n in (tally.documents, *(tally.kinds[kind] for kind in KINDS))]
        table.add_row(Text(name), *numbers, tally.verdict + (" (by dbHash)" if tally.way == "hashed" else ""))
    return table


def _notes(verdict: Verdict) -> Iterator[str]:
    notes = [note for tally in verdict.tallies for note in tally.notes]
    yield from (f"note: {note}" for note in notes)
    yield from (f"trouble: {words}" for words in verdict.trouble)


def _examples(found: VerificationResult) -> Iterator[str]:
    for example in found.examples:
        yield ""
        yield f"{example.namespace} {_short(example.id)}: {example.kind}"
        for path, source, destination in example.paths:
            sides = f"{_short(source)} at the source, {_short(destination)} at the destination"
            yield f"    {path or 'the document'}: {sides}"
    if found.verdict.differences > len(found.examples):
        yield f"and {found.verdict.differences - len(found.examples):,} more"


def _metadata(found: Metadata | None) -> Iterator[str]:
    """Commands that several share stand once, behind the last of them."""
    if found is None or not (found.differences or found.held_back):
        return
    yield ""
    yield from (f"{one.pair.source}: {one.what}; held back until the cutover" for one in found.held_back)
    last = {one.command: place for place, one in enumerate(found.differences)}
    for place, one in enumerate(found.differences):
        yield f"{one.pair.source}: {one.what}"
        if last[one.command] == place:
            yield from (f"    run at the destination: {line}" for line in one.command.splitlines())


def _end(found: VerificationResult) -> Iterator[str]:
    verdict = found.verdict
    yield ""
    rate = f"{verdict.compared / verdict.seconds:,.0f} a second" if verdict.seconds else ""
    network = f"{verdict.read / verdict.compared:,.4g} bytes a document in replies" if verdict.read else ""
    figures = ", ".join(part for part in (f"{verdict.seconds:,.1f} s", rate, network) if part)
    yield f"{found.headline}: {counted(verdict.compared, 'document')} in {figures}{_besides(found)}"
    if found.headline == "screened":
        yield UNSEEN


def _besides(found: VerificationResult) -> str:
    if found.metadata is None:
        return ""
    waiting = (
        f", {len(found.metadata.held_back):,} more held back until the cutover" if found.metadata.held_back else ""
    )
    return f"; {counted(len(found.metadata.differences), 'difference')} in options, views and indexes{waiting}"


def _short(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"
