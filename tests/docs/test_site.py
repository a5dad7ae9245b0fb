"""The documentation builds as a site without a warning, fetches nothing from elsewhere, and is what the code has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import towpath_verifier
from docs.hooks import figures, three_digits
from tests.docs.reference import BLOCKS, FOLDER, PACKAGES, ROOT, filled, packages
from tests.docs.test_documentation import PAGES

PAGE_NAMES = sorted({page for page, _ in BLOCKS})
#: What a browser fetches automatically.
_FETCHED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")
#: Links that are not fetched, such as to the canonical address of a page.
_NAMED = re.compile(r"""rel=["']?(?:canonical|next|prev)\b""")

#: A file beside a page, to which the page links, or which it shows.
_USED = re.compile(r"""(?:src|href)=["']?([^"'\s>#?:]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, which MkDocs builds only if no link and no anchor is broken, and every page is in its navigation."""
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    docs = ROOT / "docs"
    for page in PAGES[1:]:
        place = site / (page.relative_to(docs) if page.is_relative_to(docs) else page.name)
        assert place.with_name("index.html" if page.name == "README.md" else f"{page.stem}.html").is_file(), page
    assert (site / "CHANGELOG.html").is_file()


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    fetched = {tag for page in pages for tag in _FETCHED.findall(page.read_text()) if not _NAMED.search(tag)}
    assert fetched == set()
    assert [file for file in site.rglob("*.css") if re.search(r"url\(.?https?:", file.read_text())] == []


def test_the_site_has_only_pages_and_what_they_use(site: Path) -> None:
    own = {"sitemap.xml", "sitemap.xml.gz", "search/search_index.json"}
    results = {f"benchmarks/{file.name}" for file in (ROOT / "docs" / "benchmarks").glob("*.json")}
    files = {file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()} - own - results
    others = {file for file in files if not file.endswith(".html") and not file.startswith("assets/")}
    used = {
        (page.parent / link).resolve().relative_to(site.resolve()).as_posix()
        for page in site.rglob("*.html")
        for link in _USED.findall(page.read_text())
        if (page.parent / link).resolve().is_relative_to(site.resolve())
    }
    assert others - used == set()


def test_the_page_of_the_verifier_has_each_name_that_it_exports(site: Path) -> None:
    page = (site / "reference" / "verifier-api.html").read_text()
    assert [name for name in towpath_verifier.__all__ if f'id="towpath_verifier.{name}"' not in page] == []


def test_an_asset_from_elsewhere_would_be_found() -> None:
    assert _FETCHED.search('<script async src="https://cdn.example/a.js">')
    assert _FETCHED.search("<link rel=stylesheet href=//fonts.example/b>")
    assert not _FETCHED.search('<a href="https://example.org">')


@pytest.mark.parametrize("page", PAGE_NAMES)
def test_generated_pages_are_up_to_date(page: str) -> None:
    assert (FOLDER / page).read_text() == filled(page), "run scripts/docs"


def test_numbers_on_pages_are_those_of_the_benchmarks() -> None:
    texts = {page: page.read_text() for page in PAGES}
    assert [page for page, text in texts.items() if text != figures(text)] == [], "run scripts/docs"


def test_a_number_has_three_digits_that_count() -> None:
    assert [three_digits(value) for value in (37034, 999.6, 12.34, 1.4541, 2.0, 0.0286)] == [
        *("37,000", "1,000", "12.3", "1.45", "2", "0.0286")
    ]


def test_a_number_comes_from_a_part_or_from_a_goal() -> None:
    load = json.loads((ROOT / "docs" / "benchmarks" / "load.json").read_text())
    part, goal = load["parts"][0], next(one for one in load["goals"] if one["found"].endswith(" times"))
    shown = three_digits(part["medians"]["towpath"]["documents/s"])
    comment = f"<!-- load; {part['title'].partition(':')[0]}; towpath; documents/s -->"
    assert figures(f"about 7.5{comment} a second") == f"about {shown}{comment} a second"
    assert figures(f"about {comment} a second", comments=False) == f"about {shown} a second"
    assert figures(f"<!-- load; {goal['what']} -->", comments=False) == goal["found"].removesuffix(" times")


@pytest.mark.parametrize(
    "name",
    [
        *("load; load of large; towpath; documents a day", "load; load of large; dsync; documents/s"),
        *("load; load of huge; towpath; documents/s", "load; load of; towpath; documents/s"),
        *("none; load of large; towpath; documents/s", "load; load of large; towpath", "load; no goal"),
    ],
)
def test_a_number_that_the_benchmarks_do_not_have_is_an_error(name: str) -> None:
    with pytest.raises(KeyError, match="numbers of the benchmarks are called"):
        figures(f"1<!-- {name} -->")


def test_the_picture_of_the_packages_is_that_of_the_layers() -> None:
    assert PACKAGES.read_text() == packages(), "run scripts/docs"
