"""The checks of the log: whether it keeps the records that a rebuild needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from towpath.checks.rule import Finding, error, warning
from towpath.config.pipeline import Pipeline
from towpath.log.definitions import MARK, is_compacted

_SHORT_MS = 600_000  # a shorter lag leaves little time during an outage of a broker or Connect
_FOREVER = -1

Settings = Mapping[str, str]


def guard(subject: str, settings: Settings, begins: int, pipeline: Pipeline) -> Iterator[Finding]:
    """The topic keeps the records that a rebuild needs. `begins`: its first offset."""
    yield from _retention(subject, settings, begins, pipeline)
    if not pipeline.log.compact:
        yield from _no_compaction(subject, settings)
    else:
        yield from _compaction(subject, settings, pipeline.log.compaction_lag)


def _retention(subject: str, settings: Settings, begins: int, pipeline: Pipeline) -> Iterator[Finding]:
    desired, actual = pipeline.log.retention, int(settings.get("retention.ms", _FOREVER))
    if actual != _FOREVER and (desired == _FOREVER or actual < desired):
        period = "forever" if desired == _FOREVER else f"for {desired} ms"
        yield warning(
            subject,
            f"retention.ms={actual}: the brokers delete records that the file keeps {period}; the log cannot rebuild"
            " documents that have not changed since",
            "run `towpath deploy`, which applies [log] retention",
            where="retention.ms",
        )
    if int(settings.get("retention.bytes", _FOREVER)) != _FOREVER:
        yield warning(
            subject,
            f"retention.bytes={settings['retention.bytes']}: the brokers delete the oldest records of a partition that"
            " grows larger",
            "run `towpath deploy`, which sets retention.bytes=-1",
            where="retention.bytes",
        )
    if begins and desired == _FOREVER:
        yield warning(
            subject,
            f"begins at offset {begins}, not at 0: the first records are gone, and the log cannot rebuild documents"
            " that have not changed since",
            "`towpath replay` lists them; to get a whole log, run `towpath remove --topics`, empty the destination and"
            " deploy",
        )


def _no_compaction(subject: str, settings: Settings) -> Iterator[Finding]:
    if is_compacted(settings):
        yield error(
            subject,
            f"cleanup.policy={settings['cleanup.policy']}: compaction keeps only the last record of a key, which may be"
            " an update without the document that it changes",
            "run `towpath deploy`, which sets cleanup.policy=delete; or set [log] compact = true, deploy, and run"
            " `towpath compact --from-beginning`, which re-reads these documents",
            where="cleanup.policy",
        )


def _compaction(subject: str, settings: Settings, lag_ms: int) -> Iterator[Finding]:
    if not is_compacted(settings):
        yield warning(
            subject,
            f"cleanup.policy={settings.get('cleanup.policy')}: the topic held records before [log] compact was set, and"
            " is not compacted yet",
            "leave `towpath compact` running: it enables compaction once all updates are protected",
            where="cleanup.policy",
        )
    elif int(settings.get(MARK, 0)) < lag_ms:
        yield error(
            subject,
            f"{MARK}={settings.get(MARK)}, less than [log] compaction_lag ({lag_ms}): the log cleaner may"
            " drop a whole document of which then only an update is left",
            "run `towpath deploy`, which applies the file's settings, then `towpath compact --once --from-beginning`",
            where=MARK,
        )


def plan(pipeline: Pipeline) -> Iterator[Finding]:
    """The settings of the log in the pipeline file go together."""
    lag_ms = pipeline.log.compaction_lag
    if not pipeline.log.compact:
        return
    if lag_ms < _SHORT_MS:
        yield warning(
            "file",
            f"[log] compaction_lag is {lag_ms // 1000} s: when Connect, a broker or `towpath compact` is"
            " down for longer, the log cleaner drops documents that a rebuild needs",
            "set hours, not minutes; the default is 24h",
        )
    if pipeline.log.retention != _FOREVER and pipeline.log.retention <= lag_ms:
        yield warning(
            "file",
            f"[log] retention ({pipeline.log.retention // 1000} s) is not longer than compaction_lag"
            f" ({lag_ms // 1000} s): records are deleted before the log cleaner may compact them",
            "compaction has no effect here: set a longer retention, or compact = false",
        )
