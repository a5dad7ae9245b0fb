"""A small disk, which can be filled and emptied."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Disk:
    place: Path

    @property
    def _filler(self) -> Path:
        return self.place / "filler"

    @property
    def free(self) -> int:
        """In bytes."""
        return shutil.disk_usage(self.place).free

    def fill(self, *, leaving: int = 0) -> None:
        """Take all room but so many bytes."""
        with self._filler.open("ab") as file:
            while (room := self.free - leaving) > 0:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), min(room, 8 << 20))
                except OSError:
                    break

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Disk]:
    """A separate file system in memory. Skips the test where that may not be mounted."""
    place.mkdir(parents=True)
    asked = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk that can be filled: {' '.join(asked)}: {done.stderr.strip()}; run as root")
    try:
        yield Disk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
