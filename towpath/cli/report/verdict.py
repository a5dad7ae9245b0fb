"""A verdict as a page of HTML: namespaces, first differences side by side, what differs besides documents."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from towpath.cli import report
from towpath.cli.verdict_text import UNSEEN
from towpath.mongo_uri import without_credentials
from towpath.pipeline import Pipeline
from towpath.text import utc
from towpath.verification.verdict_file import KINDS, VerificationResult
from verifier import Tally


def write_report(place: Path, pipeline: Pipeline, found: VerificationResult) -> None:
    """Write the page. Raises `TowpathError` when it cannot be written."""
    verdict, headline = found.verdict, found.headline
    report.write(
        place,
        "verdict",
        name=pipeline.name,
        headline=headline,
        mark=headline if headline in ("same", "screened") else "bad",
        facts=_facts(pipeline, found),
        trouble=verdict.trouble,
        note=UNSEEN if headline == "screened" else "",
        kinds=KINDS,
        tallies=verdict.tallies,
        bar=_bar,
        metadata=found.metadata.differences if found.metadata else (),
        examples=found.examples,
        more=verdict.differences - len(found.examples),
    )


def _facts(pipeline: Pipeline, found: VerificationResult) -> dict[str, str]:
    verdict = found.verdict
    rate = verdict.compared / verdict.seconds if verdict.seconds else 0
    return {
        "source": without_credentials(pipeline.source_uri),
        "destination": without_credentials(pipeline.destination_uri),
        "ended": utc(time.time()),
        "compared": f"{verdict.compared:,} documents in {verdict.seconds:,.1f} s, {rate:,.0f} a second",
        "differences": ", ".join(f"{verdict.total(kind):,} {kind}" for kind in KINDS),
        "options, views, indexes": _besides(found),
    }


def _besides(found: VerificationResult) -> str:
    if found.metadata is None:
        return "not compared"
    words = f"{len(found.metadata.differences):,} differences" if found.metadata.differences else "no differences"
    held = len(found.metadata.held_back)
    return f"{words}; {held:,} held back until the cutover" if held else words


def _bar(tally: Tally) -> Iterator[tuple[str, int, float]]:
    """What was compared, in its parts with their per cent; 100 is what was expected."""
    whole = max(tally.expected, tally.documents, 1)
    parts: dict[str, int] = {"same": tally.documents - tally.kinds.total()}
    parts |= {kind: tally.kinds[kind] for kind in KINDS}
    yield from ((kind, count, 100 * count / whole) for kind, count in parts.items() if count > 0)
