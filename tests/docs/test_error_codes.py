"""The table of error codes in `docs/errors.md` names exactly the codes that the sources have."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"\bTWP-[A-Z0-9]+(?:-[A-Z0-9]+)*(?![-A-Z0-9])")
SOURCES = [
    *(file for room in ("connectors", "towpath", "verifier") for file in (ROOT / room).rglob("*.py")),
    *(ROOT / "transforms" / "src" / "main").rglob("*.java"),
]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "errors.md").read_text().splitlines()
    if line.startswith("| `TWP-")
]


def codes(file):
    return set(CODE.findall(file.read_text()))


IN_SOURCES = set().union(*map(codes, SOURCES))
IN_TABLE = [row[0].strip("`") for row in ROWS]


def test_the_sources_of_both_languages_have_codes():
    assert {file.suffix for file in SOURCES if codes(file)} == {".py", ".java"}


def test_the_table_names_every_code_of_the_sources():
    assert sorted(IN_SOURCES - set(IN_TABLE)) == []


def test_the_table_names_each_code_once_and_none_that_is_gone():
    assert sorted(IN_TABLE) == sorted(IN_SOURCES & set(IN_TABLE))


def test_a_row_says_what_it_means_and_what_to_do():
    assert [row[0] for row in ROWS if len(row) != 3 or not all(row)] == []


def test_no_page_names_a_code_that_is_gone():
    assert {page.name: gone for page in PAGES if (gone := codes(page) - IN_SOURCES)} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"TWP-LOG-GAP: gone"', ["TWP-LOG-GAP"]),
        (r'r"\bTWP-LOG-(?:GAP|END)\b"', []),
        ("`TWP-…`", []),
        ("XTWP-LOG", []),
    ],
)
def test_a_code_is_told_from_a_part_of_one(text, found):
    assert CODE.findall(text) == found
