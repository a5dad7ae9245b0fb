"""What `--nightly` makes of skips: it runs everything, so a test that cannot run has failed."""

from __future__ import annotations

import pytest


def refuse(report: pytest.TestReport) -> None:
    """Make a failure of a skip. Tests of images are excepted: they need a Docker engine, and have their own command."""
    if report.skipped and not hasattr(report, "wasxfail") and "containers" not in report.keywords:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"{reason}; --nightly skips nothing"
