"""The running verdict: what `verify --follow` has found so far, kept for `status`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from towpath import state_files
from towpath.errors import TowpathError

#: Seconds after which a verdict that is said to be kept up to date is taken for left behind.
_ALIVE = 15.0


@dataclass(frozen=True, slots=True)
class Running:
    """Times are seconds since the epoch. `compared` counts documents each time that they were touched."""

    since: float
    at: float
    following: bool
    records: int
    compared: int
    waiting: int
    """Documents that differed when they were last looked at, and are looked at again."""
    unsettled: int
    """Documents that could not be judged."""
    missing: int
    extra: int
    different: int
    order: int
    behind_records: int
    behind_seconds: float

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different + self.order

    @property
    def age(self) -> float:
        return max(0.0, time.time() - self.at)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "age_seconds": round(self.age, 3), "following": self.is_kept}

    @property
    def is_kept(self) -> bool:
        return self.following and self.age < _ALIVE

    @property
    def words(self) -> str:
        """One line for people."""
        counts = {name: getattr(self, name) for name in ("missing", "extra", "different", "order")}
        found = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "no differences"
        waiting = f", {self.waiting:,} looked at again" if self.waiting else ""
        odd = f", {self.unsettled:,} not to be judged" if self.unsettled else ""
        behind = f"{self.behind_records:,} records, {self.behind_seconds:.1f} s behind"
        state = "following" if self.is_kept else "stopped"
        return f"{state}: {found}{waiting}{odd}; {self.compared:,} compared, {behind}, {self.age:.0f} s ago"


def path(pipeline: str) -> Path:
    return platformdirs.user_state_path("towpath") / pipeline / "follow.json"


def write(pipeline: str, found: Running) -> None:
    state_files.folder(pipeline)
    with state_files.writing(path(pipeline)) as file:
        file.write(json.dumps(asdict(found)))


def strike(pipeline: str, counts: Mapping[str, int]) -> None:
    """Have the running verdict of one that has ended count what is left."""
    found = read(pipeline)
    if found is not None:
        missing, extra, different, order = (counts[name] for name in ("missing", "extra", "different", "order"))
        write(pipeline, replace(found, missing=missing, extra=extra, different=different, order=order))


def read(pipeline: str) -> Running | None:
    """The running verdict of a pipeline; None when none was ever kept. Raises `TowpathError` for a broken one."""
    place = path(pipeline)
    try:
        return Running(**json.loads(place.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise TowpathError(f"cannot read the running verdict {place}: {error}; remove it") from error
