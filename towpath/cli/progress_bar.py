"""A bar on a terminal that shows how far something has come; elsewhere nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

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
    with Progress(*columns, console=console) as bars:
        task = bars.add_task("", total=None, visible=False)

        def tell(done: int, of: int, words: str) -> None:
            bars.update(task, completed=done, total=max(of, 1), description=words, visible=True)

        yield tell


@contextmanager
def shown() -> Iterator[Callable[[Found], None]]:
    """Something to tell progress to."""
    with bar() as tell:
        yield lambda found: tell(found.documents, max(found.expected, found.documents), words(found))


def words(found: Found) -> str:
    """One line for people."""
    line = f"{found.documents:,} of about {max(found.expected, found.documents):,}, {found.per_second:,.0f} a second"
    left = found.seconds_left
    if found.done < found.ranges and left is not None:
        line += f", {timedelta(seconds=round(left))} left"
    if found.waiting:
        line += f"; {found.waiting:,} being re-read"
    return line
