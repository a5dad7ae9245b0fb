"""Prometheus on the stack: it scrapes brokers, workers and `towpath run --listen`, and has the alert rules."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from towpath.stack.errors import FolderUnusable, ToolMissing
from towpath.stack.state import HOST

MONITORING = Path(__file__).parent / "monitoring"
"""The exporter rules for workers, the alert rules, the Grafana dashboard."""
WORKER_RULES = MONITORING / "workers.yaml"
ALERTS = MONITORING / "alerts.yaml"
NAME = "prometheus"
TOWPATH = f"{HOST}:9300"
"""Where `towpath run --listen` and `towpath monitor` are looked for, unless the file of targets says otherwise."""


def program() -> str:
    """The `prometheus` on PATH. Raises `ToolMissing`."""
    if path := shutil.which(NAME):
        return path
    raise ToolMissing(
        "no prometheus on PATH; install it (Debian, Ubuntu: apt-get install prometheus; its own service is not needed:"
        " systemctl disable --now prometheus prometheus-node-exporter)"
    )


def command(configuration: Path, data: Path, port: int) -> tuple[str, ...]:
    """A Prometheus that listens on this machine only."""
    return (
        program(),
        f"--config.file={configuration}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address={HOST}:{port}",
    )


def write_configuration(
    file: Path, jobs: Mapping[str, Mapping[str, int]], rules: Path = ALERTS, interval: str = "5s"
) -> None:
    """Write the configuration, in JSON, which is YAML: job → process → port.

    The addresses of `towpath` are in a file of targets next to it, which is left alone once it is there: Prometheus
    reads it again when it changes. Raises `FolderUnusable`.
    """
    targets = file.with_name("towpath-targets.json")
    scraped: list[dict[str, Any]] = [{"job_name": "towpath", "file_sd_configs": [{"files": [str(targets)]}]}]
    for job, processes in jobs.items():
        static = [{"targets": [f"{HOST}:{port}"], "labels": {"process": name}} for name, port in processes.items()]
        scraped.append({"job_name": job, "static_configs": static})
    configuration = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(rules)],
        "scrape_configs": scraped,
    }
    try:
        file.write_text(json.dumps(configuration, indent=1), encoding="utf-8")
        if not targets.exists():
            targets.write_text(json.dumps([{"targets": [TOWPATH]}]), encoding="utf-8")
    except OSError as error:
        raise FolderUnusable(f"cannot write {file}: {error.strerror}") from error
