"""A plan as an HTML page: figures, collections, findings, and the commands to run next."""

from __future__ import annotations

import time
from pathlib import Path

from towpath.checks.planning.decide import Plan
from towpath.checks.planning.render import HEADINGS, headline, rows, sections
from towpath.cli import report
from towpath.config.mongo_uri import without_credentials
from towpath.config.text import utc


def write_report(place: Path, plan: Plan) -> None:
    """Write the page. Raises `TowpathError` when it cannot be written."""
    pipeline = plan.facts.pipeline
    report.write(
        place,
        "plan",
        name=pipeline.name,
        headline=headline(plan),
        mark="bad" if plan.errors else "same",
        facts={
            "planned": utc(time.time()),
            "source": without_credentials(pipeline.source.uri),
            "destination": without_credentials(pipeline.destination.uri),
            "Kafka": pipeline.kafka.bootstrap,
            "Kafka Connect": pipeline.connect.url,
            "includes": ", ".join(pipeline.collections.include),
            "leaves out": ", ".join(pipeline.collections.exclude),
        },
        sections=list(sections(plan)),
        headings=HEADINGS,
        rows=rows(plan),
        findings=plan.findings,
        commands=plan.commands,
    )
