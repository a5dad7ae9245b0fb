"""The checks of the source: its servers, the user's privileges, the oplog window, and what the collections hold.

Also the check of the servers of either side.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bson import DBRef, decode
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo.errors import ExecutionTimeout, OperationFailure

from towpath.checks import capture, field_rules
from towpath.checks.facts import Configurations, Facts, Side
from towpath.checks.rule import Finding, Rule, about, error, ok, rules, warning
from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import COPY_ACTIONS, DDL_SOURCE_ACTIONS, SOURCE_ACTIONS, if_allowed
from towpath.clients.mongo.replica_set import RAW, Collection, holds_documents, regex_refusal
from towpath.clients.mongo.versions import (
    DISTINCT_PATHS,
    EXPANDED_EVENTS,
    NEWEST,
    OLDEST,
    UNRELIABLE_STREAMS,
    Version,
    series,
    short,
)
from towpath.config.namespaces import topic_of, unmatched
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, first_few
from towpath.log.definitions import DDL, definitions
from towpath.log.field_rules import only_of, rules_for
from towpath.log.source_offsets import SELECTION
from towpath_verifier import brief

SIDE = "source"
_SHOWN = 10  # with more collections, only their number is listed
_DOCUMENTS = 300
_SECONDS = 3.0
_BYTES = 32 * 1024 * 1024
#: The change event of a larger document, which wraps it, may exceed the server's limit of 16 MiB.
LARGE = int(15.9 * 1024 * 1024)
_NAMED = 3
#: The characters and the length that Kafka allows for a topic name (org.apache.kafka.common.internals.Topic).
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: Decodes every document that a server stores.
_LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(
    unicode_decode_error_handler="replace", datetime_conversion=DatetimeConversion.DATETIME_MS
)


def servers(cluster: Side) -> Iterator[Finding]:
    """The servers are supported, and their upgrades are finished."""
    replica_set = cluster.replica_set
    members = counted(len(replica_set.hosts), "member")
    kind = f"replica set {replica_set.name}, {members}" if replica_set.name else "a standalone mongod"
    yield ok(f"{cluster.cluster.address}: {kind}, MongoDB {'.'.join(map(str, cluster.version))}")
    yield from untested(cluster.version)
    if cluster.ask(_shard_identity) is not None:
        yield error(
            "is a shard of a sharded cluster: it has part of the documents, and chunks move in and out of it",
            "name a replica set that is not sharded; sharded clusters are not supported",
        )
    if cluster.compatibility is None:
        yield ok(
            "feature compatibility version: not checked, because the user lacks the privilege getParameter"
            " (role clusterMonitor)",
        )
    else:
        yield compatibility(cluster.compatibility, cluster.version)


def _shard_identity(client: Client) -> object:
    """What a shard has; None for others, and where the user may not read it."""
    return if_allowed(lambda: client.admin["system.version"].find_one({"_id": "shardIdentity"}))


def untested(version: Version) -> Iterator[Finding]:
    """A version that is not tested. `Side.replica_set` raises `Refused` for one that is not supported."""
    number = ".".join(map(str, version))
    if version[:2] > NEWEST:
        yield warning(
            f"MongoDB {number} is newer than all that is known to this version of Towpath",
            "upgrade Towpath, or try everything on a copy of the data first",
        )
    elif version in UNRELIABLE_STREAMS:
        yield warning(
            f"MongoDB {number} reads change streams in a new way, which 9.0.2 disables",
            "upgrade it to 9.0.2 or later first",
        )
    elif series(version).support == "expected":
        yield ok(f"MongoDB {number} is expected to work, and not tested")


def compatibility(text: str, version: Version) -> Finding:
    """Judge the feature compatibility version `text` of servers of this `version`."""
    confirmed = ", confirm: true" if version >= (7, 0) else ""
    command = f'db.adminCommand({{setFeatureCompatibilityVersion: "{short(version)}"{confirmed}}})'
    if tuple(map(int, text.split("."))) < OLDEST:
        return error(
            f"feature compatibility version {text} is not supported: the servers behave as MongoDB {text}",
            f"finish the upgrade: {command}",
        )
    if text != short(version):
        return warning(
            f"feature compatibility version {text} on servers {short(version)}: an upgrade is not finished",
            f"finish it: {command}; or take it into account when you compare both sides",
        )
    return ok(f"feature compatibility version {text}")


def schema_changes(facts: Facts) -> Iterator[Finding]:
    """The source reports schema changes, at least if [ddl] needs them."""
    if (level := facts.source.level) >= EXPANDED_EVENTS:
        return
    found = f"MongoDB {short(level)} does not report schema changes"
    upgrade = f"upgrade the source to MongoDB {short(EXPANDED_EVENTS)} (and its featureCompatibilityVersion)"
    if facts.pipeline.ddl.apply:
        yield error(f"{found}, which [ddl] needs", f"{upgrade}, or remove [ddl]")
    else:
        yield warning(
            f"{found}: `status` will not show drops, renames, indexes and options that change at the source",
            f"{upgrade}; until then, `towpath prepare` and `towpath verify` find them when they run",
        )


def _required(pipeline: Pipeline) -> tuple[str, ...]:
    """The actions that capture needs."""
    of_copy = COPY_ACTIONS if pipeline.copy_method == "towpath" else ()
    return SOURCE_ACTIONS + of_copy + (DDL_SOURCE_ACTIONS if pipeline.ddl.apply else ())


def _missing(facts: Facts) -> list[str]:
    """Those of them that are not granted to the user on all databases."""
    granted = facts.source.privileges
    return granted.missing(_required(facts.pipeline), "") if granted else []


def privileged(facts: Facts) -> Iterator[Finding]:
    """The user has the required privileges."""
    granted, missing = facts.source.privileges, _missing(facts)
    if granted is None:
        yield ok("no user is authenticated, so the server must be without access control")
    elif missing:
        yield error(
            f"the user {granted.user} may not {', '.join(missing)} in every database, but Debezium watches all"
            " databases with one change stream",
            granted.grant([("readAnyDatabase", "admin")]),
        )
    else:
        yield ok(f"the user {granted.user} may {', '.join(_required(facts.pipeline))} in every database")


def listed(facts: Facts) -> bool:
    """Whether the user may list the collections."""
    return not _missing(facts)


def namespaces(facts: Facts) -> tuple[str, ...]:
    """The replicated namespaces; empty if the source is unreachable or its user may not list them."""
    return facts.namespaces if SIDE not in facts.unreachable and listed(facts) else ()


def included(facts: Facts) -> Iterator[Finding]:
    """Each pattern of [collections] include, and of a rule, matches a collection."""
    for pattern in () if facts.allow_missing else unmatched(facts.pipeline.collections.include, facts.namespaces):
        yield error(
            f"[collections] include {pattern!r} matches no collection that the user in [source] uri can see, after"
            " exclude",
            "correct it, grant what `towpath check` finds missing, or pass --allow-missing if the collection"
            " will be created later",
        )
    patterns = dict.fromkeys(rule.collections for rule in facts.pipeline.collections.rules)
    for pattern in () if facts.allow_missing else unmatched(patterns, facts.namespaces):
        yield error(
            f"[[collections.rules]] for {pattern!r} match no collection that is included: what they name would leave"
            " the source if the name is misspelt",
            "correct it (it is the name at the source), or pass --allow-missing if the collection will be created"
            " later",
        )


def filterable(facts: Facts) -> Iterator[Finding]:
    """The source can filter its change stream by each expression that Debezium would send it."""
    configs = definitions(facts.pipeline).values()
    for expression in {config[SELECTION]: None for config in configs if SELECTION in config}:
        refused = facts.source.ask(partial(regex_refusal, expression=expression))
        if refused:
            yield error(
                f"the source cannot filter its change stream by [collections]: it refuses Debezium's expression of"
                f" {len(expression):,} characters, which names all of include and exclude: {refused}",
                "use patterns such as shop.orders_* in place of names, and [collections] exclude for the few that they"
                " also match; or divide the collections between two pipelines",
            )


def names(facts: Facts) -> Iterator[Finding]:
    """The topic name of every namespace is valid and collides with no other."""
    own_topics = {topic_of(facts.pipeline.name, name) for name in facts.namespaces}
    others = [topic for topic in facts.existing if topic not in own_topics]
    yield from bad_names(facts.pipeline.name, facts.namespaces, others)


def bad_names(prefix: str, namespaces: Iterable[str], other_topics: Iterable[str] = ()) -> Iterator[Finding]:
    """The namespaces whose topic names are not valid, or collide with another topic or with that of an earlier one.

    Kafka refuses a topic whose name differs from that of another only in `.` and `_`, because metric names use `_` for
    both.
    """
    by_metric = {topic.replace(".", "_"): topic for topic in other_topics}
    for namespace in namespaces:
        topic = topic_of(prefix, namespace)
        if not _TOPIC_NAME.fullmatch(topic):
            yield error(
                f"{namespace!r} cannot be replicated: its topic would be called {topic!r}, and Kafka allows only"
                " letters, digits, '.', '_' and '-', 249 of them at most",
                "leave it out with [collections] exclude",
                about=f"{SIDE} {namespace}",
            )
        elif (twin := by_metric.setdefault(topic.replace(".", "_"), topic)) != topic:
            yield error(
                f"the topics {twin!r} and {topic!r} would collide (Kafka does not distinguish '.' and '_' there)",
                f"leave {namespace!r} out with [collections] exclude and move it in a pipeline of another name",
                about=f"{SIDE} {namespace}",
            )


def kinds(facts: Facts) -> Iterator[Finding]:
    """Every collection is of a supported kind. One that schema changes in the log have brought is only warned of."""
    for collection in facts.collections:
        for finding in about(f"{SIDE} {collection.namespace}", kind(collection, facts.pipeline)):
            yield replace(finding, level="warning") if is_replicated(facts, collection) else finding


def is_replicated(facts: Facts, collection: Collection) -> bool:
    """Whether a deployed connector captures the collection together with its schema changes."""
    if collection.kind != "collection" or not facts.has_connect:
        return False
    config = facts.deployed.get(captured_by(facts.deployed, collection.namespace) or "")
    return (config or {}).get(DDL) == "true"


def kind(collection: Collection, pipeline: Pipeline) -> Iterator[Finding]:
    """The collection is of a supported kind."""
    is_copied, collated = pipeline.copy_method == "towpath", "collation" in collection.options
    name, leave_out = collection.namespace, "leave it out with [collections] exclude"
    separate = f"{leave_out} and give it a separate pipeline with"
    if collection.kind == "timeseries":
        yield error(f"{name} is a time-series collection, which has no change stream", leave_out)
    elif collection.options.get("capped") and is_copied:
        yield error(
            f'{name} is a capped collection, which no server reads at a known time (readConcern "snapshot"), so that it'
            " cannot be copied to the byte",
            f'{separate} mode = "plain", or with [capture] copy = "none"',
        )
    elif collated and is_copied:
        yield error(
            f"{name} has a default collation, by which the server orders its _ids, so that it cannot be copied in"
            " ranges of them",
            f'{separate} mode = "plain" and [kafka] partitions = 1',
        )
    elif collated and pipeline.kafka.partitions > 1:
        yield error(
            f"{name} has a default collation, by which two _ids that differ in bytes can be equal: with several"
            " partitions their order could be lost",
            f"{separate} [kafka] partitions = 1",
        )


def captured_by(configurations: Configurations, namespace: str) -> str | None:
    """The source connector of these that captures a namespace."""
    for name, config in configurations.items():
        pattern = (config or {}).get(SELECTION)
        if pattern is not None and re.fullmatch(pattern, namespace):
            return name
    return None


def copy_time(facts: Facts) -> Iterator[Finding]:
    """The oplog window is longer than Debezium's initial copy takes."""
    if not (facts.has_connect and facts.is_deployed):
        _, size = _total(facts)
        found = capture.check_copy(facts.source.ask(capture.read), size, facts.pipeline)
        yield from about(capture.SUBJECT, found)


def _total(facts: Facts) -> tuple[int, int]:
    """(documents, bytes) of all collections; 0 bytes where the user may not read `$collStats`."""
    extents = facts.extents.values()
    return sum(extent.documents for extent in extents), sum(extent.bytes or 0 for extent in extents)


def selectable(facts: Facts) -> Iterator[Finding]:
    """The server can match documents by the filters of rules, and some match."""
    for collection in facts.collections:
        if (only := only_of(facts.pipeline, collection.namespace)) is None:
            continue
        subject = f"{SIDE} {collection.namespace}"
        if collection.options.get("capped"):
            yield error(
                "is capped, and no server reads such a collection as of a known time, which a rule with `only` needs",
                "leave it out with [collections] exclude, or take `only` out of the rule",
                where=field_rules.WHERE,
                about=subject,
            )
        else:
            yield from about(subject, facts.source.ask(partial(_selected, collection.namespace, only)))


def _selected(namespace: str, only: Mapping[str, Any], client: Client) -> list[Finding]:
    try:
        matches = holds_documents(client, namespace, only, int(_SECONDS * 1000))
    except ExecutionTimeout:  # nothing is known of so large a collection without an index
        return []
    except OperationFailure as refused:
        return [
            error(
                f"the server refuses the filter `only`: {brief(refused)}",
                "correct it; `towpath rules PIPELINE --show NAMESPACE` tries it",
                where=field_rules.WHERE,
            )
        ]
    if not matches:
        what = "has no document that matches `only`: none would leave"
        return [warning(what, "is the filter as you mean it?", where=field_rules.WHERE)]
    return []


def collections(facts: Facts) -> Iterator[Finding]:
    """What is not replicated as one may expect, and traps that samples of the collections show."""
    for collection in facts.collections:
        subject = f"{SIDE} {collection.namespace}"
        if collection.kind == "view":
            yield ok("is a view and is not replicated: only collections have a change stream", about=subject)
        elif collection.options.get("capped") and not any(kind(collection, facts.pipeline)):
            yield warning(
                "is capped, and its copy is not while changes are replicated: no cutover moves it",
                "before a cutover, leave it out with [collections] exclude; docs/how-to/cutover.md says how to move it",
                about=subject,
            )
        if collection.kind == "collection":
            count = facts.extents[collection.namespace].documents
            may_hold_dots = facts.pipeline.has_own_source and facts.source.level >= DISTINCT_PATHS
            found = facts.source.ask(partial(_sample, collection.namespace, count, facts.pipeline, may_hold_dots))
            yield from about(subject, found)
            if for_fields := list(rules_for(facts.pipeline, collection.namespace)):
                indexes = facts.source.ask(partial(_indexes, collection.namespace))
                yield from about(subject, field_rules.of_indexes(for_fields, indexes))
                validator = collection.options.get("validator", {})
                yield from about(subject, field_rules.of_validator(for_fields, validator))
    documents, size = _total(facts)
    names = ", ".join(facts.namespaces) if len(facts.namespaces) <= _SHOWN else ""
    total = f"{counted(documents, 'document')}, {size / 2**20:,.1f} MiB"
    yield ok(f"matching collections: {names or len(facts.namespaces)}; {total}")


RULES = (
    *rules(SIDE, lambda facts: servers(facts.source), schema_changes, privileged),
    Rule(capture.SUBJECT, lambda facts: capture.check_window(facts.source.ask(capture.read)), required=False),
    *(Rule(SIDE, check, applies=listed) for check in (included, filterable, selectable, kinds, names, copy_time)),
    Rule(SIDE, collections, required=False, applies=listed),
)


def documents(client: Client, namespace: str, count: int) -> Iterator[RawBSONDocument]:
    """A sample of some hundred documents, also limited in bytes and time.

    `$sample` picks from a large collection without reading all of it. A small one it would sort, so that is scanned.
    """
    database, name = namespace.split(".", 1)
    collection: Any = client[database].get_collection(name, codec_options=RAW)
    stage: dict[str, Any] = {"$match": {"$sampleRate": min(1.0, _DOCUMENTS / max(count, 1))}}
    if count > 20 * _DOCUMENTS:  # the server's random cursor works below 5 % of the collection
        stage = {"$sample": {"size": _DOCUMENTS}}
    end, size = time.monotonic() + _SECONDS, 0
    try:
        for document in collection.aggregate([stage], batchSize=50, maxTimeMS=int(_SECONDS * 1000)):
            yield document
            size += len(document.raw)
            if size > _BYTES or time.monotonic() > end:
                return
    except ExecutionTimeout:
        return


def _sample(namespace: str, count: int, pipeline: Pipeline, may_hold_dots: bool, client: Client) -> list[Finding]:
    """What a sample of a collection with `count` documents shows."""
    sampled = largest = 0
    odd: dict[str, None] = {}
    findings = []
    occurrences = field_rules.Occurrences(list(rules_for(pipeline, namespace)))
    for document in documents(client, namespace, count):
        sampled += 1
        largest = max(largest, len(document.raw))
        occurrences.see(bytes(document.raw))
        for path in odd_names(bytes(document.raw), may_hold_dots):
            odd[" → ".join(name if name == "[]" else repr(name) for name in path)] = None
    if odd:
        fields = f"has fields whose names contain a dot, begin with $ or are empty: {first_few(list(odd), _NAMED)}"
        trap = "in an update, a change stream does not distinguish the field a.b from b inside a"
        advice = f'if updates touch them, add "{namespace}" to [capture] whole_documents before the first deploy'
        is_whole = pipeline.captured_whole is not None and pipeline.captured_whole.matches(namespace)
        whole = ok(f"{fields}; [capture] whole_documents looks up its whole documents")
        findings.append(whole if is_whole else warning(f"{fields}; {trap}", advice))
    if largest > LARGE:
        what = (
            f"holds a document of {largest / 2**20:.2f} MiB: a change event, which wraps the document, must fit into"
            " 16 MiB; an update of such a document may stop capture (BSONObjectTooLarge)"
        )
        advice = "make such documents smaller, or leave the collection out with [collections] exclude"
        findings.append(warning(what, advice))
    size = f", the largest {largest:,} bytes" if largest else ""
    findings += occurrences.findings()
    return [*findings, ok(f"sampled {sampled:,} of {counted(count, 'document')}{size}")]


def _indexes(namespace: str, client: Client) -> list[Any]:
    """As the server lists them; none if the user may not read that."""
    database, name = namespace.split(".", 1)
    return list(if_allowed(lambda: list(client[database][name].list_indexes())) or ())


def odd_names(raw: bytes, may_hold_dots: bool = False) -> Iterator[tuple[str, ...]]:
    """Paths of the fields, at any depth, whose names contain a dot, unless they may, begin with `$` or are empty.

    `[]` in a path is an array element.
    """
    return _odd(decode(raw, _LENIENT), may_hold_dots, ())


def _odd(value: Any, may_hold_dots: bool, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, list):
        for element in value:
            yield from _odd(element, may_hold_dots, (*above, "[]"))
    fields = value.as_doc() if isinstance(value, DBRef) else value
    for name, inner in fields.items() if isinstance(fields, dict) else ():
        if not name or name.startswith("$") or ("." in name and not may_hold_dots):
            yield (*above, name)
        yield from _odd(inner, may_hold_dots, (*above, name))
