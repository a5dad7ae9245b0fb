"""The destination: who it is, what the user may write, what the namespaces that are written to already are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pymongo import MongoClient
from pymongo.uri_parser import parse_uri

from towpath.bookkeeping.positions import DATABASE, OFFSETS, TASKS
from towpath.deploy.inventory import refuse_targets
from towpath.errors import Refused, TowpathError
from towpath.finding import Finding, error, ok, refusal, warning
from towpath.mongo.client import Collection, collections, connected, destination_set
from towpath.mongo.privileges import DESTINATION_ACTIONS, DESTINATION_LOOKS, POSITION_ACTIONS, Privileges, privileges
from towpath.pipeline import Pipeline
from towpath.preflight.cluster import Known, Seen, compatibility, seen, topology
from towpath.text import counted

SIDE = "destination"
_SHOWN = 3


def check(pipeline: Pipeline, known: Known, *, deployed: bool) -> Iterator[Finding]:
    """All findings about the destination; `deployed` when the pipeline may have written there already."""
    try:
        with connected(pipeline.destination_uri, SIDE) as client:
            found = known.destination = seen(client, destination_set(client, transactions=pipeline.exactly_once))
            yield from _beside(pipeline, known, found)
            targets = sorted({pipeline.renames.destination(name) for name in known.namespaces})
            mine = privileges(client)
            yield from rules(client, pipeline, found, mine, targets)
            if mine is None:
                yield ok(SIDE, "no user is authenticated, so the server must be without access control")
            if is_seen(mine, targets):
                yield from _targets(client, targets, pipeline, deployed=deployed)
    except TowpathError as failure:
        yield refusal(SIDE, failure)


def rules(
    client: MongoClient[dict[str, Any]], pipeline: Pipeline, found: Seen, mine: Privileges | None, targets: list[str]
) -> Iterator[Finding]:
    """What has to hold of the servers and of the user, who may `mine`; None without access control."""
    yield from topology(found, SIDE, pipeline.destination_uri)
    yield from compatibility(client, SIDE, found)
    if mine is not None:
        yield from _writes(mine, targets)
        yield from _positions(mine, pipeline)
        yield from _validation(mine, pipeline)


def is_seen(mine: Privileges | None, targets: list[str]) -> bool:
    """Whether the user may look at what is written to."""
    return mine is None or not _blind(mine, targets)


def there(client: MongoClient[dict[str, Any]], targets: list[str]) -> list[Collection]:
    """What there is of the targets."""
    found = collections(client, {name.partition(".")[0] for name in targets})
    return [one for one in found if one.namespace in targets]


def _beside(pipeline: Pipeline, known: Known, found: Seen) -> Iterator[Finding]:
    """Both sides compared."""
    if known.source is None:
        return
    if found.version[0] < known.source.version[0]:
        yield warning(
            SIDE,
            f"is MongoDB {found.version[0]}, older than the source's {known.source.version[0]}: it may refuse documents"
            " or updates that the source accepts",
            f"upgrade the destination to MongoDB {known.source.version[0]}",
        )
    same = known.source.replica_set.is_same(found.replica_set)
    try:
        refuse_targets(pipeline, known.namespaces, same_set=same)
    except Refused as refused:
        yield refusal(SIDE, refused)
    if same:
        yield warning(
            SIDE,
            "is the same replica set as the source: its oplog gets every change twice",
            "make sure that this is intended; for a second cluster set another [destination] uri",
        )


def _writes(mine: Privileges, targets: list[str]) -> Iterator[Finding]:
    lacking = {name: missing for name in targets if (missing := mine.missing(DESTINATION_ACTIONS, name))}
    databases = sorted({name.partition(".")[0] for name in lacking})
    roles = ", ".join(f'{{role: "readWrite", db: "{database}"}}' for database in databases)
    user, _, database = mine.user.partition("@")
    if lacking:
        name, missing = next(iter(lacking.items()))
        yield error(
            SIDE,
            f"the user {mine.user} may not {', '.join(missing)} in {name}"
            + (f" and {len(lacking) - 1} more namespaces" if len(lacking) > 1 else ""),
            f'db.getSiblingDB("{database}").grantRolesToUser("{user}", [{roles}])',
        )
    elif targets:
        yield ok(SIDE, f"the user {mine.user} may {', '.join(DESTINATION_ACTIONS)} in all target namespaces")
    blind = _blind(mine, targets)
    if blind and not lacking:
        name, missing = next(iter(blind.items()))
        yield warning(
            SIDE,
            f"the user {mine.user} may not {', '.join(missing)} in {name}: its contents cannot be checked or compared",
            f'grant it the role "readWrite" on {name.partition(".")[0]}, which includes these actions',
        )


def _positions(mine: Privileges, pipeline: Pipeline) -> Iterator[Finding]:
    """Where the exactly-once sink keeps its positions, in the transactions of what they are positions of."""
    if not pipeline.exactly_once:
        return
    places = [f"{DATABASE}.{name}" for name in (OFFSETS, TASKS)]
    missing = dict.fromkeys(action for place in places for action in mine.missing(POSITION_ACTIONS, place))
    user, _, database = mine.user.partition("@")
    if missing:
        yield error(
            SIDE,
            f"the user {mine.user} may not {', '.join(missing)} in {' and '.join(places)}, where the sink keeps its"
            " positions",
            f'db.getSiblingDB("{database}").grantRolesToUser("{user}", [{{role: "readWrite", db: "{DATABASE}"}}]),'
            ' or set mode = "plain"',
        )
    else:
        yield ok(SIDE, f"the user {mine.user} may {', '.join(POSITION_ACTIONS)} in {' and '.join(places)}")


def _blind(mine: Privileges, targets: list[str]) -> dict[str, list[str]]:
    return {name: missing for name in targets if (missing := mine.missing(DESTINATION_LOOKS, name))}


def _validation(mine: Privileges, pipeline: Pipeline) -> Iterator[Finding]:
    """mongo-kafka's own look at the privileges, which does not follow the namespaces."""
    source = parse_uri(pipeline.destination_uri)["options"].get("authsource") or mine.user.partition("@")[2]
    missing = mine.missing_for_mongo_kafka(pipeline.database, str(source))
    if missing:
        user, _, database = mine.user.partition("@")
        yield error(
            SIDE,
            f"the sink connector's own validation would report {', '.join(missing)} missing for {mine.user}: it checks"
            f" the database {pipeline.database!r} (that of the first included namespace), the user's database"
            f" {source!r}, and grants on all databases, but not the target namespaces",
            f'db.getSiblingDB("{database}").grantRolesToUser("{user}",'
            f' [{{role: "readWrite", db: "{pipeline.database}"}}])',
        )


def _targets(
    client: MongoClient[dict[str, Any]], targets: list[str], pipeline: Pipeline, *, deployed: bool
) -> Iterator[Finding]:
    found = {collection.namespace: collection for collection in there(client, targets)}
    for name in targets:
        if name in found:
            yield from target(client, found[name], pipeline, deployed=deployed)
    new = [name for name in targets if name not in found]
    if new:
        more = f" and {len(new) - _SHOWN} more" if len(new) > _SHOWN else ""
        yield ok(SIDE, f"the first document would create {', '.join(new[:_SHOWN])}{more}")


def target(
    client: MongoClient[dict[str, Any]], collection: Collection, pipeline: Pipeline, *, deployed: bool
) -> Iterator[Finding]:
    """What speaks against writing to it. `deployed` when its documents may be the pipeline's own."""
    yield from target_rules(collection, pipeline)
    if collection.kind != "collection":
        return
    subject = f"destination {collection.namespace}"
    database, name = collection.namespace.split(".", 1)
    yield from _contents(subject, client[database][name].estimated_document_count(), deployed=deployed)
    yield from _options(collection, pipeline)
    for index in client[database][name].list_indexes():
        yield from _index(subject, dict(index), _refused(pipeline))


def target_rules(collection: Collection, pipeline: Pipeline) -> Iterator[Finding]:
    """What must not be there."""
    subject = f"destination {collection.namespace}"
    if collection.kind != "collection":
        yield error(
            subject,
            f"is a {collection.kind}, which cannot hold the replicated documents",
            "drop it, or choose another namespace with [collections.rename]",
        )
    elif "collation" in collection.options and pipeline.partitions > 1:
        yield error(
            subject,
            "has a default collation, which can treat two _ids with different bytes as equal: one document would"
            " overwrite the other",
            "create the collection without a collation, or set [kafka] partitions = 1 if the source has the same"
            " collation",
        )


def _refused(pipeline: Pipeline) -> str:
    if pipeline.exactly_once:
        return "a document that it refuses becomes a dead letter"
    return "a document that it refuses stops the sink"


def _contents(subject: str, count: int, *, deployed: bool) -> Iterator[Finding]:
    if not count:
        yield ok(subject, "exists and is empty")
    elif deployed:
        yield ok(subject, f"holds about {counted(count, 'document')}; the pipeline is deployed")
    else:
        yield warning(
            subject,
            f"holds about {counted(count, 'document')} already: documents whose _id is at the source are overwritten,"
            " the others stay, so the two sides differ",
            "empty the collection before the first deploy, unless these documents belong there",
        )


def _options(collection: Collection, pipeline: Pipeline) -> Iterator[Finding]:
    subject, options = f"destination {collection.namespace}", collection.options
    database, name = collection.namespace.split(".", 1)
    if "validator" in options and options.get("validationAction", "error") == "error":
        yield warning(
            subject,
            f"has a validator, which may refuse what the source accepted: {_refused(pipeline)}",
            f'in {database}: db.runCommand({{collMod: "{name}", validationLevel: "off"}}) while the pipeline runs',
        )
    if options.get("capped"):
        yield warning(
            subject,
            "is capped: it removes documents by itself, and then the two sides differ",
            "keep it only if the source's collection is capped too; else drop it and let the sink create it",
        )


def _index(subject: str, index: dict[str, Any], refused: str) -> Iterator[Finding]:
    name = index["name"]
    if index.get("unique"):
        yield warning(
            subject,
            f"has the unique index {name!r}: order across documents is not kept, so a value that moves from one"
            f" document to another can exist twice for a short time: {refused}",
            "create unique indexes after the migration, when nothing is replicated any more",
        )
    if "expireAfterSeconds" in index:
        yield warning(
            subject,
            f"has the TTL index {name!r}: it deletes by the destination's clock, in addition to the source's deletes",
            "leave deletes to the source, whose deletes are replicated; create TTL indexes after the migration",
        )
