"""A command of a pipeline's that runs beside a fault."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.support.pipeline import TOWPATH

_PATIENCE_S = 240  # for it to end


class Command:
    """Runs from entry to exit of a `with`; killed there if it still does."""

    def __init__(self, folder: Path, pipeline: Path, *words: str) -> None:
        self._words = " ".join(words)
        self._file = folder / f"{words[0]}-{time.monotonic_ns()}.txt"
        with self._file.open("wb") as out:
            command = [str(TOWPATH), words[0], str(pipeline), *words[1:]]
            self.process = subprocess.Popen(command, stdout=out, stderr=out)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: object) -> None:
        if self.alive:
            self.process.kill()
        self.process.wait(30)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def said(self) -> str:
        return self._file.read_text()

    def ended(self, *expected: int) -> int:
        """Wait for its end, which has to be one of these."""
        status = self.process.wait(_PATIENCE_S)
        assert status in expected and "Traceback" not in self.said, f"{self._words} ended with {status}:\n{self.said}"
        return status
