"""What the topics of a pipeline are set to: how long their records stay, and what Kafka's cleaner may do.

A change topic that is compacted has segments of `min.compaction.lag.ms` at most, and is cleaned when half of what may
be cleaned is new, or when something of it is as old as two lags (`max.compaction.lag.ms`). So a document that was
deleted or replaced is out of the log two lags later: one until its segment is closed (the active one is never
cleaned), one until that segment may be touched. A segment is only closed by a record that comes later;
`towpath.compaction.service` has one come where nothing else does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from towpath.kafka.client import LARGEST_RECORD
from towpath.pipeline import Compaction, Pipeline

#: What every topic of the record contract is set to. The broker's time is the record's time, so that retention and
#: compaction go by when a record came in, however far capture lags behind.
TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(LARGEST_RECORD),
    "retention.bytes": "-1",
}
#: Heartbeats are of no use after a while; small segments let retention take them.
HEARTBEAT_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "3600000"}

#: The only trace of compaction that stays when it is switched off: the mark that the topic was compacted once, so
#: that no moment before that can be rebuilt from it.
MARK = "min.compaction.lag.ms"
POLICY = "cleanup.policy"
_SEGMENTS = 2  # lags until the cleaner has to work
_WEEK_MS = 7 * 24 * 3_600_000


def retention_settings(retention_ms: int) -> dict[str, str]:
    return {"retention.ms": str(retention_ms)}


def request_settings(pipeline: Pipeline) -> dict[str, str]:
    """Of the topic of requests. Compaction asks without end, and what is answered is of no use: a week is kept."""
    found = plain_settings(pipeline)
    weeks = pipeline.compaction and not 0 <= pipeline.retention_ms < _WEEK_MS
    return found | retention_settings(_WEEK_MS) if weeks else found


def plain_settings(pipeline: Pipeline) -> dict[str, str]:
    """Of the topic of dead letters, and of a log that is not compacted."""
    return TOPIC_SETTINGS | retention_settings(pipeline.retention_ms)


def change_settings(pipeline: Pipeline) -> dict[str, str]:
    """Of the change topics. Without compaction nothing is said of it, so that `MARK` stays where it is."""
    found = plain_settings(pipeline)
    return found | _compacted(pipeline.compaction, found) if pipeline.compaction else found


def _compacted(compaction: Compaction, settings: dict[str, str]) -> dict[str, str]:
    forever = settings["retention.ms"] == "-1"
    return {
        POLICY: "compact" if forever else "compact,delete",
        MARK: str(compaction.lag_ms),
        "max.compaction.lag.ms": str(_SEGMENTS * compaction.lag_ms),
        "delete.retention.ms": str(compaction.delete_retention_ms),
        "segment.ms": str(compaction.lag_ms),
        "min.cleanable.dirty.ratio": "0.5",
    }


def is_compacted(settings: Mapping[str, str]) -> bool:
    return "compact" in settings.get(POLICY, "")


def pipeline_topics(pipeline: Pipeline, existing: Iterable[str]) -> list[str]:
    """Those of the existing topics that belong to the pipeline: changes, requests, dead letters, heartbeats."""
    pattern = pipeline.selection.topic_regex(pipeline.name)
    whole = f"__debezium-heartbeat.{pipeline.name}-whole"
    others = {pipeline.request_topic, pipeline.dead_letter_topic, whole, *pipeline.heartbeat_topics}
    return [name for name in existing if name in others or re.fullmatch(pattern, name)]
