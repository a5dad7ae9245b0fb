"""The pause of a cutover: nothing in it waits longer than its limit, or continues after a late write."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from towpath.errors import Overtaken, TowpathError
from towpath.session import ERRORS

_REPEAT_S = 1.0  # to the next alarm, in case a library has swallowed one
_GRACE_S = 0.5  # in which a wait that knows the limit can end without it and report what it saw last
_SOON_S = 0.001


class _PauseEnded(BaseException):
    """Ends whatever runs in the pause, as Ctrl-C does: no code mistakes it for its own failure and retries."""


@dataclass(slots=True)
class Pause:
    """`limit` is in seconds, counted from when the writes may have ended."""

    limit: float
    step: str = ""
    """The step that began last."""
    _began: float = 0.0
    _reason: str = ""
    _armed: bool = False

    def begin(self) -> None:
        """The writes may end from now on."""
        self._began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, self.limit + _GRACE_S, _REPEAT_S)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def remaining(self, most: float) -> float:
        """Seconds that a wait of at most `most` seconds may take."""
        return max(0.0, min(most, self.limit - self.seconds))

    def end(self, reason: str) -> None:
        """End the pause now; can be called from any thread. The first reason counts."""
        self._reason = self._reason or reason
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, _SOON_S, _REPEAT_S)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Interrupt the body, in the main thread, when the pause ends; then raise `CheckFailed` with the reason."""
        signal.signal(signal.SIGALRM, self._on_alarm)  # never reset: a late alarm must not end the process
        try:
            try:
                self._armed = True
                yield
            finally:
                self._disarm()
        except Overtaken:
            raise
        except (_PauseEnded, SystemError, *ERRORS) as error:  # SystemError: what Kafka's client raises when interrupted
            if self._reason or (self._began and not self.remaining(self.limit)):
                raise CheckFailed(self._reason or self._limit_message(error)) from error
            raise
        finally:
            self._disarm()  # an alarm may have interrupted the first

    def _disarm(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise _PauseEnded

    def _limit_message(self, error: BaseException) -> str:
        detail = f" ({error})" if isinstance(error, ERRORS) else ""
        return (
            f"the pause in writes has reached its limit of {self.limit:g} s while {self.step}{detail};"
            " find out what delays it, or allow more: --max-pause"
        )


class CheckFailed(TowpathError):
    """The pause has ended early: the cutover is undone."""
