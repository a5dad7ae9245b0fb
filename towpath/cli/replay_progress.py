"""How far a replay or a rebuild has come, on a terminal; elsewhere nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from towpath.cli.progress_bar import bar
from towpath.replay.sink_progress import Progress as Found


@contextmanager
def shown() -> Iterator[Callable[[Found], None]]:
    """Something to tell progress to."""
    with bar() as tell:
        yield lambda found: tell(found.done, found.of, words(found))


@contextmanager
def checking() -> Iterator[Callable[[int, int], None]]:
    """Something to tell how much of the log is read before a replay."""
    with bar("checking the log") as tell:
        yield lambda done, of: tell(done, of, f"{done:,} of {of:,} records")


def words(found: Found) -> str:
    """One line for people."""
    line = f"{found.done:,} of about {found.of:,} records, {found.per_second:,.0f} a second"
    left = found.seconds_left
    return line if left is None or found.done >= found.of else f"{line}, {timedelta(seconds=round(left))} left"
