"""The cache of fetched parts: folders named by their content's key, whole or not there at all."""

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

from towpath.stack.errors import FolderUnusable

_MANIFEST = "manifest.json"


def cache_directory() -> Path:
    """Where fetched parts are kept: the environment's TOWPATH_CACHE, else the user's cache folder for `towpath`."""
    chosen = os.environ.get("TOWPATH_CACHE")
    return Path(chosen).expanduser().resolve() if chosen else Path(platformdirs.user_cache_dir("towpath", False))


def part(kind: str, key: str, doing: str, make: Callable[[Path], None], progress: Callable[[str], None]) -> Path:
    """The folder `kind/key` of the cache, made by `make` (which fills an empty folder) when it is not there, whole.

    Safe against other processes that want the same part, and against a death in the middle: a folder appears under
    its name only when complete, with a manifest of its files and their sizes. A folder that no longer matches its
    manifest was damaged, and is made again. `doing` is the line of progress.
    """
    place = cache_directory() / kind / key
    if whole(place):
        return place
    with _lock(place):
        if whole(place):
            return place
        for left in place.parent.glob(f".{key}.*"):  # by one that died in the middle
            shutil.rmtree(left, ignore_errors=True)
        progress(f"{place} is damaged; again {doing}" if place.exists() else doing)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{key}.") as made:
            fresh = Path(made) / "part"
            fresh.mkdir()
            make(fresh)
            (fresh / _MANIFEST).write_text(json.dumps(_sizes(fresh)))
            if place.exists():
                place.rename(Path(made) / "damaged")
            fresh.rename(place)
    return place


def whole(place: Path) -> bool:
    """Whether the folder holds exactly the files, with exactly the sizes, that it was made with."""
    try:
        expected = json.loads((place / _MANIFEST).read_text())
    except (OSError, ValueError):
        return False
    return bool(expected == _sizes(place))


def discard(place: Path) -> None:
    """Remove a part that turned out not to work."""
    with _lock(place):
        shutil.rmtree(place, ignore_errors=True)


def _sizes(place: Path) -> dict[str, int]:
    files = (file for file in place.rglob("*") if file.is_file() and file.name != _MANIFEST)
    return {str(file.relative_to(place)): file.stat().st_size for file in files}


@contextmanager
def _lock(place: Path) -> Iterator[None]:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = place.with_name(place.name + ".lock").open("w")
    except OSError as error:
        raise FolderUnusable(
            f"cannot write the cache {cache_directory()}: {error.strerror}; name another with TOWPATH_CACHE"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
