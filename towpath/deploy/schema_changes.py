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
from towpath.deploy.schema import build_progress
from towpath.session import Session
from towpath.store import schema_changes
from towpath.store.schema_changes import STUCK, Decision, SchemaChange

#: In place of schema changes, where they could not be read.
UNREAD = "schema changes in the log are unknown: the destination, which holds them, does not answer"
_LATEST = 5  # changes that are over
_PATIENCE = timedelta(minutes=5)  # in which a server's problem passes
_ACTIONS = {
    "create": "create",
    "collMod": "change",
    "createIndexes": "build indexes on",
    "dropIndexes": "drop indexes of",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A schema change with what people need to know about it."""

    change: SchemaChange
    holds_up: tuple[str, ...]
    """The namespaces whose later records wait for it; empty once it is over."""
    progress: tuple[int, int] | None = None
    """Of an index build that runs: documents read, of all; 0 of 0 where the server does not say."""
    replay: str = ""
    """The label of the replay whose destination it is about; empty for the pipeline's own."""

    @property
    def is_stuck(self) -> bool:
        """Whether it waits for a decision, or for the end of what refuses it, also after the decision to make it.

        A running one counts once it began long ago and something is in its way; unless it builds, so that nothing is.
        """
        change, builds = self.change, self.progress is not None and self.progress[1] > 0
        is_stuck = change.state in STUCK
        if change.state == "running" and change.reason and change.began is not None and not builds:
            is_stuck = datetime.now(UTC) - change.began > _PATIENCE
        return is_stuck and change.decision in ((None,) if change.state == "held" else (None, "apply"))

    @property
    def description(self) -> str:
        """What is done, such as `drop shop.orders`."""
        change = self.change
        action = _ACTIONS.get(change.kind, change.kind)
        indexes = f" ({', '.join(change.indexes)})" if change.indexes and "Indexes" in change.kind else ""
        return f"{action} {change.namespace}{f' to {change.to}' if change.to else ''}{indexes}"

    def line(self, file: Path | str = "PIPELINE") -> str:
        """For people. `file` is the pipeline file, for commands."""
        change, parts = self.change, list[str]()
        if change.state == "waiting":
            parts.append(f"{change.arrived} of {change.expected} partitions have come to it")
        if change.is_retried:
            parts.append("it is being tried again")
        if self.progress is not None and self.progress[1]:
            done, total = self.progress
            parts.append(f"{done:,} of {total:,} ({100 * done // total} %)")
        if (begun := change.began or change.since) is not None and not change.ended:
            parts.append(f"for {duration(max(0.0, (datetime.now(UTC) - begun).total_seconds()))}")
        if change.reason:
            parts.append(change.reason)
        if change.decision is not None and not change.ended:
            parts.append(f"to {change.decision}, as was decided")
        if self.holds_up:
            parts.append(f"later changes of {', '.join(self.holds_up)} wait")
        if self.is_stuck:
            parts.append(f"run: {'; or: '.join(self.commands(file))}")
        return "; ".join([f"schema change {change.state}: {self.description}", *parts])

    def commands(self, file: Path | str) -> tuple[str, ...]:
        """What releases it, and nothing else, whenever it is run: make it, or continue without it."""
        return tuple(self.command(file, decision) for decision in ("apply", "skip"))

    def command(self, file: Path | str, decision: Decision) -> str:
        of_replay = ["--replay", self.replay] if self.replay else []
        return shlex.join(["towpath", "ddl", str(file), *of_replay, f"--{decision}", self.change.id])

    def as_json(self, file: Path | str) -> dict[str, Any]:
        change, (done, total) = self.change, self.progress or (None, None)
        times = {name: getattr(change, name) for name in ("since", "began", "ended")}
        names = ("id", "time", "kind", "namespace", "to", "state", "reason", "decision", "arrived", "expected")
        return {
            **{name: getattr(change, name) for name in names},
            "destination_namespace": change.destination,
            **{name: at and at.astimezone(UTC).isoformat(timespec="milliseconds") for name, at in times.items()},
            "done": done,
            "total": total,
            "holds_up": list(self.holds_up),
            "words": self.line(file),
            "commands": list(self.commands(file)) if self.is_stuck else [],
        }


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


def read(client: Client, pipeline: Pipeline, sink: Pipeline | None = None, replay: str = "") -> SchemaChanges:
    """What the sink of a pipeline has arrived at, or that of a replay of it. `client` is the destination's."""
    of = sink or pipeline
    return SchemaChanges(
        tuple(_shown(client, pipeline, change, replay) for change in schema_changes.open_changes(client, of)),
        tuple(Shown(change, ()) for change in schema_changes.latest(client, of, _LATEST)),
    )


def lines(session: Session) -> Iterator[str]:
    """A line for each change of the pipeline that is not over. Raises `MongoError`."""
    if session.pipeline.exactly_once:
        with session.destination.briefly() as client:
            changes = read(client, session.pipeline)
        yield from (shown.line(session.file) for shown in changes.open)


def chosen(changes: Sequence[Shown], name: str, pipeline: Pipeline) -> list[Shown]:
    """The one of the open changes that has this id; or else those that are about this namespace and stuck; if none is,
    those of it that wait for partitions, which may never come where a log gap was accepted, or for the end of the
    server's problem.

    The destination's name of a namespace will do, unless the source also has a namespace of that name.
    """
    if same := [shown for shown in changes if shown.change.id == name]:
        return same
    named = [shown for shown in changes if shown.change.namespace == name]
    if not named and name not in pipeline.collections.rename:
        named = [shown for shown in changes if shown.change.destination == name]
    stuck = [shown for shown in named if shown.change.state in STUCK]
    return stuck or [shown for shown in named if shown.change.state == "waiting" or shown.change.reason]


def _shown(client: Client, pipeline: Pipeline, change: SchemaChange, replay: str) -> Shown:
    held_up = tuple(sorted(namespace_of(pipeline.name, topic) for topic in change.topics))
    progress = None
    if (change.state == "running" or change.is_retried) and change.indexes and change.kind != "dropIndexes":
        target = pipeline.renamed(change.to) if change.to else change.destination
        progress = build_progress(client, *target.split(".", 1))
    return Shown(change, held_up, progress, replay)
