"""The cache of the stack's parts. A folder is named by a hash of its inputs, and is complete or does not exist."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from towpath.errors import StackError

Progress = Callable[[str], None]
_MANIFEST = "manifest.json"


def cache_directory() -> Path:
    """The environment's TOWPATH_CACHE, else the user's cache folder for `towpath`."""
    folder = os.environ.get("TOWPATH_CACHE")
    return Path(folder).expanduser().resolve() if folder else Path(platformdirs.user_cache_dir("towpath", False))


def part(kind: str, key: str, doing: str, make: Callable[[Path], None], progress: Progress) -> Path:
    """The folder `kind/key` of the cache. Unless it exists and is whole, `make` fills an empty folder for it.

    Several processes may need the same part, and any may be killed: a folder gets its name only when it is complete,
    with a manifest of its files and their sizes. A folder that no longer matches its manifest is damaged, and is made
    again. `doing` is the line of progress. Raises `StackError` where the cache cannot be written.
    """
    place = cache_directory() / kind / key
    if _whole(place):
        return place
    with _lock(place):
        if _whole(place):
            return place
        for leftover in place.parent.glob(f".{key}.*"):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        progress(f"{place} is damaged; again {doing}" if place.exists() else doing)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{key}.") as folder:
            fresh = Path(folder) / "part"
            fresh.mkdir()
            make(fresh)
            (fresh / _MANIFEST).write_text(json.dumps(_sizes(fresh)), encoding="utf-8")
            if place.exists():
                place.rename(Path(folder) / "damaged")
            fresh.rename(place)
    return place


def _whole(place: Path) -> bool:
    try:
        expected = json.loads((place / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(expected == _sizes(place))


def _sizes(place: Path) -> dict[str, int]:
    files = (file for file in place.rglob("*") if file.is_file() and file.name != _MANIFEST)
    return {str(file.relative_to(place)): file.stat().st_size for file in files}


@contextmanager
def _lock(place: Path) -> Iterator[None]:
    """Keep other processes from this part. An `OSError` within is one of the cache."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_name(place.name + ".lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise StackError(
            f"cannot write the cache {cache_directory()}: {error.strerror}",
            "free space on its disk, or name another with TOWPATH_CACHE",
        ) from error
