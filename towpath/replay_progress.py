"""How far a replay or a rebuild has come, on a terminal; elsewhere nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from connectors.course import Progress as Found


@contextmanager
def shown() -> Iterator[Callable[[Found], None]]:
    """Something to tell progress to."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda found: None
        return
    with Progress(BarColumn(20), TextColumn("{task.description}"), console=console, refresh_per_second=2) as bars:
        task = bars.add_task("", total=None)
        yield lambda found: bars.update(task, completed=found.done, total=max(found.of, 1), description=words(found))


@contextmanager
def checking() -> Iterator[Callable[[int, int], None]]:
    """Something to tell how much of the log is read before a replay."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, of: None
        return
    with Progress(
        TextColumn("checking the log"), BarColumn(20), TextColumn("{task.description}"), console=console
    ) as b:
        task = b.add_task("", total=None, visible=False)
        yield lambda done, of: b.update(
            task, completed=done, total=max(of, 1), description=f"{done:,} of {of:,} records", visible=True
        )


def words(found: Found) -> str:
    """One line for people."""
    line = f"{found.done:,} of about {found.of:,} records, {found.per_second:,.0f} a second"
    left = found.seconds_left
    return line if left is None or found.done >= found.of else f"{line}, {timedelta(seconds=round(left))} left"
