"""The settings of a pipeline's topics: how long their records stay, and what Kafka's cleaner may do.

A compacted change topic has segments of at most `min.compaction.lag.ms`. It is cleaned when half of the cleanable part
is new, or when a record in it is older than two lags (`max.compaction.lag.ms`). A deleted or replaced document is out
of the log two lags later: one until its segment is closed (the active one is never cleaned), one until the cleaner may
process that segment. Only a later record closes a segment; `towpath.compaction.service` requests one where none comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from towpath.clients.kafka.topics import LARGEST_RECORD
from towpath.config.pipeline import Pipeline

#: The settings of every topic of the record contract. A record has the broker's time, so that retention and compaction
#: go by its arrival, however far capture lags behind.
TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(LARGEST_RECORD),
    "retention.bytes": "-1",
}
#: Heartbeats are of no use after a while; small segments let retention take them.
HEARTBEAT_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "3600000"}

#: This setting stays when compaction is disabled. It shows that the topic was compacted once, so that no point in time
#: before that can be rebuilt from it.
MARK = "min.compaction.lag.ms"
POLICY = "cleanup.policy"
_SEGMENTS = 2  # lags until the cleaner must run
_WEEK_MS = 7 * 24 * 3_600_000


def request_settings(pipeline: Pipeline) -> dict[str, str]:
    """Of the request topic. With compaction, which writes requests continuously, it keeps a week at most."""
    is_long = not 0 <= pipeline.log.retention < _WEEK_MS
    return plain_settings(pipeline) | ({"retention.ms": str(_WEEK_MS)} if pipeline.log.compact and is_long else {})


def plain_settings(pipeline: Pipeline) -> dict[str, str]:
    """Of the dead-letter topic, and of a log that is not compacted."""
    return TOPIC_SETTINGS | {"retention.ms": str(pipeline.log.retention)}


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


def is_compacted(settings: Mapping[str, str]) -> bool:
    return "compact" in settings.get(POLICY, "")


def pipeline_topics(pipeline: Pipeline, existing: Iterable[str]) -> list[str]:
    """The existing topics of the pipeline: changes, requests, dead letters, heartbeats."""
    whole = f"__debezium-heartbeat.{pipeline.name}-whole"
    others = {pipeline.request_topic, pipeline.dead_letter_topic, whole, *pipeline.heartbeat_topics}
    return [name for name in existing if name in others or pipeline.is_change_topic(name)]
