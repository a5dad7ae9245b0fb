"""What `towpath run` does beside a pipeline about two defects of Kafka, and nothing else of it.

It ends transactions whose end Kafka has lost. It restarts a source whose task has failed because one broker knew a new
topic before another did: the producer does not send again what the other broker did not attempt for that reason.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from towpath.clients.connect.control import statuses
from towpath.errors import TowpathError
from towpath.run.restarts import HangingTransactions
from towpath.session import Session, opened

_TICK = 1.0  # seconds
_NOT_ATTEMPTED = "OperationNotAttemptedException"


class Ending:
    """Does so from entry to exit of a `with`; `ended` says how many transactions."""

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
                    self._restart(it)
                except TowpathError:
                    continue  # the broker is away

    def _restart(self, session: Session) -> None:
        sources = session.pipeline.source_connectors
        for connector in statuses(session.connect, sources):
            if any(_NOT_ATTEMPTED in task.trace for task in connector.tasks if task.state == "FAILED"):
                session.connect.restart(connector.name, only_failed=True)
                print(f"restarted {connector.name}: {_NOT_ATTEMPTED}")
