"""Whether the source connectors come near the end of what the source's oplog holds."""

from __future__ import annotations

from collections.abc import Iterator

from towpath import resnapshot
from towpath.errors import TowpathError
from towpath.finding import Finding
from towpath.mongo.client import briefly
from towpath.preflight import oplog
from towpath.session import Session


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
