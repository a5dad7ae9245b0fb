"""The checks of Kafka: brokers, limits for large records, existing topics, topics that `deploy` would create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from towpath.checks import log, source
from towpath.checks.facts import Facts
from towpath.checks.rule import Finding, Rule, error, ok, rules, warning
from towpath.clients.kafka.topics import LARGEST_RECORD, Topic
from towpath.config.namespaces import topic_of
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, first_few
from towpath.errors import TopicError
from towpath.log.definitions import change_settings

SUBJECT = "kafka"
_SHOWN = 3

Settings = Mapping[str, str]


def brokers(facts: Facts) -> Iterator[Finding]:
    count = counted(len(facts.brokers), "broker")
    yield ok(SUBJECT, f"{facts.pipeline.kafka.bootstrap}: {count}, cluster {facts.kafka_cluster}")
    for number in facts.brokers:
        try:
            settings = facts.broker_settings(number)
        except TopicError as refused:  # only this check needs the privilege to read them
            yield warning(SUBJECT, refused.what, refused.advice or "grant it, or check them as another user")
            continue
        yield from broker(number, settings, len(facts.brokers), facts.pipeline)


def topics(facts: Facts) -> Iterator[Finding]:
    """The existing topics have the settings of the file."""
    yield from foreign_topics(facts.pipeline, facts.existing)
    begins: dict[str, int] = {}
    for (name, _), (first, _) in facts.ends.items():
        begins[name] = max(first, begins.get(name, 0))
    for existing in facts.log:
        yield from topic(existing.name, facts.topic_settings[existing.name], begins[existing.name], facts.pipeline)
    yield ok(SUBJECT, f"existing topics of the pipeline: {len(facts.log)}")


def partitions(facts: Facts) -> Iterator[Finding]:
    """Every existing topic has the partition count in the file."""
    for topic in facts.log:
        yield from partition_count(topic, facts.pipeline)
    for name in (facts.pipeline.request_topic, facts.pipeline.dead_letter_topic):
        if name in facts.existing:
            yield from single(facts.existing[name])


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


def creatable(facts: Facts) -> Iterator[Finding]:
    """The brokers would create a topic as `deploy` does.

    A request that is only validated shows missing privileges, policies, and too few brokers for the replicas.
    """
    pipeline, settings = facts.pipeline, change_settings(facts.pipeline)
    missing = [name for name in source.namespaces(facts) if topic_of(pipeline.name, name) not in facts.existing]
    try:
        probe = f"{pipeline.name}.check"  # has the prefix, for which ACLs exist, and belongs to no namespace
        facts.topics.create(
            probe, pipeline.kafka.partitions, pipeline.kafka.replication_factor, settings, validate_only=True
        )
    except TopicError as refused:
        yield (error if missing or not facts.log else warning)(
            SUBJECT,
            f"the brokers would not create the pipeline's topics: {refused}",
            "correct what the message names: [kafka] replication_factor or partitions, the brokers' policies, or the"
            " user's ACLs",
        )
    else:
        yield ok(
            SUBJECT,
            f"the brokers would create topics of {counted(pipeline.kafka.partitions, 'partition')} for records of"
            f" {LARGEST_RECORD} bytes",
        )


def broker(number: int, settings: Settings, brokers: int, pipeline: Pipeline) -> Iterator[Finding]:
    """The broker takes records of up to 17 MiB, and its settings endanger neither the order nor the log."""
    subject = f"{SUBJECT} broker {number}"
    if _bytes(settings, "socket.request.max.bytes") < LARGEST_RECORD:
        yield error(
            subject,
            f"socket.request.max.bytes={settings['socket.request.max.bytes']}: the broker would reject a record of"
            f" {LARGEST_RECORD} bytes (a document of 16 MiB)",
            f"set socket.request.max.bytes={LARGEST_RECORD + 2**20} or more on every broker",
        )
    if brokers > 1 and _bytes(settings, "replica.fetch.max.bytes") < LARGEST_RECORD:
        yield warning(
            subject,
            f"replica.fetch.max.bytes={settings['replica.fetch.max.bytes']}, smaller than the largest record"
            f" ({LARGEST_RECORD}): followers fetch such records one by one",
            f"set replica.fetch.max.bytes={LARGEST_RECORD}",
        )
    if settings.get("auto.create.topics.enable") == "true":
        yield warning(
            subject,
            "auto.create.topics.enable=true: a client that requests a topic before `deploy` has created it creates it"
            " with the broker's partition count and settings",
            "set auto.create.topics.enable=false; Towpath and Connect create their topics themselves",
        )
    if pipeline.log.compact and settings.get("log.cleaner.enable") == "false":
        yield error(
            subject,
            "log.cleaner.enable=false: the broker compacts nothing, but the file sets [log] compact = true",
            "set log.cleaner.enable=true on every broker",
        )
    yield from _replication(subject, settings, brokers, pipeline.kafka.replication_factor)
    yield ok(
        subject,
        f"message.max.bytes={settings.get('message.max.bytes')} (the pipeline's topics have their own:"
        f" {LARGEST_RECORD}), replica.fetch.max.bytes={settings.get('replica.fetch.max.bytes')}",
    )


def _replication(subject: str, settings: Settings, brokers: int, configured: int) -> Iterator[Finding]:
    factor = configured if configured > 0 else int(settings.get("default.replication.factor", "1"))
    insync = int(settings.get("min.insync.replicas", "1"))
    if factor == 1:
        where = "[kafka] replication_factor" if configured > 0 else "the broker's default.replication.factor"
        yield warning(
            subject,
            f"topics have one replica ({where}) on {counted(brokers, 'broker')}: a broker that is lost takes its part"
            " of the log with it, and one that is killed can lose the end of a transaction (KAFKA-20734)",
            "set [kafka] replication_factor = 3 before the first deploy"
            if brokers > 1
            else "enough for a trial; for data that counts, use three brokers or more, and set [kafka]"
            " replication_factor = 3 before the first deploy",
        )
    if insync > factor:
        yield error(
            subject,
            f"min.insync.replicas={insync}, but topics would have {counted(factor, 'replica')}: no record can be"
            " written",
            f"set [kafka] replication_factor = {insync + 1}, or lower min.insync.replicas",
        )


def _bytes(settings: Settings, key: str) -> int:
    return int(settings.get(key, LARGEST_RECORD))


def topic(name: str, settings: Settings, begins: int, pipeline: Pipeline) -> Iterator[Finding]:
    """The settings of an existing change topic are those of the file. `begins`: its first offset."""
    subject = f"{SUBJECT} {name}"
    guarded = [*log.guard(subject, settings, begins, pipeline)]
    yield from guarded
    reported = {finding.where for finding in guarded}
    required = {key: value for key, value in change_settings(pipeline).items() if key not in reported}
    other = {key: settings.get(key) for key, value in required.items() if settings.get(key) != value}
    if other:
        yield warning(
            subject,
            f"has {_listed(other)}, but the file requires {_listed({key: required[key] for key in other})}",
            "run `towpath deploy`, which applies the file's settings",
        )


def _listed(settings: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def foreign_topics(pipeline: Pipeline, existing: Mapping[str, Topic]) -> Iterator[Finding]:
    """Warn about topics with the pipeline's prefix that belong to none of its namespaces."""
    prefixed = sorted(name for name in existing if name.startswith(f"{pipeline.name}."))
    own = (pipeline.dead_letter_topic, pipeline.request_topic)
    others = [name for name in prefixed if name not in own and not pipeline.is_change_topic(name)]
    if others:
        yield warning(
            SUBJECT,
            f"topics with the prefix {pipeline.name!r} that belong to no namespace of the pipeline:"
            f" {first_few(others, _SHOWN)}",
            "if the file included their namespaces before, `remove --topics` no longer finds them: delete them by hand;"
            " if they belong to somebody else, give the pipeline another name before the first deploy",
        )


RULES = (*rules(SUBJECT, brokers, partitions, creatable), Rule(SUBJECT, topics, required=False))
