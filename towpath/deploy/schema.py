"""The schema of the destination: collections with their options, views and indexes; compared, planned, and changed.

Documents are replicated under a relaxed schema (`towpath_verifier.metadata`); a cutover restores the source's. Both
sides can be compared with few privileges.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Self

import pymongo
from bson.json_util import CANONICAL_JSON_OPTIONS, RELAXED_JSON_OPTIONS, dumps, loads
from pymongo.errors import OperationFailure

from towpath.clients.mongo.client import ANSWER_S, Client, Cluster, ClusterTime
from towpath.clients.mongo.privileges import if_allowed
from towpath.clients.mongo.replica_set import Collection, collections, operation_time
from towpath.config.pipeline import Pipeline
from towpath.errors import MongoError, Refused, TowpathError
from towpath.log.field_rules import pair_of
from towpath.session import Session
from towpath.store import cutover as cutovers
from towpath.store import source_schema
from towpath.store.positions import DATABASE
from towpath.store.source_schema import SourceSchema
from towpath.threads import begin
from towpath_verifier import (
    AS_IT_IS,
    RELAXED,
    RELAXED_IN_PLACE,
    Command,
    Described,
    MetadataDifference,
    Pair,
    Schemas,
    described,
    feature_version,
    omitted,
)

_UNAUTHORISED, _NOT_UNIQUE = 13, 359  # CannotConvertIndexToUnique in MongoDB's error_codes.yml
_GONE = (26, 27)  # NamespaceNotFound, IndexNotFound
_ROLE = "grant the role dbAdmin on its database, or the privileges in docs/how-to/replicate.md"
_SHOWN = 5  # duplicate values in a message, and documents with each value
_POLL_S = 0.5
#: Quick commands that the server runs at the same time, at most; each waits for a majority.
AT_ONCE = 8
#: Collections whose indexes are built at the same time, as many as a server builds (`maxNumActiveUserIndexBuilds`).
_BUILDS = 3
_END_S = 2.0  # seconds in which a command that was sent without a limit ends, after an interrupt

#: Called with (done, total, description of the work).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Listing:
    """The collections and views of a pipeline on both sides, by their names at the source."""

    pipeline: Pipeline
    source: Mapping[str, Collection]
    destination: Mapping[str, Collection]

    @classmethod
    def read(cls, session: Session, source: Iterable[Collection] | None = None) -> Self:
        """`source`: the collections and views there, if they are known already. Raises `MongoError`."""
        if source is None:
            with session.source.connected(answer=ANSWER_S) as client:
                ours = at_source(client, session.pipeline)
        else:
            ours = {entry.namespace: entry for entry in source}
        with session.destination.connected(answer=ANSWER_S) as client:
            return cls(session.pipeline, ours, at_destination(client, session.pipeline))

    def pairs(self, only: Sequence[str] = (), *, views: bool = False) -> list[Pair]:
        """Every namespace that exists at either side, with its name at the destination.

        `only` holds patterns of source namespaces; empty means all. Views are not replicated, and are included only
        with `views`. Raises `Refused` when there are none.
        """
        pipeline = self.pipeline
        matches = replace(pipeline.selection, only=tuple(only)).matches
        entries = (*self.source.items(), *self.destination.items())
        names = {name for name, entry in entries if (views or entry.kind != "view") and matches(name)}
        if not names:
            patterns = ", ".join(only) or ", ".join(pipeline.collections.include)
            raise Refused(f"neither side has a collection of the pipeline {pipeline.name} that matches {patterns}")
        return [pair_of(pipeline, name) for name in sorted(names)]


def at_source(client: Client, pipeline: Pipeline) -> dict[str, Collection]:
    """The pipeline's collections and views at the source, by name."""
    return {entry.namespace: entry for entry in collections(client) if pipeline.selection.matches(entry.namespace)}


def at_destination(client: Client, pipeline: Pipeline) -> dict[str, Collection]:
    """The pipeline's collections and views at the destination, by their source names."""
    # the user may lack the privilege to list the collections of the bookkeeping database
    databases = [name for name in client.list_database_names() if name != DATABASE]
    old_names = {new: old for old, new in pipeline.collections.rename.items()}
    named = [(old_names.get(entry.namespace, entry.namespace), entry) for entry in collections(client, databases)]
    return {
        name: entry
        for name, entry in named
        if pipeline.selection.matches(name) and pipeline.renamed(name) == entry.namespace
    }


def schemas(session: Session, compared: Sequence[Pair]) -> Schemas:
    """What both servers say of these pairs, at about the same time. Raises `MongoError`."""
    with session.source.connected(answer=ANSWER_S) as client:
        ours = described(client, [pair.source for pair in compared])
    with session.destination.connected(answer=ANSWER_S) as client:
        theirs = described(client, [pair.destination for pair in compared])
        return Schemas(tuple(compared), ours, theirs, feature_version(client))


def remember(session: Session, source: Mapping[str, Described], at: ClusterTime) -> None:
    """Store the source's schema at the destination for a takeover, if the user may write there.

    `source`: all collections and views, as read after `time_to_remember` has returned `at`. Nothing is stored from a
    cutover on, in which the source has another schema. Raises `MongoError`.
    """
    if cutovers.known(session) is None:
        remember_for_cutover(session, source, at)


def remember_for_cutover(session: Session, source: Mapping[str, Described], at: ClusterTime) -> None:
    """As `remember`, by a cutover that has begun, and before it changes the source's schema.

    So what another command has read since is older than what is stored, even if the cutover is undone by then.
    """
    schema = {namespace: described.ready for namespace, described in source.items()}
    with session.destination.connected(answer=ANSWER_S) as client:
        if_allowed(lambda: source_schema.store(client, session.pipeline, SourceSchema(at, schema)))


def time_to_remember(session: Session) -> ClusterTime | None:
    """The source's time, before its schema is read for `remember`. Raises `MongoError`.

    None where it is not stored: during a cutover and after it, and for a standalone, which has no time.
    """
    with session.source.connected(answer=ANSWER_S) as client:
        now = operation_time(client) if "setName" in client.admin.command("hello") else None
    return now if cutovers.known(session) is None else None  # in this order: one that begins later has a later time


def described_at_source(session: Session, namespaces: Iterable[str]) -> dict[str, Described] | None:
    """What the source says of these; None for a user who may not list indexes. Raises `MongoError`."""
    with session.source.connected(answer=ANSWER_S) as client:
        return if_allowed(lambda: described(client, namespaces))


def remembered(session: Session) -> tuple[Schemas, ClusterTime] | None:
    """As `schemas` of all collections, with the source's schema as it was at the returned time, without asking it.

    None where nothing is stored. Raises `MongoError`.
    """
    pipeline = session.pipeline
    with session.destination.connected(answer=ANSWER_S) as client:
        stored = source_schema.read(client, pipeline)
        if stored is None:
            return None
        names = stored.collections.keys() | at_destination(client, pipeline).keys()
        pairs = tuple(pair_of(pipeline, name) for name in sorted(names) if pipeline.selection.matches(name))
        theirs = described(client, [pair.destination for pair in pairs])
        return Schemas(pairs, stored.collections, theirs, feature_version(client)), stored.time


@dataclass(frozen=True, slots=True)
class Metadata:
    """Differences of options, views and indexes.

    `deferred` are intended until the cutover (`towpath prepare`), or until an index is converted to unique after it.
    """

    differences: Sequence[MetadataDifference]
    deferred: Sequence[MetadataDifference]
    both: Schemas | None = None
    """What was compared."""

    @property
    def without_commands(self) -> Metadata:
        """For a destination that must not be made equal to the source."""
        return replace(self, differences=[replace(one, commands=()) for one in self.differences])


def metadata(session: Session, only: Sequence[str], listing: Listing | None = None) -> Metadata:
    """Compare options, views and indexes, of the namespaces that match one of `only`, if given.

    `listing`: if it is known already. Raises `TowpathError` when a side cannot be read.
    """
    listing = listing or Listing.read(session)
    try:
        return compared(schemas(session, listing.pairs(only, views=True)))
    except MongoError as error:
        raise TowpathError(
            f"{error}. Options, views and indexes are compared with listCollections and listIndexes;"
            " --no-metadata leaves them out"
        ) from error


def compared(both: Schemas, found: Iterable[MetadataDifference] | None = None) -> Metadata:
    """The differences, all or those found, divided: those of the relaxed schema, in one of its forms, are deferred."""

    def subject(difference: MetadataDifference) -> tuple[Pair, str, str]:
        return difference.pair, difference.kind, difference.name

    relaxed, in_place = (set(map(subject, both.differences(form))) for form in (RELAXED, RELAXED_IN_PLACE))
    lasting, differences = relaxed & in_place, list[MetadataDifference]()
    deferred = list[MetadataDifference]()
    for difference in both.differences() if found is None else found:
        is_deferred = subject(difference) not in lasting or difference.awaits_conversion
        (deferred if is_deferred else differences).append(difference)
    return Metadata(differences, deferred, both)


def restoring(both: Schemas) -> tuple[Step, ...]:
    """The commands that end the relaxed schema, and nothing else. They make no collection capped: see `Step.caps`."""
    return tuple(step for step in planned(both, final=True, found=compared(both).deferred).steps if not step.caps)


def relaxing(both: Schemas, restored: AbstractSet[str] | None) -> tuple[Step, ...]:
    """The commands that relax these namespaces of the destination again, or all. What only it has stays."""
    found = [one for one in both.differences(RELAXED) if one.source is not None]
    if restored is not None:
        found = [one for one in found if one.pair.destination in restored]
    return planned(both, overwrite=True, found=found).steps


@dataclass(frozen=True, slots=True)
class Step:
    """One command for a namespace of the destination."""

    namespace: str
    command: Command

    @property
    def builds(self) -> tuple[str, ...]:
        """The names of the indexes that it builds."""
        return tuple(index["name"] for index in self.build_specs)

    @property
    def build_specs(self) -> Sequence[Mapping[str, Any]]:
        return tuple(self.command.body.get("indexes", ()))

    @property
    def drops(self) -> bool:
        """Whether it drops an index."""
        return "dropIndexes" in self.command.body

    @property
    def change(self) -> Mapping[str, Any]:
        """`name` of an index and the options of it that `collMod` changes in place; empty for other commands."""
        index: Mapping[str, Any] = self.command.body.get("index", {}) if "collMod" in self.command.body else {}
        return index

    @property
    def caps(self) -> bool:
        """Whether it copies a collection into a capped one: its whole database waits, and nothing can undo it."""
        return "convertToCapped" in self.command.body

    @property
    def takes_time(self) -> bool:
        """Whether it reads all documents or a whole index."""
        return bool(self.builds) or self.converts or self.caps

    @property
    def converts(self) -> bool:
        """Whether it makes an index unique that is `prepareUnique` by then, and so refuses new duplicates already."""
        return "unique" in self.change

    @property
    def enforces(self) -> bool:
        """Whether it makes an index refuse new duplicates that did not do so before."""
        return bool(self.change.get("prepareUnique"))

    @property
    def expires(self) -> bool:
        """Whether it gives an index, or a clustered collection, a TTL in place, by which the server then deletes."""
        changed = self.change or (self.command.body if "collMod" in self.command.body else {})
        return bool(changed.get("expireAfterSeconds", "off") != "off")

    @property
    def is_quick(self) -> bool:
        """Whether it takes the same time whatever the collection holds. The drop of an index comes with its build."""
        return not (self.takes_time or self.drops)

    @property
    def rank(self) -> int:
        """Its place: 0 for collections; then indexes, fast changes first. One is dropped just before it is built."""
        if self.change:
            return 3 if self.converts else 1 if "prepareUnique" not in self.change else 2
        return 5 if self.builds else 4 if self.drops else 0

    @property
    def description(self) -> str:
        if self.builds:
            return f"build {', '.join(self.builds)} on {self.namespace}"
        if "unique" in self.change:
            return f"convert {self.change['name']} on {self.namespace} to unique: reads the index"
        if self.change:
            changes = ", ".join(f"{name} {dumps(value)}" for name, value in self.change.items() if name != "name")
            return f"change {self.change['name']} on {self.namespace}: {changes}"
        return f"{next(iter(self.command.body))} {self.namespace}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to create or change, what differs and stays, and what is deferred until the cutover."""

    collections: tuple[Step, ...] = ()
    """Create collections and views, or change their options."""
    indexes: tuple[Step, ...] = ()
    different: tuple[MetadataDifference, ...] = ()
    """Differences that stay."""
    deferred: tuple[tuple[str, str], ...] = ()
    """(namespace at the destination, description)"""
    unexplained: tuple[MetadataDifference, ...] = ()
    """Differences that replication does not explain; only in a final plan."""
    undo: tuple[Step, ...] = ()
    """The steps that undo `steps`; only in a plan in place."""
    both: Schemas | None = None
    """What it was made from, if both sides were read for it."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.collections, *self.indexes)

    @property
    def capped(self) -> str:
        """The collections that it makes capped; empty if none."""
        return ", ".join(step.namespace for step in self.steps if step.caps)

    def as_json(self) -> dict[str, Any]:
        return {
            "steps": [
                {"namespace": step.namespace, "command": step.command.text, "takes_time": step.takes_time}
                for step in self.steps
            ],
            "different": [difference.as_json() for difference in self.different],
            "deferred": [{"namespace": namespace, "what": description} for namespace, description in self.deferred],
            "undo": [{"namespace": step.namespace, "command": step.command.text} for step in self.undo],
        }


def plan(
    session: Session, *, overwrite: bool = False, final: bool = False, source: Iterable[Collection] | None = None
) -> Plan:
    """Compare both sides and plan the steps; nothing is changed.

    `source` as for `Listing.read`, the others as for `planned`. Raises `MongoError`.
    """
    try:
        replicated = Listing.read(session, source).pairs(views=True)
    except Refused:  # no collection yet, as with `deploy --allow-missing`
        return Plan()
    return planned(schemas(session, replicated), overwrite=overwrite, final=final)


def planned(
    both: Schemas,
    *,
    overwrite: bool = False,
    final: bool = False,
    found: Sequence[MetadataDifference] | None = None,
) -> Plan:
    """The steps that resolve the differences.

    Existing objects that differ stay, unless `overwrite`. Even then a collection is never dropped. `final` restores
    the source's schema; the default is the relaxed schema, with which replicated changes do no harm. `found`: the
    differences to resolve, if not all.
    """
    resolved, different = list[MetadataDifference](), list[MetadataDifference]()
    found = both.differences(AS_IT_IS if final else RELAXED) if found is None else found
    for difference in found:
        drops = any("drop" in command.body for command in difference.commands)
        stays = drops or (difference.destination is not None and not (overwrite or final))
        (different if stays else resolved).append(difference)
    steps = sorted(_steps(resolved), key=lambda step: step.rank)
    relaxed = {} if final else both.source
    return Plan(
        collections=tuple(step for step in steps if not step.rank),
        indexes=(
            *(step for step in steps if step.rank and not step.builds),
            *_together(step for step in steps if step.builds),
        ),
        different=tuple(different),
        unexplained=tuple(compared(both, found).differences) if final else (),
        deferred=tuple(
            (pair.destination, description)
            for pair in both.pairs
            if pair.source in relaxed
            for description in omitted(relaxed[pair.source], RELAXED)
        ),
        both=both,
    )


def plan_in_place(session: Session) -> Plan:
    """Stop TTL and validators at an existing destination, such as a former source, and change nothing else.

    Only the namespaces come from the source. Store `undo` before the steps run: it holds the only record of the old
    settings. Raises `Refused` if no collection matches, and `MongoError`.
    """
    targets = tuple(Pair(pair.destination, pair.destination) for pair in Listing.read(session).pairs())
    with session.destination.connected() as client:
        found = described(client, [pair.source for pair in targets])
        before = Schemas(targets, found, found, feature_version(client))
    after = replace(before, destination={name: RELAXED_IN_PLACE.of(collection) for name, collection in found.items()})
    return Plan(
        collections=tuple(_steps(before.differences(RELAXED_IN_PLACE))),
        deferred=tuple(
            (name, text) for name, collection in found.items() for text in omitted(collection, RELAXED_IN_PLACE)
        ),
        undo=tuple(_steps(after.differences(AS_IT_IS))),
    )


def _steps(differences: Iterable[MetadataDifference]) -> list[Step]:
    """The commands in the order of the differences; a command that resolves several of them comes once."""
    steps: dict[str, list[Step]] = {}
    for difference in differences:
        mine = steps.setdefault(difference.pair.destination, [])
        for command in difference.commands:
            step = Step(difference.pair.destination, command)
            if step not in mine:
                mine.append(step)
    return [step for mine in steps.values() for step in mine]


def _together(steps: Iterable[Step]) -> list[Step]:
    """Build all indexes of a collection in one command, for which the server reads its documents only once."""
    merged: dict[str, Step] = {}
    for step in steps:
        first = merged.setdefault(step.namespace, step)
        if first is not step:
            indexes = [*first.command.body["indexes"], *step.command.body["indexes"]]
            command = replace(step.command, body={**step.command.body, "indexes": indexes})
            merged[step.namespace] = replace(step, command=command)
    return list(merged.values())


def apply(
    destination: Cluster,
    steps: Sequence[Step],
    on_step: Callable[[Step], None] = lambda step: None,
    on_progress: Progress = lambda done, total, description: None,
    *,
    within: float | None = None,
) -> None:
    """Run these steps at the destination, those of one collection in their order; several collections at a time.

    `on_step` is called before each, `on_progress` with the builds that run. After `within` seconds, the server ends
    what still runs. Raises `MongoError`, and `TowpathError` with the commands that the destination refuses. Steps that
    are done stay done; a new plan has the rest. An index with duplicates stays as it was, and the others still run.
    """
    undos = [without_enforcement(step) for step in steps if step.enforces]
    duplicates, building = list[str](), dict[str, tuple[int, int]]()

    def run_slow(client: Client, step: Step) -> None:
        def told(done: int, total: int, description: str) -> None:
            building[step.namespace] = done, total
            running = dict(building)
            done, total = (sum(counts) for counts in zip(*running.values(), strict=True))
            on_progress(done, total, description if len(running) == 1 else f"indexes of {', '.join(sorted(running))}")

        on_step(step)
        try:
            run(client, step, told)
        except Duplicates as error:
            at_once(client, (undo for undo in undos if undo == without_enforcement(step)))
            duplicates.append(
                f"{error.what}, and is as it was. `towpath verify` shows whether they are the same at the source, and"
                " `towpath repair` repairs those that are not; change or delete the others, then run this again"
            )
        finally:
            building.pop(step.namespace, None)

    with pymongo.timeout(within), destination.connected() as client:
        for are_quick, group in groupby(steps, lambda step: step.is_quick):
            if are_quick:
                quick = list(group)
                for step in quick:
                    on_step(step)
                at_once(client, quick, within=within)
            else:
                at_once(client, group, run_slow, threads=_BUILDS, within=within)
    if duplicates:
        raise TowpathError("\n".join(duplicates))


class Duplicates(TowpathError):
    """An index cannot become unique: the message names documents with the same value."""


def run(client: Client, step: Step, on_progress: Progress = lambda done, total, description: None) -> None:
    """Run one step. Raises `Duplicates`, and `TowpathError` with the command that the server refuses."""
    try:
        if step.builds:
            build(client, step.command, on_progress)
        else:
            concern = {"writeConcern": {"w": "majority"}}  # a later write must not outlive it
            client[step.command.database].command({**step.command.body, **concern})
    except OperationFailure as error:
        if error.code == _NOT_UNIQUE:
            raise Duplicates(_duplicates(step, error)) from error
        raise TowpathError(_failure(step, error)) from error


def without_enforcement(step: Step) -> Step:
    """The step that undoes `prepareUnique` of the index that this one changes."""
    change = {"name": step.change["name"], "prepareUnique": False}
    return replace(step, command=replace(step.command, body={"collMod": step.command.body["collMod"], "index": change}))


def at_once(
    client: Client,
    steps: Iterable[Step],
    act: Callable[[Client, Step], None] = run,
    *,
    threads: int = AT_ONCE,
    may_be_gone: bool = False,
    within: float | None = None,
) -> None:
    """Run steps at the same time, those of one namespace in their order.

    What the server refuses is raised once all were tried, together; the first other failure ends it. Whatever ends it,
    no command is under way afterwards, unless the server does not answer within `within` seconds, or two: an undo must
    not run beside what it undoes. With `may_be_gone`, what does not exist needs no change.
    """
    by_namespace: dict[str, list[Step]] = {}
    for step in steps:
        by_namespace.setdefault(step.namespace, []).append(step)
    waiting, ends = deque(by_namespace.values()), list[Future[None]]()
    refused: list[TowpathError] = []

    def work() -> None:
        try:
            with suppress(IndexError):  # none is left
                while True:
                    for step in waiting.popleft():
                        try:
                            act(client, step)
                        except TowpathError as error:
                            if not may_be_gone or getattr(error.__cause__, "code", None) not in _GONE:
                                refused.append(error)
        except BaseException:
            waiting.clear()
            raise

    try:
        for number in range(min(threads, len(by_namespace))):
            ends.append(begin(work, f"schema {number}"))
        for end in ends:
            end.result()
    finally:
        waiting.clear()
        _await(ends, within or _END_S)
    if refused:
        more = f"\nand {len(refused) - _SHOWN:,} more" if len(refused) > _SHOWN else ""
        raise TowpathError("\n".join(map(str, refused[:_SHOWN])) + more) from refused[0].__cause__


def _await(ends: Sequence[Future[None]], seconds: float) -> None:
    """Wait for these ends. The alarm of a pause, which repeats, and other signals do not end this."""
    until = time.monotonic() + seconds
    while not all(end.done() for end in ends) and (left := until - time.monotonic()) > 0:
        with suppress(BaseException):
            wait(ends, left)


def as_text(steps: Iterable[Step]) -> str:
    """Steps in Extended JSON, to be stored; `of_text` reads it."""
    return dumps([[step.namespace, step.command.body] for step in steps], json_options=CANONICAL_JSON_OPTIONS)


def of_text(text: str) -> tuple[Step, ...]:
    steps = loads(text, json_options=CANONICAL_JSON_OPTIONS)
    return tuple(Step(namespace, Command(namespace.split(".", 1)[0], body)) for namespace, body in steps)


def _duplicates(step: Step, error: OperationFailure) -> str:
    duplicates = [violation["ids"] for violation in (error.details or {}).get("violations", ())]
    listed = "; ".join(_ids(ids) for ids in duplicates[:_SHOWN])
    more = f"; and {len(duplicates) - _SHOWN:,} more values" if len(duplicates) > _SHOWN else ""
    return (
        f"the index {step.change['name']} of {step.namespace} cannot be unique: the documents with these _ids have the"
        f" same value: {listed}{more}"
    )


def _ids(ids: Sequence[Any]) -> str:
    listed = ", ".join(dumps(id, json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False) for id in ids[:_SHOWN])
    return listed + (f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else "")


def _failure(step: Step, error: OperationFailure) -> str:
    message = (error.details or {}).get("errmsg", str(error))
    advice = f"; {_ROLE}" if error.code == _UNAUTHORISED else ""
    return (
        f"the destination refuses to {step.description}: {message}{advice} ([destination] uri). The command was:"
        f" {step.command.text}"
    )


def build(client: Client, command: Command, on_progress: Progress) -> None:
    """Run one `createIndexes` to its end. Raises `PyMongoError` when the server refuses it.

    By default, a build would wait for every voting member, also for one that is away.
    """
    body = {**command.body, "commitQuorum": "majority"}
    ended = begin(lambda: client[command.database].command(body), "createIndexes")
    while True:
        try:
            ended.result(_POLL_S)
            return
        except TimeoutError:
            name = command.body["createIndexes"]
            on_progress(*build_progress(client, command.database, name), f"indexes of {command.database}.{name}")


def build_progress(client: Client, database: str, name: str) -> tuple[int, int]:
    """How much of the index build on a collection is done, and of how much: 0 of 0 where the server does not say.

    Without the privilege `inprog`, only builds of the same user are known.
    """
    match = {"command.createIndexes": name, "command.$db": database, "progress": {"$exists": True}}
    for scope in ({"allUsers": True}, {}):
        operations = {**scope, "idleConnections": True}  # a build that waits counts as idle
        try:
            builds = list(client.admin.aggregate([{"$currentOp": operations}, {"$match": match}]))
        except OperationFailure:
            continue
        progress: Mapping[str, Any] = builds[0]["progress"] if builds else {}
        return int(progress.get("done", 0)), int(progress.get("total", 0))
    return 0, 0
