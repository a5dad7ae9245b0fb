"""Every figure on the pages of the documentation has a source, and is what the source has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isclose

import pytest

from tests.bench.__main__ import BENCHES
from tests.bench.page import page as report
from tests.docs.figures import FIGURES, Figure, code, computed, known, once
from tests.docs.values import ROOT, NoValue

#: Pages that tests hold against what they are made of.
GENERATED = [ROOT / "docs" / name for name in ("benchmarks/report.md", "reference/connectors.md", "reference/verbs.md")]
FILES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {str(file.relative_to(ROOT)): file.read_text() for file in FILES if file not in GENERATED}
BLOCK = re.compile(r"^( *)```.*?^\1```|<!-- generated: .*?<!-- end -->", re.M | re.S)
#: What is no word of a page: code, and where a link leads.
NO_WORD = re.compile(r"`[^`]*`|(?<=\])\([^)\s]*\)")

#: In seconds, bytes, parts of 1.
UNITS = {
    **{"µs": 1e-6, "ms": 1e-3, "s": 1, "second": 1, "seconds": 1, "min": 60, "minutes": 60, "h": 3600, "hours": 3600},
    **{"%": 0.01, "KB": 1 << 10, "KiB": 1 << 10, "MB": 1 << 20, "MiB": 1 << 20, "GB": 1 << 30, "GiB": 1 << 30},
}
#: What these may mean as well.
DECIMAL = {"KB": 1e3, "MB": 1e6, "GB": 1e9}
NUMBER = r"\d[\d,]*(?:\.\d+)?(?!\d)"
LIST = f"{NUMBER}(?:(?:–|-| to | and |, |; | or ){NUMBER})*"
MEASURE = "|".join([*UNITS, "×", "times", "B", "bytes?", "byte", "days?", "an? (?:second|minute|hour|day)"])
#: What is counted: a plural, perhaps with an adjective. These are neither.
NEITHER = (
    "a all always an and as at begins by does each for has if in is it its lacks leaves less needs not nothing of or"
    " prints reads reports so takes that the this to was when where while with without works"
)
EITHER = rf"(?!(?:{NEITHER.replace(' ', '|')})\b)"
COUNTED = rf"(?:{EITHER}[a-z]+(?:-[a-z]+)* )?{EITHER}[a-z]+s(?:/s)?\b"
#: A number, or several, with a unit or what is counted, or in thousands; or a cell of a table with nothing but numbers.
FIGURE = re.compile(
    rf"(?<![\w.:/#–-])(?:{LIST}(?:[ -]?(?:{MEASURE})(?!\w)|(?<!\b[01]) {COUNTED})|\d+(?:,\d{{3}})+(?!\d))"
    r"|(?<=\| )(?=[^|]*\d[,.]\d)[\d,.;×– ]+(?= \|)"
)
BOUND = re.compile(r"\b(?:less than|at most|under|below)\b")


def problems(pages: Mapping[str, str], figures: Sequence[Figure]) -> Iterator[str]:
    """What is wrong with the figures on these pages."""
    covered: dict[str, list[tuple[int, int]]] = {page: [] for page in pages}
    for figure in figures:
        for place in figure.places:
            page, _, said = place.partition(": ")
            spans = [found.span() for found in re.finditer(_pattern(said), _words(pages[page]))]
            covered[page] += spans
            wrong = _differing(figure, said) if spans else ["no longer: remove it from tests/docs/figures.py"]
            yield from (f"{page} says {said!r}: {why}" for why in wrong)
    for page, text in pages.items():
        for found in FIGURE.finditer(_prose(_words(text))):
            if not any(start <= found.start() and found.end() <= end for start, end in covered[page]):
                line = text.count("\n", 0, found.start()) + 1
                yield f"{page}:{line} says {found[0]!r}: add to tests/docs/figures.py where this comes from"


def _words(page: str) -> str:
    """A page of the same length, without blocks of code and what is generated."""
    return BLOCK.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), page)


def _prose(text: str) -> str:
    """A text of the same length in one line, without what stands in backticks and where links lead."""
    return re.sub(r"\s", " ", NO_WORD.sub(lambda found: "_" * len(found[0]), text))


def _pattern(said: str) -> str:
    """What a place says, wherever lines break; ` … ` is any text of the same section."""
    return "[^#]{1,1500}?".join(r"\s+".join(map(re.escape, part.split())) for part in said.split(" … "))


def _differing(figure: Figure, said: str) -> Iterator[str]:
    if figure.value is None:
        return
    try:
        wanted = figure.value()
    except NoValue as error:
        yield str(error)
        return
    except (KeyError, OSError) as error:
        yield f"{figure.source}: {error!r}"
        return
    values = wanted if isinstance(wanted, tuple) else (wanted,)
    prose = _prose(said)
    numbers = list(re.finditer(NUMBER, prose))
    if len(numbers) != len(values):
        yield f"these are {len(numbers)} numbers, and {figure.source} has {len(values)}"
        return
    for number, value in zip(numbers, values, strict=True):
        unit = _unit(prose[number.start() :])
        scales = (UNITS.get(unit, 1), DECIMAL.get(unit, UNITS.get(unit, 1)))
        bound = not figure.exact and BOUND.search(prose) is not None
        if not any(_agrees(number[0].replace(",", ""), value / scale, figure.exact, bound) for scale in scales):
            yield f"{figure.source} has {value / scales[0]:,.6g}{unit and ' '}{unit}, not {number[0]}"


def _unit(rest: str) -> str:
    """That of the first number, for 41 in `41 to 51 ms` as well; empty where it is not one of `UNITS`."""
    found = re.match(rf"{LIST}[ -]?({'|'.join(UNITS)})(?!\w)", rest)
    return found[1] if found else ""


def _agrees(said: str, value: float, exact: bool, bound: bool) -> bool:
    """Whether a page may say this for a value: the value, rounded to the digits that it says, or a bound of it."""
    page = float(said)
    if exact or bound:
        return isclose(value, page) or (bound and 0 <= value < page)
    if "." in said:
        return isclose(round(value, len(said.partition(".")[2])), page)
    zeros = len(said) - len(said.rstrip("0"))
    return isclose(round(value, -zeros), page) and isclose(value, page, rel_tol=0.05)


def test_every_figure_of_the_documentation_is_what_its_source_has() -> None:
    assert list(problems(PAGES, FIGURES)) == []


def test_the_report_is_what_the_results_say() -> None:
    folder = ROOT / "docs" / "benchmarks"
    found = [json.loads((folder / f"{name}.json").read_text()) for name in BENCHES]
    pictures = {name: [file.name for file in sorted(folder.glob(f"{name}*.svg"))] for name in BENCHES}
    assert "\n".join(report(found, pictures)) + "\n" == (folder / "report.md").read_text()


INVENTED = """# Invented
At most 40 connections,
each for 10 s, with 2 MB. Reading took 13 s on two
cores (a copy 1.5 s). Less than 1 % is lost.

```
$ wait 99 s
```

Version 8.0 has `70 s`, and 3 modes.

| documents/s | |
|---|---|
| 34,900 | 8080 |
"""


def test_what_is_wrong_on_a_page_is_reported() -> None:
    figures = [
        code("towpath/monitor/connections.py:MOST_CONNECTIONS", "page: At most 40 connections"),
        code("towpath/monitor/connections.py:REQUEST_SECONDS", "page: each for 10 s"),
        code("WriteCommand.java:MOST_BYTES", "page: with 2 MB"),
        code("WriteCommand.java:MOST_MICE", "page: with 2 MB"),
        computed("benchmarks", lambda: 1.54, "page: a copy 1.5 s"),
        computed("benchmarks", lambda: 0.02, "page: Less than 1 %"),
        computed("benchmarks", lambda: (0.002, 7), "page: Less than 1 %"),
        once("page", "Reading took 13 s on two cores"),
        known("Kafka", "page: Kafka waits for 45 s", "page: `70 s`"),
    ]
    assert list(problems({"page": INVENTED}, figures)) == [
        "page says 'At most 40 connections': towpath/monitor/connections.py:MOST_CONNECTIONS has 400, not 40",
        "page says 'with 2 MB': WriteCommand.java:MOST_MICE is there 0 times",
        "page says 'Less than 1 %': benchmarks has 2 %, not 1",
        "page says 'Less than 1 %': these are 1 numbers, and benchmarks has 2",
        "page says 'Kafka waits for 45 s': no longer: remove it from tests/docs/figures.py",
        "page:10 says '3 modes': add to tests/docs/figures.py where this comes from",
        "page:14 says '34,900': add to tests/docs/figures.py where this comes from",
    ]


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("from 41 to 51 ms, a 16-byte key and 64 MiB", ["41 to 51 ms", "16-byte", "64 MiB"]),
        (
            "1,000 dead letters, 20 a second, 2 × 17 MB, 60%",
            ["1,000 dead letters", "20 a second", "2 ×", "17 MB", "60%"],
        ),
        ("MongoDB 6.0 lacks it; exit code 1 differences; 127.0.0.1:9300 is 8 as bytes", []),
        ("error 10334 and KIP-664 s, topic-2 s; 1,000 at a time", ["1,000"]),
    ],
)
def test_figures_are_numbers_with_a_unit_or_with_what_is_counted(text: str, figures: list[str]) -> None:
    assert [found[0] for found in FIGURE.finditer(text)] == figures


@pytest.mark.parametrize(
    ("said", "value", "agrees"),
    [
        ("50,900", 50_915, True),
        ("50,900", 50_951, False),
        ("0.51", 0.508, True),
        ("36.0", 35.99, True),
        ("36", 36.6, False),
        ("10,000", 13_700, False),
    ],
)
def test_what_was_measured_is_rounded_to_the_digits_of_the_page(said: str, value: float, agrees: bool) -> None:
    figures = [computed("benchmarks", lambda: value, f"page: {said} documents")]
    assert (list(problems({"page": f"It has {said} documents."}, figures)) == []) is agrees
