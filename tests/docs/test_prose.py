"""How-to pages are easy to read, and the linter of prose, which `scripts/check` runs, finds what it should."""

from __future__ import annotations

import re
from pathlib import Path

import textstat

from tests.docs.prose import CODE, ROOT, WORDS, blocks, findings, of_module, of_page

#: A dot in a number or a name ends no sentence.
INNER_DOT = re.compile(r"(?<=\w)[.!?](?=\w)")
PARAGRAPHS = """
# Nobody

Somebody goes
on, with `--figures` and [what
is there](figures.md).

| of its own | |
|---|---|
| a | anew |
"""


def grade(page: Path) -> float:
    """The Flesch–Kincaid grade of a page's paragraphs and lists, in which code counts as a short word."""
    text = page.read_text(encoding="utf-8")
    paragraphs = [block.text for block in blocks(text) if block.kind == "paragraph_open"]
    text = " ".join(f"{paragraph.rstrip(':.')}." for paragraph in paragraphs)
    return textstat.flesch_kincaid_grade(INNER_DOT.sub("", text.replace(CODE, "it")))


def test_pages_that_one_follows_are_easy_to_read() -> None:
    docs = ROOT / "docs"
    pages = [ROOT / "README.md", docs / "tutorial.md", *docs.glob("how-to/*.md"), *docs.glob("concepts/*.md")]
    grades = {page.name: round(grade(page), 1) for page in pages}
    assert {name: level for name, level in grades.items() if level > 9} == {}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 160


def test_the_linter_finds_words_in_headings_paragraphs_and_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PARAGRAPHS)
    found = " ".join(findings(iter([(ROOT / "x.md", of_page(page))])))
    assert re.findall(r"(\d+): words: .*? of '([^']*)'", found) == [
        ("2", "Nobody"),
        ("4", "Somebody"),
        ("4", "goes\n on"),
        ("8", "of its own"),
        ("10", "anew"),
    ]


def test_the_linter_finds_words_in_docstrings_comments_and_messages(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Nobody calls it."""\n\n\ndef f(trouble):  # meanwhile\n    raise ValueError(f"{trouble}: go on")\n'
    )
    found = list(findings(iter([(ROOT / "x.py", of_module(module))])))
    assert [line.partition(": words")[0] for line in found] == ["x.py:1", "x.py:4", "x.py:5"]


def test_every_word_has_another_one_instead() -> None:
    assert [before for before, after in WORDS.items() if re.search(rf"\b(?:{before})\b", after)] == []
