"""The file of what an old source loses when it returns: both versions of each document."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TextIO

from towpath.config.events import Overwritten
from towpath.files import file_errors, sync_folder
from towpath.store import verdict_file
from towpath_verifier import Difference, Key, Namespace, id_key


@dataclass(slots=True)
class Overwritings:
    """The file of all that the old source is to lose, with both versions of each document; each version once."""

    place: Path
    never_captured: frozenset[tuple[Namespace, Key]]
    """The documents that the log names behind the sink's positions."""
    kinds: Counter[str] = field(default_factory=Counter)
    _file: TextIO = field(init=False)
    _written: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        with file_errors(f"create {self.place}"):
            number = os.open(self.place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(number, "w", encoding="utf-8")

    def add(self, difference: Difference) -> None:
        """Write a difference between the new primary, as the source, and the old source, if its version is not yet."""
        key = difference.namespace, id_key(difference.id)
        is_new = key in self.never_captured
        old, new = difference.destination, difference.source
        digest = blake2b(repr(key).encode() + (old or b""), digest_size=16).digest()
        if digest in self._written or (old is None and not is_new):
            return
        self._written.add(digest)
        self.kinds[difference.kind] += 1
        self.kinds["never captured"] += is_new
        with file_errors(f"write {self.place}"):
            self._file.write(_event(difference, old, new, never_captured=is_new).line)

    def store(self) -> None:
        """What was added is on the disk when this returns."""
        with file_errors(f"write {self.place}"):
            self._file.flush()
            os.fsync(self._file.fileno())
            sync_folder(self.place.parent)

    def close(self) -> None:
        self._file.close()
        if not self._written:
            self.place.unlink(missing_ok=True)


def _event(difference: Difference, old: bytes | None, new: bytes | None, *, never_captured: bool) -> Overwritten:
    (old_json, old_bson), (new_json, new_bson) = _shown(old), _shown(new)
    return Overwritten(
        namespace=difference.namespace,
        id=verdict_file.shown_id(difference.id),
        id_bson=difference.id.hex(),
        never_captured=never_captured,
        old_source=old_json,
        old_source_bson=old_bson,
        new_primary=new_json,
        new_primary_bson=new_bson,
    )


def _shown(document: bytes | None) -> tuple[object, str | None]:
    """A document as JSON, and where that cannot express it exactly, its BSON."""
    shown = None if document is None else verdict_file.shown_id(document)
    return shown, document.hex() if document is not None and shown is None else None
