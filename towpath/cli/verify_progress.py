"""How far `towpath verify` has come, on a terminal; elsewhere nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from towpath.cli.progress_bar import bar
from verifier import Progress as Found


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
        line += f"; {found.waiting:,} looked at again"
    return line
