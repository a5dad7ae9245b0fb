"""What every command shares: the pipeline argument, `--json`, and printing."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from towpath.config.events import Event
    from towpath.session import Session

FILE, FOLDER = click.Path(path_type=Path, dir_okay=False), click.Path(path_type=Path, file_okay=False)
#: An option without a value.
flag = partial(click.option, is_flag=True)
pipeline_argument = click.argument("file", metavar="PIPELINE", type=FILE)
json_option = flag("--json", "as_json", help="Print JSON on standard output.")

_WIDE = 1000  # columns
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(context: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    """The time in `90s`, `10m`, `2h` or `1d`."""
    if text is not None and span(text) is None:
        raise click.BadParameter(f"{text!r} is not a duration; write a whole number and s, m, h or d, such as 10m")
    return None if text is None else span(text)


def span(text: str) -> timedelta | None:
    """As `duration`; None for any other text."""
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    return None if match is None else timedelta(**{_UNITS[match[2]]: int(match[1])})


def say(message: str) -> None:
    """Print a message for people on standard error; standard output is for data."""
    click.echo(message, err=True)


def print_json(event: Event | dict[str, Any]) -> None:
    """Print a line of `--json`."""
    from towpath.config.events import VERSION, Event, as_line  # slow, and most commands print none

    click.echo(event.line if isinstance(event, Event) else as_line({"v": VERSION, **event}), nl=False)


def print_tables(*parts: RenderableType) -> None:
    """Print tables and text for people; without a terminal, no line is wrapped, or padded at its end."""
    from rich.console import Console  # slow, and most commands print no tables

    console = Console()
    if console.is_terminal:
        console.print(*parts)
        return
    console.width = _WIDE
    with console.capture() as captured:
        console.print(*parts)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def opened(file: Path) -> AbstractContextManager[Session]:
    """The session of a pipeline file, closed at the end. Raises `BadPipelineFile`."""
    from towpath import session  # slow, and `wait` has something to do before

    return session.opened(file, say=say)
