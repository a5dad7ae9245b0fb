"""Commands of Towpath as child processes whose output is read as it comes, and the supervisor's own events."""

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

from towpath.config.events import Note, TimedEvent

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)
_KEPT_LINES = 20  # lines of standard error that are kept, to report why a process ended
_LONGEST_LINE = 1 << 20  # characters; the rest of a line is dropped
_SHOWN_CHARACTERS = 300  # characters of a line that are shown to people
_QUEUE_SIZE = 1_000  # lines that are not read yet; a child that prints more blocks
_LAST_LINES_TIMEOUT = 5.0  # seconds for the last lines of a child that ended, and for the exit of one that was killed


#: The program and arguments that run a command of Towpath with these arguments. The command line hands it in.
Launcher = Callable[[str, Sequence[str]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Line:
    """A line on standard output (`out`) or standard error."""

    stream: Literal["out", "err"]
    text: str

    @property
    def shown(self) -> str:
        """For people: a space for each character that is not printable, and at most `_SHOWN_CHARACTERS` of them."""
        text = "".join(character if character.isprintable() else " " for character in self.text[:_SHOWN_CHARACTERS])
        return f"{text}…" if len(self.text) > _SHOWN_CHARACTERS else text


@dataclass(slots=True)
class Child:
    """A running `towpath VERB …`. It ends with this process, even when this process is killed."""

    verb: str
    process: subprocess.Popen[str]
    error_lines: list[str] = field(default_factory=list)
    """The last lines of its standard error."""
    started: float = field(default_factory=time.monotonic)
    lines_read: int = 0
    last_line_at: float = field(default_factory=time.monotonic)
    """When the last line was read; before the first line, when the child started."""
    _kill_reason: str = ""
    _lines: queue.Queue[Line] = field(default_factory=lambda: queue.Queue(_QUEUE_SIZE))
    _readers: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def start(cls, verb: str, command: Sequence[str], stdin: str = "") -> Child:
        """Start a program under the name `verb`; `stdin` is the text of its standard input.

        Call it from the main thread: the child is interrupted when the thread that started it ends.
        """
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches only the supervisor, which passes it on
            preexec_fn=_die_with_parent,
        )
        child = cls(verb, process)
        assert process.stdin and process.stdout and process.stderr
        child._read(process.stdout, "out")
        child._read(process.stderr, "err")
        threading.Thread(target=_write_stdin, args=(process.stdin, stdin), daemon=True).start()
        return child

    def _read(self, stream: IO[str], name: Literal["out", "err"]) -> None:
        def read() -> None:
            for text in _lines_of(stream):
                self._lines.put(Line(name, text))

        thread = threading.Thread(target=read, name=f"{self.verb}-{name}", daemon=True)
        thread.start()
        self._readers.append(thread)

    def lines(self) -> Iterator[Line]:
        """Lines since the last call, at most `_QUEUE_SIZE` of them; all that remain, once the child has ended."""
        is_running = self.exit_status is None
        limit, until = (_QUEUE_SIZE, 0.0) if is_running else (sys.maxsize, time.monotonic() + _LAST_LINES_TIMEOUT)
        while limit and (line := self._next(until)) is not None:
            limit, self.lines_read, self.last_line_at = limit - 1, self.lines_read + 1, time.monotonic()
            if line.stream == "err":
                self.error_lines = [*self.error_lines, line.text][-_KEPT_LINES:]
            yield line

    def _next(self, until: float) -> Line | None:
        """The next line; waits until the time `until` while more lines may come."""
        while True:
            is_last = time.monotonic() >= until or not any(map(threading.Thread.is_alive, self._readers))
            try:
                return self._lines.get_nowait()
            except queue.Empty:
                if is_last:
                    return None
            time.sleep(0.01)

    def kill(self, reason: str) -> None:
        """Kill it; `end_reason` is then `reason`."""
        self._kill_reason = reason
        self.process.kill()

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    @property
    def end_reason(self) -> str:
        """Why it ended, in one line."""
        last = next((line for line in reversed(self.error_lines) if line.strip()), "")
        message = Line("err", last.removeprefix("towpath: ")).shown
        return self._kill_reason or message or f"it exited with {self.exit_status} and printed no error"


def end(children: Sequence[Child], grace: float) -> None:
    """Interrupt all of them, as with Ctrl-C; kill those that still run after `grace` seconds."""
    for child in children:
        if child.exit_status is None:
            child.process.send_signal(signal.SIGINT)
    until = time.monotonic() + grace
    for child in children:
        try:
            child.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            with suppress(subprocess.TimeoutExpired):  # it hangs in the kernel
                child.process.wait(_LAST_LINES_TIMEOUT)


def _lines_of(stream: IO[str]) -> Iterator[str]:
    """Lines of at most `_LONGEST_LINE` characters; the last one may lack its line feed."""
    is_continuation = False
    while text := stream.readline(_LONGEST_LINE):
        if not is_continuation:
            yield text.rstrip("\n")
        is_continuation = not text.endswith("\n")


def _write_stdin(stream: IO[str], text: str) -> None:
    try:
        stream.write(text)
        stream.close()
    except BrokenPipeError:
        return  # it ended without reading; its own messages say why


def _die_with_parent() -> None:
    """Runs in the child, before the program."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's `&` ignores SIGINT, and children inherit that
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


_NEWEST_EVENTS = 8  # on the screen


@dataclass(slots=True)
class Events:
    """Writes events: each occurrence once, and each state when its text has changed."""

    write: Callable[[TimedEvent], None]
    newest: deque[TimedEvent] = field(default_factory=lambda: deque(maxlen=_NEWEST_EVENTS))
    _last_text: dict[str, str] = field(default_factory=dict)
    """`about` → the text that was written last."""

    def report(self, event: TimedEvent) -> None:
        event = replace(event, at=datetime.now(UTC))
        self.newest.append(event)
        self.write(event)

    def report_state(self, event: Note, resolved: str = "") -> None:
        """Report the state of `event.about` if its text has changed.

        An event without words means that all is well: a problem that was reported before is then reported as resolved,
        with the text `resolved` or the beginning of the old one.
        """
        about, text = event.about or "", event.words or ""
        before = self._last_text.get(about, "")
        if text == before:
            return
        self._last_text[about] = text
        if text or before:
            self.report(replace(event, words=text or resolved or f"resolved: {before.partition('; ')[0]}"))
