"""The checks of the destination: its servers, the user's privileges, and what the target namespaces hold already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from pymongo.uri_parser import parse_uri

from towpath.checks import source
from towpath.checks.facts import Facts
from towpath.checks.rule import Finding, Rule, about, error, ok, rules, warning
from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import (
    DDL_DESTINATION_ACTIONS,
    DESTINATION_ACTIONS,
    DESTINATION_LOOKS,
    POSITION_ACTIONS,
    Privileges,
)
from towpath.clients.mongo.replica_set import Collection
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, first_few
from towpath.errors import MongoError, MongoUnreachable, Refused
from towpath.session import Session
from towpath.store.positions import DATABASE, OFFSETS, SCHEMA_CHANGES, TASKS, WRITERS

SIDE = "destination"
_SHOWN = 3


def both(facts: Facts) -> Iterator[Finding]:
    """The two sides go together."""
    theirs, ours = facts.source.version[0], facts.destination.version[0]
    if ours < theirs:
        yield warning(
            f"is MongoDB {ours}, older than the source's {theirs}: it may refuse documents or updates that the source"
            " accepts",
            f"upgrade the destination to MongoDB {theirs}",
        )
    if facts.source.replica_set.is_same(facts.destination.replica_set):
        yield warning(
            "is the same replica set as the source: its oplog gets every change twice",
            "make sure that this is intended; for a second cluster set another [destination] uri",
        )


def targets(facts: Facts) -> Iterator[Finding]:
    """No two namespaces are written to the same one, and nothing that is written is captured again."""
    same_set = facts.source.replica_set.is_same(facts.destination.replica_set)
    sources: dict[str, str] = {}
    for name in facts.namespaces:
        target = facts.pipeline.renamed(name)
        if target in sources:
            collision = f"{sources[target]} and {name} would both be written to {target}"
            yield error(collision, "see [collections.rename]")
        sources[target] = name
        if same_set and facts.pipeline.selection.matches(target):
            yield error(
                f"source and destination are the same replica set, and {name} would be written to {target}, which the"
                " pipeline captures again: each change would circulate forever",
                "name another destination, or rename into a database that [collections] include does not take in",
            )


def privileged(facts: Facts) -> Iterator[Finding]:
    """The user has the required privileges."""
    granted = facts.destination.privileges
    if granted is None:
        yield ok("no user is authenticated, so the server must be without access control")
        return
    yield from _writes(granted, _targets(facts))
    if facts.pipeline.ddl.apply:
        yield from schema_changes(granted, _targets(facts))
    yield from _positions(granted, facts.pipeline)
    yield from _validation(granted, facts.pipeline)


@contextmanager
def missing_privileges_named(session: Session) -> Iterator[None]:
    """Where a cluster refuses to be read, raise `Refused` with what `check` finds missing of its user's privileges."""
    try:
        yield
    except MongoUnreachable:
        raise
    except MongoError as refused:
        facts = Facts(session)
        for cluster, found in ((session.source, source.privileged(facts)), (session.destination, privileged(facts))):
            for finding in found:
                if finding.level != "ok":
                    raise Refused(f"at the {cluster.side}, {finding.finding}", finding.advice) from refused
        raise


def _targets(facts: Facts) -> tuple[str, ...]:
    return facts.targets if source.namespaces(facts) else ()


def _existing(facts: Facts) -> tuple[Collection, ...] | None:
    """The targets that exist; None unless the user may read all of them."""
    granted, targets = facts.destination.privileges, _targets(facts)
    if granted is not None and _lacking(granted, DESTINATION_LOOKS, targets):
        return None
    return facts.target_collections if targets else ()


def _lacking(granted: Privileges, actions: Sequence[str], places: Iterable[str]) -> dict[str, list[str]]:
    """The actions that the user misses, by place."""
    return {place: missing for place in places if (missing := granted.missing(actions, place))}


def kinds(facts: Facts) -> Iterator[Finding]:
    """Every existing target can hold the documents."""
    for collection in _existing(facts) or ():
        yield from kind(collection, facts.pipeline)


def kind(collection: Collection, pipeline: Pipeline) -> Iterator[Finding]:
    subject = f"{SIDE} {collection.namespace}"
    if collection.kind != "collection":
        yield error(
            f"is a {collection.kind}, which cannot hold the replicated documents",
            "drop it, or choose another namespace with [collections.rename]",
            about=subject,
        )
    elif "collation" in collection.options and pipeline.kafka.partitions > 1:
        yield error(
            "has a default collation, which can treat two _ids with different bytes as equal: one document would"
            " overwrite the other",
            "create the collection without a collation, or set [kafka] partitions = 1 if the source has the same"
            " collation",
            about=subject,
        )


def contents(facts: Facts) -> Iterator[Finding]:
    """What the existing targets hold, and options and indexes of theirs that are traps."""
    existing = _existing(facts)
    if existing is None:
        return
    is_deployed = facts.has_connect and facts.is_deployed
    for collection in existing:
        if collection.kind == "collection":
            count, indexes = facts.destination.ask(partial(_contents, collection.namespace))
            found = (_documents(count, is_deployed=is_deployed), *_traps(collection, indexes, facts.pipeline))
            yield from about(f"{SIDE} {collection.namespace}", found)
    names = {collection.namespace for collection in existing}
    new = [name for name in _targets(facts) if name not in names]
    if new:
        yield ok(f"the first document would create {first_few(new, _SHOWN)}")


def _contents(namespace: str, client: Client) -> tuple[int, list[dict[str, Any]]]:
    """About how many documents a collection holds, and its indexes."""
    database, name = namespace.split(".", 1)
    collection = client[database][name]
    return collection.estimated_document_count(), [dict(index) for index in collection.list_indexes()]


def _writes(granted: Privileges, targets: Sequence[str]) -> Iterator[Finding]:
    lacking = _lacking(granted, DESTINATION_ACTIONS, targets)
    databases = sorted({name.partition(".")[0] for name in lacking})
    if lacking:
        name, missing = next(iter(lacking.items()))
        yield error(
            f"the user {granted.user} may not {', '.join(missing)} in {name}"
            + (f" and {len(lacking) - 1} more namespaces" if len(lacking) > 1 else ""),
            granted.grant(("readWrite", database) for database in databases),
        )
    elif targets:
        yield ok(f"the user {granted.user} may {', '.join(DESTINATION_ACTIONS)} in all target namespaces")
    blind = _lacking(granted, DESTINATION_LOOKS, targets)
    if blind and not lacking:
        name, missing = next(iter(blind.items()))
        yield warning(
            f"the user {granted.user} may not {', '.join(missing)} in {name}: its contents cannot be checked or"
            " compared, and `deploy` needs --no-prepare",
            f'grant it the role "readWrite" on {name.partition(".")[0]}, which includes these actions',
        )


def schema_changes(granted: Privileges, targets: Sequence[str]) -> Iterator[Finding]:
    """The sink may make the schema changes of [ddl], also of collections that come later."""
    lacking = _lacking(granted, DDL_DESTINATION_ACTIONS, sorted({f"{name.partition('.')[0]}." for name in targets}))
    if lacking:
        databases, missing = [name.removesuffix(".") for name in lacking], next(iter(lacking.values()))
        yield error(
            f"the user {granted.user} may not {', '.join(missing)} in all of the database {databases[0]}"
            + (f" and {len(lacking) - 1} more" if len(lacking) > 1 else "")
            + ", as [ddl] needs it",
            f"{granted.grant((role, database) for database in databases for role in ('readWrite', 'dbAdmin'))}, or the"
            " privileges in docs/reference/roles.md, or leave [ddl] out",
        )


def _positions(granted: Privileges, pipeline: Pipeline) -> Iterator[Finding]:
    """`deploy` may register the pipeline, and the exactly-once sink write its positions."""
    of_schema = (SCHEMA_CHANGES,) if pipeline.ddl.apply else ()
    of_sink = (OFFSETS, TASKS, *of_schema) if pipeline.exactly_once else ()
    places = [f"{DATABASE}.{name}" for name in (WRITERS, *of_sink)]
    missing = dict.fromkeys(action for place in places for action in granted.missing(POSITION_ACTIONS, place))
    if missing:
        yield error(
            f"the user {granted.user} may not {', '.join(missing)} in {' and '.join(places)}, where Towpath"
            " registers the pipeline and the sink keeps its positions",
            granted.grant([("readWrite", DATABASE)]),
        )
    else:
        yield ok(f"the user {granted.user} may {', '.join(POSITION_ACTIONS)} in {' and '.join(places)}")


def _validation(granted: Privileges, pipeline: Pipeline) -> Iterator[Finding]:
    """mongo-kafka's own validation of the privileges, which ignores the namespaces, succeeds."""
    source = parse_uri(pipeline.destination.uri)["options"].get("authsource") or granted.user.partition("@")[2]
    missing = granted.missing_for_mongo_kafka(pipeline.database, str(source))
    if missing:
        yield error(
            f"the sink connector's own validation would report {', '.join(missing)} missing for {granted.user}: it"
            f" checks the database {pipeline.database!r} (that of the first included namespace), the user's database"
            f" {source!r}, and grants on all databases, but not the target namespaces",
            granted.grant([("readWrite", pipeline.database)]),
        )


def _documents(count: int, *, is_deployed: bool) -> Finding:
    """`is_deployed`: the pipeline may have written them."""
    if not count:
        return ok("exists and is empty")
    if is_deployed:
        return ok(f"holds about {counted(count, 'document')}; the pipeline is deployed")
    return warning(
        f"holds about {counted(count, 'document')} already: documents whose _id is at the source are overwritten, the"
        " others stay, so the two sides differ",
        "empty the collection before the first deploy, unless these documents belong there",
    )


def _traps(collection: Collection, indexes: Iterable[Mapping[str, Any]], pipeline: Pipeline) -> Iterator[Finding]:
    options, (database, name) = collection.options, collection.namespace.split(".", 1)
    refused = f"a document that it refuses {'becomes a dead letter' if pipeline.exactly_once else 'stops the sink'}"
    if "validator" in options and options.get("validationAction") != "warn":  # 8.1 also has errorAndLog
        yield warning(
            f"has a validator, which may refuse what the source accepted: {refused}",
            f'in {database}: db.runCommand({{collMod: "{name}", validationLevel: "off"}}) while the pipeline runs',
        )
    if options.get("capped"):
        yield warning(
            "is capped: no transaction can write to it, and it removes documents automatically",
            "drop it and let `deploy` create it; if the source's is capped, `prepare --final` makes this one capped",
        )
    for index in indexes:
        if index.get("unique"):
            yield warning(
                f"has the unique index {index['name']!r}: order across documents is not kept, so a value that moves"
                f" from one document to another can exist twice for a short time: {refused}",
                "create unique indexes after the migration, when nothing is replicated any more",
            )
        if "expireAfterSeconds" in index:
            yield warning(
                f"has the TTL index {index['name']!r}: it deletes by the destination's clock, in addition to the"
                " source's deletes",
                "leave deletes to the source, whose deletes are replicated; create TTL indexes after the migration",
            )


RULES = (
    *rules(SIDE, lambda facts: source.servers(facts.destination)),
    Rule(SIDE, both, required=False),
    Rule(SIDE, targets, applies=source.listed),
    *rules(SIDE, privileged, kinds),
    Rule(SIDE, contents, required=False),
)
