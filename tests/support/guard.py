"""Ends what a test run has started when the run itself was ended, by whatever signal.

`python -m tests.support.guard FOLDER` waits for the end of its input, which is that of the process that started it,
and kills every process with a file of that folder on its command line.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_ROOT = Path(__file__).parents[2]


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """All servers with files in this folder, which is this process's own, end with this process at the latest."""
    command = [sys.executable, "-m", "tests.support.guard", folder]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, start_new_session=True) as guard:
        try:
            yield
        finally:
            guard.communicate()


def _users(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        if any(f"{folder}/" in word for word in words):
            found.append(process)
    return found


if __name__ == "__main__":
    sys.stdin.read()
    for left in _users(Path(sys.argv[1])):
        left.kill()  # with its creation time checked
