"""The preconditions of compaction, and the rule for enabling it in a topic."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator

from towpath.errors import Refused
from towpath.kafka.topics import Topics
from towpath.log import reread_requests
from towpath.log.unprotected import figures
from towpath.pipeline import Compaction, Pipeline
from towpath.session import Session
from towpath.topic_settings import MARK, POLICY, change_settings, is_compacted

_HOUR = 3_600_000


def compaction_of(pipeline: Pipeline) -> Compaction:
    """The pipeline's compaction settings. Raises `Refused` if its log is not compacted or cannot be."""
    reread_requests.refuse_unable(pipeline)
    if pipeline.compaction is None:
        raise Refused(
            f"the log of {pipeline.name} is not compacted: it keeps every record, so re-read documents would"
            " only make it longer; set [log] compact = true, run `towpath deploy`, and start this again"
        )
    return pipeline.compaction


def interval(compaction: Compaction, every_ms: int | None) -> int:
    """The time between two rounds in ms: `every_ms` if given, else an hour, or a quarter of the lag if that is less.

    Raises `Refused` if `every_ms` is more than half of the lag.
    """
    if every_ms is None:
        return min(_HOUR, compaction.lag_ms // 4)
    if every_ms > compaction.lag_ms // 2:
        raise Refused(
            f"--every {every_ms // 1000}s is more than half of the compaction lag ({compaction.lag_ms // 1000}s): an"
            f" update could grow too old before its document follows; give {compaction.lag_ms // 2000}s or less, or"
            " raise [log] compaction_lag"
        )
    return every_ms


def refuse_undeployed(session: Session, compaction: Compaction) -> None:
    """Raise `Refused`, `NoSuchConnector`, `ConnectUnreachable` or `KafkaUnreachable` if nothing can be compacted."""
    session.require_deployed()
    pipeline, topics = session.pipeline, session.topics
    existing = topics.all()
    pattern = pipeline.selection.topic_regex(pipeline.name)
    change_topics = [name for name in existing if re.fullmatch(pattern, name)]
    if pipeline.request_topic not in existing or not change_topics:
        missing = "no change topics" if pipeline.request_topic in existing else f"no topic {pipeline.request_topic}"
        raise Refused(f"{pipeline.name} has {missing} at {topics.bootstrap}; `towpath deploy` creates them")
    for name, settings in sorted(topics.settings_of_all(change_topics).items()):
        if settings.get(MARK) != str(compaction.lag_ms):
            raise Refused(
                f"the topic {name} has {MARK}={settings.get(MARK)}, and the file says {compaction.lag_ms} ([log]"
                " compaction_lag); `towpath deploy` applies the file's settings"
            )


class CompactionEnabler:
    """Enables compaction in each topic once all its updates are protected.

    The group's commits show this, also for partitions that other instances have.
    """

    def __init__(self, pipeline: Pipeline, compaction: Compaction, topics: Topics) -> None:
        self._pipeline, self._compaction, self._topics = pipeline, compaction, topics
        self._enabled: set[str] = set()

    def enable(self, names: Collection[str]) -> Iterator[str]:
        """Enable compaction in these topics where that is safe; yield the topics that were not compacted before."""
        pending = set(names) - self._enabled
        if not pending:
            return
        existing = self._topics.all()
        committed = self._topics.committed_with_metadata(self._pipeline.compaction_group)
        for name, settings in sorted(self._topics.settings_of_all(pending & existing.keys()).items()):
            places = [(name, number) for number in range(existing[name].partitions)]
            if is_compacted(settings):
                self._enabled.add(name)
            elif all(place in committed and self._is_protected(committed[place][1]) for place in places):
                self._topics.alter(name, {POLICY: change_settings(self._pipeline)[POLICY]})
                self._enabled.add(name)
                yield name

    def _is_protected(self, metadata: str) -> bool:
        """Whether every unprotected update is younger than half of the lag, by the figures of a commit."""
        committed = figures(metadata)
        if committed is None:
            return False
        since = committed.at if committed.oldest is None else min(committed.at, committed.oldest)
        return time.time() * 1000 - since < self._compaction.lag_ms / 2
