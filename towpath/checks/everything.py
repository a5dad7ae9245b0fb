"""All looks at all places, in an order in which each can use what the earlier ones found out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from towpath.checks import capture, connect, deployment, destination, file, kafka, source
from towpath.checks.cluster import Known
from towpath.checks.finding import Finding
from towpath.opened import Opened


def everything(it: Opened, path: Path) -> Iterator[Finding]:
    """Every finding about the pipeline in the file `path`. A server out of reach is a finding, and ends nothing."""
    known, failed = Known(), False
    deployed = connect.is_deployed(it.connect, it.pipeline)
    for look in (
        file.check(it.pipeline, path),
        source.check(it.pipeline, known, deployed=deployed),
        destination.check(it.pipeline, known, deployed=deployed),
        kafka.check(it.pipeline, known, it.topics),
        connect.check(it.pipeline, known, it.connect),
        capture.check(it) if deployed else iter(()),
    ):
        for finding in look:
            failed = failed or finding.level == "error"
            yield finding
    if not failed:
        yield from deployment.check(it)
