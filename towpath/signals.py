"""The signals that ask a command to end: Ctrl-C, SIGTERM, and SIGHUP, which comes when a terminal closes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """A signal handler that raises `KeyboardInterrupt`; with `once`, later signals are only noted.

    With `patience` it raises only if the command has not ended without it after so many seconds: an exception in the
    middle of a library may leave one of its locks taken, for which whatever comes next would wait forever.

    `came` tells of a signal before its exception, and of one whose exception a library has swallowed: Kafka's client
    makes a `SystemError` of it.
    """

    def __init__(self, *, once: bool = False, patience: float = 0) -> None:
        self.came = False
        self._once, self._patience, self._held, self._armed = once, patience, False, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        is_held, self._held = self._held, self._held or self._once
        self.came = True
        if is_held:
            return
        if not self._patience:
            raise KeyboardInterrupt
        if not self._armed:  # a further signal does not extend the time
            self._armed = True
            signal.signal(signal.SIGALRM, self._interrupt)
            signal.setitimer(signal.ITIMER_REAL, self._patience)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._armed = False
        raise KeyboardInterrupt

    def hold(self) -> None:
        """From now on only note signals."""
        self._held = True
        if self._patience:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._armed = False

    def release(self) -> None:
        """From now on raise again."""
        self._held = False


def handle(handler: Callable[[int, FrameType | None], object]) -> None:
    """Have these signals call `handler`, except those that are ignored: by `nohup`, or by a shell's `&`."""
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
