"""The events that verbs print with `--json`, a line each, and by which `towpath run` reads its children.

`event` names the kind; docs/json.md has every field. `VERSION` rises only when a field goes or changes its meaning:
readers pass over kinds and fields that they do not know.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_type_hints

if TYPE_CHECKING:
    from pydantic import TypeAdapter

VERSION = 1

#: A path in a document, and its value at the source and at the destination; None where there is none.
Shown = tuple[str, str | None, str | None]
Json = Mapping[str, Any]


class BadLine(ValueError):
    """A line that is not an event, or only part of one."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Optional fields (those that are None by default) are left out while they are None."""

    v: int = VERSION
    event: str = ""

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


@dataclass(frozen=True, kw_only=True)
class TimedEvent(Event):
    """An event with a description for people, and with a time once it has been reported."""

    at: datetime | None = None
    words: str | None = None

    @property
    def reported_at(self) -> datetime:
        assert self.at is not None, "the event has not been reported"
        return self.at


# verify, and resnapshot


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
class Verdict(Event):
    """The result of a verification."""

    event: Literal["verdict"] = "verdict"
    clean: bool
    compared: int
    missing: int
    extra: int
    different: int
    order: int
    metadata: int | None
    held_back: int | None
    seconds: float
    documents_per_second: float
    at: str
    since: str
    verdict: str
    bytes_per_document: float
    notes: Sequence[str]
    errors: Sequence[str]
    of: str
    ddl: Sequence[str]
    only: Sequence[str]
    id: str


@dataclass(frozen=True, kw_only=True)
class FollowFigures:
    """How far `verify --follow` is. Times are seconds since the epoch; each comparison of a document counts."""

    since: float
    at: float
    following: bool
    records: int
    compared: int
    waiting: int
    """Documents that differed when last compared, and will be compared again."""
    unresolved: int
    """Documents that could not be judged."""
    missing: int
    extra: int
    different: int
    order: int
    behind_records: int
    behind_seconds: float


@dataclass(frozen=True, kw_only=True)
class Followed(FollowFigures, Event):
    """How far `verify --follow` was at its end."""

    event: Literal["followed"] = "followed"
    age_seconds: float


# compact


@dataclass(frozen=True, kw_only=True)
class Round(Event):
    """One round of compaction."""

    event: Literal["round"] = "round"
    at: float = field(default_factory=lambda: round(time.time(), 3))
    records: int
    asked: int
    arrived: int
    unreadable: int
    dirty: int
    oldest_seconds: float | None
    partitions: int
    switched_on: Sequence[str]
    seconds: float


# repair


@dataclass(frozen=True, kw_only=True)
class Reread(Event):
    """A document that was repaired or is left; with --dry-run one that would be re-read."""

    event: Literal["document"] = "document"
    namespace: str
    id: Any
    id_bson: str
    destination_namespace: str | None = None
    result: Literal["mended", "left"] | None = None
    kind: str | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Repaired(Event):
    """The result of a repair."""

    event: Literal["repaired"] = "repaired"
    mended: int
    left: int
    seconds: float


# replay


@dataclass(frozen=True, kw_only=True)
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


# cutover

#: What people read where the name, which programs read, is not of today's vocabulary.
_LABELS = {
    "reading again": "re-read requests",
    "set aside": "dead letters",
    "collections": "schema changes",
    "way back": "reverse pipeline",
    "forms": "schema privileges",
}


def label(name: str) -> str:
    """The name of a line of the gate, for people."""
    return _LABELS.get(name, name)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the gate: the check, its result, and what to do if it is red."""

    name: str
    good: bool
    found: str
    advice: str = ""
    where: str = ""
    """Of a check that could not run: see `towpath.errors`."""
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Gate(TimedEvent):
    """The checklist."""

    event: Literal["gate"] = "gate"
    checks: Sequence[Check]


@dataclass(frozen=True, kw_only=True)
class Step(TimedEvent):
    """A finished step."""

    event: Literal["step"] = "step"
    step: str
    seconds: float
    documents: int | None = None
    commands: int | None = None

    @property
    def figures(self) -> dict[str, int]:
        counts = {"documents": self.documents, "commands": self.commands}
        return {name: count for name, count in counts.items() if count is not None}


@dataclass(frozen=True, kw_only=True)
class Switch(TimedEvent):
    """The other side is primary."""

    event: Literal["switch"] = "switch"
    primary: Literal["source", "destination"]
    pause_seconds: float


@dataclass(frozen=True, kw_only=True)
class CutoverNote(TimedEvent):
    """A message of the cutover. `end` is the last event."""

    event: Literal["stop writes", "undone", "not undone", "end"]
    error: Json | None = None


# run


@dataclass(frozen=True, kw_only=True)
class Note(TimedEvent):
    """A message; with `about`, the condition of that subject."""

    event: Literal[
        "deploy", "away", "back", "well", "trouble", "warning", "transaction", "compact", "verify", "difference"
    ]
    about: str | None = None
    error: Json | None = None


@dataclass(frozen=True, kw_only=True)
class State(TimedEvent):
    """The pipeline's state has changed."""

    event: Literal["state"] = "state"
    about: str = "state"
    state: str


@dataclass(frozen=True, kw_only=True)
class Gap(TimedEvent):
    """Records are gone from the log that the sink has not applied."""

    event: Literal["gap"] = "gap"
    about: str = "gap"
    log_breaks: Sequence[Json]


@dataclass(frozen=True, kw_only=True)
class Failed(TimedEvent):
    """A connector failed. `stopped`: no restart helps; `run` is the command that does."""

    event: Literal["failed", "stopped"] = "failed"
    about: str
    reason: str
    code: str = ""
    run: str | None = None


@dataclass(frozen=True, kw_only=True)
class Restart(TimedEvent):
    """A connector's failed tasks were restarted."""

    event: Literal["restart"] = "restart"
    connector: str


@dataclass(frozen=True, kw_only=True)
class Repair(TimedEvent):
    """About documents that the destination refused."""

    event: Literal["repair"] = "repair"
    left: int


@dataclass(frozen=True, kw_only=True)
class Ddl(TimedEvent):
    """A schema change that is not at the destination; without fields, one that is settled.

    `id`, `state` and `reason` are those of a change in the log, which is held or refused.
    """

    event: Literal["ddl"] = "ddl"
    time: str | None = None
    kind: str | None = None
    namespace: str | None = None
    to: str | None = None
    commands: Sequence[str] | None = None
    at_destination: bool | None = None
    id: str | None = None
    state: str | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunEnd(TimedEvent):
    """The state of the pipeline when `run` ends."""

    event: Literal["end"] = "end"
    state: str | None
    restarts: Mapping[str, int]
    set_aside: int
    mended: int
    ddl: Sequence[Json]
    schema_changes: Sequence[Json]
    verify: Json
    exit: int


#: Events about a condition: reported again once their words have changed.
Condition = Note | State | Gap | Failed

#: Verb → the kinds of events that it prints with `--json`.
BY_VERB: Mapping[str, Sequence[type[Event]]] = {
    "verify": (Difference, Definition, Verdict, Followed),
    "compact": (Round,),
    "repair": (Reread, Repaired),
    "replay": (Replayed,),
    "cutover": (Gate, Step, Switch, CutoverNote),
    "run": (Note, State, Gap, Failed, Restart, Repair, Ddl, Difference, Definition, RunEnd),
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
    kinds = dict.fromkeys(kind for kinds in BY_VERB.values() for kind in kinds if name in names(kind))
    if not kinds:
        return None
    from pydantic import TypeAdapter

    any_of: Any = Union[tuple(kinds)]  # noqa: UP007  (of those that fit, the one that takes most fields)
    return TypeAdapter(any_of)


def names(kind: type[Event]) -> tuple[str, ...]:
    """The values of `event` that a kind has."""
    return get_args(get_type_hints(kind)["event"])
