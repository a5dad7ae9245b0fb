"""`towpath compact` as a service beside a test, and what it has said."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support import schema
from tests.support.pipeline import TOWPATH


class Service:
    """Runs from entry to exit of a `with`, and has to end well when it is asked to."""

    def __init__(self, file: Path, every: str, place: Path) -> None:
        self._out, self._err = place.with_suffix(".out"), place.with_suffix(".err")
        self._command = [TOWPATH, "compact", file, "--every", every, "--json"]

    def __enter__(self) -> Service:
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(self._command, stdout=out, stderr=err)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            ended = self.process.wait(60)
        finally:
            self.process.kill()
        if kind is None:
            schema.refuse(("compact", "--json"), self._out.read_text().rpartition("\n")[0])
            assert ended in (0, -signal.SIGKILL), f"ended with {ended}\n{self.said}"
            assert "Traceback" not in self.said, self.said

    @property
    def said(self) -> str:
        return self._err.read_text()

    @property
    def passes(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def total(self, name: str) -> int:
        return sum(one[name] for one in self.passes)
