"""Verbs of the command line as processes of their own, whose lines are read as they come."""

from __future__ import annotations

import ctypes
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Literal

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)
_LAST = 20  # lines of words that are kept, to tell why a process ended


@dataclass(frozen=True, slots=True)
class Line:
    """A line on standard output (`out`) or standard error."""

    stream: Literal["out", "err"]
    text: str


@dataclass(slots=True)
class Child:
    """A running `towpath VERB …`. It ends with this process, even if that is killed."""

    verb: str
    process: subprocess.Popen[str]
    words: list[str] = field(default_factory=list)
    """The last lines of its standard error."""
    _lines: queue.SimpleQueue[Line] = field(default_factory=queue.SimpleQueue)
    _readers: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def start(cls, verb: str, arguments: Sequence[str], given: str = "") -> Child:
        """`given` is its standard input. To be called by the main thread, with which the child ends."""
        command = [sys.executable, "-P", "-m", "towpath.cli", verb, *arguments]  # -P: none of the user's own modules
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            errors="replace",
            start_new_session=True,  # a Ctrl-C is ours to pass on
            preexec_fn=_end_with_parent,
        )
        child = cls(verb, process)
        assert process.stdin and process.stdout and process.stderr
        child._read(process.stdout, "out")
        child._read(process.stderr, "err")
        threading.Thread(target=_give, args=(process.stdin, given), daemon=True).start()
        return child

    def _read(self, stream: IO[str], name: Literal["out", "err"]) -> None:
        def read() -> None:
            for text in stream:
                self._lines.put(Line(name, text.rstrip("\n")))

        thread = threading.Thread(target=read, name=f"{self.verb}-{name}", daemon=True)
        thread.start()
        self._readers.append(thread)

    def lines(self) -> Iterator[Line]:
        """What it has said since the last call; all of it, once it has ended."""
        if self.ended is not None:
            for thread in self._readers:
                thread.join(1)
        while not self._lines.empty():
            line = self._lines.get()
            if line.stream == "err":
                self.words = [*self.words, line.text][-_LAST:]
            yield line

    @property
    def ended(self) -> int | None:
        """Its exit status, once it has ended."""
        return self.process.poll()

    @property
    def why(self) -> str:
        """Why it ended, in a line."""
        last = next((line for line in reversed(self.words) if line.strip()), "")
        return last.removeprefix("towpath: ") or f"it ended with {self.ended} and said nothing"


def end(children: Sequence[Child], grace: float) -> None:
    """Have all of them end as with Ctrl-C; those that live after `grace` seconds are killed."""
    for child in children:
        if child.ended is None:
            child.process.send_signal(signal.SIGINT)
    until = time.monotonic() + grace
    for child in children:
        try:
            child.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()


def _give(stream: IO[str], text: str) -> None:
    try:
        stream.write(text)
        stream.close()
    except BrokenPipeError:
        return  # it has ended without reading, and says why itself


def _end_with_parent() -> None:
    """Runs in the child, before the program."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's `&` has it ignored, and that would be passed on
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
