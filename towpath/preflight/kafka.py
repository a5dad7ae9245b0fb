"""Kafka: brokers, limits for large records, topics that are there, topics that would be made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from towpath.deploy import preconditions
from towpath.deploy.inventory import Inventory
from towpath.errors import TopicError
from towpath.finding import Finding, Precondition, error, ok, warning
from towpath.kafka.topics import Topic
from towpath.namespaces import topic_of
from towpath.pipeline import Pipeline
from towpath.preflight import log, source
from towpath.text import counted
from towpath.topic_settings import LARGEST_RECORD, change_settings

SUBJECT = "kafka"
_SHOWN = 3

Settings = Mapping[str, str]


def brokers(i: Inventory) -> Iterator[Finding]:
    yield ok(SUBJECT, f"{i.pipeline.bootstrap}: {counted(len(i.brokers), 'broker')}, cluster {i.kafka_cluster}")
    for number in i.brokers:
        try:
            settings = i.topics.broker_settings(number)
        except TopicError as refused:  # the user may not see them, which nothing but this look needs
            yield warning(SUBJECT, refused.what, refused.advice or "grant it, or look yourself")
            continue
        yield from broker(number, settings, len(i.brokers), i.pipeline)


def topics(i: Inventory) -> Iterator[Finding]:
    """Topics that are there."""
    yield from strangers(i.pipeline, i.existing)
    yield from preconditions.partitions(i)
    settings, ends = i.topics.settings_of_all(topic.name for topic in i.log), i.topics.ends(i.log)
    for found in i.log:
        begins = max(first for (name, _), (first, _) in ends.items() if name == found.name)
        yield from topic(found.name, settings[found.name], begins, i.pipeline)
    yield ok(SUBJECT, f"existing topics of the pipeline: {len(i.log)}")


def creatable(i: Inventory) -> Iterator[Finding]:
    """The brokers would create a topic as `deploy` does: asked with validation only. It shows policies, rights, and
    replicas that cannot be had."""
    pipeline, settings = i.pipeline, change_settings(i.pipeline)
    missing = [name for name in source.namespaces(i) if topic_of(pipeline.name, name) not in i.existing]
    try:
        probe = f"{pipeline.name}.check"  # under the prefix that the user may have, and of no namespace
        i.topics.create(probe, pipeline.partitions, pipeline.replication_factor, settings, validate_only=True)
    except TopicError as refused:
        yield (error if missing or not i.log else warning)(
            SUBJECT,
            f"the brokers would not create the pipeline's topics: {refused}",
            "correct what the message names: [kafka] replication_factor or partitions, the brokers' policies, or the"
            " user's ACLs",
        )
    else:
        yield ok(
            SUBJECT,
            f"the brokers would create topics of {counted(pipeline.partitions, 'partition')} for records of"
            f" {LARGEST_RECORD} bytes",
        )


PRECONDITIONS = (Precondition(brokers), Precondition(creatable), Precondition(topics, required=False))


def broker(number: int, settings: Settings, brokers: int, pipeline: Pipeline) -> Iterator[Finding]:
    """What the settings of one broker mean for records of up to 17 MiB, and for order and safety of the log."""
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
    if pipeline.compaction and settings.get("log.cleaner.enable") == "false":
        yield error(
            subject,
            "log.cleaner.enable=false: the broker compacts nothing, but the file sets [log] compact = true",
            "set log.cleaner.enable=true on every broker",
        )
    yield from _replication(subject, settings, brokers, pipeline.replication_factor)
    yield ok(
        subject,
        f"message.max.bytes={settings.get('message.max.bytes')} (the pipeline's topics have their own:"
        f" {LARGEST_RECORD}), replica.fetch.max.bytes={settings.get('replica.fetch.max.bytes')}",
    )


def _replication(subject: str, settings: Settings, brokers: int, wanted: int) -> Iterator[Finding]:
    factor = wanted if wanted > 0 else int(settings.get("default.replication.factor", "1"))
    insync = int(settings.get("min.insync.replicas", "1"))
    if brokers > 1 and factor == 1:
        where = "[kafka] replication_factor" if wanted > 0 else "the broker's default.replication.factor"
        yield warning(
            subject,
            f"topics have one replica ({where}) on {brokers} brokers: a broker that is lost takes its part of the log"
            " with it",
            "set [kafka] replication_factor = 3 before the first deploy",
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
    """What is wrong with the settings of a change topic that is there, whose first offset is `begins`."""
    subject = f"{SUBJECT} {name}"
    told = [*log.guard(subject, settings, begins, pipeline)]
    yield from told
    named = {finding.where for finding in told}
    wanted = {key: value for key, value in change_settings(pipeline).items() if key not in named}
    other = {key: settings.get(key) for key, value in wanted.items() if settings.get(key) != value}
    if other:
        yield warning(
            subject,
            f"has {_listed(other)}, but the file requires {_listed({key: wanted[key] for key in other})}",
            "run `towpath deploy`, which applies the file's settings",
        )


def _listed(settings: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def strangers(pipeline: Pipeline, existing: Mapping[str, Topic]) -> Iterator[Finding]:
    """Topics under the pipeline's prefix that are of no namespace of it."""
    pattern = pipeline.selection.topic_regex(pipeline.name)
    others = [
        name
        for name in sorted(existing)
        if name.startswith(f"{pipeline.name}.")
        and name not in (pipeline.dead_letter_topic, pipeline.request_topic)
        and not re.fullmatch(pattern, name)
    ]
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        yield warning(
            SUBJECT,
            f"topics with the prefix {pipeline.name!r} that belong to no namespace of the pipeline:"
            f" {', '.join(others[:_SHOWN])}{more}",
            "if the file included their namespaces before, `remove --topics` no longer finds them: delete them by hand;"
            " if they belong to somebody else, give the pipeline another name before the first deploy",
        )
