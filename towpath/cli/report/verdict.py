"""A verdict as an HTML page: namespaces, the first differences side by side, and options, views and indexes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from towpath.cli import report
from towpath.cli.verdict_text import SCREEN_LIMITS
from towpath.config.mongo_uri import without_credentials
from towpath.config.pipeline import Pipeline
from towpath.config.text import utc
from towpath.store.verdict_file import KINDS
from towpath.verify.result import VerificationResult
from towpath_verifier import SCREENED, UNORDERED, Tally


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
        trouble=verdict.trouble,
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
        "options, views, indexes": _metadata_summary(result),
    }


def _metadata_summary(result: VerificationResult) -> str:
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
