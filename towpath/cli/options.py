"""What every verb shares: its pipeline, `--json`, and where words for people go."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from towpath import session
from towpath.events import VERSION, Event, as_line
from towpath.session import Session

pipeline_argument = click.argument("file", metavar="PIPELINE", type=click.Path(path_type=Path, dir_okay=False))
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(context: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    """The time in `90s`, `10m`, `2h` or `1d`."""
    if text is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration; write a whole number and s, m, h or d, such as 10m")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def say(words: str) -> None:
    """Words for people go to standard error; standard output is for data."""
    click.echo(words, err=True)


def print_json(found: Event | dict[str, Any]) -> None:
    """A line of `--json`."""
    click.echo(found.line if isinstance(found, Event) else as_line({"v": VERSION, **found}), nl=False)


def opened(file: Path) -> AbstractContextManager[Session]:
    """The services of a pipeline file. Raises `BadPipelineFile`."""
    return session.opened(file, say=say)
