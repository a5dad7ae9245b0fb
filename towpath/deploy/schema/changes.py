"""Schema changes in the log: which wait, run, are held or refused at the destination, and what was made lately."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from towpath.clients.mongo.client import Client
from towpath.config.namespaces import namespace_of
from towpath.config.pipeline import Pipeline
from towpath.config.text import duration
from towpath.deploy.schema.apply import build_progress
from towpath.session import Session
from towpath.store import schema_changes
from towpath.store.schema_changes import STUCK, SchemaChange

#: In place of schema changes, where they could not be read.
UNREAD = "schema changes in the log are unknown: the destination, which holds them, does not answer"
_LATEST = 5  # changes that are over
_PATIENCE = timedelta(minutes=5)  # in which a server's trouble passes
_VERBS = {
    "create": "create",
    "collMod": "change",
    "createIndexes": "build indexes on",
    "dropIndexes": "drop indexes of",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """Of an index build: documents read, of all. 0 of 0 where the server does not say."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A schema change with what people need to know about it."""

    change: SchemaChange
    holds_up: tuple[str, ...]
    """The namespaces whose later records wait for it; empty once it is over."""
    progress: Progress | None = None
    """Of an index build that runs."""

    @property
    def is_stuck(self) -> bool:
        """Whether it waits for a decision, or for the end of what refuses it, also after the decision to make it."""
        decisions = (None,) if self.change.state == "held" else (None, "apply")
        return (self.change.state in STUCK or self._has_lasting_trouble) and self.change.decision in decisions

    @property
    def _has_lasting_trouble(self) -> bool:
        """Whether it began long ago, and what was in its way last is no build that goes on since."""
        change, builds = self.change, self.progress is not None and self.progress.total > 0
        if change.state != "running" or not change.reason or change.began is None or builds:
            return False
        return datetime.now(UTC) - change.began > _PATIENCE

    @property
    def description(self) -> str:
        """What is done, such as `drop shop.orders`."""
        change = self.change
        verb = _VERBS.get(change.kind, change.kind)
        indexes = f" ({', '.join(change.indexes)})" if change.indexes and "Indexes" in change.kind else ""
        return f"{verb} {change.namespace}{f' to {change.to}' if change.to else ''}{indexes}"

    def line(self, file: Path | str = "PIPELINE") -> str:
        """For people. `file` is the pipeline file, for commands."""
        change = self.change
        commands = f"; run: {'; or: '.join(self.commands(file))}" if self.is_stuck else ""
        return f"schema change {change.state}: {self.description}{self._situation}{commands}"

    @property
    def _situation(self) -> str:
        change, parts = self.change, list[str]()
        if change.state == "waiting":
            parts.append(f"{change.arrived} of {change.expected} partitions have come to it")
        if change.is_retried:
            parts.append("it is being tried again")
        if self.progress is not None and self.progress.total:
            share = 100 * self.progress.done // self.progress.total
            parts.append(f"{self.progress.done:,} of {self.progress.total:,} ({share} %)")
        if (begun := change.began or change.since) is not None and not change.ended:
            parts.append(f"for {duration(max(0.0, (datetime.now(UTC) - begun).total_seconds()))}")
        if change.reason:
            parts.append(change.reason)
        if change.decision is not None and not change.ended:
            parts.append(f"to {change.decision}, as was decided")
        if self.holds_up:
            parts.append(f"later changes of {', '.join(self.holds_up)} wait")
        return "".join(f"; {part}" for part in parts)

    def commands(self, file: Path | str) -> tuple[str, ...]:
        """What releases it: make it, or go on without it."""
        return tuple(
            shlex.join(["towpath", "ddl", str(file), option, self.change.namespace]) for option in ("--apply", "--skip")
        )

    def as_json(self, file: Path | str) -> dict[str, Any]:
        change = self.change
        return {
            "id": change.id,
            "time": change.time,
            "kind": change.kind,
            "namespace": change.namespace,
            "to": change.to,
            "destination_namespace": change.destination,
            "state": change.state,
            "reason": change.reason,
            "decision": change.decision,
            **{name: _iso(getattr(change, name)) for name in ("since", "began", "ended")},
            "arrived": change.arrived,
            "expected": change.expected,
            "done": self.progress and self.progress.done,
            "total": self.progress and self.progress.total,
            "holds_up": list(self.holds_up),
            "words": self.line(file),
            "commands": list(self.commands(file)) if self.is_stuck else [],
        }


def _iso(time: datetime | None) -> str | None:
    return time.astimezone(UTC).isoformat(timespec="milliseconds") if time else None


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """`open`: those that are not over, the oldest first. `latest`: those that ended last, the last one first."""

    open: tuple[Shown, ...] = ()
    latest: tuple[Shown, ...] = ()

    @property
    def stuck(self) -> tuple[Shown, ...]:
        return tuple(shown for shown in self.open if shown.is_stuck)

    def as_json(self, file: Path | str) -> list[dict[str, Any]]:
        return [shown.as_json(file) for shown in (*self.open, *self.latest)]


def read(client: Client, pipeline: Pipeline, sink: Pipeline | None = None) -> SchemaChanges:
    """What the sink of a pipeline has arrived at, or that of a replay of it. `client` is the destination's."""
    of = sink or pipeline
    return SchemaChanges(
        tuple(_shown(client, pipeline, change) for change in schema_changes.open_changes(client, of)),
        tuple(Shown(change, ()) for change in schema_changes.latest(client, of, _LATEST)),
    )


def read_own(session: Session) -> SchemaChanges:
    """As `read`, at the pipeline's own destination. Raises `MongoError`."""
    if not session.pipeline.exactly_once:
        return SchemaChanges()
    with session.destination.briefly() as client:
        return read(client, session.pipeline)


def lines(session: Session) -> Iterator[str]:
    """A line for each change that is not over."""
    return (shown.line(session.file) for shown in read_own(session).open)


def chosen(changes: Sequence[Shown], name: str) -> list[SchemaChange]:
    """Those of the open changes that have this id, or are about this namespace and stuck; if none is, those of it that
    wait for partitions, which may never come where a log gap was accepted, or for the end of the server's trouble.
    """
    named = [shown.change for shown in changes if name in (shown.change.namespace, shown.change.destination)]
    stuck = [shown.change for shown in changes if shown.change.id == name] or [
        change for change in named if change.state in STUCK
    ]
    return stuck or [change for change in named if change.state == "waiting" or change.reason]


def _shown(client: Client, pipeline: Pipeline, change: SchemaChange) -> Shown:
    held_up = tuple(sorted(namespace_of(pipeline.name, topic) for topic in change.topics))
    return Shown(change, held_up, _progress(client, pipeline, change))


def _progress(client: Client, pipeline: Pipeline, change: SchemaChange) -> Progress | None:
    """Of the index build that a change is, or begins with; None where none runs."""
    runs = change.state == "running" or change.is_retried
    if not runs or not change.indexes or change.kind == "dropIndexes":
        return None
    target = pipeline.renamed(change.to) if change.to else change.destination
    return Progress(*build_progress(client, *target.split(".", 1)))
