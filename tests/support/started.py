"""Processes beside a test that end with it, also when it fails: `with Popen(…)` alone would wait for them forever."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def started(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start it with these options of `Popen`; kill it at the exit of the `with` if it still runs then."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()
