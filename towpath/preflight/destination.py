"""The destination: who it is, what the user may write, what the namespaces that are written to already are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pymongo.uri_parser import parse_uri

from towpath.bookkeeping.positions import DATABASE, OFFSETS, TASKS
from towpath.deploy import preconditions
from towpath.deploy.inventory import Inventory
from towpath.finding import Finding, Precondition, error, ok, warning
from towpath.mongo.client import Client, Collection
from towpath.mongo.privileges import DESTINATION_ACTIONS, DESTINATION_LOOKS, POSITION_ACTIONS, Privileges
from towpath.pipeline import Pipeline
from towpath.preflight import cluster, connect, source
from towpath.text import counted

SIDE = "destination"
_SHOWN = 3


def servers(i: Inventory) -> Iterator[Finding]:
    yield from cluster.servers(i.destination)


def both(i: Inventory) -> Iterator[Finding]:
    """Both sides compared."""
    if source.SIDE in i.away:
        return
    theirs, ours = i.source.version[0], i.destination.version[0]
    if ours < theirs:
        yield warning(
            SIDE,
            f"is MongoDB {ours}, older than the source's {theirs}: it may refuse documents or updates that the source"
            " accepts",
            f"upgrade the destination to MongoDB {theirs}",
        )
    if source.namespaces(i):
        yield from preconditions.targets(i)
    if i.source.replica_set.is_same(i.destination.replica_set):
        yield warning(
            SIDE,
            "is the same replica set as the source: its oplog gets every change twice",
            "make sure that this is intended; for a second cluster set another [destination] uri",
        )


def privileged(i: Inventory) -> Iterator[Finding]:
    """What the user has to be allowed to do."""
    mine = i.destination.privileges
    if mine is None:
        yield ok(SIDE, "no user is authenticated, so the server must be without access control")
        return
    yield from _writes(mine, _targets(i))
    yield from _positions(mine, i.pipeline)
    yield from _validation(mine, i.pipeline)


def _targets(i: Inventory) -> tuple[str, ...]:
    return i.targets if source.namespaces(i) else ()


def _there(i: Inventory) -> tuple[Collection, ...]:
    """What there is of the targets; nothing where the user may not look at all of them."""
    mine, targets = i.destination.privileges, _targets(i)
    return i.target_collections if targets and (mine is None or not _blind(mine, targets)) else ()


def kinds(i: Inventory) -> Iterator[Finding]:
    """What is there can hold the documents."""
    for collection in _there(i):
        yield from kind(collection, i.pipeline)


def contents(i: Inventory) -> Iterator[Finding]:
    """What is there already, and what of it speaks against writing to it."""
    mine, targets = i.destination.privileges, _targets(i)
    if mine is not None and _blind(mine, targets):
        return
    found = {collection.namespace: collection for collection in _there(i)}
    deployed = connect.SUBJECT not in i.away and i.is_deployed
    for collection in found.values():
        if collection.kind == "collection":
            yield from i.destination.ask(partial(_contents, collection, i.pipeline, deployed))
    new = [name for name in targets if name not in found]
    if new:
        more = f" and {len(new) - _SHOWN} more" if len(new) > _SHOWN else ""
        yield ok(SIDE, f"the first document would create {', '.join(new[:_SHOWN])}{more}")


PRECONDITIONS = (
    Precondition(servers),
    Precondition(both, required=False),
    Precondition(privileged),
    Precondition(kinds),
    Precondition(contents, required=False),
)


def _contents(collection: Collection, pipeline: Pipeline, deployed: bool, client: Client) -> list[Finding]:
    """`deployed`: its documents may be the pipeline's own."""
    subject = f"destination {collection.namespace}"
    database, name = collection.namespace.split(".", 1)
    found = client[database][name]
    return [
        *_documents(subject, found.estimated_document_count(), deployed=deployed),
        *_options(collection, pipeline),
        *(one for index in found.list_indexes() for one in _index(subject, dict(index), _refused(pipeline))),
    ]


def _writes(mine: Privileges, targets: Sequence[str]) -> Iterator[Finding]:
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


def _blind(mine: Privileges, targets: Sequence[str]) -> dict[str, list[str]]:
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


def kind(collection: Collection, pipeline: Pipeline) -> Iterator[Finding]:
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


def _documents(subject: str, count: int, *, deployed: bool) -> Iterator[Finding]:
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
