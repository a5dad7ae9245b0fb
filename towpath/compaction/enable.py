"""Lets Kafka's cleaner at topics that held records before compaction was set, once their updates are protected."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from towpath.kafka.topics import Topics
from towpath.log.unprotected import figures
from towpath.pipeline import Compaction, Pipeline
from towpath.topic_settings import POLICY, change_settings, is_compacted


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
