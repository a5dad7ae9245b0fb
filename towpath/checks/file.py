"""The checks of the pipeline file: settings that are valid but are traps."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from towpath.checks import log
from towpath.checks.facts import Facts
from towpath.checks.rule import Finding, Rule, ok, warning
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted

_SUBJECT = "file"
#: A log with a shorter retention does not survive an outage over a weekend.
_SHORT_RETENTION_MS = 3 * 24 * 3600 * 1000


def check(facts: Facts) -> Iterator[Finding]:
    yield from traps(facts.pipeline, facts.session.file)


def traps(pipeline: Pipeline, path: Path) -> Iterator[Finding]:
    size = f"{counted(pipeline.kafka.partitions, 'partition')}, {counted(pipeline.write.tasks, 'task')}"
    yield ok(_SUBJECT, f"{path}: pipeline {pipeline.name}, {size}")
    yield from _collections(pipeline)
    yield from _copy(pipeline)
    yield from _writes(pipeline)
    yield from _retention(pipeline)
    yield from log.plan(pipeline)
    yield from _secrets(pipeline)


def _collections(pipeline: Pipeline) -> Iterator[Finding]:
    for namespace in pipeline.collections.rename:
        if not pipeline.selection.matches(namespace):
            yield warning(
                _SUBJECT,
                f"[collections.rename] names {namespace}, which [collections] does not include: it has no effect",
                "correct the name (the left side is the namespace at the source), or remove the line",
            )


def _copy(pipeline: Pipeline) -> Iterator[Finding]:
    if pipeline.capture.copy_tasks > 1 and pipeline.copy_method != "towpath":
        yield warning(
            _SUBJECT,
            f'[capture] copy_tasks = {pipeline.capture.copy_tasks} has no effect: copy = "{pipeline.copy_method}", and'
            ' only copy = "towpath" is shared by tasks',
            "remove copy_tasks",
        )


def _writes(pipeline: Pipeline) -> Iterator[Finding]:
    if pipeline.write.concern.partition("+")[0] == "1":
        yield warning(
            _SUBJECT,
            f'[write] concern = "{pipeline.write.concern}": when the destination\'s primary fails, writes that no other'
            " member has are rolled back, and the pipeline does not write them again",
            'use "majority"',
        )
    if pipeline.write.tasks > pipeline.kafka.partitions:
        yield warning(
            _SUBJECT,
            f"[write] tasks = {pipeline.write.tasks}, but a topic has only {pipeline.kafka.partitions} partitions: at"
            f" most {pipeline.kafka.partitions} tasks can write one collection",
            f"set tasks = {pipeline.kafka.partitions}, unless many collections are busy at the same time",
        )


def _retention(pipeline: Pipeline) -> Iterator[Finding]:
    if 0 <= pipeline.log.retention < _SHORT_RETENTION_MS:
        hours = pipeline.log.retention / 3_600_000
        yield warning(
            _SUBJECT,
            f"[log] retention is {hours:,.1f} hours: records that are not applied by then are deleted and lost, for"
            " example when the pipeline is down over a weekend",
            "set [log] retention to three days or more",
        )


def _secrets(pipeline: Pipeline) -> Iterator[Finding]:
    """Other users cannot read the secrets file, if it is on this machine."""
    file = pipeline.secrets_file
    origin = f"the Secret {pipeline.name}-workers has it" if pipeline.has_operator else "deploy writes it"
    try:
        mode = file.stat().st_mode
    except OSError:
        yield ok(_SUBJECT, f"{file}, from which the workers read both URIs, is not on this machine; {origin}")
        return
    if mode & stat.S_IRWXO:
        access = f"{file} holds both URIs, and all users of this machine have access to it (mode {mode & 0o777:04o})"
        yield warning(_SUBJECT, access, f"chmod o= {file}")
    else:
        yield ok(_SUBJECT, f"{file} is closed to other users")


RULES = (Rule(_SUBJECT, check, required=False),)
