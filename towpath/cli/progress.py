"""Progress bars on a terminal; elsewhere nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars

from towpath.replay.connector import Progress
from verifier import Progress as Found

#: Done, of how many, and words.
Tell = Callable[[int, int, str], None]


@contextmanager
def bar(title: str = "") -> Iterator[Tell]:
    """Something to tell progress to; the bar appears with the first word."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, of, words: None
        return
    columns = (*([TextColumn(title)] if title else []), BarColumn(20), TextColumn("{task.description}"))
    with Bars(*columns, console=console) as bars:
        task = bars.add_task("", total=None, visible=False)

        def tell(done: int, of: int, words: str) -> None:
            bars.update(task, completed=done, total=max(of, 1), description=words, visible=True)

        yield tell


@contextmanager
def shown() -> Iterator[Callable[[Found], None]]:
    """Something to tell progress to."""
    with bar() as tell:
        yield lambda found: tell(found.documents, max(found.expected, found.documents), documents_compared(found))


def documents_compared(found: Found) -> str:
    """One line for people."""
    line = f"{found.documents:,} of about {max(found.expected, found.documents):,}, {found.per_second:,.0f} a second"
    left = found.seconds_left
    if found.done < found.ranges and left is not None:
        line += f", {timedelta(seconds=round(left))} left"
    if found.waiting:
        line += f"; {found.waiting:,} being re-read"
    return line


@dataclass(frozen=True, slots=True)
class Terminal:
    """Shows progress, and asks before documents are deleted unless that is answered by `yes`."""

    yes: bool

    @contextmanager
    def checking(self) -> Iterator[Callable[[int, int], None]]:
        with bar("checking the log") as tell:
            yield lambda done, of: tell(done, of, f"{done:,} of {of:,} records")

    @contextmanager
    def applying(self) -> Iterator[Callable[[Progress], None]]:
        with bar() as tell:
            yield lambda progress: tell(progress.done, progress.of, records_applied(progress))

    def confirm(self, question: str) -> None:
        if not self.yes:
            click.confirm(question, abort=True, err=True)


def records_applied(progress: Progress) -> str:
    """One line for people."""
    line = f"{progress.done:,} of about {progress.of:,} records, {progress.per_second:,.0f} a second"
    left = progress.seconds_left
    return line if left is None or progress.done >= progress.of else f"{line}, {timedelta(seconds=round(left))} left"
