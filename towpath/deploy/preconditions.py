"""The preconditions of a deployment, which make sure that no record is lost or out of order.

`deploy` stops at the first error, and `check` shows all of them. Replays and `resume` share some of the preconditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from towpath.clients.kafka.topics import Topic
from towpath.clients.mongo.replica_set import Collection, ReplicaSet, regex_refusal
from towpath.config.finding import Finding, error, refusal, required
from towpath.config.namespaces import bad_names, topic_of, unmatched
from towpath.config.pipeline import Pipeline
from towpath.config.text import first_few
from towpath.deploy import target
from towpath.deploy.configs import DDL, definitions, plugins
from towpath.deploy.inventory import DESTINATION_SET, SOURCE_SET, Configurations, Inventory
from towpath.deploy.other_pipelines import loops, writers
from towpath.errors import Refused
from towpath.log.source_offsets import SELECTION
from towpath.store import cutover
from towpath.store.writers import Registration

_REMOVE = "`towpath remove --topics` the pipeline and deploy it again"
_DEPLOY, _SOURCE, _DESTINATION = "deploy", "source", "destination"


def replica_sets(inventory: Inventory) -> Iterator[Finding]:
    """Both clusters are of a kind that can be replicated from, or to."""
    for cluster in (inventory.source, inventory.destination):
        try:
            _ = cluster.replica_set
        except Refused as refused:
            yield refusal(cluster.side, refused)


def included(inventory: Inventory) -> Iterator[Finding]:
    """Each pattern of [collections] include matches a collection."""
    for pattern in (
        () if inventory.allow_missing else unmatched(inventory.pipeline.collections.include, inventory.namespaces)
    ):
        yield error(
            _SOURCE,
            f"[collections] include {pattern!r} matches no collection that the user in [source] uri can see, after"
            " exclude",
            "correct it, grant what `towpath check` finds missing, or pass --allow-missing if the collection"
            " will be created later",
        )


def filterable(inventory: Inventory) -> Iterator[Finding]:
    """The source can filter its change stream by each expression that Debezium would send it."""
    configs = definitions(inventory.pipeline).values()
    for expression in {config[SELECTION]: None for config in configs if SELECTION in config}:
        refused = inventory.source.ask(partial(regex_refusal, expression=expression))
        if refused:
            yield error(
                _SOURCE,
                f"the source cannot filter its change stream by [collections]: it refuses Debezium's expression of"
                f" {len(expression):,} characters, which names all of include and exclude: {refused}",
                "use patterns such as shop.orders_* in place of names, and [collections] exclude for the few that they"
                " match besides; or divide the collections between two pipelines",
            )


def names(inventory: Inventory) -> Iterator[Finding]:
    """The topic name of every namespace is valid and collides with no other."""
    own_topics = {topic_of(inventory.pipeline.name, name) for name in inventory.namespaces}
    others = [topic for topic in inventory.existing if topic not in own_topics]
    for namespace, refused in bad_names(inventory.pipeline.name, inventory.namespaces, others):
        yield refusal(f"{_SOURCE} {namespace}", refused)


def kinds(inventory: Inventory) -> Iterator[Finding]:
    """Every collection is of a supported kind. One that schema changes in the log have brought is only warned of."""
    for collection in inventory.collections:
        for finding in kind(collection, inventory.pipeline):
            yield replace(finding, level="warning") if is_replicated(inventory, collection) else finding


def is_replicated(inventory: Inventory, collection: Collection) -> bool:
    """Whether a deployed connector captures the collection together with its schema changes."""
    if collection.kind != "collection" or "connect" in inventory.unreachable:
        return False
    config = inventory.deployed.get(_captured_by(inventory.deployed, collection.namespace) or "")
    return (config or {}).get(DDL) == "true"


def kind(collection: Collection, pipeline: Pipeline) -> Iterator[Finding]:
    """The collection is of a supported kind."""
    subject, ranges = f"{_SOURCE} {collection.namespace}", pipeline.copy_method == "towpath"
    if collection.kind == "timeseries":
        yield error(
            subject,
            f"{collection.namespace} is a time-series collection, which has no change stream",
            "leave it out with [collections] exclude",
        )
    elif collection.options.get("capped") and ranges:
        yield error(
            subject,
            f"{collection.namespace} is a capped collection, which no server reads at a known time (readConcern"
            ' "snapshot"), so that it cannot be copied to the byte',
            "leave it out with [collections] exclude and give it"
            ' a pipeline of its own with mode = "plain", or with [capture] copy = "none"',
        )
    elif "collation" in collection.options and ranges:
        yield error(
            subject,
            f"{collection.namespace} has a default collation, by which the server orders its _ids, so that it cannot be"
            " copied in ranges of them",
            "leave it out with [collections] exclude and give it a pipeline of its own with"
            ' mode = "plain" and [kafka] partitions = 1',
        )
    elif "collation" in collection.options and pipeline.kafka.partitions > 1:
        yield error(
            subject,
            f"{collection.namespace} has a default collation, by which two _ids that differ in bytes can be equal:"
            " with several partitions their order could be lost",
            "leave it out with [collections] exclude and give it a pipeline of its own with [kafka] partitions = 1",
        )


def targets(inventory: Inventory) -> Iterator[Finding]:
    """No two namespaces are written to the same one, and nothing that is written is captured again."""
    same_set = inventory.source.replica_set.is_same(inventory.destination.replica_set)
    sources: dict[str, str] = {}
    for name in inventory.namespaces:
        target = inventory.pipeline.renamed(name)
        if target in sources:
            collision = f"{sources[target]} and {name} would both be written to {target}"
            yield error(_DESTINATION, collision, "see [collections.rename]")
        sources[target] = name
        if same_set and inventory.pipeline.selection.matches(target):
            yield error(
                _DESTINATION,
                f"source and destination are the same replica set, and {name} would be written to {target}, which the"
                " pipeline captures again: each change would circulate forever",
                "name another destination, or rename into a database that [collections] include does not take in",
            )


def present_plugins(inventory: Inventory) -> Iterator[Finding]:
    missing = [plugin for plugin in plugins(inventory.pipeline) if plugin not in inventory.plugins]
    if missing:
        yield error(
            "connect",
            f"Kafka Connect at {inventory.connect.url} lacks {', '.join(missing)}",
            "put Towpath's plugin folder on the plugin.path of every worker and restart the workers",
        )


def no_cutover(inventory: Inventory) -> Iterator[Finding]:
    """No cutover is under way or over when a new sink is created."""
    if inventory.pipeline.exactly_once and not inventory.is_deployed:
        try:
            cutover.refuse(inventory.session)
        except Refused as refused:
            yield refusal(_DEPLOY, refused)


def one_writer(inventory: Inventory) -> Iterator[Finding]:
    """No other sink writes a namespace of the pipeline. The sink of a pipeline's old name counts as another."""
    sink, destination = inventory.pipeline.sink_connector, inventory.destination.replica_set
    connectors = set()
    for writer in writers(inventory.configurations, destination, inventory.targets, except_for=sink):
        connectors |= {writer.connector, writer.connector.removesuffix("-sink")}
        if writer.replay_of:
            yield error(
                _DEPLOY,
                f"the replay {writer.connector} of the pipeline {writer.replay_of} already writes {writer.listed} to"
                " this destination, and two sinks on one namespace overtake each other",
                f"end it first: `towpath remove … --replay {writer.label}` with that pipeline's file",
            )
        else:
            yield error(
                _DEPLOY,
                f"the connector {writer.connector} already writes {writer.listed} to this destination, and two"
                " pipelines on one namespace overtake each other. If you renamed the pipeline: its log and its"
                f" position stay with the old name ({writer.connector.removesuffix('-sink')})",
                "keep that, or `towpath remove` the old pipeline first",
            )
    ours = Registration.of(inventory.pipeline, inventory.kafka_cluster, inventory.source.replica_set)
    elsewhere = {name: theirs for name, theirs in inventory.registered.items() if name not in connectors}
    yield from target.others(ours, elsewhere, inventory.targets)


def same_clusters(inventory: Inventory) -> Iterator[Finding]:
    """The replica sets are the deployed ones, because a position is valid in its own replica set only."""
    for name, config in inventory.deployed.items():
        for cluster, key in ((inventory.source, SOURCE_SET), (inventory.destination, DESTINATION_SET)):
            before = (config or {}).get(key)
            if before and not ReplicaSet.parse(before).is_same(cluster.replica_set):
                yield error(
                    _DEPLOY,
                    f"{name} was deployed with the {cluster.side} {before}, and the file now names"
                    f" {cluster.replica_set}: its position means nothing there",
                    f"set [{cluster.side}] uri back, or {_REMOVE}, or give the new pipeline a name of its own",
                )


def same_mode(inventory: Inventory) -> Iterator[Finding]:
    """As `unchanged_mode`. Empty topics that were not made for the pipeline do not show its mode."""
    pipeline, deployed, existing = inventory.pipeline, inventory.deployed, inventory.existing
    is_whole = all(deployed.get(name) is not None for name in (pipeline.sink_connector, pipeline.source_connector))
    foreign = () if is_whole else inventory.foreign
    ends = inventory.topics.ends((existing[name] for name in foreign), stable=False)
    filled = sorted({topic for (topic, _), (_, end) in ends.items() if end > 0})
    judged = {name: topic for name, topic in existing.items() if name not in foreign or name in filled}
    for finding in unchanged_mode(pipeline, inventory.desired, deployed, judged):
        yield replace(finding, advice=f"{finding.advice}; {left_by_removal(filled)}") if filled else finding


def left_by_removal(topics: Sequence[str]) -> str:
    """The advice for topics that hold records, have names of a pipeline, and are not known to be made for it."""
    return (
        f"`towpath remove --topics` leaves {first_few(topics, 3)}, which nothing shows to be made for this pipeline:"
        " if no one needs the records, delete that with Kafka's tools (kafka-topics.sh --delete --topic); else give the"
        " pipeline another name, or exclude that namespace"
    )


def unchanged_mode(
    pipeline: Pipeline, desired: Configurations, deployed: Configurations, existing: Mapping[str, Topic]
) -> Iterator[Finding]:
    """The mode and the initial copy are the deployed ones, because each sink and source has its own kind of position.

    Without connectors, the topics show the mode.
    """
    same_sink = _unchanged(desired, deployed, pipeline.sink_connector, ("connector.class",))
    has_log = any(map(pipeline.is_change_topic, existing))
    if same_sink is None and has_log:
        same_sink = (pipeline.dead_letter_topic in existing) == pipeline.exactly_once
    if same_sink is False:
        other = "plain" if pipeline.exactly_once else "exactly-once"
        yield error(
            _DEPLOY,
            f'{pipeline.name} was deployed with mode = "{other}", and the file now says "{pipeline.mode}": the two'
            f" sinks keep their positions in different places, and the log of one is not the history that the other"
            f" needs",
            f'set mode = "{other}" again, or empty the destination\'s namespaces and {_REMOVE}',
        )
    keys = ("connector.class", "towpath.copy", "snapshot.mode")
    same = _unchanged(desired, deployed, pipeline.source_connector, keys)
    if same is None and has_log:
        same = (pipeline.request_topic in existing) == pipeline.has_own_source
    if same is False:
        yield error(
            _DEPLOY,
            f'{pipeline.name} was deployed with another [capture] copy, and the file now says "{pipeline.copy_method}":'
            " the stored progress of one method cannot be used by another",
            f"set it back, or empty the destination's namespaces and {_REMOVE}",
        )


def _unchanged(desired: Configurations, deployed: Configurations, name: str, keys: Iterable[str]) -> bool | None:
    """Whether these settings of a deployed connector are as the file defines them; None if it is not deployed."""
    before, after = deployed.get(name), desired.get(name) or {}
    return None if before is None else all(before.get(key) == after.get(key) for key in keys)


def same_whole_documents(inventory: Inventory) -> Iterator[Finding]:
    name = inventory.pipeline.whole_source_connector
    if name not in inventory.pipeline.connectors and inventory.deployed.get(name) is not None:
        yield error(
            _DEPLOY,
            f"the connector {name} looks up whole documents, and the file no longer names any: the capture method of a"
            " collection cannot change",
            f"name it again in [capture] whole_documents, or {_REMOVE}",
        )


def same_capture(inventory: Inventory) -> Iterator[Finding]:
    """No namespace moves from one source connector to another: deletes in between would be lost."""
    for namespace in inventory.namespaces:
        before, after = _captured_by(inventory.deployed, namespace), _captured_by(inventory.desired, namespace)
        if before and after and before != after:
            yield error(
                _DEPLOY,
                f"{namespace} is captured by {before} and would be by {after}: the capture method of a collection"
                " cannot change",
                f"leave [capture] whole_documents as it was for it, or {_REMOVE}",
            )


def _captured_by(configurations: Configurations, namespace: str) -> str | None:
    for name, config in configurations.items():
        pattern = (config or {}).get(SELECTION)
        if pattern is not None and re.fullmatch(pattern, namespace):
            return name
    return None


def _newly_captured(inventory: Inventory, namespace: str) -> str | None:
    """The deployed connector that would begin to capture this namespace; None if one captures it already."""
    after = _captured_by(inventory.desired, namespace)
    is_captured = _captured_by(inventory.deployed, namespace) is not None
    return None if after is None or inventory.deployed.get(after) is None or is_captured else after


def copied(inventory: Inventory) -> Iterator[Finding]:
    """Debezium copies only at its first start, so no collection with documents is included later."""
    for namespace in sorted(inventory.filled) if inventory.pipeline.copy_method == "debezium" else ():
        after = _newly_captured(inventory, namespace)
        if after is not None and inventory.has_position(after):
            yield error(
                _DEPLOY,
                f"{namespace} holds documents and was not captured by {after} when it started: they would not be"
                f" copied",
                f"give it a pipeline of its own, or {_REMOVE}",
            )


def not_taken_in_again(inventory: Inventory) -> Iterator[Finding]:
    """No collection is included again: a copy does not show what was deleted while it was excluded."""
    if not inventory.pipeline.has_own_source:
        return
    names = {topic_of(inventory.pipeline.name, ns): ns for ns in inventory.namespaces if _newly_captured(inventory, ns)}
    ends = inventory.topics.ends(inventory.existing[topic] for topic in names if topic in inventory.existing)
    for topic in sorted({topic for (topic, _), (_, end) in ends.items() if end > 0}):
        yield error(
            _DEPLOY,
            f"{names[topic]} was included in this pipeline before, and then excluded: its topic {topic} holds records,"
            " and documents that were deleted at the source since then would stay at the destination forever",
            f"`towpath remove` and `towpath deploy`, which keep the log, and then `towpath resnapshot PIPELINE --only"
            f" {names[topic]}`, which deletes them at the destination; or {_REMOVE}",
        )


def partitions(inventory: Inventory) -> Iterator[Finding]:
    """Every existing topic has the partition count in the file."""
    for topic in inventory.log:
        yield from partition_count(topic, inventory.pipeline)
    for name in (inventory.pipeline.request_topic, inventory.pipeline.dead_letter_topic):
        if name in inventory.existing:
            yield from single(inventory.existing[name])


def partition_count(topic: Topic, pipeline: Pipeline) -> Iterator[Finding]:
    if topic.partitions != pipeline.kafka.partitions:
        yield error(
            f"kafka {topic.name}",
            f"the topic {topic.name} has {topic.partitions} partitions and the file says {pipeline.kafka.partitions}:"
            " with another count a document's changes would be on two partitions, out of order",
            f"set [kafka] partitions = {topic.partitions}",
        )


def single(topic: Topic) -> Iterator[Finding]:
    """The topics of re-read requests and dead letters have one partition."""
    if topic.partitions != 1:
        yield error(
            f"kafka {topic.name}",
            f"the topic {topic.name} has {topic.partitions} partitions and must have one: Towpath did not create it",
            "delete it; deploy creates it again",
        )


def no_loop(inventory: Inventory) -> Iterator[Finding]:
    """No other pipeline replicates back what this one writes, unless this one is stopped."""
    if not inventory.is_stopped:
        yield from loops(
            inventory.pipeline,
            inventory.connect,
            inventory.configurations,
            inventory.source.replica_set,
            inventory.destination.replica_set,
            inventory.namespaces,
        )


#: The servers support what the file defines.
OF_SERVERS = required(replica_sets, kinds, included, filterable, names, targets, present_plugins, partitions)
#: The file is compatible with what is deployed.
OF_CHANGE = required(
    no_cutover,
    one_writer,
    no_loop,
    same_clusters,
    same_mode,
    same_whole_documents,
    same_capture,
    copied,
    not_taken_in_again,
)
