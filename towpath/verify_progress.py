"""How far `towpath verify` has come, on a terminal; elsewhere nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from verifier import Progress as Found


@contextmanager
def shown() -> Iterator[Callable[[Found], None]]:
    """Something to tell progress to."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda found: None
        return
    with Progress(BarColumn(20), TextColumn("{task.description}"), console=console) as bars:
        task = bars.add_task("", total=None)

        def tell(found: Found) -> None:
            total = max(found.expected, found.documents, 1)
            bars.update(task, completed=found.documents, total=total, description=words(found))

        yield tell


def words(found: Found) -> str:
    """One line for people."""
    line = f"{found.documents:,} of about {max(found.expected, found.documents):,}, {found.per_second:,.0f} a second"
    left = found.seconds_left
    if found.done < found.ranges and left is not None:
        line += f", {timedelta(seconds=round(left))} left"
    if found.waiting:
        line += f"; {found.waiting:,} looked at again"
    return line
