"""For MkDocs: ARCHITECTURE.md and CHANGELOG.md, which lie beside this folder, become pages of the site."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parent.parent
_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md")
#: A link from a page in docs/ to something beside docs/, at any depth.
_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for name in _PAGES:
        text = (_ROOT / name).read_text().replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of docs/ to pages of the site; what is no page keeps its words, without a link."""
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

    return _OUTSIDE.sub(inside, markdown)
