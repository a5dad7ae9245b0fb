"""The events that commands print with `--json`, a line each, and by which `towpath run` reads its children.

`event` names the kind; docs/json.md has every field. `VERSION` rises only when a field goes or changes its meaning:
readers skip kinds and fields that they do not know.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import cache
from typing import Any, Literal, Union, dataclass_transform, get_args, get_type_hints

from pydantic import TypeAdapter

VERSION = 1
_ALIVE = 15.0  # seconds without an update after which `verify --follow` counts as stopped

#: A path in a document, and its value at the source and at the destination; None where there is none.
Shown = tuple[str, str | None, str | None]
Json = Mapping[str, Any]


class BadLine(ValueError):
    """A line that is not an event, or only part of one."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Event:
    """A kind of event; each subclass is a frozen dataclass, created with keyword arguments only.

    Optional fields (those that are None by default) are left out while they are None.
    """

    v: int = VERSION
    event: str = ""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    def as_json(self) -> dict[str, Any]:
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return {field.name: value for field, value in values if value is not None or field.default is not None}

    @property
    def line(self) -> str:
        return as_line(self.as_json())


def as_line(values: Json) -> str:
    """A line of JSON."""
    text = json.dumps(values, ensure_ascii=False, default=_plain)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates, which JSON can hold and UTF-8 cannot
        text = json.dumps(values, default=_plain)
    return text + "\n"


def _plain(value: Any) -> Any:
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else asdict(value)


class TimedEvent(Event):
    """An event with a description for people, and with a time once it has been reported."""

    at: datetime | None = None
    words: str | None = None

    @property
    def reported_at(self) -> datetime:
        assert self.at is not None, "the event has not been reported"
        return self.at


class Difference(TimedEvent):
    """A document that differs."""

    event: Literal["difference"] = "difference"
    namespace: str
    destination_namespace: str
    id: Any
    id_bson: str
    kind: Literal["missing", "extra", "different", "order"]
    paths: Sequence[Shown]

    @property
    def key(self) -> bytes:
        """BSON `{_id: …}`, with the bytes that `_id` has on the server."""
        return bytes.fromhex(self.id_bson)


class Definition(TimedEvent):
    """An option, a view or an index that differs."""

    event: Literal["metadata", "difference"] = "metadata"
    namespace: str
    destination_namespace: str
    kind: Literal["collection", "option", "view", "index"]
    what: str
    source: Any
    destination: Any
    command: str


@dataclass(frozen=True, kw_only=True)
class VerdictSummary:
    """What is stored of a verdict at the destination; times are ISO 8601."""

    id: str
    at: str
    since: str
    """When its oldest comparison began."""
    verdict: str
    of: str
    clean: bool
    compared: int
    missing: int
    extra: int
    different: int
    order: int
    metadata: int | None
    seconds: float


class Verdict(VerdictSummary, Event):
    """The result of a verification."""

    event: Literal["verdict"] = "verdict"
    deferred: int | None
    documents_per_second: float
    bytes_per_document: float
    notes: Sequence[str]
    errors: Sequence[str]
    ddl: Sequence[str]
    only: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Following:
    """What `verify --follow` has found, running or ended.

    Times are seconds since the epoch; each comparison of a document counts.
    """

    since: float
    at: float
    following: bool
    records: int
    compared: int
    waiting: int
    """Documents that differed when last compared, and are compared again before they count as a difference."""
    unresolved: int
    """Documents that could not be judged."""
    missing: int
    extra: int
    different: int
    order: int
    behind_records: int | None
    """Records of the log that are not compared; None when unknown."""
    behind_seconds: float | None
    """How old the oldest of these records is at most; None when unknown."""
    age_seconds: float = 0.0
    """Since `at`, when it was read."""

    def as_of_now(self) -> Following:
        age = max(0.0, time.time() - self.at)
        return replace(self, age_seconds=round(age, 3), following=self.following and age < _ALIVE)

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different + self.order

    @property
    def description(self) -> str:
        """One line for people."""
        counts = {"missing": self.missing, "extra": self.extra, "different": self.different, "order": self.order}
        differences = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "no differences"
        waiting = f", {self.waiting:,} to be compared again" if self.waiting else ""
        waiting += f", {self.unresolved:,} not judged" if self.unresolved else ""
        seconds = "" if self.behind_seconds is None else f", {self.behind_seconds:.1f} s"
        behind = "unknown how far" if self.behind_records is None else f"{self.behind_records:,} records{seconds}"
        state = "following" if self.following else "stopped"
        compared = f"{self.compared:,} compared, {behind} behind"
        return f"{state}: {differences}{waiting}; {compared}, {self.age_seconds:.0f} s ago"


class Followed(Following, Event):
    """How far `verify --follow` was at its end."""

    event: Literal["followed"] = "followed"


class Pass(Event):
    """One pass of compaction."""

    event: Literal["pass"] = "pass"
    at: float = field(default_factory=lambda: round(time.time(), 3))
    records: int
    asked: int
    arrived: int
    unreadable: int
    dirty: int
    oldest_seconds: float | None
    partitions: int
    switched_on: Sequence[str]
    ready: Sequence[str]
    """Topics that are protected, and that someone else may let the cleaner compact."""
    seconds: float


class Reread(Event):
    """A document that was repaired or is left; with --dry-run one that would be re-read."""

    event: Literal["document"] = "document"
    namespace: str
    id: Any
    id_bson: str
    destination_namespace: str | None = None
    result: Literal["repaired", "left"] | None = None
    kind: str | None = None
    reason: str | None = None


class Drilled(Event):
    """What a takeover would have given, as a drill has made it from the log."""

    event: Literal["drilled"] = "drilled"
    cluster_time: str
    """Of the source: every change before it would have been there."""
    recovery_seconds: float | None
    """How much would have been lost; None when unknown."""
    recovery_changes: int | None
    behind_records: int | None
    """What the sink would still have had to apply; None when unknown."""
    records: int
    apply_seconds: float
    """Of the whole log; a takeover applies only what the sink is behind."""
    schema_seconds: float
    documents: int
    differences: int
    not_judged: Sequence[str]
    problems: Sequence[str]
    """What would have needed --accept."""
    whole: bool


class Overwritten(Event):
    """A document that an old source loses when it returns, as both sides have it."""

    event: Literal["overwritten"] = "overwritten"
    namespace: str
    id: Any
    id_bson: str
    never_captured: bool
    """Whether the old source has changed it after the takeover's point in time."""
    old_source: Any
    """In canonical Extended JSON; None where there is none, or in `old_source_bson`."""
    new_primary: Any
    old_source_bson: str | None = None
    """In hexadecimal, where Extended JSON cannot express it exactly."""
    new_primary_bson: str | None = None


class Repaired(Event):
    """The result of a repair."""

    event: Literal["repaired"] = "repaired"
    repaired: int
    left: int
    seconds: float


class Replayed(Event):
    """The result of a replay or a rebuild."""

    event: Literal["replayed"] = "replayed"
    done: str
    whole: bool
    records: int
    documents: Mapping[str, int]
    seconds: float
    until: str | None
    following: bool
    refused: int
    dead_letters: Sequence[Json]
    dead_letter_topic: str | None
    uncopied: bool
    missing: Sequence[Json]
    deleted_since: Sequence[str]
    earliest: str | None


class Replayable(Event):
    """Whether a replay or a rebuild would begin, and what it would give."""

    event: Literal["replayable"] = "replayable"
    would: str
    accepted: bool
    continues: bool
    whole: bool
    """Whether the log lacks nothing."""
    until: str | None
    until_accepted: bool | None
    """Also if something else is wrong; None without --until."""
    earliest: str | None
    """The earliest point in time that can be rebuilt now; None when unknown, or when the log was not read."""
    records: int
    """How many it would read; transaction markers count."""
    deletes: Mapping[str, int]
    """Namespace → about how many documents would be deleted first."""
    uncopied: bool
    missing: Sequence[Json]
    findings: Sequence[Json]


class Gate(TimedEvent):
    """The findings of the gate, one for each line; see `towpath.checks.rule.Finding`."""

    event: Literal["gate"] = "gate"
    findings: Sequence[Json]


class Step(TimedEvent):
    """A finished step."""

    event: Literal["step"] = "step"
    step: str
    seconds: float
    documents: int | None = None
    commands: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        counts = {"documents": self.documents, "commands": self.commands}
        return {name: count for name, count in counts.items() if count is not None}


class Switch(TimedEvent):
    """The other side is primary."""

    event: Literal["switch"] = "switch"
    primary: Literal["source", "destination"]
    pause_seconds: float | None = None
    """For how long writes were stopped; None in a takeover."""


class CutoverNote(TimedEvent):
    """A message of the cutover. `end` is the last event."""

    event: Literal["stop writes", "undone", "not undone", "not converted", "end"]
    error: Json | None = None


class Note(TimedEvent):
    """A message of `run`; with `about`, the state of that subject, which is reported again once its words change."""

    event: Literal[
        "deploy",
        "unreachable",
        "reachable",
        "problem",
        "warning",
        "transaction",
        "compact",
        "verify",
        "difference",
        "state",
        "gap",
        "failed",
        "stopped",
        "restart",
        "recovered",
        "repair",
        "ddl",
        "convert",
    ]
    about: str | None = None
    """Of `failed`, `stopped`, `restart` and `recovered` the connector."""
    error: Json | None = None
    state: str | None = None
    log_breaks: Sequence[Json] | None = None
    """Of `gap`: the records that are gone from the log and that the sink has not applied."""
    reason: str | None = None
    code: str | None = None
    run: str | None = None
    """Of `stopped`: the commands that help, as no restart does."""
    left: int | None = None
    """Of `repair`: documents that the destination refused and that still differ."""
    change: Json | None = None
    """Of `ddl`: the schema change that is not at the destination; absent for one that is resolved."""


class RunEnd(TimedEvent):
    """The state of the pipeline when `run` ends."""

    event: Literal["end"] = "end"
    state: str | None
    restarts: Mapping[str, int]
    dead_letters: int
    repaired: int
    ddl: Sequence[Json]
    schema_changes: Sequence[Json]
    verify: Json
    exit: int


#: Command → the kinds of events that it prints with `--json`.
BY_COMMAND: Mapping[str, Sequence[type[Event]]] = {
    "verify": (Difference, Definition, Verdict, Followed),
    "compact": (Pass,),
    "repair": (Reread, Repaired),
    "replay": (Replayed, Replayable),
    "cutover": (Gate, Step, Switch, CutoverNote),
    "takeover": (Gate, Step, Switch, CutoverNote, Overwritten, Drilled),
    "run": (Note, Difference, Definition, RunEnd),
}


def parse(line: str) -> Event | None:
    """The event of a line; None for a kind that this version does not know. Raises `BadLine`."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine("not JSON") from error
    return event(values)


def event(values: Any) -> Event | None:
    """As `parse`, for JSON that is already decoded."""
    if not isinstance(values, dict) or not isinstance(name := values.get("event"), str):
        raise BadLine("not an event")
    if (adapter := _adapter(name)) is None:
        return None
    try:
        return adapter.validate_python(values)
    except ValueError as error:  # pydantic's errors are ValueErrors
        version = values.get("v", VERSION)
        if isinstance(version, int) and version > VERSION:
            return None
        raise BadLine(f"not an event {name!r}") from error


@cache
def _adapter(name: str) -> TypeAdapter[Event] | None:
    kinds = dict.fromkeys(kind for kinds in BY_COMMAND.values() for kind in kinds if name in names(kind))
    if not kinds:
        return None
    any_of: Any = Union[tuple(kinds)]  # noqa: UP007  (of those that fit, the one that takes most fields)
    return TypeAdapter(any_of)


def names(kind: type[Event]) -> tuple[str, ...]:
    """The values of `event` that a kind has."""
    return get_args(get_type_hints(kind)["event"])
