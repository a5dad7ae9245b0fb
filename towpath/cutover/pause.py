"""The time without writes: nothing in it waits for longer than its limit, or goes on after a late write."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from towpath.cutover.comparison import Red
from towpath.cutover.events import Telling
from towpath.cutover.sides import Sides
from towpath.cutover.write_stop import Stopping
from towpath.errors import Overtaken
from towpath.session import ERRORS

_AGAIN_S = 1.0  # to the next ring, should something have swallowed one
_GRACE_S = 0.5  # in which a wait that knows the limit says itself what it has seen last
_SOON_S = 0.001


class _Over(BaseException):
    """Ends whatever the pause is at, as Ctrl-C does: nothing takes it for a failure of its own and tries again."""


@dataclass(slots=True)
class Pause:
    """`limit` is in seconds, from the moment on at which writes may have ended."""

    limit: float
    telling: Telling
    _began: float = 0.0
    _why: str = ""
    _armed: bool = False

    def end_writes(self, sides: Sides, stopping: Stopping) -> None:
        """Writes may end at any moment of this; where people stop them by hand, when they say so."""
        if stopping.asks:
            stopping.ask(self.telling)
            self._begin()
            return
        if stopping.blocks:
            sides.begin("block")
        self._begin()
        stopping.stop(self.telling, self.left)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def left(self, most: float) -> float:
        """Seconds that a wait may take which would take `most` otherwise."""
        return max(0.0, min(most, self.limit - self.seconds))

    def end(self, why: str) -> None:
        """End it now, from any thread."""
        self._why = self._why or why
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, _SOON_S, _AGAIN_S)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, in the main thread, whatever waits ends when the pause does; then raises `Red` with the reason."""
        signal.signal(signal.SIGALRM, self._ring)  # for good: a ring that comes late must not end the process
        try:
            try:
                self._armed = True
                yield
            finally:
                self._armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Overtaken:
            raise
        except (_Over, SystemError, *ERRORS) as error:  # SystemError: what Kafka's client makes of an interrupt
            if self._why or (self._began and not self.left(self.limit)):
                raise Red(self._why or self._limit_words(error)) from error
            raise

    def _begin(self) -> None:
        self._began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, self.limit + _GRACE_S, _AGAIN_S)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise _Over

    def _limit_words(self, error: BaseException) -> str:
        seen = f" ({error})" if isinstance(error, ERRORS) else ""
        return (
            f"the pause in writes has reached its limit of {self.limit:g} s while {self.telling.doing}{seen}; see to"
            " what holds it up, or allow more: --max-pause"
        )
