"""The prose of pages, help, messages and comments: `python -m tests.docs.prose` lets proselint check it.

The rules are proselint's own, and the words of `words.toml`. Code is left out.
"""

from __future__ import annotations

import ast
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from proselint.checks import __register__ as own_checks
from proselint.config import DEFAULT, Config
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, CheckFlags
from proselint.registry.checks.types import PreferredForms
from proselint.tools import LintFile

ROOT = Path(__file__).parents[2]
WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text())
#: Rules that do not suit Markdown, versions, "exactly-once" or "point in time".
OFF = dict.fromkeys(
    ("dates_times", "misc.phrasal_adjectives.ly", "redundancy.misc.after_the_deadline", "typography"), False
)
#: What code in a sentence becomes.
CODE = "``"


class Block(NamedTuple):
    """A paragraph, heading or cell of a table; `kind` is that of markdown-it's token before it."""

    kind: str
    line: int
    text: str


def blocks(markdown: str) -> Iterator[Block]:
    """The blocks of a page, without the code in them and the addresses of links."""
    for before, token in pairwise(MarkdownIt().enable("table").parse(markdown)):
        if token.type == "inline" and token.map:
            yield Block(before.type, token.map[0], "".join(map(_words, token.children or [])))


def _words(token: Token) -> str:
    return {"text": token.content, "code_inline": CODE, "softbreak": "\n"}.get(token.type, "")


def of_page(page: Path) -> str:
    """The prose of a page, each line where the page has it."""
    return _in_lines((block.line, block.text) for block in blocks(page.read_text(encoding="utf-8")))


def of_module(module: Path) -> str:
    """The docstrings, help, messages and comments of a module, each at its line."""
    code = module.read_text(encoding="utf-8")
    texts = [
        node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    tokens = tokenize.generate_tokens(StringIO(code).readline)
    comments = [(token.start[0] - 1, token.string.lstrip("#: ")) for token in tokens if token.type == tokenize.COMMENT]
    return _in_lines([(text.lineno - 1, text.value) for text in texts if " " in text.value] + comments)


def _in_lines(parts: Iterable[tuple[int, str]]) -> str:
    lines: dict[int, str] = {}
    for first, text in parts:
        for number, line in enumerate(text.splitlines(), first):
            lines[number] = f"{lines.get(number, '')} {line}"
        lines[number] += "."
    return "\n".join(lines.get(number, "") for number in range(max(lines, default=0) + 1))


@cache
def _linter() -> Config:
    """Registers the words, once: proselint has one register for the process."""
    words = {before.replace(" ", r"\s+"): after for before, after in WORDS.items()}
    flags = CheckFlags(allow_quotes=True)
    ours = Check(PreferredForms(words), path="words", message="Words. Use '{}' instead of '{}'.", flags=flags)
    CheckRegistry().register_many((*own_checks, ours))
    return Config(max_errors=DEFAULT["max_errors"], checks={**OFF, "words": True, **DEFAULT["checks"]} | OFF)


def findings(texts: Iterator[tuple[Path, str]]) -> Iterator[str]:
    """What proselint finds in the prose of files, a line each."""
    config = _linter()
    for file, text in texts:
        for found in LintFile(file, text or " ").lint(config):  # without text, it would read the file
            what = found.check_result
            yield f"{file.relative_to(ROOT)}:{found.pos[0]}: {what.check_path}: {what.message}"


def texts() -> Iterator[tuple[Path, str]]:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("verifier/*.md")):
        yield page, of_page(page)
    for module in (*ROOT.glob("towpath/**/*.py"), *ROOT.glob("verifier/towpath_verifier/*.py")):
        yield module, of_module(module)


if __name__ == "__main__":
    found = list(findings(texts()))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
