"""What `verify --follow` stores: the differences, its positions in the log, and the running verdict for `status`.

The next `verify --follow` continues there. The file has the format of a verdict, which `repair` reads; its last line
also holds the positions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import platformdirs

from towpath.clients.kafka.topics import Place
from towpath.config.events import Difference, FollowFigures, as_line
from towpath.config.pipeline import Pipeline
from towpath.errors import TowpathError
from towpath.store import state_files
from towpath.verify import verdict_file
from towpath.verify.scope import Origin
from towpath_verifier import Namespace


@dataclass(frozen=True, slots=True)
class FollowState:
    """`began`: the id of the verdict that it continues; `of`, `ignore_field_order`: what that compared, and how."""

    began: str
    of: str
    ignore_field_order: bool
    whole: bool
    """Whether that verdict settled every document."""
    origin: Mapping[str, Any] | None
    at: float
    """Seconds since the epoch."""
    places: Mapping[Place, int]
    """The next offset of each partition; all records before it are compared."""
    waiting: Sequence[tuple[Namespace, bytes]]
    """Documents that differed and have to be compared again."""

    def reason_to_restart(self, now: FollowState, pipeline: Pipeline, firsts: Mapping[Place, int]) -> str:
        """Why a run that starts as `now` cannot continue here; empty if it can. `firsts`: the log's first offsets."""
        before, after = Origin.from_json(self.origin), Origin.from_json(now.origin)
        if before is None or after is None:
            return "the deployment that it belongs to is not known"
        if doubt := before.doubt(after):
            return doubt
        if (self.of, self.ignore_field_order) != (now.of, now.ignore_field_order):
            return "it compared other namespaces, or in another way"
        if not self.whole:
            return "the comparison that it continued gave no verdict on some of the documents"
        for place, offset in sorted(self.places.items()):
            if firsts.get(place, 0) > offset:
                return (
                    f"the log no longer reaches back to where it ended: {place[0]}, partition {place[1]} begins at"
                    f" {firsts[place]:,}, and {offset:,} is next"
                )
        log = pipeline.log
        if log.compact and (now.at - self.at) * 1000 > log.delete_retention:
            return "it ended longer ago than the log keeps deletes ([log] delete_retention)"
        return ""


def path(pipeline: str) -> Path:
    return state_files.folder(pipeline) / "follow.jsonl"


def write(pipeline: str, state: FollowState, differing: Iterable[Difference], counts: Mapping[str, Any]) -> None:
    follow = {field.name: getattr(state, field.name) for field in fields(state)} | {
        "places": [[*place, offset] for place, offset in state.places.items()],
        "waiting": [[namespace, id.hex()] for namespace, id in state.waiting],
    }
    with state_files.writing(path(pipeline)) as file:
        for difference in differing:
            file.write(difference.line)
        file.write(as_line({**counts, "follow": follow}))


def read(pipeline: str) -> FollowState | None:
    """None if there is none. Raises `TowpathError` for a broken file."""
    place = path(pipeline)
    if not place.exists():
        return None
    try:
        follow = verdict_file.counts(place)["follow"]
        return FollowState(
            began=follow["began"],
            of=follow["of"],
            ignore_field_order=follow["ignore_field_order"],
            whole=follow["whole"],
            origin=follow["origin"],
            at=float(follow["at"]),
            places={(topic, partition): offset for topic, partition, offset in follow["places"]},
            waiting=[(namespace, bytes.fromhex(id)) for namespace, id in follow["waiting"]],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TowpathError(f"cannot read {place}: {error!r}; remove it, then everything is compared again") from error


#: Seconds without an update after which a running verdict counts as stopped.
_ALIVE = 15.0


@dataclass(frozen=True, slots=True)
class RunningVerdict(FollowFigures):
    """The figures of `verify --follow`, running or ended."""

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
    def description(self) -> str:
        """One line for people."""
        counts = {name: getattr(self, name) for name in verdict_file.KINDS}
        differences = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "no differences"
        waiting = f", {self.waiting:,} to be compared again" if self.waiting else ""
        unsettled = f", {self.unsettled:,} unsettled" if self.unsettled else ""
        behind = f"{self.behind_records:,} records, {self.behind_seconds:.1f} s behind"
        state = "following" if self.is_kept else "stopped"
        return f"{state}: {differences}{waiting}{unsettled}; {self.compared:,} compared, {behind}, {self.age:.0f} s ago"


def running_path(pipeline: str) -> Path:
    return platformdirs.user_state_path("towpath") / pipeline / "follow.json"


def write_running(pipeline: str, verdict: RunningVerdict) -> None:
    state_files.folder(pipeline)
    with state_files.writing(running_path(pipeline)) as file:
        file.write(json.dumps(asdict(verdict)))


def update_counts(pipeline: str, counts: Mapping[str, int]) -> None:
    """Set the counts of differences in a running verdict that has ended."""
    if (verdict := read_running(pipeline)) is not None:
        missing, extra, different, order = (counts[kind] for kind in verdict_file.KINDS)
        write_running(pipeline, replace(verdict, missing=missing, extra=extra, different=different, order=order))


def read_running(pipeline: str) -> RunningVerdict | None:
    """The running verdict of a pipeline; None if there is none. Raises `TowpathError` for a broken file."""
    place = running_path(pipeline)
    try:
        return RunningVerdict(**json.loads(place.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise TowpathError(f"cannot read the running verdict {place}: {error}; remove it") from error
