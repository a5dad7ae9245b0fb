"""What `towpath run` does beside a pipeline about transactions whose end Kafka has lost, and nothing else of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from towpath.errors import TowpathError
from towpath.run.restarts import HangingTransactions
from towpath.session import opened

_TICK = 1.0  # seconds


class Ending:
    """Ends them from entry to exit of a `with`; `ended` says how many."""

    def __init__(self, pipeline: Path) -> None:
        self.ended = 0
        self._file, self._over = pipeline, threading.Event()
        self._thread = threading.Thread(target=self._run, name="ending", daemon=True)

    def __enter__(self) -> Ending:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(120)

    def _run(self) -> None:
        with opened(self._file) as it:
            ends = HangingTransactions(it)
            while not self._over.wait(_TICK):
                try:
                    for words in ends.turn(time.monotonic()):
                        self.ended += 1
                        print(words)
                except TowpathError:
                    continue  # the broker is away
