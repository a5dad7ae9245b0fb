"""The connectors and topics of a pipeline.

The connectors are `source.json` and `sink.json`, or `plain-source.json` and `plain-sink.json`, filled in. These files
hold every decision that is the same for all pipelines; `%(…)s` marks what the pipeline file decides. They hold no
secrets: the Connect worker resolves `${file:…}` (FileConfigProvider).

A compacted change topic has segments of at most `min.compaction.lag.ms`. It is cleaned when half of the cleanable part
is new, or when a record in it is older than two lags (`max.compaction.lag.ms`). A deleted or replaced document is out
of the log two lags later: one until its segment is closed (the active one is never cleaned), one until the cleaner may
process that segment. Only a later record closes a segment; `towpath compact` requests one where none comes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config import mongo_uri
from towpath.config.namespaces import Selection, topic_of
from towpath.config.pipeline import Pipeline
from towpath.files import shipped
from towpath.log import field_rules
from towpath.store.credentials import HASH_KEY

#: Only the number of records bounds a poll, and a record can have 16 MB: so many fit into a worker's heap.
#: A transaction takes full polls until its batch is full, so this is lowered to a divisor of `batch_records`.
POLL_RECORDS = 4

#: Settings of a source and of a sink, only for pipelines with `[ddl]`: others keep the configuration that they have.
DDL, DDL_DROP = "towpath.ddl", "towpath.ddl.drop"
#: Of a sink that applies the log from its beginning: it creates collections again, and holds nothing.
DDL_REPLAY = "towpath.ddl.replay"
#: Of a source, only for pipelines with rules: what may leave, as JSON, and the key of hashes.
RULES, RULES_KEY = "towpath.rules", "towpath.rules.key"
#: Topic → an offset in each of its partitions, from which on the sink stops there at the next schema change.
DDL_ENDS = "towpath.ddl.ends"

#: Seconds that a source's transaction may take: Kafka Connect's. With `[ddl]`, one transaction describes all
#: collections, and the first record of a topic takes 20 ms (measured with 5,000), so that a minute is for 3,000.
_TRANSACTION_S, _DESCRIPTIONS_S = 60, 300
_IN_A_MINUTE = 2_000  # collections, which leaves some room
TRANSACTION_TIMEOUT = "producer.override.transaction.timeout.ms"

#: Keys in the configuration of a source and of a sink connector that name its replica set.
SOURCE_SET, DESTINATION_SET = "towpath.source", "towpath.destination"
#: The advice where the file's source is not the captured one.
SOURCE_BACK = (
    "set [source] uri back; if it is the same set, and all its addresses have changed, set towpath.source of the"
    " source connector to the new ones (docs/limits.md, Changes of a deployed pipeline)"
)

#: What Connect runs, and what people may post with curl.
DEFINITIONS = shipped("connectors")
#: Of a source. Of a sink whose log is known to lack documents: "none", and updates may find no document.
COPY = "towpath.copy"

#: The settings of every topic of the record contract. A record has the broker's time, so that retention and compaction
#: go by its arrival, however far capture lags behind.
TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "retention.bytes": "-1",
}
#: Of a source: what Connect's topics for later collections get. Without any, it creates none.
_CREATION = "topic.creation.default."
#: Of a source connector that creates the topics of new collections.
PARTITIONS = f"{_CREATION}partitions"
#: Heartbeats are of no use after a while; small segments let retention take them.
HEARTBEAT_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "3600000"}

#: This setting stays when compaction is disabled. It shows that the topic was compacted once, so that no point in time
#: before that can be rebuilt from it.
MARK = "min.compaction.lag.ms"
POLICY = "cleanup.policy"
_LONGEST = str(2**63 - 1)
#: What shows it of a topic that someone has compacted without a lag: as long as it is set, no cleaner removes a record.
COMPACTED_ONCE = {MARK: _LONGEST, "max.compaction.lag.ms": _LONGEST}
#: All that a file decides about a change topic: what is judged of existing ones.
SETTINGS = frozenset(
    (
        *TOPIC_SETTINGS,
        "max.message.bytes",
        "retention.ms",
        MARK,
        "max.compaction.lag.ms",
        "delete.retention.ms",
        "segment.ms",
        "min.cleanable.dirty.ratio",
    )
)
_SEGMENTS = 2  # lags until the cleaner must run
_WEEK_MS = 7 * 24 * 3_600_000


def other_source(captured: ReplicaSet, source: ReplicaSet) -> str:
    """In words that the source in the file is not the captured one; empty if it is."""
    if captured.is_same(source):
        return ""
    return f"the source connector captures {captured}, and [source] uri names {source}: that is another source"


def plugins(pipeline: Pipeline) -> tuple[str, ...]:
    """The plugin classes that a Connect worker needs for the connectors of a pipeline, each once."""
    classes = (
        text
        for config in definitions(pipeline).values()
        for key, text in config.items()
        if key == "connector.class" or re.fullmatch(r"transforms\.\w+\.type", key)
    )
    return tuple(dict.fromkeys(classes))


def _filled(file: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {key: text % values for key, text in json.loads((DEFINITIONS / file).read_text(encoding="utf-8")).items()}


def _source(pipeline: Pipeline, prefix: str, selection: Selection, *, whole: bool) -> dict[str, str]:
    values = {
        **dict(pipeline.kafka),
        **dict(pipeline.capture),
        "name": pipeline.name,
        "secrets": pipeline.secrets_file,
        "capture_prefix": prefix,
        "namespace_regex": selection.namespace_regex,
        "capture_mode": "change_streams_update_full" if whole else "change_streams",
        "whole_documents": str(whole).lower(),
        "snapshot_mode": "initial" if pipeline.copy_method == "debezium" else "no_data",
        "copy": "ranges" if pipeline.copy_method == "towpath" else "none",
        "splice_cache": 0 if whole else pipeline.splice_cache,
        "request_topic": pipeline.request_topic,
        "dead_letters": pipeline.dead_letter_topic if pipeline.exactly_once else "",
        "worker_bootstrap": pipeline.worker_bootstrap,
    }
    config = _filled("source.json" if pipeline.has_own_source else "plain-source.json", values)
    config |= mongo_uri.references(pipeline.source.uri, "source", pipeline.secrets_file)
    config |= _login(pipeline)
    if pipeline.ddl.apply:
        config[DDL] = "true"
    if pipeline.collections.rules:
        config[RULES] = field_rules.as_json(pipeline)
    if pipeline.collections.hash_key:
        config[RULES_KEY] = f"${{file:{pipeline.secrets_file}:{HASH_KEY}}}"
    if pipeline.kafka.topics == "exist":
        return {key: text for key, text in config.items() if not key.startswith(_CREATION)}
    return config | {f"{_CREATION}{key}": text for key, text in change_settings(pipeline).items()}


def _sink(pipeline: Pipeline) -> dict[str, str]:
    log = pipeline.log
    values = {
        **dict(pipeline.kafka),
        **dict(pipeline.write),
        "name": pipeline.name,
        "database": pipeline.database,
        "secrets": pipeline.secrets_file,
        "topic_regex": pipeline.selection.topic_regex(pipeline.name),
        "rename": json.dumps(dict(pipeline.collections.rename), sort_keys=True),
        "write_concern": pipeline.write.concern,
        "wtimeout_ms": pipeline.write.wtimeout,
        "fold": str(pipeline.write.fold).lower(),
        "poll_records": next(n for n in range(POLL_RECORDS, 0, -1) if pipeline.write.batch_records % n == 0),
        "until": "",
        "compaction_lag_ms": log.compaction_lag if log.compact else -1,
        "delete_retention_ms": log.delete_retention if log.compact else -1,
        "worker_bootstrap": pipeline.worker_bootstrap,
        "dead_letter_topic": pipeline.dead_letter_topic,
    }
    config = _filled("sink.json" if pipeline.exactly_once else "plain-sink.json", values)
    config |= mongo_uri.references(pipeline.destination.uri, "destination", pipeline.secrets_file)
    if pipeline.exactly_once and pipeline.copy_method == "none":
        config[COPY] = "none"
    if pipeline.ddl.apply:
        config[DDL_DROP] = pipeline.ddl.drop
    return config | _login(pipeline)


def _login(pipeline: Pipeline) -> dict[str, str]:
    """Settings of a connector for all clients that Connect creates for it: setting → reference to the secrets file.

    Not the address: Connect writes the offsets of a source with a separate address to a second topic as well, in an
    order that a transaction does not allow.
    """
    return {
        f"{client}.override.{key}": f"${{file:{pipeline.secrets_file}:kafka.{key}}}"
        for client in ("producer", "consumer", "admin")
        for key in pipeline.kafka.login.settings
    }


def transaction_timeout(pipeline: Pipeline, collections: int) -> int:
    """Seconds after which a broker aborts a transaction of the source connector of a pipeline of so many collections.

    All readers wait for it when a worker was killed in a transaction, and so does that worker, with the offsets of all
    its connectors. So it is longer only where it has to be.
    """
    return _DESCRIPTIONS_S if pipeline.ddl.apply and collections > _IN_A_MINUTE else _TRANSACTION_S


def timeout_settings(pipeline: Pipeline, collections: int) -> dict[str, str]:
    """The setting of a source connector for `transaction_timeout`, where that is not Connect's."""
    timeout = transaction_timeout(pipeline, collections)
    return {} if timeout == _TRANSACTION_S else {TRANSACTION_TIMEOUT: str(1000 * timeout)}


def definitions(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """Connector name → configuration, sources first."""
    configs = {pipeline.source_connector: _source(pipeline, pipeline.name, pipeline.captured_by_update, whole=False)}
    if pipeline.captured_whole:
        prefix = pipeline.capture_prefixes[1]
        configs[pipeline.whole_source_connector] = _source(pipeline, prefix, pipeline.captured_whole, whole=True)
    configs[pipeline.sink_connector] = _sink(pipeline)
    return configs


def request_settings(pipeline: Pipeline) -> dict[str, str]:
    """Of the request topic. With compaction, which writes requests continuously, it keeps a week at most."""
    is_long = not 0 <= pipeline.log.retention < _WEEK_MS
    return plain_settings(pipeline) | ({"retention.ms": str(_WEEK_MS)} if pipeline.log.compact and is_long else {})


def plain_settings(pipeline: Pipeline) -> dict[str, str]:
    """Of the dead-letter topic, and of a log that is not compacted."""
    bounds = {"max.message.bytes": str(int(pipeline.kafka.max_record)), "retention.ms": str(pipeline.log.retention)}
    return TOPIC_SETTINGS | bounds


def change_settings(pipeline: Pipeline) -> dict[str, str]:
    """Of the change topics. Without compaction its settings are left out, so that `MARK` stays."""
    settings, log = plain_settings(pipeline), pipeline.log
    if not log.compact:
        return settings
    return settings | {
        POLICY: "compact" if pipeline.log.retention == -1 else "compact,delete",
        MARK: str(log.compaction_lag),
        "max.compaction.lag.ms": str(_SEGMENTS * log.compaction_lag),
        "delete.retention.ms": str(log.delete_retention),
        "segment.ms": str(log.compaction_lag),
        "min.cleanable.dirty.ratio": "0.5",
    }


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """Topics that are alike."""

    names: tuple[str, ...]
    partitions: int
    settings: Mapping[str, str]


def topic_groups(pipeline: Pipeline, namespaces: Iterable[str], existing: Iterable[str] = ()) -> tuple[TopicGroup, ...]:
    """All topics of a pipeline that replicates these namespaces; `existing` are further change topics.

    Those of requests and dead letters come first: they show the mode even if a later step fails.
    """
    plain = plain_settings(pipeline)
    changes = sorted({topic_of(pipeline.name, name) for name in namespaces} | set(existing))
    groups = (
        TopicGroup((pipeline.request_topic,) if pipeline.has_own_source else (), 1, request_settings(pipeline)),
        TopicGroup((pipeline.dead_letter_topic,) if pipeline.exactly_once else (), 1, plain),
        TopicGroup(tuple(changes), pipeline.kafka.partitions, change_settings(pipeline)),
        TopicGroup(pipeline.heartbeat_topics, 1, HEARTBEAT_SETTINGS),
    )
    return tuple(group for group in groups if group.names)


def is_compacted(settings: Mapping[str, str]) -> bool:
    return "compact" in settings.get(POLICY, "")


def pipeline_topics(pipeline: Pipeline, existing: Iterable[str]) -> list[str]:
    """The existing topics of the pipeline: changes, requests, dead letters, heartbeats."""
    whole = f"__debezium-heartbeat.{pipeline.name}-whole"
    others = {pipeline.request_topic, pipeline.dead_letter_topic, whole, *pipeline.heartbeat_topics}
    return [name for name in existing if name in others or pipeline.is_change_topic(name)]
