"""A verdict as one self-contained page of HTML, to attach to a change ticket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from connectors.secrets import without_credentials
from connectors.spec import Pipeline
from towpath import kept
from towpath.errors import TowpathError
from towpath.verdicts import KINDS
from towpath.verify_words import UNSEEN, Example, Found
from verifier import Tally
from verifier.metadata import MetadataDifference

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; }
h1 span { padding: .1em .5em; border-radius: .25em; color: #fff; background: #b3261e; }
h1 span.same { background: #1b7f3b; } h1 span.screened { background: #8a6d00; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .3em .8em .3em 0; text-align: left; }
th { border-bottom: 1px solid #999; } td.n, th.n { text-align: right; }
.bar { display: flex; height: 1em; min-width: 12em; background: #eee; }
th i { display: inline-block; width: .7em; height: .7em; }
.bar i { min-width: 2px; } .same, i.same { background: #6fbf8b; } i.missing { background: #b3261e; }
i.extra { background: #e08a00; } i.different { background: #6a3fb5; } i.order { background: #4a90d9; }
h1 .same { color: #fff; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1em; }
pre { background: #f5f5f5; padding: .6em; overflow: auto; max-height: 24em; white-space: pre-wrap; }
pre { word-break: break-all; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2em 1.5em; } dd { margin: 0; }
"""


def write_report(place: Path, pipeline: Pipeline, found: Found) -> None:
    """Write the page. Raises `TowpathError` when it cannot be written."""
    try:
        kept.publish(place, page(pipeline, found))
    except OSError as error:
        raise TowpathError(f"cannot write the report {place}: {error.strerror}; name another place") from error


def page(pipeline: Pipeline, found: Found) -> str:
    """The page: verdict, namespaces, first differences side by side, what differs besides documents."""
    return "".join(_page(pipeline, found))


def _page(pipeline: Pipeline, found: Found) -> Iterator[str]:
    verdict, headline, name = found.verdict, found.headline, escape(pipeline.name)
    yield f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}: {headline}</title>'
    yield f"<style>{_STYLE}</style></head><body>\n"
    colour = headline if headline in ("same", "screened") else "bad"
    yield f'<h1>{name}: <span class="{colour}">{headline}</span></h1>\n'
    yield from _facts(pipeline, found)
    for words in verdict.trouble:
        yield f"<p><b>No verdict:</b> {escape(words)}</p>\n"
    if headline == "screened":
        yield f"<p>{escape(UNSEEN)}.</p>\n"
    heads = "".join(f'<th class="n"><i class="{kind}"></i> {kind}</th>' for kind in KINDS)
    yield f'<h2>Namespaces</h2>\n<table><tr><th>namespace</th><th class="n">documents</th>{heads}'
    yield "<th>compared</th><th>verdict</th></tr>\n"
    for tally in verdict.tallies:
        yield _row(tally)
    yield "</table>\n"
    if found.metadata and found.metadata.differences:
        yield from _metadata(found.metadata.differences)
    if found.examples:
        shown = len(found.examples)
        more = f"; {verdict.differences - shown:,} more" if verdict.differences > shown else ""
        yield f"<h2>Differences</h2>\n<p>The first {shown}{more}.</p>\n"
    for example in found.examples:
        yield from _example(example)
    yield "</body></html>\n"


def _metadata(differences: Sequence[MetadataDifference]) -> Iterator[str]:
    yield "<h2>Options, views and indexes</h2>\n<table>"
    yield "<tr><th>namespace</th><th>difference</th><th>what mends it at the destination</th></tr>\n"
    for one in differences:
        cells = f"<td>{escape(one.pair.source)}</td><td>{escape(one.what)}</td>"
        yield f"<tr>{cells}<td><pre>{escape(one.command)}</pre></td></tr>\n"
    yield "</table>\n"


def _facts(pipeline: Pipeline, found: Found) -> Iterator[str]:
    verdict = found.verdict
    rate = verdict.compared / verdict.seconds if verdict.seconds else 0
    facts = {
        "source": without_credentials(pipeline.source_uri),
        "destination": without_credentials(pipeline.destination_uri),
        "ended": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "compared": f"{verdict.compared:,} documents in {verdict.seconds:,.1f} s, {rate:,.0f} a second",
        "differences": ", ".join(f"{verdict.total(kind):,} {kind}" for kind in KINDS),
        "options, views, indexes": _besides(found),
    }
    yield "<dl>"
    yield from (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    yield "</dl>\n"


def _besides(found: Found) -> str:
    if found.metadata is None:
        return "not compared"
    words = f"{len(found.metadata.differences):,} differences" if found.metadata.differences else "no differences"
    held = len(found.metadata.held_back)
    return f"{words}; {held:,} held back until the cutover" if held else words


def _row(tally: Tally) -> str:
    name = escape(tally.pair.source)
    if tally.pair.destination != tally.pair.source:
        name += f" → {escape(tally.pair.destination)}"
    name += "".join(f"<br><small>{escape(note)}</small>" for note in tally.notes)
    numbers = "".join(f'<td class="n">{n:,}</td>' for n in (tally.documents, *(tally.kinds[kind] for kind in KINDS)))
    return f"<tr><td>{name}</td>{numbers}<td>{_bar(tally)}</td><td>{tally.verdict}</td></tr>\n"


def _bar(tally: Tally) -> str:
    """What was compared, in its parts; the whole bar is what was expected."""
    whole = max(tally.expected, tally.documents, 1)
    parts: dict[str, int] = {"same": tally.documents - tally.kinds.total()}
    parts |= {kind: tally.kinds[kind] for kind in KINDS}
    shown = (
        f'<i class="{kind}" style="width:{100 * n / whole:.2f}%" title="{n:,} {kind}"></i>'
        for kind, n in parts.items()
        if n > 0
    )
    return f'<div class="bar">{"".join(shown)}</div>'


def _example(example: Example) -> Iterator[str]:
    yield f"<h3>{escape(example.namespace)} {escape(example.id)}: {example.kind}</h3>\n"
    if example.paths:
        yield "<table><tr><th>path</th><th>source</th><th>destination</th></tr>"
        for path, *values in example.paths:
            cells = "".join(f"<td>{'nothing' if one is None else escape(one)}</td>" for one in values)
            yield f"<tr><td>{escape(path or 'the document')}</td>{cells}</tr>"
        yield "</table>\n"
    sides = (f"<pre>{'nothing' if one is None else escape(one)}</pre>" for one in (example.source, example.destination))
    shown = " open" if example.source is None or example.destination is None else ""
    documents = f'<div class="sides">{"".join(sides)}</div>'
    yield f"<details{shown}><summary>source and destination</summary>{documents}</details>\n"
