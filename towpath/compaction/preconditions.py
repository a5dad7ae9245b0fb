"""What `towpath compact` refuses before it begins."""

from __future__ import annotations

import re

from towpath.errors import Refused
from towpath.log import reread_requests
from towpath.pipeline import Compaction, Pipeline
from towpath.session import Session
from towpath.topic_settings import MARK

_HOUR = 3_600_000


def compaction_of(pipeline: Pipeline) -> Compaction:
    """How the pipeline is compacted. Raises `Refused` where it is not, or cannot be."""
    reread_requests.refuse_unable(pipeline)
    if pipeline.compaction is None:
        raise Refused(
            f"the log of {pipeline.name} is not compacted: it keeps every record, so that documents read again would"
            " only make it longer; set [log] compact = true, `towpath deploy`, and start this again"
        )
    return pipeline.compaction


def interval(compaction: Compaction, every_ms: int | None) -> int:
    """How often to ask, in ms: an hour, or a quarter of the lag if that is less. Raises `Refused` for too seldom."""
    if every_ms is None:
        return min(_HOUR, compaction.lag_ms // 4)
    if every_ms > compaction.lag_ms // 2:
        raise Refused(
            f"--every {every_ms // 1000}s is more than half of the compaction lag ({compaction.lag_ms // 1000}s): an"
            f" update could grow too old before its document follows; give {compaction.lag_ms // 2000}s or less, or"
            " raise [log] compaction_lag"
        )
    return every_ms


def refuse_undeployed(it: Session, compaction: Compaction) -> None:
    """Raise `Refused`, `NoSuchConnector`, `ConnectUnreachable` or `KafkaUnreachable` where nothing can be compacted."""
    it.require_deployed()
    pipeline, topics = it.pipeline, it.topics
    existing = topics.all()
    pattern = pipeline.selection.topic_regex(pipeline.name)
    mine = [name for name in existing if re.fullmatch(pattern, name)]
    if pipeline.request_topic not in existing or not mine:
        missing = "no change topics" if pipeline.request_topic in existing else f"no topic {pipeline.request_topic}"
        raise Refused(f"there are {missing} of {pipeline.name} at {topics.bootstrap}; `towpath deploy` makes them")
    for name, settings in sorted(topics.settings_of_all(mine).items()):
        if settings.get(MARK) != str(compaction.lag_ms):
            raise Refused(
                f"the topic {name} has {MARK}={settings.get(MARK)}, and the file says {compaction.lag_ms} ([log]"
                " compaction_lag); `towpath deploy` sets what the file says"
            )
