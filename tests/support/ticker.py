"""Something done again and again, at even times, on a separate thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from tests.support.awaited import patient, until


class Ticker:
    """Calls `act` every so many seconds from entry to exit of a `with`; `done` counts."""

    def __init__(self, every: float, act: Callable[[], object]) -> None:
        self.done = 0
        self._every, self._act = every, act
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(patient(60))
        assert not self._thread.is_alive(), "what is done again and again did not end"
        if self._error is not None and error is None:
            raise self._error

    def wait_for(self, done: int, timeout: float = 60) -> None:
        """Wait until it was done so often; `timeout` in seconds."""
        until(f"{done} times", lambda: self.done >= done or self._error is not None, timeout)
        assert self._error is None, f"failed after {self.done} times: {self._error!r}"

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                self._act()
                self.done += 1
                due += self._every
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
            self._error = error
