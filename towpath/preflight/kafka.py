"""Kafka: brokers, limits for large records, topics that are there, topics that would be made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from towpath.deploy.preconditions import refuse_partition_count, refuse_partitioned
from towpath.errors import Refused, TopicError, TowpathError
from towpath.finding import Finding, error, ok, refusal, warning
from towpath.kafka.topics import Topic, Topics
from towpath.pipeline import Pipeline
from towpath.preflight import log
from towpath.preflight.cluster import Known
from towpath.text import counted
from towpath.topic_settings import LARGEST_RECORD, change_settings

SUBJECT = "kafka"
_SHOWN = 3

Settings = Mapping[str, str]


def check(pipeline: Pipeline, known: Known, topics: Topics) -> Iterator[Finding]:
    try:
        brokers = topics.brokers()
        known.kafka = topics.cluster()
        yield ok(SUBJECT, f"{pipeline.bootstrap}: {counted(len(brokers), 'broker')}, cluster {known.kafka}")
        for number in brokers:
            yield from broker(number, topics.broker_settings(number), len(brokers), pipeline)
        yield from would_create(pipeline, topics)
        existing = topics.all()
        yield from strangers(pipeline, existing)
        pattern = pipeline.selection.topic_regex(pipeline.name)
        mine = [found for name, found in sorted(existing.items()) if re.fullmatch(pattern, name)]
        settings, ends = topics.settings_of_all(found.name for found in mine), topics.ends(mine)
        for found in mine:
            begins = max(first for (name, _), (first, _) in ends.items() if name == found.name)
            yield from topic(found, settings[found.name], begins, pipeline)
        for name in (pipeline.request_topic, pipeline.dead_letter_topic):
            if name in existing:
                yield from single(existing[name])
        yield ok(SUBJECT, f"existing topics of the pipeline: {len(mine)}")
    except TowpathError as failure:
        yield refusal(SUBJECT, failure)


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


def would_create(pipeline: Pipeline, topics: Topics) -> Iterator[Finding]:
    """Ask for a topic as `deploy` would make it, validation only: policies, rights, replicas that cannot be had."""
    settings = change_settings(pipeline)
    try:
        probe = f"{pipeline.name}.check"  # under the prefix that the user may have, and of no namespace
        topics.create(probe, pipeline.partitions, pipeline.replication_factor, settings, validate_only=True)
    except TopicError as refused:
        yield error(
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


def single(found: Topic) -> Iterator[Finding]:
    """What is wrong with the topic of requests or dead letters."""
    try:
        refuse_partitioned(found)
    except Refused as refused:
        yield refusal(f"{SUBJECT} {found.name}", refused)


def topic(found: Topic, settings: Settings, begins: int, pipeline: Pipeline) -> Iterator[Finding]:
    """What is wrong with a topic of the pipeline that is there, whose first offset is `begins`."""
    subject = f"{SUBJECT} {found.name}"
    try:
        refuse_partition_count(found.name, found.partitions, pipeline.partitions)
    except Refused as refused:
        yield refusal(subject, refused)
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
