"""For MkDocs: ARCHITECTURE.md and CHANGELOG.md, which are beside this folder, become pages of the site.

It also fills in the numbers of the benchmarks. In a page, a number is followed by a comment that names it:

    37,000<!-- load; load of large; towpath; documents/s -->

An address, such as where problems are reported, comes from `[project.urls]` in pyproject.toml in the same way:

    <https://towpath.example/issues><!-- url: Issues -->

The comment of a number names the file in `benchmarks/`, the beginning of a part's title, the side and the number; or
the file and one of its goals. `scripts/docs` writes numbers and addresses into the pages, so that they are also right
outside of the site.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parent.parent
_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md")
#: A link from a page in docs/ to something beside docs/, at any depth.
_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)#\s]+)(#[^)\s]*)?\)")
#: A number, and the comment that names it.
_FIGURE = re.compile(r"([\d.,]*\d)?(<!-- (\w[\w-]*; [^>]*?) -->)")
#: An address, and the comment that names it.
_ADDRESS = re.compile(r"<[^<>\s]*>(<!-- url: (\w+) -->)")
_NUMBER = re.compile(r"[\d,]+(?:\.\d+)?")


def figures(markdown: str, *, comments: bool = True) -> str:
    """A page with all its numbers as the benchmarks have them, and with the project's addresses.

    Raises `KeyError` for a number or an address that is not there.
    """
    markdown = _ADDRESS.sub(lambda found: f"<{_address(found[2])}>" + (found[1] if comments else ""), markdown)
    return _FIGURE.sub(lambda found: figure(found[3]) + (found[2] if comments else ""), markdown)


def _address(name: str) -> str:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"][name]).removeprefix("mailto:")


def figure(name: str) -> str:
    """A number of a benchmark, in three digits that count."""
    benchmark, *rest = name.split("; ")
    file = _ROOT / "docs" / "benchmarks" / f"{benchmark}.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"parts": [], "goals": []}
    values = list(_of_goal(found, *rest) if len(rest) == 1 else _of_part(found, *rest) if len(rest) == 3 else ())
    if len(values) != 1:
        raise KeyError(f"{len(values)} numbers of the benchmarks are called {name!r}")
    return three_digits(values[0])


def three_digits(value: float) -> str:
    """A number as people read it; further digits would be noise."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 or rounded == int(rounded) else f"{rounded:.3g}"


def _of_goal(found: dict[str, Any], goal: str) -> list[float]:
    texts = [one["found"] for one in found["goals"] if one["what"] == goal]
    return [float(number[0].replace(",", "")) for text in texts if (number := _NUMBER.match(text))]


def _of_part(found: dict[str, Any], part: str, side: str, number: str) -> list[float]:
    medians = [one["medians"] for one in found["parts"] if one["title"].startswith(part)]
    return [sides[side][number] for sides in medians if number in sides.get(side, {})]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for name in _PAGES:
        text = (_ROOT / name).read_text().replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in numbers, and lead links out of docs/ to pages of the site; what is no page keeps its words alone."""
    here = Path(config.docs_dir, page.file.src_uri).parent

    def inside(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[0].split("](")[1].rstrip(")").split("#")[0], link[3] or ""
        place = (here / target).resolve()
        if place.is_relative_to(config.docs_dir):
            return link[0]
        name = str(place.relative_to(_ROOT))
        if name not in _PAGES:
            return words
        up = "../" * page.file.src_uri.count("/")
        return f"[{words}]({up}{name}{anchor})"

    return _OUTSIDE.sub(inside, figures(markdown, comments=False))
