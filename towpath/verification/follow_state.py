"""What `verify --follow` keeps: what differs and where in the log it was, and the running verdict that `status` shows.

The next `verify --follow` goes on there. The file has the form of a verdict, which `repair` reads; its last line holds
the positions besides.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from towpath import state_files
from towpath.errors import TowpathError
from towpath.events import Difference, as_line
from towpath.kafka.topics import Place
from towpath.pipeline import Pipeline
from towpath.verification import verdict_file
from towpath.verification.scope import Origin
from verifier import Namespace


@dataclass(frozen=True, slots=True)
class FollowState:
    """`began`: the verdict that it goes on from, by its id; `of`, `ignore_field_order`: what that compared, and how."""

    began: str
    of: str
    ignore_field_order: bool
    whole: bool
    """Whether that verdict left nothing without a judgement."""
    origin: Mapping[str, Any] | None
    at: float
    """Seconds since the epoch."""
    places: Mapping[Place, int]
    """The next offset of each partition; all records before are compared."""
    waiting: Sequence[tuple[Namespace, bytes]]
    """Documents that differed, and were to be looked at again."""

    def refuses(self, now: FollowState, pipeline: Pipeline, firsts: Mapping[Place, int]) -> str:
        """Why one that begins as `now` cannot go on from here; empty when it can. `firsts`: where the log begins."""
        before, after = Origin.of(self.origin), Origin.of(now.origin)
        if before is None or after is None:
            return "of which deployment it was is not known"
        if doubt := before.doubt(after):
            return doubt
        if (self.of, self.ignore_field_order) != (now.of, now.ignore_field_order):
            return "it compared something else, or otherwise"
        if not self.whole:
            return "the comparison that it went on from gave no verdict on some of the documents"
        for place, offset in sorted(self.places.items()):
            if firsts.get(place, 0) > offset:
                return (
                    f"the log no longer reaches back to where it ended: {place[0]}, partition {place[1]} begins at"
                    f" {firsts[place]:,}, and {offset:,} is next"
                )
        compaction = pipeline.compaction
        if compaction and (now.at - self.at) * 1000 > compaction.delete_retention_ms:
            return "it ended longer ago than the log keeps deletes ([log] delete_retention)"
        return ""


def path(pipeline: str) -> Path:
    return state_files.folder(pipeline) / "follow.jsonl"


def write(pipeline: str, state: FollowState, differing: Iterable[Difference], counts: Mapping[str, Any]) -> None:
    with state_files.writing(path(pipeline)) as file:
        for found in differing:
            file.write(found.line)
        file.write(as_line({**counts, "follow": _as_json(state)}))


def read(pipeline: str) -> FollowState | None:
    """None where none was left. Raises `TowpathError` for a broken file."""
    place = path(pipeline)
    if not place.exists():
        return None
    try:
        found = verdict_file.counts(place)["follow"]
        return FollowState(
            began=found["began"],
            of=found["of"],
            ignore_field_order=found["ignore_field_order"],
            whole=found["whole"],
            origin=found["origin"],
            at=float(found["at"]),
            places={(topic, partition): offset for topic, partition, offset in found["places"]},
            waiting=[(namespace, bytes.fromhex(id)) for namespace, id in found["waiting"]],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TowpathError(f"cannot read {place}: {error!r}; remove it, and everything is compared anew") from error


def _as_json(state: FollowState) -> dict[str, Any]:
    return {
        "began": state.began,
        "of": state.of,
        "ignore_field_order": state.ignore_field_order,
        "whole": state.whole,
        "origin": state.origin,
        "at": state.at,
        "places": [[*place, offset] for place, offset in state.places.items()],
        "waiting": [[namespace, id.hex()] for namespace, id in state.waiting],
    }


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


def running_path(pipeline: str) -> Path:
    return platformdirs.user_state_path("towpath") / pipeline / "follow.json"


def write_running(pipeline: str, found: Running) -> None:
    state_files.folder(pipeline)
    with state_files.writing(running_path(pipeline)) as file:
        file.write(json.dumps(asdict(found)))


def strike(pipeline: str, counts: Mapping[str, int]) -> None:
    """Have the running verdict of one that has ended count what is left."""
    found = read_running(pipeline)
    if found is not None:
        missing, extra, different, order = (counts[name] for name in ("missing", "extra", "different", "order"))
        write_running(pipeline, replace(found, missing=missing, extra=extra, different=different, order=order))


def read_running(pipeline: str) -> Running | None:
    """The running verdict of a pipeline; None when none was ever kept. Raises `TowpathError` for a broken one."""
    place = running_path(pipeline)
    try:
        return Running(**json.loads(place.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise TowpathError(f"cannot read the running verdict {place}: {error}; remove it") from error
