"""The command line before a command is called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.pipeline import TOWPATH
from towpath.cli import towpath

#: What takes long to import, and help and version have no use for.
_SLOW = (
    "pymongo",
    "httpx",
    "confluent_kafka",
    "kafka",
    "pydantic",
    "rich",
    "jinja2",
    "towpath_verifier",
    "towpath.stack",
)


def test_help_and_version_load_no_command() -> None:
    code = f"""
import sys
from towpath.cli import towpath
for option in ("--help", "--version"):
    towpath([option], standalone_mode=False)
print([name for name in {_SLOW} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Compare both sides" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.serial
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_and_version_take_a_tenth_of_a_second(option: str) -> None:
    """Of the processor, which is what they take: they wait for nothing. A slow machine has twice what click takes."""

    def seconds(*command: str | Path) -> float:
        before = os.times()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    imports = min(seconds(sys.executable, "-c", "import click, importlib.metadata") for _ in range(20))
    assert min(seconds(TOWPATH, option) for _ in range(20)) <= max(0.1, 2 * imports)


def test_each_command_is_there_and_its_line_of_help_fits_a_terminal() -> None:
    context = click.Context(towpath)
    for name in towpath.list_commands(context):
        command = towpath.get_command(context, name)
        assert command is not None
        assert command.name == name
    listed = CliRunner().invoke(towpath, ["--help"], terminal_width=80).output.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == towpath.list_commands(context)  # none continues in a second line
    assert max(map(len, listed)) <= 80
