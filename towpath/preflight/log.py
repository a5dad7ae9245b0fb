"""Whether the topics keep what a rebuild needs, and whether the oplog keeps what capture still has to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from towpath import resnapshot
from towpath.errors import TowpathError
from towpath.finding import Finding, error, warning
from towpath.mongo.client import briefly
from towpath.pipeline import Compaction, Pipeline
from towpath.preflight import oplog
from towpath.session import Session
from towpath.topic_settings import MARK, is_compacted

_SHORT_MS = 600_000  # a lag below this leaves little time when a broker or Connect is away
_FOREVER = -1

Settings = Mapping[str, str]


def guard(subject: str, settings: Settings, begins: int, pipeline: Pipeline) -> Iterator[Finding]:
    """What can lose records that a rebuild needs, or has lost them; `begins` is the first offset that is there."""
    yield from _retention(subject, settings, begins, pipeline)
    if pipeline.compaction is None:
        yield from _unwanted(subject, settings)
    else:
        yield from _compaction(subject, settings, pipeline.compaction)


def _retention(subject: str, settings: Settings, begins: int, pipeline: Pipeline) -> Iterator[Finding]:
    wanted, found = pipeline.retention_ms, int(settings.get("retention.ms", _FOREVER))
    if found != _FOREVER and (wanted == _FOREVER or found < wanted):
        wants = "forever" if wanted == _FOREVER else f"for {wanted} ms"
        yield warning(
            subject,
            f"retention.ms={found}: the brokers delete records that the file keeps {wants}; the log cannot rebuild"
            " documents that have not changed since",
            "run `towpath deploy`, which applies [log] retention",
        )
    if int(settings.get("retention.bytes", _FOREVER)) != _FOREVER:
        yield warning(
            subject,
            f"retention.bytes={settings['retention.bytes']}: the brokers delete the oldest records of a partition that"
            " grows larger",
            "run `towpath deploy`, which sets retention.bytes=-1",
        )
    if begins and wanted == _FOREVER:
        yield warning(
            subject,
            f"begins at offset {begins}, not at 0: the first records are gone, and the log cannot rebuild documents"
            " that have not changed since",
            "`towpath replay` lists them; to get a whole log, run `towpath remove --topics`, empty the destination and"
            " deploy",
        )


def _unwanted(subject: str, settings: Settings) -> Iterator[Finding]:
    if is_compacted(settings):
        yield error(
            subject,
            f"cleanup.policy={settings['cleanup.policy']}: compaction keeps only the last record of a key, which may be"
            " an update without the document that it changes",
            "run `towpath deploy`, which sets cleanup.policy=delete; or set [log] compact = true, deploy, and run"
            " `towpath compact --from-beginning`, which re-reads these documents",
        )


def _compaction(subject: str, settings: Settings, compaction: Compaction) -> Iterator[Finding]:
    if not is_compacted(settings):
        yield warning(
            subject,
            f"cleanup.policy={settings.get('cleanup.policy')}: the topic held records before [log] compact was set, and"
            " is not compacted yet",
            "leave `towpath compact` running: it enables compaction once all updates are protected",
        )
    elif int(settings.get(MARK, 0)) < compaction.lag_ms:
        yield error(
            subject,
            f"{MARK}={settings.get(MARK)}, less than [log] compaction_lag ({compaction.lag_ms}): the log cleaner may"
            " drop a whole document of which then only an update is left",
            "run `towpath deploy`, which applies the file's settings, then `towpath compact --once --from-beginning`",
        )


def plan(pipeline: Pipeline) -> Iterator[Finding]:
    """What the file itself says of the log that is a trap."""
    compaction = pipeline.compaction
    if compaction is None:
        return
    if compaction.lag_ms < _SHORT_MS:
        yield warning(
            "file",
            f"[log] compaction_lag is {compaction.lag_ms // 1000} s: when Connect, a broker or `towpath compact` is"
            " down for longer, the log cleaner drops documents that a rebuild needs",
            "set hours, not minutes; the default is 24h",
        )
    if pipeline.retention_ms != _FOREVER and pipeline.retention_ms <= compaction.lag_ms:
        yield warning(
            "file",
            f"[log] retention ({pipeline.retention_ms // 1000} s) is not longer than compaction_lag"
            f" ({compaction.lag_ms // 1000} s): records are deleted before the log cleaner may compact them",
            "compaction has no effect here: set a longer retention, or compact = false",
        )


def check(it: Session) -> Iterator[Finding]:
    """Findings about a pipeline that is deployed; none where a part does not answer, which others tell."""
    try:
        if not it.pipeline.has_own_source:
            return
        found = resnapshot.look(it.pipeline, it.connect)
        with briefly(it.pipeline.source_uri, "source") as client:
            window = oplog.read(client)
    except TowpathError:
        return
    for captured in found:
        yield from oplog.judge_capture(window, captured)


def warnings(it: Session) -> tuple[str, ...]:
    """What `status` shows of it."""
    return tuple(f"{one.subject}: {one.finding}; {one.advice}" for one in check(it) if one.level != "ok")
