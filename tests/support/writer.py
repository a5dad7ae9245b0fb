"""A workload on a separate thread, so that it continues while something else happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol

from tests.support.awaited import patient


class Steps(Protocol):
    """What a writer applies: an operation before each item."""

    seed: int

    def steps(self) -> Iterator[object]: ...


class Writer:
    """Applies a workload's operations from entry to exit of a `with`, whatever happens in the meantime.

    `per_second` bounds the rate; on two cores an unbounded writer takes the processor from what it is to test.
    """

    def __init__(self, workload: Steps, *, per_second: float = 400) -> None:
        self.workload = workload
        self.applied = 0
        self._pause = 1 / per_second
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"writer of seed {workload.seed}", daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(patient(60))
        assert not self._thread.is_alive(), "the writer did not stop"
        if self._error is not None and error is None:
            raise self._error

    def wait_for(self, applied: int, timeout: float = 60) -> None:
        """Wait until this many operations were applied since the start; `timeout` in seconds, on a quiet machine."""
        timeout = patient(timeout)
        end = time.monotonic() + timeout
        while self.applied < applied:
            assert self._error is None, f"the writer failed after {self.applied} operations: {self._error!r}"
            assert time.monotonic() < end, f"only {self.applied} of {applied} operations applied after {timeout:.0f} s"
            self._stop.wait(0.02)

    def _run(self) -> None:
        due = time.monotonic()
        try:
            for _ in self.workload.steps():
                self.applied += 1
                due = max(due + self._pause, time.monotonic() - 1)
                if self._stop.wait(max(0.0, due - time.monotonic())):
                    return
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
            self._error = error
