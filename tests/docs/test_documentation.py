"""What README, template, help and the pages of the documentation say is what the code has; links lead somewhere."""

import re
import textwrap
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import click

from towpath.cli import towpath
from towpath.config.loading import read, write_pipeline_file
from towpath.config.pipeline import Pipeline

CONTEXT = click.Context(towpath)
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
JAVA = {file.name for file in (ROOT / "transforms" / "src").rglob("*.java")}
#: What a page in backticks or a link calls a file of this repository.
PATH = re.compile(r"`((?:benchmarks|connectors|docs|scripts|tests|towpath|transforms|verifier)/[\w./-]*)`")
JAVA_FILE = re.compile(r"\b\w+\.java\b")
#: A program of the reader's own.
SAVED = re.compile(r"Save (?:this|it) as `([\w.]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: A command in a `console` block, with the lines that it continues in, or in backticks.
COMMAND = re.compile(r"(?:^\s*\$ |`)towpath ((?:[^`\n#|\\]|\\\n)+)", re.M)
SHELL = re.compile(r"^ *```(console|sh)\n(.*?)^ *```", re.M | re.S)
FILE = re.compile(r"^( *)```toml\n(.*?)^\1```", re.M | re.S)


def options():
    """Section and key of everything that a pipeline file can say."""
    for name, field in Pipeline.model_fields.items():
        section = getattr(field.annotation, "model_fields", None)
        if section is None:
            yield None, name
        else:
            yield from ((name, inner.alias or key) for key, inner in section.items() if not inner.exclude)


def name(page):
    return str(page.relative_to(ROOT))


def wrong(find):
    """What `find` returns for each page's text, by page, where that is anything."""
    found = {name(page): find(page.read_text(encoding="utf-8")) for page in PAGES}
    return {page: what for page, what in found.items() if what}


def test_pages_name_no_option_that_is_not_there():
    assert wrong(lambda text: set(re.findall(r"`\[(\w+)\] (\w+)`", text)) - set(options())) == {}


def unknown_options(text):
    """What the pipeline files in a page's blocks say that no pipeline file can say."""
    named = set()
    for file in (tomllib.loads(textwrap.dedent(block)) for _, block in FILE.findall(text)):
        tables = {section: value for section, value in file.items() if isinstance(value, dict)}
        named |= {(section, key) for section, table in tables.items() for key in table}
        named |= {(None, key) for key in file.keys() - tables}
    return named - set(options())


def test_files_on_pages_have_the_options_that_there_are():
    assert wrong(unknown_options) == {}


def is_unknown(line):
    """Whether a line `COMMAND [OPTION …]` has a command or an option that is not there."""
    group, (name, *rest) = towpath, [word.rstrip(",.;:)") for word in line.split()]
    if name == "stack" and rest:
        group, name = group.get_command(CONTEXT, name), rest[0]
    if name in ("COMMAND", "of", "--version", "--help"):  # `towpath of REV`: what a benchmark compares
        return False
    command = group.get_command(CONTEXT, name)
    if command is None:
        return True
    known = {word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)}
    return not set(re.findall(r"(?<![\w-])--[a-z][\w-]*", line)) <= {*known, "--help"}


def test_commands_on_pages_have_the_commands_and_options_that_there_are():
    assert wrong(lambda text: [line for line in COMMAND.findall(text) if is_unknown(line)]) == {}


def test_the_readme_names_every_command_and_the_help_every_option():
    commands = {name: towpath.get_command(CONTEXT, name) for name in towpath.list_commands(CONTEXT)}
    names = {f"stack {name}" for name in commands["stack"].commands} | set(commands) - {"stack"}
    assert [name for name in sorted(names) if f"`{name}" not in README] == []
    groups = [*commands.values(), *commands["stack"].commands.values()]
    assert [(c.name, o.name) for c in groups for o in c.params if o.param_type_name == "option" and not o.help] == []


def test_the_template_is_a_pipeline_file_with_the_defaults_and_names_every_option(tmp_path):
    file = write_pipeline_file(tmp_path / "my shop.toml", include=["shop.*"])
    text = file.read_text()
    pipeline = read(file)
    assert (pipeline.name, pipeline.kafka.partitions, pipeline.write.tasks) == ("my-shop", 4, 2)
    assert (pipeline.write.concern, pipeline.log.retention) == ("majority", -1)
    assert file.stat().st_mode & 0o777 == 0o600
    for section, key in options():
        assert section is None or f"[{section}" in text
        assert key in ("rename", "rules") or re.search(rf"^(# )?{key} = ", text, re.MULTILINE), key
    assert (pipeline.mode, pipeline.copy_method) == ("exactly-once", "towpath")
    assert (pipeline.write.fold, pipeline.write.batch_records, pipeline.write.batch_bytes) == (True, 50_000, 16 << 20)
    for key, value in re.findall(r"^# (batch_\w+) = (\d+)", text, re.MULTILINE):
        assert int(value) == getattr(pipeline.write, key)
    plain = read(write_pipeline_file(tmp_path / "plain.toml", include=["shop.*"], mode="plain"))
    assert (plain.mode, plain.copy_method) == ("plain", "debezium")
    assert tomllib.loads(text)["collections"]["exclude"] == []


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    lines = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL).splitlines()
    headings = [line.lstrip("#").strip().lower() for line in lines if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def is_broken(page, link):
    place, _, anchor = link.partition("#")
    if re.match(r"https?://", link):
        return False
    target = (page.parent / place).resolve() if place else page
    return not target.exists() or (anchor != "" and anchor not in anchors(target))


def test_links_lead_to_pages_and_headings_that_are_there():
    links = [(page, link) for page in PAGES for link in LINK.findall(page.read_text())]
    assert [(name(page), link) for page, link in links if is_broken(page, link)] == []


def missing_files(text):
    paths = [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    return paths + sorted(set(JAVA_FILE.findall(text)) - JAVA - set(SAVED.findall(text)))


def test_pages_name_only_files_that_are_there():
    assert wrong(missing_files) == {}


def test_every_picture_is_on_a_page_and_every_drawing_says_what_it_shows():
    folder = ROOT / "docs" / "pictures"
    text = "".join(page.read_text() for page in PAGES)
    assert [picture.name for picture in folder.iterdir() if f"pictures/{picture.name})" not in text] == []
    for drawing in folder.glob("*.svg"):
        title = ElementTree.parse(drawing).find("{http://www.w3.org/2000/svg}title")
        assert title is not None and title.text, drawing.name


def test_the_index_of_the_documentation_lists_every_page():
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    assert [name(page) for page in PAGES[1:] if page != index and page not in listed] == []


def test_images_and_services_of_commands_are_there():
    text = "\n".join(block for page in PAGES for _, block in SHELL.findall(page.read_text()))
    dockerfile, compose = ((ROOT / file).read_text() for file in ("Dockerfile", "docker-compose.yml"))
    profiles = " ".join(re.findall(r"profiles: \[(.*)\]", compose))
    for named, there in (
        (re.findall(r"--target (\w+)", text), re.findall(r"^FROM .* AS (\w+)$", dockerfile, re.M)),
        (re.findall(r"--build-arg (\w+)", text), re.findall(r"^ARG (\w+)", dockerfile, re.M)),
        (re.findall(r"--profile (\w+)", text), profiles.replace(",", " ").split()),
        (re.findall(r"compose (?:exec|run --rm) (\w+)", text), re.findall(r"^  (\w+):", compose, re.M)),
    ):
        assert set(named) <= set(there)
