"""Is the destination the one that the pipeline writes, and its alone?

Each command that deletes or overwrites there asks this first, and no option skips it. `gather` asks the servers, the
rules decide. What tells a destination is its replica set, the server's process, and what `deploy` has registered there
(`towpath.store.writers`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from towpath.checks.facts import Facts, is_foreign
from towpath.checks.rule import Finding, Rule, error, require, rules
from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import if_allowed
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config.namespaces import namespace_of, renames_of
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, first_few
from towpath.errors import ConnectUnreachable, KafkaUnreachable, MongoUnreachable
from towpath.log.definitions import DESTINATION_SET, SOURCE_BACK, SOURCE_SET, other_source
from towpath.session import Session
from towpath.store import writers
from towpath.store.writers import MONGOSH_FORGET, Registration

_DESTINATION = "destination"
_LEAVING_S = 15.0


@dataclass(frozen=True, slots=True)
class Target:
    """What the rules read. Names of namespaces are the destination's."""

    pipeline: Pipeline
    destination: ReplicaSet
    sources: tuple[ReplicaSet, ...]
    """The source as it answers, if it does, and as deployed."""
    deployed: ReplicaSet | None
    """The destination of the deployed sink; None if there is none."""
    names: tuple[str, ...]
    """The namespaces that are written."""
    registered: Mapping[str, Registration]
    sink: Mapping[str, str] = field(default_factory=dict)
    """The configuration of the deployed sink; empty if there is none."""
    kafka: str = ""
    """The id of the Kafka cluster; empty if it is not known."""
    source: ReplicaSet | None = None
    """The source as it answers, if it does."""
    at_source: Registration | None = None
    """The pipeline, if the source knows it as a writer there; asked only before the schema changes."""

    @property
    def ours(self) -> Registration:
        return Registration.of(self.pipeline, self.kafka, "")

    @property
    def is_known(self) -> bool:
        """Whether something shows that the pipeline writes there, or has: `remove` leaves what does, without the log.

        Connect and Kafka may be away, and the file may not be the one that was deployed.
        """
        own, source = self.registered.get(self.pipeline.name), self.source
        is_registered = own is not None and source is not None and ReplicaSet.parse(own.source).is_same(source)
        return self.deployed is not None or is_registered


def same_as_deployed(target: Target) -> Iterator[Finding]:
    """The file names the destination of the deployed sink."""
    if target.deployed is not None and not target.deployed.is_same(target.destination):
        yield error(
            f"{target.pipeline.sink_connector} writes to {target.deployed}, and [destination] uri names"
            f" {target.destination}: that is not the destination of the deployed pipeline, and nothing was changed",
            "set [destination] uri back",
        )


def same_source(target: Target) -> Iterator[Finding]:
    """The file names the source of the deployed connectors, where that answers."""
    words = (other_source(captured, target.source) for captured in target.sources if target.source)
    for found in dict.fromkeys(filter(None, words)):
        yield error(f"{found}; nothing was changed", SOURCE_BACK)


def same_kafka(ours: Registration, registered: Mapping[str, Registration]) -> Iterator[Finding]:
    """The destination does not know the name as that of a pipeline of another Kafka cluster, where ours is known."""
    theirs = registered.get(ours.name)
    if theirs is not None and ours.kafka and theirs.kafka != ours.kafka:
        yield error(
            f"the destination knows {ours.name} as the pipeline of the Kafka cluster {theirs.kafka}, and the file names"
            f" {ours.kafka}: two pipelines, or replays, of one name would share positions and namespaces there",
            f"give this one another name (a replay: with --name), or, {_if_gone(ours.name)}",
        )


def registered(target: Target) -> Iterator[Finding]:
    """The destination knows a deployed pipeline as its writer."""
    name = target.pipeline.name
    own = target.registered.get(name)
    if target.deployed is not None and (own is None or own.removed):
        yield error(
            f"{target.destination} does not know {name} as a writer: `deploy` registers each pipeline in"
            " towpath.writers of its destination, so this may be another cluster, or an empty new one; nothing was"
            " changed",
            "if it is the right one, run `towpath deploy`",
        )


def same_namespaces(target: Target) -> Iterator[Finding]:
    """The deployed sink writes the namespaces that the file names, under the same names.

    Otherwise others would be emptied than those that it fills again.
    """
    pipeline = target.pipeline
    differing = []
    if target.sink and renames_of(target.sink) != dict(pipeline.collections.rename):
        differing.append("[collections.rename]")
    if target.sink and target.sink.get("topics.regex") != pipeline.selection.topic_regex(pipeline.name):
        differing.append("include or exclude in [collections]")
    if differing:
        yield error(
            f"{pipeline.sink_connector} was deployed with other namespaces than the file has now"
            f" ({' and '.join(differing)}); nothing was changed",
            "`towpath deploy` the file first, or set that back",
        )


def not_the_source(target: Target) -> Iterator[Finding]:
    """Nothing is written to where the pipeline captures it."""
    if not target.sources:
        yield error(
            "the source does not answer, and no connector names it: it cannot be proven that the destination is not the"
            " source, and nothing was changed",
            "bring the source back, or `towpath deploy` the pipeline first",
        )
    captured = [name for name in target.names if target.pipeline.selection.matches(name)]
    if captured and any(source.is_same(target.destination) for source in target.sources):
        yield error(
            f"the destination {target.destination} is the source, and {first_few(captured, 3)} would be written where"
            " the pipeline captures it; nothing was changed",
            "see [source] uri and [destination] uri",
        )


def not_reversed(target: Target) -> Iterator[Finding]:
    """The source does not know the pipeline as one that writes there, from the destination. Both may be one set."""
    if target.at_source is None or target.is_known:
        return
    if ReplicaSet.parse(target.at_source.source).is_same(target.destination):
        yield error(
            f"the source knows {target.pipeline.name} as a writer there, from {target.destination}, which the file"
            " names as the destination: [source] and [destination] are exchanged; nothing was changed",
            "exchange [source] uri and [destination] uri, or give the file the name of the pipeline in this direction",
        )


def others(ours: Registration, registered: Mapping[str, Registration], names: tuple[str, ...]) -> Iterator[Finding]:
    """An error for each other writer that shares namespaces, or the name, with `ours`."""
    yield from same_kafka(ours, registered)
    for theirs in registered.values():
        if theirs.name != ours.name and not theirs.removed and (shared := ours.shared(theirs, names)):
            yield error(
                f"{theirs.name} (from {theirs.source}, in the Kafka cluster {theirs.kafka}) is registered at the"
                f" destination as a writer of {first_few(shared, 3)}, and two writers of one namespace overtake each"
                " other",
                f"`towpath remove` it with its file, or, {_if_gone(theirs.name)}",
            )


def no_other_writer(target: Target) -> Iterator[Finding]:
    """No other pipeline or replay is registered for these namespaces."""
    yield from others(target.ours, target.registered, target.names)


def _if_gone(name: str) -> str:
    return f"if that no longer exists, in mongosh at the destination: {MONGOSH_FORGET.format(name=name)}"


#: Where only what the pipeline itself has stored there counts, without the source: before that is removed, or decides.
OF_REMOVAL: Sequence[Rule[Target]] = rules(
    _DESTINATION, same_as_deployed, lambda target: same_kafka(target.ours, target.registered)
)
#: Before documents or collections are deleted or overwritten.
OF_WRITING: Sequence[Rule[Target]] = rules(
    _DESTINATION, same_as_deployed, same_source, registered, same_namespaces, not_the_source, no_other_writer
)
#: Before the schema of collections that exist is changed.
OF_SCHEMA: Sequence[Rule[Target]] = (*OF_WRITING, *rules(_DESTINATION, not_reversed))


def require_own(session: Session, *, ended: bool = False, with_source: bool = True) -> None:
    """Raise `Refused` unless the destination is the one that the pipeline writes, and no other pipeline does.

    With `ended`, Kafka and Connect may be away, as after the end of a replication. Without `with_source` the source is
    not asked, only what is deployed.
    """
    require(OF_WRITING, gather(Facts(session), ended=ended, with_source=with_source))


def require_schema(session: Session, *, ended: bool) -> bool:
    """As `require_own`, before the schema of collections that exist is changed: also after `remove --topics`.

    The result is False where nothing shows that the pipeline has written there.
    """
    facts = Facts(session)
    found = replace(gather(facts, ended=ended), at_source=facts.source.ask(_known).get(session.pipeline.name))
    require(OF_SCHEMA, found)
    return found.is_known


def _known(client: Client) -> Mapping[str, Registration]:
    """The writers that a source knows, if its user may read them."""
    return if_allowed(lambda: writers.read_all(client)) or {}


def require_same(session: Session) -> None:
    """Raise `Refused` unless the file names the destination of the deployed sink, which stores whether it may run."""
    if session.pipeline.exactly_once:
        require(OF_REMOVAL, gather(Facts(session), with_source=False))


def no_sink_elsewhere(facts: Facts) -> Iterator[Finding]:
    """No Connect cluster that the file does not name runs the sink."""
    sink = facts.pipeline.sink_connector
    if facts.deployed[sink] is None and (members := _members(facts, f"connect-{sink}")):
        yield error(
            f"Kafka Connect at {facts.connect.url} has no {sink}, and the consumer group connect-{sink} has"
            f" {counted(members, 'member')}: another Connect cluster runs the pipeline; nothing was changed",
            "set [connect] url to it",
            about="kafka",
        )


def _members(facts: Facts, group: str) -> int:
    """How many consumers a group has. Those of a connector that was just removed leave it a moment later."""
    until = time.monotonic() + _LEAVING_S
    while (members := facts.topics.members(group)) and time.monotonic() < until:
        time.sleep(0.5)
    return members


def known_log(facts: Facts) -> Iterator[Finding]:
    """The destination or Connect knows the pipeline whose log is to be deleted."""
    own, is_change = facts.own_topics, facts.pipeline.is_change_topic
    topics = sorted([*own.ids, *(name for name in own.others if not is_change(name))])
    connectors = [name for name, config in facts.deployed.items() if config and not is_foreign(facts, name)]
    if topics and not connectors and facts.registration is None:
        yield error(
            f"nothing shows that {first_few(topics, 3)} are of this pipeline: Kafka Connect at {facts.connect.url} has"
            f" no connector of {facts.pipeline.name}, and the destination does not know it; nothing was changed",
            "see [destination] uri and [connect] url; if no one needs the records, delete the topics with Kafka's tools"
            " (kafka-topics.sh --delete --topic)",
        )


#: Before the log is deleted, after `OF_REMOVAL`.
OF_LOG: Sequence[Rule[Facts]] = rules(_DESTINATION, no_sink_elsewhere, known_log)


def gather(facts: Facts, *, with_source: bool = True, ended: bool = False) -> Target:
    """Raises `MongoError`, except for a source that does not answer: a lost source is a reason for a rebuild.

    With `ended`, what Kafka and Connect know is left empty while one of them does not answer.
    """
    pipeline = facts.pipeline
    try:
        kafka, log = facts.kafka_cluster, [namespace_of(pipeline.name, topic.name) for topic in facts.log]
        configs = [config for config in facts.deployed.values() if config]
    except (KafkaUnreachable, ConnectUnreachable) as failure:
        if not ended or (isinstance(failure, ConnectUnreachable) and failure.status is not None):
            raise  # in the latter case, something else answers for Connect
        kafka, log, configs = "", [], []
    sources = [ReplicaSet.parse(config[SOURCE_SET]) for config in configs if SOURCE_SET in config]
    sink = next((config for config in configs if DESTINATION_SET in config), {})
    names, source = tuple(map(pipeline.renamed, log)), None
    try:
        if with_source:
            source = facts.source.replica_set
            sources.append(source)
            names = names or facts.targets
    except MongoUnreachable:
        if not log:
            raise
    return Target(
        pipeline=pipeline,
        destination=facts.destination.replica_set,
        sources=tuple(sources),
        deployed=ReplicaSet.parse(sink[DESTINATION_SET]) if sink else None,
        names=names,
        registered=facts.registered,
        sink=sink,
        kafka=kafka,
        source=source,
    )
