"""The pipeline file: settings that are valid but are traps; and whether it fits what is deployed, so that a deployment
loses no record and puts none out of order. Other pipelines on the same Connect cluster neither write the same
namespaces nor replicate back.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from towpath.checks import target
from towpath.checks.facts import Configurations, Facts, is_foreign
from towpath.checks.rule import Finding, Rule, error, ok, require, rules, warning
from towpath.checks.source import captured_by
from towpath.clients.kafka.topics import Topic
from towpath.clients.mongo.replica_set import ReplicaSet, holds_documents
from towpath.config.namespaces import namespace_of, renames_of, topic_of
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, first_few
from towpath.errors import ConnectUnreachable, TowpathError
from towpath.log.definitions import DESTINATION_SET, PARTITIONS, SOURCE_SET
from towpath.log.source_offsets import SELECTION, source_state
from towpath.session import Session
from towpath.store import cutover
from towpath.store.writers import Registration

#: The key in the configuration of a replay's sink that names the pipeline whose log it reads.
REPLAY_OF = "towpath.replay.of"
#: Name → configuration.
Connectors = Mapping[str, Mapping[str, str]]
_REMOVE = "`towpath remove --topics` the pipeline and deploy it again"
_IF_LOST = "; if that one is lost and this one is empty, keep the log, which fills it: see docs/how-to/rebuild.md"
_DEPLOY = "deploy"
RULES_CHANGED = "TWP-RULES-CHANGED"
_MOST_NAMED = 3
#: A log with a shorter retention does not survive an outage over a weekend.
_SHORT_RETENTION_MS = 3 * 24 * 3600 * 1000
_SHORT_LAG_MS = 600_000  # a shorter lag leaves little time during an outage of a broker or Connect


def traps(pipeline: Pipeline, path: Path) -> Iterator[Finding]:
    partitions, tasks, log = pipeline.kafka.partitions, pipeline.write.tasks, pipeline.log
    size = f"{counted(partitions, 'partition')}, {counted(tasks, 'task')}"
    yield ok(f"{path}: pipeline {pipeline.name}, {size}")
    for namespace in pipeline.collections.rename:
        if not pipeline.selection.matches(namespace):
            yield warning(
                f"[collections.rename] names {namespace}, which [collections] does not include: it has no effect",
                "correct the name (the left side is the namespace at the source), or remove the line",
            )
    if pipeline.capture.copy_tasks > 1 and pipeline.copy_method != "towpath":
        yield warning(
            f'[capture] copy_tasks = {pipeline.capture.copy_tasks} has no effect: copy = "{pipeline.copy_method}", and'
            ' only copy = "towpath" is shared by tasks',
            "remove copy_tasks",
        )
    if pipeline.write.concern.partition("+")[0] == "1":
        yield warning(
            f'[write] concern = "{pipeline.write.concern}": when the destination\'s primary fails, writes that no other'
            " member has are rolled back, and the pipeline does not write them again",
            'use "majority"',
        )
    if tasks > partitions:
        yield warning(
            f"[write] tasks = {tasks}, but a topic has only {partitions} partitions: at most {partitions} tasks can"
            " write one collection",
            f"set tasks = {partitions}, unless many collections are busy at the same time",
        )
    if 0 <= log.retention < _SHORT_RETENTION_MS:
        yield warning(
            f"[log] retention is {log.retention / 3_600_000:,.1f} hours: records that are not applied by then are"
            " deleted and lost, for example when the pipeline is down over a weekend",
            "set [log] retention to three days or more",
        )
    if log.compact and log.compaction_lag < _SHORT_LAG_MS:
        yield warning(
            f"[log] compaction_lag is {log.compaction_lag // 1000} s: when Connect, a broker or `towpath compact` is"
            " down for longer, the log cleaner drops documents that a rebuild needs",
            "set hours, not minutes; the default is 24h",
        )
    if log.compact and 0 <= log.retention <= log.compaction_lag:
        yield warning(
            f"[log] retention ({log.retention // 1000} s) is not longer than compaction_lag"
            f" ({log.compaction_lag // 1000} s): records are deleted before the log cleaner may compact them",
            "compaction has no effect here: set a longer retention, or compact = false",
        )
    yield _secrets(pipeline)


def _secrets(pipeline: Pipeline) -> Finding:
    """Other users cannot read the secrets file, if it is on this machine."""
    file = pipeline.secrets_file
    origin = f"the Secret {pipeline.name}-workers has it" if pipeline.has_operator else "deploy writes it"
    try:
        mode = file.stat().st_mode
    except OSError:
        return ok(f"{file}, from which the workers read both URIs, is not on this machine; {origin}")
    if mode & stat.S_IRWXO:
        access = f"{file} holds both URIs, and all users of this machine have access to it (mode {mode & 0o777:04o})"
        return warning(access, f"chmod o= {file}")
    return ok(f"{file} is closed to other users")


def no_cutover(facts: Facts) -> Iterator[Finding]:
    """No cutover is under way or over when a new sink is created, unless it is not started; and no takeover ever."""
    if facts.pipeline.exactly_once:
        starts_none = facts.is_deployed or facts.pipeline.sink_connector in facts.create_stopped
        (cutover.refuse_takeover if starts_none else cutover.refuse)(facts.session)
    return iter(())


def one_writer(facts: Facts) -> Iterator[Finding]:
    """No other sink writes a namespace of the pipeline. The sink of a pipeline's old name counts as another."""
    sink, destination = facts.pipeline.sink_connector, facts.destination.replica_set
    connectors = set()
    for writer in writers(facts.configurations, destination, facts.targets, except_for=sink):
        connectors |= {writer.connector, writer.connector.removesuffix("-sink")}
        if writer.replay_of:
            yield error(
                f"the replay {writer.connector} of the pipeline {writer.replay_of} already writes {writer.listed} to"
                " this destination, and two sinks on one namespace overtake each other",
                f"end it first: `towpath remove … --replay {writer.label}` with that pipeline's file",
            )
        else:
            yield error(
                f"the connector {writer.connector} already writes {writer.listed} to this destination, and two"
                " pipelines on one namespace overtake each other. If you renamed the pipeline: its log and its"
                f" position stay with the old name ({writer.connector.removesuffix('-sink')})",
                "keep that, or `towpath remove` the old pipeline first",
            )
    ours = Registration.of(facts.pipeline, facts.kafka_cluster, facts.source.replica_set)
    elsewhere = {name: theirs for name, theirs in facts.registered.items() if name not in connectors}
    yield from target.others(ours, elsewhere, facts.targets)


def same_clusters(facts: Facts) -> Iterator[Finding]:
    """The replica sets are the deployed ones, because a position is valid in its own replica set only."""
    for name, config in facts.deployed.items():
        for cluster, key in ((facts.source, SOURCE_SET), (facts.destination, DESTINATION_SET)):
            before = (config or {}).get(key)
            if before and not ReplicaSet.parse(before).is_same(cluster.replica_set):
                can_rebuild = cluster is facts.destination and facts.pipeline.exactly_once
                yield error(
                    f"{name} was deployed with the {cluster.side} {before}, and the file now names"
                    f" {cluster.replica_set}: its position means nothing there",
                    f"set [{cluster.side}] uri back, or {_REMOVE}, or give the new pipeline another name"
                    + (_IF_LOST if can_rebuild else ""),
                )


def same_source_of_log(facts: Facts) -> Iterator[Finding]:
    """After `remove`, the source is that of the log, which the registration knows. Otherwise the connector does."""
    pipeline = facts.pipeline
    registered, deployed = facts.registered.get(pipeline.name), facts.deployed[pipeline.source_connector]
    if registered is None or SOURCE_SET in (deployed or {}) or not facts.written:
        return
    if not ReplicaSet.parse(registered.source).is_same(facts.source.replica_set):
        yield error(
            f"the log of {pipeline.name} is of the source {registered.source}, and the file now names"
            f" {facts.source.replica_set}: its history and its position mean nothing there",
            f"set [source] uri back, or {_REMOVE}, or give the new pipeline another name",
        )


def same_mode(facts: Facts) -> Iterator[Finding]:
    """As `unchanged_mode`. What was not made for the pipeline does not show its mode: connectors, and empty topics.

    If only topics that were not show another mode, the pipeline may never have been deployed.
    """
    pipeline, deployed, existing = facts.pipeline, facts.deployed, facts.existing
    if others := [name for name in deployed if is_foreign(facts, name)]:
        for name in others:
            yield error(
                f"Kafka Connect has a connector {name} that is not Towpath's, and {pipeline.name} would replace it",
                "give the pipeline another name; or, if no one needs that connector, remove it: curl -X DELETE"
                f" CONNECT_URL/connectors/{name}",
            )
        return
    is_whole = all(deployed.get(name) is not None for name in (pipeline.sink_connector, pipeline.source_connector))
    foreign = [] if is_whole else [name for name in facts.own_topics.others if pipeline.is_change_topic(name)]
    filled = sorted(facts.written.intersection(foreign)) if foreign else []
    judged = {name: topic for name, topic in existing.items() if name not in foreign or name in filled}
    found = list(unchanged_mode(pipeline, facts.desired, deployed, judged))
    is_first = not any(deployed.values()) and filled and not any(map(pipeline.is_change_topic, judged.keys() - filled))
    if found and is_first:
        yield error(
            f"{first_few(filled, 3)} holds records, and nothing shows that it was made for {pipeline.name}",
            "give the pipeline another name, or exclude that namespace; if no one needs the records, delete the topic"
            " with Kafka's tools (kafka-topics.sh --delete --topic). If the pipeline was deployed before:"
            f" {found[0].finding}; {found[0].advice}",
        )
        return
    for finding in found:
        yield replace(finding, advice=f"{finding.advice}; {left_by_removal(filled)}") if filled else finding


def no_records_of_others(facts: Facts) -> Iterator[Finding]:
    """At the first deployment, the topics of requests, dead letters and heartbeats hold nothing.

    A log with records, which is only judged by `same_mode`, may be that of a pipeline whose destination is lost.
    """
    if any(facts.deployed.values()) or not facts.used or facts.written:
        return
    others, is_theirs = facts.used.intersection(facts.own_topics.others), facts.pipeline.kafka.topics == "exist"
    if is_theirs:  # nothing reads heartbeats, and there nothing deletes them
        others -= set(facts.pipeline.heartbeat_topics)
    if others:
        yield error(
            f"{first_few(sorted(others), 3)} holds records, and nothing shows that it was made for"
            f" {facts.pipeline.name}",
            "give the pipeline another name; if no one needs the records, delete the topic with Kafka's tools"
            f" (kafka-topics.sh --delete --topic){', and create it again' if is_theirs else ''}",
        )


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
            f'{pipeline.name} was deployed with another [capture] copy, and the file now says "{pipeline.copy_method}":'
            " the stored progress of one method cannot be used by another",
            f"set it back, or empty the destination's namespaces and {_REMOVE}",
        )


def _unchanged(desired: Configurations, deployed: Configurations, name: str, keys: Iterable[str]) -> bool | None:
    """Whether these settings of a deployed connector are as the file defines them; None if it is not deployed."""
    before, after = deployed.get(name), desired.get(name) or {}
    return None if before is None else all(before.get(key) == after.get(key) for key in keys)


def same_partitions(facts: Facts) -> Iterator[Finding]:
    """The log keeps its number of partitions, by which the key of a document decides its partition.

    The registration knows it, also where someone else creates the topics, and after `remove`.
    """
    pipeline = facts.pipeline
    now, registered = pipeline.kafka.partitions, facts.registered.get(pipeline.name)
    source = facts.deployed[pipeline.source_connector] or {}
    before = (registered and registered.partitions) or int(source.get(PARTITIONS, now))
    if before != now and facts.log:
        yield error(
            f"{pipeline.name} was deployed with [kafka] partitions = {before}, and the file now says {now}: the next"
            " changes of a document would be in another partition than those before, without an order between them",
            f"set partitions = {before} again, or {_REMOVE}",
        )


def same_whole_documents(facts: Facts) -> Iterator[Finding]:
    name = facts.pipeline.whole_source_connector
    if name not in facts.pipeline.connectors and facts.deployed.get(name) is not None:
        yield error(
            f"the connector {name} looks up whole documents, and the file no longer names any: the capture method of a"
            " collection cannot change",
            f"name it again in [capture] whole_documents, or {_REMOVE}",
        )


def same_capture(facts: Facts) -> Iterator[Finding]:
    """No namespace moves from one source connector to another: deletes in between would be lost."""
    for namespace in facts.namespaces:
        before, after = captured_by(facts.deployed, namespace), captured_by(facts.desired, namespace)
        if before and after and before != after:
            yield error(
                f"{namespace} is captured by {before} and would be by {after}: the capture method of a collection"
                " cannot change",
                f"leave [capture] whole_documents as it was for it, or {_REMOVE}",
            )


def _newly_captured(facts: Facts, namespace: str) -> str | None:
    """The deployed connector that would begin to capture this namespace; None if one captures it already."""
    after = captured_by(facts.desired, namespace)
    is_captured = captured_by(facts.deployed, namespace) is not None
    return None if after is None or facts.deployed.get(after) is None or is_captured else after


def copied(facts: Facts) -> Iterator[Finding]:
    """Debezium copies only at its first start, so no collection with documents is included later."""
    for namespace in facts.namespaces if facts.pipeline.copy_method == "debezium" else ():
        after = _newly_captured(facts, namespace)
        if (
            after is not None
            and facts.offsets(after)
            and facts.source.ask(partial(holds_documents, namespace=namespace))
        ):
            yield error(
                f"{namespace} holds documents and was not captured by {after} when it started: they would not be"
                f" copied",
                f"give it a separate pipeline, or {_REMOVE}",
            )


def not_taken_in_again(facts: Facts) -> Iterator[Finding]:
    """No collection is included again: a copy does not show what was deleted while it was excluded."""
    if not facts.pipeline.has_own_source:
        return
    names = {topic_of(facts.pipeline.name, ns): ns for ns in facts.namespaces if _newly_captured(facts, ns)}
    for topic in sorted(facts.captured(facts.written.intersection(names))) if names else ():
        yield error(
            f"{names[topic]} was included in this pipeline before, and then excluded: its topic {topic} holds records,"
            " and documents that were deleted at the source since then would stay at the destination forever",
            f"`towpath remove` and `towpath deploy`, which keep the log, and then `towpath resnapshot PIPELINE --only"
            f" {names[topic]}`, which deletes them at the destination; or {_REMOVE}",
        )


def same_pipeline(facts: Facts) -> Iterator[Finding]:
    """The file leaves a collection of those that are captured, or it is probably that of another pipeline."""
    pipeline = facts.pipeline
    if all(facts.deployed[name] is None for name in pipeline.source_connectors):
        return
    captured = [
        namespace
        for namespace in (namespace_of(pipeline.name, topic) for topic in sorted(facts.written))
        if captured_by(facts.deployed, namespace)
    ]
    if captured and not any(captured_by(facts.desired, namespace) for namespace in captured):
        yield error(
            f"the file has none of the collections that {pipeline.name} replicates: {first_few(captured, 3)}",
            "if this is another pipeline, give it another `name`; else leave one of these in [collections] include, or"
            " `towpath remove` this pipeline first",
        )


def _lost_offsets(facts: Facts, connector: str) -> str:
    """What Connect has lost of a source connector, as the beginning of a sentence; empty if nothing.

    Connect shows the offsets of existing connectors only, and keeps those of a connector that `remove` has removed.
    Of an existing one it may not show them: it asks Kafka with the login in the connector's present configuration.
    """
    if facts.deployed[connector] is None:
        is_removed = facts.registration is not None and facts.registration.removed
        gone = (
            f"Kafka Connect has no {connector}, which `towpath remove` has not removed: if its offsets are also lost,"
        )
        return "" if is_removed else gone
    try:
        offsets = facts.offsets(connector)
        is_lost = not offsets or source_state(offsets).lost
    except ConnectUnreachable:
        raise
    except TowpathError:
        return ""
    return f"Kafka Connect has no offsets of {connector} that continue it:" if is_lost else ""


def kept_offsets(facts: Facts) -> Iterator[Finding]:
    """A source connector whose log holds records has the offsets that continue it."""
    pipeline = facts.pipeline
    for name in pipeline.source_connectors if pipeline.has_own_source else ():
        topics = {topic_of(pipeline.name, ns) for ns in facts.namespaces if captured_by(facts.desired, ns) == name}
        written = facts.written & topics
        if written and (lost := _lost_offsets(facts, name)) and facts.captured(written):
            yield warning(
                f"the log holds records of an earlier capture, and {lost} the connector will not capture anything"
                " (TWP-HISTORY-LOST)",
                "run `towpath resnapshot PIPELINE` after it, which re-reads all documents",
                code="TWP-HISTORY-LOST",
            )


def same_rules(facts: Facts) -> Iterator[Finding]:
    """The rules leave of each captured collection what those before have left, or its documents are to be re-read."""
    for connector, names in facts.with_other_rules.items():
        listed, resnapshot = first_few(names, 3), resnapshot_of(names)
        if source_state(facts.offsets(connector) or ()).is_initial:
            yield error(
                f"the rules have changed for {listed}, and the initial copy is not finished: a part of the documents"
                " follows the rules before",
                f"set the rules back until it is; or {_REMOVE}",
                code=RULES_CHANGED,
            )
        elif not facts.accept_rules:
            yield error(
                f"the rules have changed for {listed}: documents in the log and at the destination still are as the"
                " rules before left them",
                f"pass --accept-rules, and run `{resnapshot}` afterwards, which re-reads these documents; nothing is"
                " captured until then. The log's older records stay as they are until retention or compaction removes"
                " them",
                code=RULES_CHANGED,
            )


def resnapshot_of(namespaces: Sequence[str]) -> str:
    """The command that re-reads the documents of these collections, or of all."""
    few = namespaces if len(namespaces) <= _MOST_NAMED else ()
    return " ".join(("towpath resnapshot PIPELINE", *(f"--only {name}" for name in few)))


@dataclass(frozen=True, slots=True)
class Writer:
    """A sink connector that writes some of the namespaces in question."""

    connector: str
    replay_of: str
    """The pipeline whose log it replays; empty for a pipeline's own sink."""
    listed: str
    """The first of the namespaces, for a message."""

    @property
    def label(self) -> str:
        """The name of a replay."""
        return self.connector.removeprefix(f"{self.replay_of}-replay-")


def _at(connectors: Connectors, key: str, cluster: ReplicaSet) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Name and configuration of Towpath's connectors that read (`SOURCE_SET`) or write (`DESTINATION_SET`) there."""
    for name, config in connectors.items():
        if key in config and ReplicaSet.parse(config[key]).is_same(cluster):
            yield name, config


def writers(
    connectors: Connectors, destination: ReplicaSet, targets: Iterable[str], except_for: str
) -> Iterator[Writer]:
    """The sinks, except one, that write any of these namespaces (destination's names) to this replica set."""
    names = sorted(targets)
    for name, config in _at(connectors, DESTINATION_SET, destination):
        replay_of = config.get(REPLAY_OF, "")
        prefix = replay_of or name.removesuffix("-sink")
        written = [target for target in names if name != except_for and is_written(config, prefix, target)]
        if written:
            yield Writer(name, replay_of, first_few(written, 3))


def is_written(config: Mapping[str, str], prefix: str, target: str) -> bool:
    """Whether a sink with this configuration, which reads topics `<prefix>.…`, writes the namespace `target`."""
    renames = renames_of(config)
    names = [old for old, new in renames.items() if new == target] + ([] if target in renames else [target])
    listed, pattern = config.get("topics", "").split(","), config.get("topics.regex")
    topics = [topic_of(prefix, name) for name in names]
    return any(re.fullmatch(pattern, topic) if pattern else topic in listed for topic in topics)


def loops(facts: Facts, source: ReplicaSet, destination: ReplicaSet, namespaces: Iterable[str]) -> Iterator[Finding]:
    """An error for each pipeline that replicates what this one writes back to where this one captures it.

    `namespaces`: what this pipeline captures, by the source's names. A pipeline whose sink is STOPPED does not count.
    """
    pipeline, connectors = facts.pipeline, facts.configurations
    written = {pipeline.renamed(name): name for name in namespaces}
    for sink, config in _at(connectors, DESTINATION_SET, source):
        if sink == pipeline.sink_connector or REPLAY_OF in config:
            continue
        other, renames = sink.removesuffix("-sink"), renames_of(config)
        sources = (f"{other}-source", f"{other}-source-whole")
        captured = [it[SELECTION] for name, it in _at(connectors, SOURCE_SET, destination) if name in sources]
        round_trip = [
            (target, name)
            for target, name in written.items()
            if renames.get(target, target) == name and any(re.fullmatch(pattern, target) for pattern in captured)
        ]
        if round_trip and facts.state(sink) != "STOPPED":
            target, name = round_trip[0]
            yield error(
                f"{pipeline.name} writes {target}, and the pipeline {other} brings that back to {name}, where"
                f" {pipeline.name} captures it: each change would circulate forever",
                f"`towpath remove` {other} first, or stop its sink; after a cutover of {other}, `towpath resume` with"
                " its file stops it",
            )


def refuse_loop_on_resuming(session: Session) -> None:
    """Raise `Refused` for a loop, judging by the deployed connectors and the log, without the MongoDB clusters."""
    require(rules("deploy", _deployed_loops), Facts(session))


def _deployed_loops(facts: Facts) -> Iterator[Finding]:
    pipeline = facts.pipeline
    source, sink = (facts.deployed[name] or {} for name in (pipeline.source_connector, pipeline.sink_connector))
    if SOURCE_SET in source and DESTINATION_SET in sink:
        names = [namespace_of(pipeline.name, topic.name) for topic in facts.log]
        yield from loops(facts, ReplicaSet.parse(source[SOURCE_SET]), ReplicaSet.parse(sink[DESTINATION_SET]), names)


def no_loop(facts: Facts) -> Iterator[Finding]:
    """No other pipeline replicates back what this one writes, unless this one is stopped."""
    if not facts.is_stopped:
        yield from loops(facts, facts.source.replica_set, facts.destination.replica_set, facts.namespaces)


#: Traps in the file, which are only reported.
TRAPS: Sequence[Rule[Facts]] = (Rule("file", lambda facts: traps(facts.pipeline, facts.session.file), required=False),)
RULES = rules(
    _DEPLOY,
    no_cutover,
    one_writer,
    no_loop,
    same_clusters,
    same_source_of_log,
    same_mode,
    no_records_of_others,
    same_partitions,
    same_whole_documents,
    same_capture,
    copied,
    not_taken_in_again,
    same_pipeline,
    kept_offsets,
    same_rules,
)
