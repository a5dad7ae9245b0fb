"""What must hold before the log can be compacted, and when a topic's compaction can be switched on."""

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
    """How the pipeline is compacted. Raises `Refused` where it is not, or cannot be."""
    reread_requests.refuse_unable(pipeline)
    if pipeline.compaction is None:
        raise Refused(
            f"the log of {pipeline.name} is not compacted: it keeps every record, so re-read documents would"
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


def refuse_undeployed(session: Session, compaction: Compaction) -> None:
    """Raise `Refused`, `NoSuchConnector`, `ConnectUnreachable` or `KafkaUnreachable` where nothing can be compacted."""
    session.require_deployed()
    pipeline, topics = session.pipeline, session.topics
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


class SwitchOn:
    """Looks at each topic until it is compacted. What instances commit tells of partitions that another has."""

    def __init__(self, pipeline: Pipeline, compaction: Compaction, topics: Topics) -> None:
        self._pipeline, self._compaction, self._topics = pipeline, compaction, topics
        self._on: set[str] = set()

    def protected(self, names: Collection[str]) -> Iterator[str]:
        """Those of these topics that the cleaner may work on from now on."""
        left = set(names) - self._on
        if not left:
            return
        existing = self._topics.all()
        known = self._topics.committed_with_words(self._pipeline.compaction_group)
        for name, settings in sorted(self._topics.settings_of_all(left & existing.keys()).items()):
            places = [(name, number) for number in range(existing[name].partitions)]
            if is_compacted(settings):
                self._on.add(name)
            elif all(place in known and self._is_protected(known[place][1]) for place in places):
                self._topics.alter(name, {POLICY: change_settings(self._pipeline)[POLICY]})
                self._on.add(name)
                yield name

    def _is_protected(self, metadata: str) -> bool:
        found = figures(metadata)
        if found is None:
            return False
        since = found.at if found.oldest is None else min(found.at, found.oldest)  # what came later is younger
        return time.time() * 1000 - since < self._compaction.lag_ms / 2
