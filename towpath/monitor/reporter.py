"""The report of one pipeline: all that page, API and metrics show, read once for all clients.

It is what `towpath status --json` prints, and what only a process that stays can know: how old it is, the rates, the
documents behind dead letters and verdicts, the oplog.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from towpath.checks import log as oplogs
from towpath.config.mongo_uri import without_credentials
from towpath.cutover import gate
from towpath.cutover.steps import CutoverOptions
from towpath.deploy.schema import unreplicated
from towpath.errors import TowpathError, fields
from towpath.log.dead_letters import DeadLetter
from towpath.run.status import log_figures, replay_states
from towpath.run.status.figures import RATE_WINDOW, Status
from towpath.session import ERRORS, Session
from towpath.store import verdict_file
from towpath.verify.full_verdict import VerdictContext, Verified

Report = Mapping[str, Any]

#: Seconds between two readings of what costs more than the status.
_SLOW_INTERVAL = 5.0
_DIFFERENCES = 20
_LONGEST_VALUE = 64 * 1024  # bytes; a larger value is not shown
_LONGEST_TEXT = 4_000  # characters
_VERSION = version("towpath")
#: What the command line has by default.
_OPTIONS = CutoverOptions(10.0, 86_400.0, 500_000, False, False, None, None, 120.0, 30.0)


@dataclass(frozen=True, slots=True)
class Known:
    """What the supervisor reads anyway; None while it has not."""

    context: VerdictContext | None
    ddl: list[dict[str, Any]]
    log: dict[str, Any] | None
    supervisor: dict[str, Any]


@dataclass(slots=True)
class Reporter:
    session: Session
    _last: dict[str, Any] = field(default_factory=dict)
    """The last report whose look did not fail."""
    _slow: dict[str, Any] = field(default_factory=lambda: dict(_NO_SLOW))
    """What is read less often, as of the last reading that succeeded."""
    _slow_failures: list[Exception] = field(default_factory=list)
    """Of that reading; kept, so that lasting trouble is in each report."""
    _slow_at: float = float("-inf")
    _hurried: bool = False
    _context: VerdictContext | None = None
    _verified: Verified = field(default_factory=Verified)
    _files: tuple[float, ...] = ()
    """When the files of the verdicts were written."""
    _applied: list[tuple[float, int]] = field(default_factory=list)
    """Times, and the records that the sink had applied by then."""
    _failed: int = 0

    def report(self, status: Status, began: float, known: Known | None = None) -> Report:
        """The report of a status that was read since `began` (`time.monotonic`)."""
        failures: list[Exception] = []
        hurried, self._hurried = self._hurried, False
        due = hurried or time.monotonic() - self._slow_at >= _SLOW_INTERVAL
        due = due and status.has_both_sides  # else each part would wait for that side
        if due:
            self._slow_failures = []
            for read in self._slow_parts(status, supervised=known is not None):
                self._slow |= _part(read, self._slow_failures)
            self._slow_at = time.monotonic()
        if known is not None:
            self._slow |= {"ddl": known.ddl, "log": known.log}
        verdicts = _NO_VERDICTS | _part(lambda: self._verdicts(status, known, due=due, hurried=hurried), failures)
        failures += self._slow_failures
        checks = gate.known(self.session, _OPTIONS, status, verdicts.get("verified") or Verified())
        figures = status.as_json()
        if figures["cutover"]:
            del figures["cutover"]["token"]
        changes = self._last.get("schema_changes", [])  # they stay while the destination is down
        if status.changes is not None:
            changes = status.changes.as_json(self.session.file)
        letters = status.dead_letters
        self._last = {
            **self._identity(),
            **figures,
            "trouble": list(dict.fromkeys([*figures["trouble"], *map(str, failures)])),
            "errors": [*figures["errors"], *map(fields, failures)],
            **self._slow,
            "oplog": _remaining(self._slow["oplog"], status.uncaptured_seconds),
            "schema_changes": changes,
            **{name: verdicts[name] for name in _NO_VERDICTS},
            "at": round(time.time(), 3),
            "look_seconds": round(time.monotonic() - began, 3),
            "sink_records_per_second": self._rate(status),
            "dead_letter_examples": [_example(letter) for letter in letters.examples] if letters else [],
            "checks": [asdict(check) for check in checks],
            "supervisor": known.supervisor if known else None,
        }
        return self._last

    def nothing(self) -> Report:
        """The report before the first look."""
        return {"at": None, **self._identity(), "state": "unknown", "trouble": [], "errors": []}

    def failure(self, error: Exception | str) -> Report:
        """The report of a look that failed: the last figures, as of an unknown state."""
        self._failed += 1
        data = fields(error) if isinstance(error, Exception) else fields(TowpathError(error))
        return {
            "at": None,
            **self._last,
            **self._identity(),
            "state": "unknown",
            "trouble": [str(error)],
            "errors": [data],
        }

    def hurry(self) -> None:
        """Read everything at the next look, from any thread: a command has changed something."""
        self._hurried = True

    def _identity(self) -> dict[str, Any]:
        pipeline = self.session.pipeline
        return {
            "name": pipeline.name,
            "mode": pipeline.mode,
            "file": str(self.session.file),
            "version": _VERSION,
            "source": without_credentials(pipeline.source.uri),
            "destination": without_credentials(pipeline.destination.uri),
            "compaction_lag_seconds": pipeline.log.compaction_lag / 1000 if pipeline.log.compact else None,
            "looks_failed": self._failed,
        }

    def _slow_parts(self, status: Status, *, supervised: bool) -> Iterator[Callable[[], dict[str, Any]]]:
        session = self.session
        yield lambda: replay_states.report(session).as_json()
        yield lambda: {"oplog": self._oplog()}
        if not supervised:
            yield lambda: {"ddl": unreplicated.as_json(session, status.ddl)}
            yield lambda: {"log": log_figures.report(session, status.ends).as_json()}

    def _verdicts(self, status: Status, known: Known | None, *, due: bool, hurried: bool) -> dict[str, Any]:
        name = self.session.pipeline.name
        files = tuple(map(_written, _verdict_files(name)))
        changed = hurried or files != self._files
        if known is not None and known.context is not None and not changed:
            self._context = known.context
        elif self._context is None or due or changed:  # else a new verdict would not be the stored one
            self._context = VerdictContext.read(self.session, status.topic_ids)
        if due or changed:  # it reads the whole file
            self._verified = Verified.of(name, self._context)
        if changed:
            self._slow["differences"] = list(islice(_differences(name, self._verified), _DIFFERENCES))
            self._files = files
        return {**self._verified.as_json(), "verified": self._verified}

    def _oplog(self) -> dict[str, Any] | None:
        with self.session.source.briefly() as client:
            oplog = oplogs.read(client)
        if oplog is None:
            return None
        return {"window_seconds": round(oplog.hours * 3600), "estimated": not oplog.full}

    def _rate(self, status: Status) -> float | None:
        """Records applied a second, over `RATE_WINDOW`; None where the sink keeps no count."""
        if not status.tasks:
            return None
        now = time.monotonic()
        self._applied = [(at, count) for at, count in self._applied if now - at <= 2 * RATE_WINDOW]
        self._applied.append((now, status.sink.records))
        at, count = next(((at, count) for at, count in self._applied if now - at <= RATE_WINDOW), self._applied[0])
        return round(max(0, status.sink.records - count) / (now - at), 1) if now > at else 0.0


def _part(read: Callable[[], dict[str, Any]], failures: list[Exception]) -> dict[str, Any]:
    """What is read; nothing if it fails."""
    try:
        return read()
    except ERRORS as error:
        failures.append(error)
        return {}


def _remaining(oplog: dict[str, Any] | None, uncaptured: float | None) -> dict[str, Any] | None:
    if oplog is None or uncaptured is None:
        return None
    return oplog | {"remaining_seconds": max(0, oplog["window_seconds"] - round(uncaptured))}


_NO_VERDICTS = Verified().as_json()
_NO_SLOW: dict[str, Any] = {
    "replays": [],
    "rebuild": None,
    "rebuild_trouble": "",
    "oplog": None,
    "ddl": [],
    "log": None,
}


def _verdict_files(name: str) -> tuple[Path, ...]:
    return verdict_file.path(name), verdict_file.full_path(name), verdict_file.followed_path(name)


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime_ns / 1e9
    except OSError:
        return 0.0


def _differences(name: str, verified: Verified) -> Iterator[dict[str, Any]]:
    """The differences of the last verdict that counts and of `verify --follow`."""
    last, _, followed = _verdict_files(name)
    for file, counts in ((last, verified.last is not None), (followed, verified.following is not None)):
        if counts and file.exists():
            for difference in verdict_file.read(file):
                event = difference.as_json()
                yield {key: event[key] for key in ("namespace", "destination_namespace", "id", "id_bson", "kind")} | {
                    "paths": [[_short(text) for text in path] for path in difference.paths]
                }


def _example(letter: DeadLetter) -> dict[str, Any]:
    shown = letter.as_json(canonical=False) if len(letter.value or b"") <= _LONGEST_VALUE else None
    topic, partition, offset = letter.place
    return {
        "namespace": letter.namespace,
        "code": letter.code,
        "reason": _short(letter.reason),
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "op": shown and shown["op"],
        "key": _short(shown["key"]) if shown else None,
        "value": _short(shown["value"]) if shown else f"{len(letter.value or b''):,} bytes",
    }


def _short(text: Any) -> Any:
    if text is None or (isinstance(text, str) and len(text) <= _LONGEST_TEXT):
        return text
    words = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return words if len(words) <= _LONGEST_TEXT else f"{words[:_LONGEST_TEXT]}…"
