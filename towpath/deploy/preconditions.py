"""What must hold before a deployment, so that no record is lost and none is out of order.

`deploy` stops at the first error, and `check` shows all of them. Replays and `resume` share some of the rules. One is
that no two pipelines replicate the same documents in both directions, or each change would go round without end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from connectors.configs import plugins
from towpath.bookkeeping import cutover
from towpath.deploy.inventory import DESTINATION_SET, SOURCE_SET, Configurations, Inventory
from towpath.deploy.other_pipelines import loops, writers
from towpath.errors import Refused
from towpath.finding import Finding, Precondition, error, refusal
from towpath.kafka.topics import Topic
from towpath.log.source_offsets import SELECTION
from towpath.mongo.client import Collection, ReplicaSet
from towpath.namespaces import Selection, refuse_bad_names, topic_of
from towpath.pipeline import Pipeline

_REMOVE = "`towpath remove --topics` the pipeline and deploy it again"
_DEPLOY, _SOURCE, _DESTINATION = "deploy", "source", "destination"


def included(i: Inventory) -> Iterator[Finding]:
    """Each pattern of [collections] include takes in a collection."""
    for pattern in () if i.allow_missing else i.pipeline.include:
        if not any(Selection((pattern,)).matches(name) for name in i.namespaces):
            yield error(
                _SOURCE,
                f"[collections] include {pattern!r} matches no collection that the user in [source] uri can see, after"
                " exclude",
                "correct it, grant what `towpath check` finds missing, or pass --allow-missing if the collection"
                " will be created later",
            )


def names(i: Inventory) -> Iterator[Finding]:
    """Every namespace can be a topic of its own, which Kafka can tell from every other topic."""
    mine = {topic_of(i.pipeline.name, name) for name in i.namespaces}
    earlier = [topic for topic in i.existing if topic not in mine]
    for namespace in i.namespaces:
        try:
            refuse_bad_names(i.pipeline.name, [namespace], earlier)
        except Refused as refused:
            yield refusal(f"{_SOURCE} {namespace}", refused)
        earlier.append(topic_of(i.pipeline.name, namespace))


def kinds(i: Inventory) -> Iterator[Finding]:
    """Every collection is of a kind that can be replicated."""
    for collection in i.collections:
        yield from kind(collection, i.pipeline)


def kind(collection: Collection, pipeline: Pipeline) -> Iterator[Finding]:
    """The same of one collection."""
    subject, ranges = f"{_SOURCE} {collection.namespace}", pipeline.copy.way == "towpath"
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
    elif "collation" in collection.options and pipeline.partitions > 1:
        yield error(
            subject,
            f"{collection.namespace} has a default collation, by which two _ids that differ in bytes can be equal:"
            " with several partitions their order could be lost",
            "leave it out with [collections] exclude and give it a pipeline of its own with [kafka] partitions = 1",
        )


def targets(i: Inventory) -> Iterator[Finding]:
    """No two namespaces are written to one, and nothing that is written is captured again."""
    same_set = i.source.replica_set.is_same(i.destination.replica_set)
    sources: dict[str, str] = {}
    for name in i.namespaces:
        target = i.pipeline.renames.destination(name)
        if target in sources:
            found = f"{sources[target]} and {name} would both be written to {target}"
            yield error(_DESTINATION, found, "see [collections.rename]")
        sources[target] = name
        if same_set and i.pipeline.selection.matches(target):
            yield error(
                _DESTINATION,
                f"source and destination are the same replica set, and {name} would be written to {target}, which the"
                " pipeline captures again, without end",
                "name another destination, or rename into a database that [collections] include does not take in",
            )


def present_plugins(i: Inventory) -> Iterator[Finding]:
    missing = [plugin for plugin in plugins(i.pipeline) if plugin not in i.plugins]
    if missing:
        yield error(
            "connect",
            f"Kafka Connect at {i.connect.url} lacks {', '.join(missing)}",
            "put Towpath's plugin folder on the plugin.path of every worker and restart the workers",
        )


def no_cutover(i: Inventory) -> Iterator[Finding]:
    """A new sink does not begin while a cutover is at work, or after it."""
    if i.pipeline.exactly_once and not i.is_deployed:
        try:
            cutover.refuse(i.pipeline)
        except Refused as refused:
            yield refusal(_DEPLOY, refused)


def one_writer(i: Inventory) -> Iterator[Finding]:
    """Two pipelines that write one namespace overtake each other; also what a renamed pipeline looks like."""
    for one in writers(i.configurations, i.destination.replica_set, i.targets, but=i.pipeline.sink_connector):
        if one.replay_of:
            yield error(
                _DEPLOY,
                f"the replay {one.connector} of the pipeline {one.replay_of} already writes {one.some} to this"
                " destination, and two sinks on one namespace overtake each other",
                f"end it first: `towpath remove … --replay {one.label}` with that pipeline's file",
            )
        else:
            yield error(
                _DEPLOY,
                f"the connector {one.connector} already writes {one.some} to this destination, and two pipelines on"
                " one namespace overtake each other. If you renamed the pipeline: its log and its position stay with"
                f" the old name ({one.connector.removesuffix('-sink')})",
                "keep that, or `towpath remove` the old pipeline first",
            )


def same_clusters(i: Inventory) -> Iterator[Finding]:
    """A position in one replica set means nothing in another."""
    for name, config in i.present.items():
        for cluster, key in ((i.source, SOURCE_SET), (i.destination, DESTINATION_SET)):
            before = (config or {}).get(key)
            if before and not ReplicaSet.parse(before).is_same(cluster.replica_set):
                yield error(
                    _DEPLOY,
                    f"{name} was deployed with the {cluster.side} {before}, and the file now names"
                    f" {cluster.replica_set}: its position means nothing there",
                    f"set [{cluster.side}] uri back, or {_REMOVE}, or give the new pipeline a name of its own",
                )


def same_mode(i: Inventory) -> Iterator[Finding]:
    yield from unchanged_mode(i.pipeline, i.wanted, i.present, i.existing)


def unchanged_mode(
    pipeline: Pipeline, wanted: Configurations, present: Configurations, existing: Mapping[str, Topic]
) -> Iterator[Finding]:
    """Positions of one sink or source mean nothing to another; the topics tell even when no connector is there."""
    same_sink = _was(wanted, present, pipeline.sink_connector, ("connector.class",))
    if same_sink is None and _has_log(pipeline, existing):
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
    same = _was(wanted, present, pipeline.source_connector, keys)
    if same is None and _has_log(pipeline, existing):
        same = (pipeline.request_topic in existing) == pipeline.has_own_source
    if same is False:
        yield error(
            _DEPLOY,
            f'{pipeline.name} was deployed with another [capture] copy, and the file now says "{pipeline.copy.way}":'
            " what was copied, and up to when, means nothing to another way of copying",
            f"set it back, or empty the destination's namespaces and {_REMOVE}",
        )


def _was(wanted: Configurations, present: Configurations, name: str, keys: Iterable[str]) -> bool | None:
    """Whether the connector that is there agrees in these settings with the one wanted; None when none is there."""
    before, after = present.get(name), wanted.get(name) or {}
    return None if before is None else all(before.get(key) == after.get(key) for key in keys)


def _has_log(pipeline: Pipeline, existing: Mapping[str, Topic]) -> bool:
    pattern = pipeline.selection.topic_regex(pipeline.name)
    return any(re.fullmatch(pattern, name) for name in existing)


def same_whole_documents(i: Inventory) -> Iterator[Finding]:
    name = i.pipeline.whole_source_connector
    if name not in i.pipeline.connectors and i.present.get(name) is not None:
        yield error(
            _DEPLOY,
            f"the connector {name} looks up whole documents, and the file no longer names any: a collection cannot"
            f" change its way of capture on the way",
            f"name it again in [capture] whole_documents, or {_REMOVE}",
        )


def same_capture(i: Inventory) -> Iterator[Finding]:
    """Between the end of one connector's capture and the beginning of another's, deletes would be lost."""
    for namespace in i.namespaces:
        before, after = _captured_by(i.present, namespace), _captured_by(i.wanted, namespace)
        if before and after and before != after:
            yield error(
                _DEPLOY,
                f"{namespace} is captured by {before} and would be by {after}: a collection cannot change its way of"
                f" capture on the way",
                f"leave [capture] whole_documents as it was for it, or {_REMOVE}",
            )


def _captured_by(configurations: Configurations, namespace: str) -> str | None:
    for name, config in configurations.items():
        pattern = (config or {}).get(SELECTION)
        if pattern is not None and re.fullmatch(pattern, namespace):
            return name
    return None


def _newly_captured(i: Inventory, namespace: str) -> str | None:
    """The connector that is there and would capture this namespace, when none does so far."""
    after = _captured_by(i.wanted, namespace)
    if after is None or i.present.get(after) is None or _captured_by(i.present, namespace) is not None:
        return None
    return after


def copied(i: Inventory) -> Iterator[Finding]:
    """Debezium copies at its first start only: what a collection taken in later holds would never be copied."""
    for namespace in sorted(i.filled) if i.pipeline.copy.way == "debezium" else ():
        after = _newly_captured(i, namespace)
        if after is not None and i.has_position(after):
            yield error(
                _DEPLOY,
                f"{namespace} holds documents and was not captured by {after} when it started: they would not be"
                f" copied",
                f"give it a pipeline of its own, or {_REMOVE}",
            )


def not_taken_in_again(i: Inventory) -> Iterator[Finding]:
    """What happened to a collection while it was out is not in the log, deletes above all, and no copy tells them."""
    if not i.pipeline.has_own_source:
        return
    names = {topic_of(i.pipeline.name, ns): ns for ns in i.namespaces if _newly_captured(i, ns)}
    ends = i.topics.ends(i.existing[topic] for topic in names if topic in i.existing)
    for topic in sorted({topic for (topic, _), (_, end) in ends.items() if end > 0}):
        yield error(
            _DEPLOY,
            f"{names[topic]} was in this pipeline before, and was taken out: its topic {topic} holds records, and"
            " what was deleted at the source since then would stay at the destination for ever",
            f"give it a pipeline of its own (and empty it at the destination), or {_REMOVE}",
        )


def partitions(i: Inventory) -> Iterator[Finding]:
    """Every topic that is there has the partitions that the file says."""
    for topic in i.log:
        yield from partition_count(topic, i.pipeline)
    for name in (i.pipeline.request_topic, i.pipeline.dead_letter_topic):
        if name in i.existing:
            yield from single(i.existing[name])


def partition_count(topic: Topic, pipeline: Pipeline) -> Iterator[Finding]:
    if topic.partitions != pipeline.partitions:
        yield error(
            f"kafka {topic.name}",
            f"the topic {topic.name} has {topic.partitions} partitions and the file says {pipeline.partitions}: with"
            " another count a document's changes would be on two partitions, out of order",
            f"set [kafka] partitions = {topic.partitions}",
        )


def single(topic: Topic) -> Iterator[Finding]:
    """Requests and dead letters lie on one partition."""
    if topic.partitions != 1:
        yield error(
            f"kafka {topic.name}",
            f"the topic {topic.name} has {topic.partitions} partitions and must have one: it was not made by Towpath",
            "delete it, and deploy makes it anew",
        )


def no_loop(i: Inventory) -> Iterator[Finding]:
    """No other pipeline brings back what this one writes, unless nothing gets from one side to the other."""
    if not i.is_held:
        yield from loops(
            i.pipeline, i.connect, i.configurations, i.source.replica_set, i.destination.replica_set, i.namespaces
        )


def _preconditions(*checks: Callable[[Inventory], Iterator[Finding]]) -> tuple[Precondition[Inventory], ...]:
    return tuple(Precondition(check) for check in checks)


#: What the file asks of the servers.
OF_SERVERS = _preconditions(kinds, included, names, targets, present_plugins, partitions)
#: What is deployed already allows the change.
OF_CHANGE = _preconditions(
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
