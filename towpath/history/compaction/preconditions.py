"""The rules of compaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial

from towpath.checks.rule import Finding, Rule, error, rules
from towpath.clients.kafka.topics import Topic
from towpath.config.sections import Log
from towpath.log import reread_requests
from towpath.log.definitions import MARK
from towpath.session import Session

_HOUR = 3_600_000
_error = partial(error, "compaction")


def interval(log: Log) -> int:
    """The default time between two rounds in ms: an hour, or a quarter of the lag if that is less."""
    return min(_HOUR, log.compaction_lag // 4)


class CompactedLog:
    """What the rules of compaction read. `every_ms`: the time between two rounds; None for the default."""

    def __init__(self, session: Session, every_ms: int | None = None) -> None:
        self.session, self.pipeline, self.every_ms = session, session.pipeline, every_ms

    @cached_property
    def existing(self) -> Mapping[str, Topic]:
        """All topics. Raises `NoSuchConnector`, `ConnectUnreachable` or `KafkaUnreachable`."""
        self.session.require_deployed()
        return self.session.topics.all()

    @property
    def change_topics(self) -> list[str]:
        return [name for name in self.existing if self.pipeline.is_change_topic(name)]


def supported(facts: CompactedLog) -> Iterator[Finding]:
    reread_requests.refuse_unable(facts.pipeline)
    return iter(())


def compacted(facts: CompactedLog) -> Iterator[Finding]:
    if not facts.pipeline.log.compact:
        yield _error(
            f"the log of {facts.pipeline.name} is not compacted: it keeps every record, so re-read documents would"
            " only make it longer",
            "set [log] compact = true, run `towpath deploy`, and start this again",
        )


def often_enough(facts: CompactedLog) -> Iterator[Finding]:
    log, every_ms = facts.pipeline.log, facts.every_ms
    if log.compact and every_ms is not None and every_ms > log.compaction_lag // 2:
        yield _error(
            f"--every {every_ms // 1000}s is more than half of the compaction lag ({log.compaction_lag // 1000}s): an"
            " update could grow too old before its document follows",
            f"give {log.compaction_lag // 2000}s or less, or raise [log] compaction_lag",
        )


def deployed(facts: CompactedLog) -> Iterator[Finding]:
    """The topics exist and have the settings in the file."""
    pipeline, topics, names = facts.pipeline, facts.session.topics, facts.change_topics
    log = pipeline.log
    if pipeline.request_topic not in facts.existing or not names:
        has_requests = pipeline.request_topic in facts.existing
        missing = "no change topics" if has_requests else f"no topic {pipeline.request_topic}"
        yield _error(f"{pipeline.name} has {missing} at {topics.bootstrap}", "`towpath deploy` creates them")
    for name, settings in sorted(topics.settings_of_all(names).items()) if log.compact else ():
        if settings.get(MARK) != str(log.compaction_lag):
            yield _error(
                f"the topic {name} has {MARK}={settings.get(MARK)}, and the file says {log.compaction_lag}"
                " ([log] compaction_lag)",
                "`towpath deploy` applies the file's settings",
            )


RULES: Sequence[Rule[CompactedLog]] = rules("compaction", supported, compacted, often_enough, deployed)
