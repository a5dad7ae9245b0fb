"""Progress bars on a terminal; elsewhere nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from towpath_verifier import Progress as ComparisonProgress

#: Arguments: done, total, description.
Update = Callable[[int, int, str], None]


@contextmanager
def bar(title: str = "") -> Iterator[Update]:
    """A progress bar and the function that updates it; it appears with the first update."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, of, description: None
        return
    columns = (*([TextColumn(title)] if title else []), BarColumn(20), TextColumn("{task.description}"))
    with Bars(*columns, console=console) as bars:
        task = bars.add_task("", total=None, visible=False)

        def update(done: int, of: int, description: str) -> None:
            bars.update(task, completed=done, total=max(of, 1), description=description, visible=True)

        yield update


@contextmanager
def comparison_bar() -> Iterator[Callable[[ComparisonProgress], None]]:
    """A progress bar for a comparison of documents, as the function that updates it."""
    with bar() as update:
        yield lambda progress: update(
            progress.documents, max(progress.expected, progress.documents), documents_compared(progress)
        )


def documents_compared(progress: ComparisonProgress) -> str:
    """The progress in one line."""
    expected = max(progress.expected, progress.documents)
    line = f"{progress.documents:,} of about {expected:,}, {progress.per_second:,.0f} a second"
    seconds_left = progress.seconds_left
    if progress.done < progress.ranges and seconds_left is not None:
        line += f", {timedelta(seconds=round(seconds_left))} left"
    if progress.waiting:
        line += f"; {progress.waiting:,} being re-read"
    return line


@contextmanager
def replay_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for each phase of a replay, as the function that updates it: phase, records done, in total."""
    console = Console(stderr=True)
    count = TextColumn("{task.completed:,} of about {task.total:,} records")
    columns = TextColumn("{task.description}"), BarColumn(20), count, TimeRemainingColumn()
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task("", visible=False)

        def report(phase: str, done: int, of: int) -> None:
            if bars.tasks[0].description != phase:
                bars.reset(task, description=phase, visible=True)
                bars.start()
            bars.update(task, completed=done, total=of)
            if done >= of:  # before a question
                bars.stop()

        yield report
