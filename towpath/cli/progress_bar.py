"""A bar on a terminal that tells how far something has come; elsewhere nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

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
