"""The checks of the pipeline file: settings that are valid but are traps."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from towpath.checks.facts import Facts
from towpath.checks.rule import Finding, Rule, ok, warning
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted

#: A log with a shorter retention does not survive an outage over a weekend.
_SHORT_RETENTION_MS = 3 * 24 * 3600 * 1000
_SHORT_LAG_MS = 600_000  # a shorter lag leaves little time during an outage of a broker or Connect


def traps(pipeline: Pipeline, path: Path) -> Iterator[Finding]:
    partitions, tasks, log = pipeline.kafka.partitions, pipeline.write.tasks, pipeline.log
    size = f"{counted(partitions, 'partition')}, {counted(tasks, 'task')}"
    yield ok(f"{path}: pipeline {pipeline.name}, {size}")
    for namespace in pipeline.collections.rename:
        if not pipeline.selection.matches(namespace):
            yield warning(
                f"[collections.rename] names {namespace}, which [collections] does not include: it has no effect",
                "correct the name (the left side is the namespace at the source), or remove the line",
            )
    if pipeline.capture.copy_tasks > 1 and pipeline.copy_method != "towpath":
        yield warning(
            f'[capture] copy_tasks = {pipeline.capture.copy_tasks} has no effect: copy = "{pipeline.copy_method}", and'
            ' only copy = "towpath" is shared by tasks',
            "remove copy_tasks",
        )
    if pipeline.write.concern.partition("+")[0] == "1":
        yield warning(
            f'[write] concern = "{pipeline.write.concern}": when the destination\'s primary fails, writes that no other'
            " member has are rolled back, and the pipeline does not write them again",
            'use "majority"',
        )
    if tasks > partitions:
        yield warning(
            f"[write] tasks = {tasks}, but a topic has only {partitions} partitions: at most {partitions} tasks can"
            " write one collection",
            f"set tasks = {partitions}, unless many collections are busy at the same time",
        )
    if 0 <= log.retention < _SHORT_RETENTION_MS:
        yield warning(
            f"[log] retention is {log.retention / 3_600_000:,.1f} hours: records that are not applied by then are"
            " deleted and lost, for example when the pipeline is down over a weekend",
            "set [log] retention to three days or more",
        )
    if log.compact and log.compaction_lag < _SHORT_LAG_MS:
        yield warning(
            f"[log] compaction_lag is {log.compaction_lag // 1000} s: when Connect, a broker or `towpath compact` is"
            " down for longer, the log cleaner drops documents that a rebuild needs",
            "set hours, not minutes; the default is 24h",
        )
    if log.compact and 0 <= log.retention <= log.compaction_lag:
        yield warning(
            f"[log] retention ({log.retention // 1000} s) is not longer than compaction_lag"
            f" ({log.compaction_lag // 1000} s): records are deleted before the log cleaner may compact them",
            "compaction has no effect here: set a longer retention, or compact = false",
        )
    yield _secrets(pipeline)


def _secrets(pipeline: Pipeline) -> Finding:
    """Other users cannot read the secrets file, if it is on this machine."""
    file = pipeline.secrets_file
    origin = f"the Secret {pipeline.name}-workers has it" if pipeline.has_operator else "deploy writes it"
    try:
        mode = file.stat().st_mode
    except OSError:
        return ok(f"{file}, from which the workers read both URIs, is not on this machine; {origin}")
    if mode & stat.S_IRWXO:
        access = f"{file} holds both URIs, and all users of this machine have access to it (mode {mode & 0o777:04o})"
        return warning(access, f"chmod o= {file}")
    return ok(f"{file} is closed to other users")


RULES: Sequence[Rule[Facts]] = (Rule("file", lambda facts: traps(facts.pipeline, facts.session.file), required=False),)
