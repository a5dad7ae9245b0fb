"""How far a replay or a rebuild has come, on a terminal; elsewhere nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import click

from towpath.cli.progress_bar import bar
from towpath.replay.connector import Progress


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
            yield lambda progress: tell(progress.done, progress.of, words(progress))

    def confirm(self, question: str) -> None:
        if not self.yes:
            click.confirm(question, abort=True, err=True)


def words(progress: Progress) -> str:
    """One line for people."""
    line = f"{progress.done:,} of about {progress.of:,} records, {progress.per_second:,.0f} a second"
    left = progress.seconds_left
    return line if left is None or progress.done >= progress.of else f"{line}, {timedelta(seconds=round(left))} left"
