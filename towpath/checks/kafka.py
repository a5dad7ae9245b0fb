"""The checks of Kafka: brokers, limits for large records, existing topics, topics that `deploy` would create.

Also whether the log keeps the records that a rebuild needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from towpath.checks import source
from towpath.checks.facts import Facts
from towpath.checks.rule import Finding, Rule, about, error, ok, rules, warning
from towpath.clients.kafka.topics import Topic
from towpath.config.namespaces import topic_of
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, first_few
from towpath.errors import TopicError
from towpath.log.definitions import HEARTBEAT_SETTINGS, MARK, change_settings, is_compacted, topic_groups

SUBJECT = "kafka"
_SHOWN = 3
_FOREVER = -1

Settings = Mapping[str, str]
_KEPT_LONGER = "deleted and replaced documents stay longer in a compacted log"
#: Setting of a topic → what is lost where the brokers do not allow it.
_LOST = {
    "message.timestamp.type": "retention and compaction go by the workers' clocks",
    "segment.ms": _KEPT_LONGER,
    "max.compaction.lag.ms": _KEPT_LONGER,
    "min.cleanable.dirty.ratio": _KEPT_LONGER,
    "delete.retention.ms": "a sink that was stopped for longer than that may miss deletes",
}


def brokers(facts: Facts) -> Iterator[Finding]:
    count = counted(len(facts.brokers), "broker")
    yield ok(f"{facts.pipeline.kafka.bootstrap}: {count}, cluster {facts.kafka_cluster}")
    for number in facts.brokers:
        try:
            settings = facts.broker_settings(number)
        except TopicError as refused:  # only this check needs the privilege to read them
            yield warning(refused.what, refused.advice or "grant it, or check them as another user")
            continue
        yield from about(f"{SUBJECT} broker {number}", broker(settings, len(facts.brokers), facts.pipeline))


def topics(facts: Facts) -> Iterator[Finding]:
    """The existing topics have the settings of the file."""
    yield from foreign_topics(facts.pipeline, facts.existing)
    begins: dict[str, int] = {}
    for (name, _), (first, _) in facts.ends.items():
        begins[name] = max(first, begins.get(name, 0))
    for existing in facts.log:
        found = topic(facts.topic_settings[existing.name], begins[existing.name], facts.pipeline)
        yield from about(f"{SUBJECT} {existing.name}", found)
    yield ok(f"existing topics of the pipeline: {len(facts.log)}")


def read_by_compaction(facts: Facts) -> Iterator[Finding]:
    """`towpath compact` has read what the cleaner may work on."""
    if facts.unread:
        yield error(
            f"{first_few(sorted(facts.unread), _SHOWN)}: compacted, with records older than [log] compaction_lag, and"
            " `towpath compact` has no progress there: the log cleaner may have dropped whole documents of which only"
            " an update is left",
            "`towpath compact --once --from-beginning` re-reads these documents; then leave `towpath compact` running",
            where="cleanup.policy",
        )


def partitions(facts: Facts) -> Iterator[Finding]:
    """Every existing topic has the partition count in the file; those of requests and dead letters have one."""
    singles = (facts.pipeline.request_topic, facts.pipeline.dead_letter_topic)
    for topic in (*facts.log, *(facts.existing[name] for name in singles if name in facts.existing)):
        yield from about(f"{SUBJECT} {topic.name}", partition_count(topic, facts.pipeline))


def partition_count(topic: Topic, pipeline: Pipeline) -> Iterator[Finding]:
    found = f"the topic {topic.name} has {topic.partitions} partitions and"
    if not pipeline.is_change_topic(topic.name):
        if topic.partitions != 1:
            yield error(f"{found} must have one: Towpath did not create it", "delete it; deploy creates it again")
    elif topic.partitions != pipeline.kafka.partitions:
        yield error(
            f"{found} the file says {pipeline.kafka.partitions}: with another count a document's changes would be on"
            " two partitions, out of order",
            "if the number in the file was changed since the first deploy, set it back; otherwise someone has created"
            " the topic again, or added partitions: docs/how-to/recover.md says what to do",
        )


def present(facts: Facts) -> Iterator[Finding]:
    """The topics that someone else creates exist, and requests and dead letters are kept as in the file."""
    pipeline, existing = facts.pipeline, facts.existing
    groups = topic_groups(pipeline, source.namespaces(facts))
    if missing := sorted(name for group in groups for name in group.names if name not in existing):
        yield error(
            f'{counted(len(missing), "topic")} missing, and [kafka] topics = "exist": {first_few(missing, _SHOWN)}',
            f"create them as `{facts.topics_command}` prints them",
        )
    for group in groups:
        for name in group.names if group.settings is not HEARTBEAT_SETTINGS else ():
            if name in existing and not pipeline.is_change_topic(name):
                yield from about(f"{SUBJECT} {name}", differing(facts.topic_settings[name], group.settings, pipeline))


def creatable(facts: Facts) -> Iterator[Finding]:
    """The brokers would create a topic as `deploy` does.

    A request that is only validated shows missing privileges, policies, and too few brokers for the replicas.
    """
    pipeline, settings = facts.pipeline, change_settings(facts.pipeline)
    missing = [name for name in source.namespaces(facts) if topic_of(pipeline.name, name) not in facts.existing]
    try:
        probe = f"{pipeline.name}.check"  # has the prefix, for which ACLs exist, and belongs to no namespace
        facts.topics.create(
            [probe], pipeline.kafka.partitions, pipeline.kafka.replication_factor, settings, validate_only=True
        )
    except TopicError as refused:
        yield (error if missing or not facts.log else warning)(
            f"the brokers would not create the pipeline's topics: {refused}",
            "correct what the message names: [kafka] replication_factor, partitions or max_record, the policies of the"
            ' brokers, or the ACLs of the user; or set [kafka] topics = "exist", create what `towpath topics` prints'
            " without what the brokers refuse, and `check` says what is lost",
        )
    else:
        yield ok(
            f"the brokers would create topics of {counted(pipeline.kafka.partitions, 'partition')} for records of"
            f" {pipeline.kafka.max_record} bytes",
        )


def broker(settings: Settings, brokers: int, pipeline: Pipeline) -> Iterator[Finding]:
    """The broker takes the largest records, and its settings endanger neither the order nor the log."""
    largest = int(pipeline.kafka.max_record)
    if int(settings.get("socket.request.max.bytes", largest)) < largest:
        yield error(
            f"socket.request.max.bytes={settings['socket.request.max.bytes']}: the broker would reject a record of"
            f" {largest} bytes",
            f"set socket.request.max.bytes={largest + 2**20} or more on every broker, or lower [kafka] max_record",
        )
    if brokers > 1 and int(settings.get("replica.fetch.max.bytes", largest)) < largest:
        yield warning(
            f"replica.fetch.max.bytes={settings['replica.fetch.max.bytes']}, smaller than the largest record"
            f" ({largest}): followers fetch such records one by one",
            f"set replica.fetch.max.bytes={largest}",
        )
    if settings.get("auto.create.topics.enable") == "true":
        yield warning(
            "auto.create.topics.enable=true: a client that requests a topic before `deploy` has created it creates it"
            " with the broker's partition count and settings",
            "set auto.create.topics.enable=false; Towpath and Connect create their topics themselves",
        )
    if pipeline.log.compact and settings.get("log.cleaner.enable") == "false":
        yield error(
            "log.cleaner.enable=false: the broker compacts nothing, but the file sets [log] compact = true",
            "set log.cleaner.enable=true on every broker",
        )
    configured = pipeline.kafka.replication_factor
    factor = configured if configured > 0 else int(settings.get("default.replication.factor", "1"))
    insync = int(settings.get("min.insync.replicas", "1"))
    if factor == 1:
        where = "[kafka] replication_factor" if configured > 0 else "the broker's default.replication.factor"
        yield warning(
            f"topics have one replica ({where}) on {counted(brokers, 'broker')}: a broker that is lost takes its part"
            " of the log with it, and one that is killed can lose the end of a transaction (KAFKA-20734)",
            "set [kafka] replication_factor = 3 before the first deploy"
            if brokers > 1
            else "enough for a trial; for data that counts, use three brokers or more, and set [kafka]"
            " replication_factor = 3 before the first deploy",
        )
    if insync > factor:
        yield error(
            f"min.insync.replicas={insync}, but topics would have {counted(factor, 'replica')}: no record can be"
            " written",
            f"set [kafka] replication_factor = {insync + 1}, or lower min.insync.replicas",
        )
    yield ok(
        f"message.max.bytes={settings.get('message.max.bytes')} (the pipeline's topics have their own:"
        f" {largest}), replica.fetch.max.bytes={settings.get('replica.fetch.max.bytes')}",
    )


def topic(settings: Settings, begins: int, pipeline: Pipeline) -> Iterator[Finding]:
    """The settings of an existing change topic are those of the file. `begins`: its first offset."""
    guarded = [*guard(settings, begins, pipeline)]
    yield from guarded
    reported = {finding.where for finding in guarded}
    required = {key: text for key, text in change_settings(pipeline).items() if key not in reported}
    yield from differing(settings, required, pipeline)


def differing(settings: Settings, required: Settings, pipeline: Pipeline) -> Iterator[Finding]:
    """A warning about the settings of a topic that are not those of the file, with what is lost."""
    others = [key for key in required if settings.get(key) != required[key]]
    if others:
        has, wants = (", ".join(f"{key}={of.get(key)}" for key in others) for of in (settings, required))
        lost = dict.fromkeys(_LOST[key] for key in others if key in _LOST)
        yield warning(
            f"has {has}, but the file requires {wants}{': ' if lost else ''}{'; '.join(lost)}",
            how_to_apply(pipeline),
        )


def how_to_apply(pipeline: Pipeline, what: str = "the file's settings") -> str:
    """The advice for settings of existing topics."""
    if _exist(pipeline):
        return f"set {what} with Kafka's tools, if the brokers allow it; `towpath topics PIPELINE` prints them"
    return f"run `towpath deploy`, which applies {what}"


def guard(settings: Settings, begins: int, pipeline: Pipeline) -> Iterator[Finding]:
    """The topic keeps the records that a rebuild needs. `begins`: its first offset."""
    desired, actual = pipeline.log.retention, int(settings.get("retention.ms", _FOREVER))
    if actual != _FOREVER and (desired == _FOREVER or actual < desired):
        period = "forever" if desired == _FOREVER else f"for {desired} ms"
        yield warning(
            f"retention.ms={actual}: the brokers delete records that the file keeps {period}; the log cannot rebuild"
            " documents that have not changed since",
            how_to_apply(pipeline, "[log] retention"),
            where="retention.ms",
        )
    if int(settings.get("retention.bytes", _FOREVER)) != _FOREVER:
        yield warning(
            f"retention.bytes={settings['retention.bytes']}: the brokers delete the oldest records of a partition that"
            " grows larger",
            how_to_apply(pipeline, "retention.bytes=-1"),
            where="retention.bytes",
        )
    if begins and desired == _FOREVER:
        yield warning(
            f"begins at offset {begins}, not at 0: the first records are gone, and the log cannot rebuild documents"
            " that have not changed since",
            "`towpath replay` lists them; to get a whole log, run `towpath remove --topics`, empty the destination and"
            " deploy",
        )
    policy, lag_ms = f"cleanup.policy={settings.get('cleanup.policy')}", pipeline.log.compaction_lag
    if not pipeline.log.compact and is_compacted(settings):
        yield error(
            f"{policy}: compaction keeps only the last record of a key, which may be an update without the document"
            " that it changes",
            f"{how_to_apply(pipeline, 'cleanup.policy=delete')}: no earlier point in time can be rebuilt any more, and"
            " `towpath replay PIPELINE --dry-run` lists documents that are lost, which `towpath repair --ids` re-reads;"
            " or set [log] compact = true, deploy, and run `towpath compact --from-beginning`, which re-reads them",
            where="cleanup.policy",
        )
    elif pipeline.log.compact and not is_compacted(settings):
        yield warning(
            f"{policy}: the topic held records before [log] compact was set, and is not compacted yet",
            "leave `towpath compact` running: once all updates are protected, "
            + ("`towpath topics PIPELINE` prints the policy" if _exist(pipeline) else "it enables compaction"),
            where="cleanup.policy",
        )
    elif pipeline.log.compact and int(settings.get(MARK, 0)) < lag_ms:
        yield error(
            f"{MARK}={settings.get(MARK)}, less than [log] compaction_lag ({lag_ms}): the log cleaner may"
            " drop a whole document of which then only an update is left",
            f"{how_to_apply(pipeline)}; then `towpath compact --once --from-beginning`",
            where=MARK,
        )


def foreign_topics(pipeline: Pipeline, existing: Mapping[str, Topic]) -> Iterator[Finding]:
    """Warn about topics with the pipeline's prefix that belong to none of its namespaces."""
    prefixed = sorted(name for name in existing if name.startswith(f"{pipeline.name}."))
    own = (pipeline.dead_letter_topic, pipeline.request_topic)
    others = [name for name in prefixed if name not in own and not pipeline.is_change_topic(name)]
    if others:
        yield warning(
            f"topics with the prefix {pipeline.name!r} that belong to no namespace of the pipeline:"
            f" {first_few(others, _SHOWN)}",
            "if the file included their namespaces before, `remove --topics` no longer finds them: delete them by hand;"
            " if they belong to someone else, give the pipeline another name before the first deploy",
        )


def _exist(pipeline: Pipeline) -> bool:
    """Whether someone else creates and changes the topics."""
    return pipeline.kafka.topics == "exist"


RULES = (
    *rules(SUBJECT, brokers, partitions),
    Rule(SUBJECT, creatable, applies=lambda facts: not _exist(facts.pipeline)),
    Rule(SUBJECT, present, applies=lambda facts: _exist(facts.pipeline)),
    Rule(SUBJECT, topics, required=False),
    Rule(SUBJECT, read_by_compaction, required=False, applies=lambda facts: facts.pipeline.log.compact),
)
