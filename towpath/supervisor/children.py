"""Verbs of the command line as child processes, whose lines are read as they come; and the supervisor's own telling."""

from __future__ import annotations

import ctypes
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import IO, Literal

from towpath.events import Standing, Told

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)
_LAST = 20  # lines of words that are kept, to tell why a process ended
_LONGEST = 1 << 20  # characters of a line; what comes after them is dropped
_SHOWN = 300  # characters of a line that are shown to people
_AHEAD = 1_000  # lines that wait to be heard; a child that has more to say waits
_REST = 5.0  # seconds for the last lines of one that has ended, and for the end of one that was killed


@dataclass(frozen=True, slots=True)
class Line:
    """A line on standard output (`out`) or standard error."""

    stream: Literal["out", "err"]
    text: str

    @property
    def shown(self) -> str:
        """For people: what cannot be printed is left out, and what is long is cut short."""
        words = "".join(character if character.isprintable() else " " for character in self.text[:_SHOWN])
        return f"{words}…" if len(self.text) > _SHOWN else words


@dataclass(slots=True)
class Child:
    """A running `towpath VERB …`. It ends with this process, even if that is killed."""

    verb: str
    process: subprocess.Popen[str]
    words: list[str] = field(default_factory=list)
    """The last lines of its standard error."""
    began: float = field(default_factory=time.monotonic)
    heard: int = 0
    """Lines so far."""
    heard_at: float = field(default_factory=time.monotonic)
    """When the last one was heard; at first its beginning."""
    _given_up: str = ""
    _lines: queue.Queue[Line] = field(default_factory=lambda: queue.Queue(_AHEAD))
    _readers: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def start(cls, verb: str, arguments: Sequence[str], given: str = "") -> Child:
        """`given` is its standard input. To be called by the main thread, with which the child ends."""
        # -P: none of the user's own modules
        return cls.of(verb, [sys.executable, "-P", "-m", "towpath.cli", verb, *arguments], given)

    @classmethod
    def of(cls, verb: str, command: Sequence[str], given: str = "") -> Child:
        """The same of any command, in place of a verb."""
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
            for text in _lines_of(stream):
                self._lines.put(Line(name, text))

        thread = threading.Thread(target=read, name=f"{self.verb}-{name}", daemon=True)
        thread.start()
        self._readers.append(thread)

    def lines(self) -> Iterator[Line]:
        """What it has said since the last call, up to a bound; all of it, once it has ended."""
        most, until = (_AHEAD, 0.0) if self.ended is None else (sys.maxsize, time.monotonic() + _REST)
        while most and (line := self._next(until)) is not None:
            most, self.heard, self.heard_at = most - 1, self.heard + 1, time.monotonic()
            if line.stream == "err":
                self.words = [*self.words, line.text][-_LAST:]
            yield line

    def _next(self, until: float) -> Line | None:
        """The next line; one that may still come is waited for until then."""
        while True:
            is_over = time.monotonic() >= until or not any(map(threading.Thread.is_alive, self._readers))
            try:
                return self._lines.get_nowait()
            except queue.Empty:
                if is_over:
                    return None
            time.sleep(0.01)

    def give_up(self, why: str) -> None:
        """Kill it, which tells `why` it ended."""
        self._given_up = why
        self.process.kill()

    @property
    def ended(self) -> int | None:
        """Its exit status, once it has ended."""
        return self.process.poll()

    @property
    def why(self) -> str:
        """Why it ended, in a line."""
        last = next((line for line in reversed(self.words) if line.strip()), "")
        words = Line("err", last.removeprefix("towpath: ")).shown
        return self._given_up or words or f"it ended with {self.ended} and said nothing"


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
            with suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel
                child.process.wait(_REST)


def _lines_of(stream: IO[str]) -> Iterator[str]:
    """Its lines, each up to a bound; the last one also where it has no end."""
    is_rest = False
    while text := stream.readline(_LONGEST):
        if not is_rest:
            yield text.rstrip("\n")
        is_rest = not text.endswith("\n")


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


_NEWEST = 8  # events on the screen
#: Name, line and style of a row of the screen.
Row = tuple[str, str, str]


@dataclass(slots=True)
class Events:
    """Tells each thing once: again only when its words have changed meanwhile."""

    write: Callable[[Told], None]
    newest: deque[Told] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    _standing: dict[str, str] = field(default_factory=dict)

    def tell(self, event: Told) -> None:
        event = replace(event, at=datetime.now(UTC))
        self.newest.append(event)
        self.write(event)

    def standing(self, event: Standing, well: str = "") -> None:
        """How `event.about` stands; no words when there is nothing to be told. What was told before is over then:
        `well` says so, or a few words of it do."""
        about, words = event.about or "", event.words or ""
        before = self._standing.get(about, "")
        if words == before:
            return
        self._standing[about] = words
        if words or before:
            self.tell(replace(event, words=words or well or f"over: {before.partition('; ')[0]}"))
