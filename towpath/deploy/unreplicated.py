"""Schema changes (DDL) at the source that are not at the destination, with the commands to run.

They are reported until they are resolved: both sides are the same, or the user accepts them (`towpath ddl --accept`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bson.timestamp import Timestamp

from towpath.config.namespaces import Selection
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted
from towpath.deploy.schema import metadata
from towpath.errors import NoSuchConnector, TowpathError
from towpath.log import source_offsets
from towpath.log.barrier import passing
from towpath.log.source_offsets import Ddl, read_state
from towpath.session import Session
from towpath.store import cutover, state_files, verdict_file
from towpath.store.schema_changes import open_changes
from towpath_verifier import MetadataDifference

_DOCUMENTS = (source_offsets.DROP, source_offsets.RENAME, source_offsets.UNSEEN)


def observed(session: Session) -> tuple[Ddl, ...]:
    """All DDL that the source connectors have seen. Raises `ConnectError`."""
    states = [read_state(session.connect, name) for name in session.pipeline.source_connectors]
    return source_offsets.in_order(state.ddl for state in states if state.ddl)


def passed_marks(session: Session) -> tuple[str, ...]:
    """The marks of the DDL whose earlier records have all been applied. Empty if a server does not answer."""
    try:
        return _passed(session, observed(session))
    except TowpathError:
        return ()


def _passed(session: Session, changes: Sequence[Ddl]) -> tuple[str, ...]:
    if not changes:
        return ()
    with passing(session, silent=True) as is_past:
        return tuple(ddl.mark for ddl in changes if is_past(Timestamp(ddl.time.seconds, ddl.time.ordinal)))


def unresolved(session: Session, changes: Iterable[Ddl], *, remember: bool = True) -> tuple[SourceChange, ...]:
    """The changes that are not resolved. With `remember`, the resolved ones are recorded on this machine.

    There are none while the destination is primary, and during a cutover: the source's schema is then what the
    cutover has made of it, and the primary must not follow. Raises `TowpathError` when a side does not answer.
    """
    pipeline, known = session.pipeline, list(changes)
    old = resolved(pipeline.name)
    if all(ddl.mark in old for ddl in known) or cutover.leads(session):
        return ()
    by_verdict = resolved_by_verdict(pipeline, known)
    candidates = [ddl for ddl in known if ddl.mark not in old | by_verdict]
    past = set(_passed(session, candidates))  # before the destination is read
    sides = _sides(session, candidates)
    compared = (compare(pipeline, session.file, ddl, sides) for ddl in candidates)
    unreplicated = tuple(difference for difference in compared if difference is not None)
    waiting = {ddl.mark for ddl in candidates} - past | {difference.mark for difference in unreplicated}
    new = {ddl.mark for ddl in known} - waiting
    if remember and new - old:
        resolve(pipeline.name, new)
    return unreplicated


def gone(session: Session, namespaces: Iterable[str]) -> frozenset[str]:
    """Those of these namespaces whose documents the destination alone may have, as the source dropped or renamed them.

    To re-read such documents is to delete them at the destination, which only a person may want. As long as it is not
    known what the destination has, it may have them. Raises `TowpathError` when the source or Connect does not answer.
    """
    if not (names := frozenset(namespaces)):
        return names
    databases = {name.partition(".")[0] for name in names}
    with session.source.briefly() as client:
        existing = {f"{database}.{name}" for database in databases for name in client[database].list_collection_names()}
    kinds, lacking = (source_offsets.DROP, source_offsets.RENAME), names - existing
    changes = [ddl for ddl in observed(session) if ddl.kind in kinds and not names.isdisjoint(ddl.namespaces)]
    try:
        unreplicated = unresolved(session, changes, remember=False)
        left = {name for change in unreplicated for name in (change.namespace, change.to)}
        return names & (lacking - _at_neither(session, lacking, changes) | left)
    except TowpathError:
        return names & (lacking | {name for ddl in changes for name in ddl.namespaces})


def _at_neither(session: Session, lacking: Iterable[str], changes: Iterable[Ddl]) -> frozenset[str]:
    """Those of these namespaces without documents at the destination, whose sink is past the change that ended them.

    With `[ddl]` that change is in the log, and the destination says whether it is still to be made.
    """
    in_log = session.pipeline.ddl.apply
    of = {name: {ddl.mark: ddl for ddl in changes if name in ddl.namespaces} for name in lacking}
    past = set(_passed(session, [ddl for known in of.values() for ddl in known.values()]))
    names = [name for name, known in of.items() if (known or in_log) and known.keys() <= past]
    if not names:
        return frozenset()
    with session.destination.briefly() as client:
        changing = {change.namespace for change in open_changes(client, session.pipeline)} if in_log else set()
        left = (name for name in names if name not in changing)
        return frozenset(name for name in left if not _has_documents(client, session.pipeline.renamed(name)))


def _has_documents(client: Any, namespace: str) -> bool:
    database, name = namespace.split(".", 1)
    return client[database][name].find_one({}, {"_id": 1}) is not None


def _sides(session: Session, changes: Sequence[Ddl]) -> Sides:
    pipeline = session.pipeline
    names = {name for ddl in changes for name in ddl.namespaces if pipeline.selection.matches(name)}
    with session.source.briefly() as client:
        source = frozenset(name for name in names if _count(client, name) is not None)
    with session.destination.briefly() as client:
        counts = {name: _count(client, pipeline.renamed(name)) for name in names}
        changing = {change.namespace for change in open_changes(client, pipeline)} if pipeline.exactly_once else set()
    destination = {name: count for name, count in counts.items() if count is not None}
    described = [ddl.namespace for ddl in changes if ddl.kind not in _DOCUMENTS]
    existing = [name for name in described if name in source or name in destination]
    differences = metadata(session, existing).differences if existing else ()
    return Sides(source, destination, differences, frozenset(changing))


def _count(client: Any, namespace: str) -> int | None:
    """The estimated number of documents in a collection; None if it does not exist."""
    database, name = namespace.split(".", 1)
    if name not in client[database].list_collection_names(filter={"name": name}):
        return None
    return int(client[database][name].estimated_document_count())


def resolved_by_verdict(pipeline: Pipeline, changes: Iterable[Ddl]) -> set[str]:
    """The marks of the drops and renames that the pipeline had passed when the last verification began, and of whose
    namespaces that compared all and found none to differ.
    """
    place = verdict_file.path(pipeline.name)
    try:
        counts = verdict_file.counts(place)
        passed, only = set(counts.get("ddl") or ()), tuple(counts.get("only") or ())
        if not passed or counts.get("errors") != []:
            return set()
        differing = {difference.namespace for difference in verdict_file.read(place)}
    except TowpathError:  # the file does not exist, or is being written
        return set()
    compared = Selection(only or ("*.*",))

    def is_resolved(ddl: Ddl) -> bool:
        if ddl.kind == source_offsets.UNSEEN:
            return not only and not differing
        replicated = filter(pipeline.selection.matches, ddl.namespaces)
        return all(compared.matches(name) and name not in differing for name in replicated)

    return {ddl.mark for ddl in changes if ddl.mark in passed and ddl.kind in _DOCUMENTS and is_resolved(ddl)}


def _place(name: str) -> Path:
    return state_files.folder(name) / "ddl.json"


def resolved(name: str) -> set[str]:
    """The marks of the resolved DDL. Raises `TowpathError` for a broken file."""
    place = _place(name)
    try:
        return set(json.loads(place.read_text(encoding="utf-8"))["resolved"])
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TowpathError(f"cannot read {place}: {error}", "remove it; then all changes are reported again") from error


def resolve(name: str, marks: Iterable[str]) -> None:
    with state_files.writing(_place(name)) as file:
        file.write(json.dumps({"resolved": sorted(marks)}))


def source_changes(session: Session, changes: Sequence[Ddl]) -> tuple[SourceChange, ...]:
    """The unresolved changes; if a side does not answer, all changes without a comparison."""
    try:
        return unresolved(session, changes)
    except TowpathError:
        return tuple(map(SourceChange.of, changes))


def lines(session: Session, changes: Iterable[Ddl] | None = None) -> Iterator[str]:
    """A line for each unresolved change, of those given or of all observed; or the reason why they are not known."""
    try:
        for difference in unresolved(session, observed(session) if changes is None else changes):
            yield difference.line
    except NoSuchConnector:
        return  # nothing observes DDL
    except TowpathError as error:
        yield f"schema changes at the source cannot be compared: {error}"


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A schema change at the source that is not at the destination, and that no record of the log reports."""

    time: str
    at: str
    kind: str
    namespace: str
    to: str
    words: str | None = None
    """What is to be done; None, like the two below, while a side does not answer."""
    commands: Sequence[str] | None = None
    at_destination: bool | None = None
    """Whether the commands are for mongosh at the destination; else they are Towpath's."""

    @classmethod
    def of(
        cls, ddl: Ddl, words: str | None = None, commands: Sequence[str] | None = None, *, at_destination: bool = False
    ) -> SourceChange:
        named = str(ddl.time), ddl.at.isoformat(), ddl.kind, ddl.namespace, ddl.to
        return cls(*named, words, commands, None if words is None else at_destination)

    @property
    def mark(self) -> str:
        """As of the `Ddl`."""
        return " ".join((self.time, self.kind, self.namespace, self.to)).strip()

    @property
    def line(self) -> str:
        where = " at the destination" if self.at_destination else ""
        return f"source: {self.words}; run{where}: {'; '.join(self.commands or ())}"


@dataclass(frozen=True, slots=True)
class Sides:
    """The state of the namespaces in question on both sides, by the source's names."""

    source: frozenset[str]
    """The namespaces that exist at the source."""
    destination: Mapping[str, int]
    """Namespace that exists at the destination → estimated number of documents."""
    metadata: Sequence[MetadataDifference]
    changing: frozenset[str] = frozenset()
    """Those that schema changes in the log are about which are not made yet."""


def compare(pipeline: Pipeline, file: Path, ddl: Ddl, sides: Sides) -> SourceChange | None:
    """What is left of a schema change to replicate; None if both sides agree."""
    match ddl.kind:
        case source_offsets.UNSEEN:
            lost = f"its history was lost before {ddl.at:%Y-%m-%d %H:%M:%S} UTC: drops and renames may have gone unseen"
            return SourceChange.of(ddl, lost, _commands(file, ("verify", ()), ("repair", ())))
        case source_offsets.DROP:
            described = _drop(ddl, sides)
        case source_offsets.RENAME:
            described = _rename(pipeline, ddl, sides)
        case _:
            is_in_log = pipeline.ddl.apply and ddl.namespace not in sides.source  # what came since is
            return None if is_in_log or ddl.namespace in sides.changing else _definition(ddl, sides)
    if not described:
        return None
    replicated = [name for name in ddl.namespaces if pipeline.selection.matches(name)]
    options = tuple(word for name in replicated for word in ("-n", name))
    first = [("deploy", ())] if ddl.to in replicated else []
    return SourceChange.of(ddl, described, _commands(file, *first, ("verify", options), ("repair", ())))


def _drop(ddl: Ddl, sides: Sides) -> str:
    """Empty while no document of the collection is at the destination."""
    documents = counted(count := sides.destination.get(ddl.namespace, 0), "document")
    if ddl.namespace in sides.source:
        state = f"and exists again; of the {documents} at the destination, some may be from before the drop"
    else:
        state = f"the destination still has {documents}, which `repair` deletes"
    return f"{_event(ddl, 'was dropped')}; {state}" if count else ""


def _rename(pipeline: Pipeline, ddl: Ddl, sides: Sides) -> str:
    """Counts do not show a rename: the new name may have replaced an existing collection, as `$out` does."""
    gone = ddl.namespace not in sides.source and not sides.destination.get(ddl.namespace)
    if gone and not pipeline.selection.matches(ddl.to):
        return ""
    return f"{_event(ddl, f'was renamed to {ddl.to}')}; the log has no record of this"


def _definition(ddl: Ddl, sides: Sides) -> SourceChange | None:
    of_indexes = ddl.kind.endswith("Indexes")  # collMod changes indexes as well
    differences = [
        difference
        for difference in sides.metadata
        if difference.pair.source == ddl.namespace and (difference.kind == "index" or not of_indexes)
    ]
    if not differences:
        return None
    events = {"create": "was created with options", "modify": "was changed by collMod"}
    event = _event(ddl, events.get(ddl.kind, f"had its indexes changed ({ddl.kind})"))
    description = f"{event}; at the destination, {'; '.join(difference.what for difference in differences)}"
    commands = dict.fromkeys(line for difference in differences for line in difference.command.splitlines())
    return SourceChange.of(ddl, description, tuple(commands), at_destination=True)


def _event(ddl: Ddl, event: str) -> str:
    return f"{ddl.namespace} {event} at {ddl.at:%Y-%m-%d %H:%M:%S} UTC"


def _commands(file: Path, *commands: tuple[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(shlex.join(["towpath", name, str(file), *options]) for name, options in commands)
