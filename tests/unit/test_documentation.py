"""What README, template and help say is what the code has."""

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
    assert (pipeline.mode, pipeline.copy.way) == ("exactly-once", "towpath")
    assert (pipeline.fold, pipeline.batch_records, pipeline.batch_bytes) == (True, 50_000, 16 << 20)
    for key, value in re.findall(r"^# (batch_\w+) = (\d+)", text, re.MULTILINE):
        assert int(value) == getattr(pipeline, key)
    plain = read(write_pipeline_file(tmp_path / "plain.toml", include=["shop.*"], mode="plain"))
    assert (plain.mode, plain.copy.way) == ("plain", "debezium")
    assert tomllib.loads(text)["collections"]["exclude"] == []
