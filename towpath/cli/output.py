"""Standard output and standard error that may fail: the disk of a log is full, or the program that reads is gone.

A command that changes something, watches or judges continues and ends with the exit code of what it did. A command
whose only result is its output ends at the failure.
"""

from __future__ import annotations

import errno
import io
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: What a full disk answers.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Unwritten(Exception):  # no OSError: click and rich end the process with 1 at a broken pipe
    """The command ends, because its output is all that it has to give."""


class Output(io.FileIO):
    """A file descriptor whose writes never fail, unless `is_required`: then they raise `Unwritten`."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.failure: OSError | None = None
        """Why something was not written."""
        self.is_required = False

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            while (written := super().write(data)) is None:  # another program has made the terminal non-blocking
                select.select([], [self], [])
            return written
        except OSError as error:
            self.failure = error
            if self.is_required:
                raise Unwritten from error
            return memoryview(data).nbytes

    @property
    def complaint(self) -> str:
        """A message about output that is missing; empty if none is, or if its reader has ended, as with `| head`."""
        if self.failure is None or self.failure.errno == errno.EPIPE:
            return ""
        advice = "; make room there" if self.failure.errno in NO_ROOM else ""
        return f"towpath: cannot write the output: {self.failure.strerror}{advice}"


@contextmanager
def standard_streams() -> Iterator[Output | None]:
    """Replace `sys.stdout`, for which it returns what is written to, and `sys.stderr`; None if the former is closed.

    A character that their encoding lacks is written as an escape.
    """
    before = sys.stdout, sys.stderr
    output, errors = _output(sys.stdout), _output(sys.stderr)
    try:
        if output is not None:
            sys.stdout = _text(output, sys.stdout)
        if errors is not None:
            sys.stderr = _text(errors, sys.stderr)
        yield output
    finally:
        sys.stdout, sys.stderr = before


def _output(stream: TextIO | None) -> Output | None:
    try:
        return None if stream is None else Output(stream.fileno())
    except (OSError, ValueError):  # closed, or no file
        return None


def _text(output: Output, like: TextIO) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=like.encoding,
        errors="backslashreplace" if like.errors == "strict" else like.errors,
        line_buffering=output.isatty() or like is sys.stderr,
    )
