"""What README, template, help and the pages of the documentation say is what the code has."""

import re
import tomllib
from pathlib import Path

import click
import pytest

from towpath.cli import towpath
from towpath.cli.init import write_pipeline_file
from towpath.config.loading import read
from towpath.config.schema import PipelineFile

CONTEXT = click.Context(towpath)
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
JAVA = {file.name for file in (ROOT / "transforms" / "src").rglob("*.java")}
#: What a page in backticks or a link calls a file of this repository.
PATH = re.compile(r"`((?:connectors|docs|scripts|tests|towpath|transforms|verifier)/[\w./-]*)`")
JAVA_FILE = re.compile(r"\b\w+\.java\b")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def options():
    """Section and key of everything that a pipeline file can say."""
    for name, field in PipelineFile.model_fields.items():
        section = getattr(field.annotation, "model_fields", None)
        if section is None:
            yield None, name
        else:
            yield from ((name, inner.alias or key) for key, inner in section.items())


@pytest.mark.parametrize(("section", "key"), list(options()))
def test_the_readme_names_every_option(section, key):
    rows = [line for line in README.splitlines() if line.startswith("| `")]
    place = f"[{section}" if section else f"`{key}`"
    assert any(place in row and re.search(rf"\b{key}\b", row) for row in rows)


def test_the_readme_names_no_option_that_is_not_there():
    names = re.findall(r"`\[(\w+)\] (\w+)`", README)
    assert set(names) <= set(options())
    assert len(names) > 5


def test_the_readme_names_every_verb_and_the_help_every_option():
    commands = {name: towpath.get_command(CONTEXT, name) for name in towpath.list_commands(CONTEXT)}
    verbs = {f"stack {name}" for name in commands["stack"].commands} | set(commands) - {"stack"}
    assert [verb for verb in sorted(verbs) if f"`{verb}" not in README] == []
    groups = [*commands.values(), *commands["stack"].commands.values()]
    assert [(c.name, o.name) for c in groups for o in c.params if o.param_type_name == "option" and not o.help] == []


def test_the_template_is_a_pipeline_file_with_the_defaults_and_names_every_option(tmp_path):
    file = write_pipeline_file(tmp_path / "my shop.toml", include=["shop.*"])
    text = file.read_text()
    pipeline = read(file)
    assert (pipeline.name, pipeline.partitions, pipeline.tasks) == ("my-shop", 4, 2)
    assert (pipeline.write_concern, pipeline.retention_ms) == ("majority", -1)
    assert file.stat().st_mode & 0o777 == 0o600
    for section, key in options():
        assert section is None or f"[{section}" in text
        assert key == "rename" or re.search(rf"^(# )?{key} = ", text, re.MULTILINE), key
    assert (pipeline.mode, pipeline.copy.method) == ("exactly-once", "towpath")
    assert (pipeline.fold, pipeline.batch_records, pipeline.batch_bytes) == (True, 50_000, 16 << 20)
    for key, value in re.findall(r"^# (batch_\w+) = (\d+)", text, re.MULTILINE):
        assert int(value) == getattr(pipeline, key)
    plain = read(write_pipeline_file(tmp_path / "plain.toml", include=["shop.*"], mode="plain"))
    assert (plain.mode, plain.copy.method) == ("plain", "debezium")
    assert tomllib.loads(text)["collections"]["exclude"] == []


def name(page):
    return str(page.relative_to(ROOT))


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    lines = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL).splitlines()
    headings = [line.lstrip("#").strip().lower() for line in lines if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_pages_and_headings_that_are_there(page):
    broken = []
    for link in LINK.findall(page.read_text()):
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if re.match(r"https?://", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_name_only_files_that_are_there(page):
    text = page.read_text()
    assert [path for path in PATH.findall(text) if not (ROOT / path).exists()] == []
    assert sorted(set(JAVA_FILE.findall(text)) - JAVA) == []


def test_the_tour_names_the_files_of_each_step():
    rows = [line for line in ARCHITECTURE.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) == 10
    assert [row for row in rows if not PATH.search(row) and not JAVA_FILE.search(row)] == []


def test_the_index_of_the_documentation_lists_every_page():
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    assert [name(page) for page in PAGES if page != index and page not in listed] == []


def test_the_tour_stays_short():
    lines = ARCHITECTURE.splitlines()
    assert len(lines) <= 300
    assert [line for line in lines if len(line) > 100 and not line.startswith("|")] == []
