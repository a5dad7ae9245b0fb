"""A real Prometheus scrapes a real run: every metric is there, every panel has data, every alert fires and stops."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import MakePipeline
from tests.prometheus import dashboard, rules
from tests.prometheus.test_prometheus_files import documented
from tests.run.test_run import REFUSING, Running, running
from tests.support import api, control, rest
from tests.support.awaited import patient, until
from tests.support.compactor import Service
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from tests.support.servers import free_port
from tests.support.started import started
from towpath import stack as embedded
from towpath.clients.connect.rest import Connect
from towpath.stack import parts, plan
from towpath.stack.processes import HOST

pytestmark = [
    pytest.mark.servers,
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus (Debian: apt-get install prometheus)"),
    pytest.mark.skipif(shutil.which("jcmd") is None, reason="no jcmd on PATH: it comes with a JDK"),
]

#: The copy takes seconds, so that it is seen; `towpath compact` is started by the test.
SETTINGS = Settings(
    partitions=2,
    capture={"documents_per_second": 120},
    extra='[log]\ncompact = true\n[run]\ncompact = false\nrecovery_point = "2s"',
)
#: Texts of the rules, and what a test of a minute has in their place.
LIMITS = {"> 300": "> 2", "[1m]": "[3s]", "[2h]": "[3s]", "> 60\n": "> 6\n"}
DOWN, UNKNOWN = "TowpathScrapeDown", "TowpathStateUnknown"
MISSING, ERRORS = "TowpathMissing", "TowpathErrors"
#: Not made here: `alerts.test.yaml` has it.
LOG_BREAKS = "TowpathLogBreaks"
HEALTHY = ('towpath_pipeline_state{state="running"} == 1', "min(towpath_verdict_clean) == 1")
#: Metrics of replays; this run has none, and tests/monitor/test_serving.py has some.
ABSENT = re.compile(r"towpath_replay_\w+")
#: Seconds by which the oplog has to reach back.
OPLOG_NEEDED = "towpath_oplog_window_seconds - towpath_oplog_remaining_seconds"
UNITS = {"s": "seconds", "bytes": "bytes"}


@dataclass(frozen=True, slots=True)
class Monitor:
    """A Prometheus that runs."""

    url: str
    began: float
    worker: int
    """The port on which the worker shows its metrics."""
    metadata: dict[str, Any] = field(default_factory=dict)

    def get(self, path: str, **query: Any) -> Any:
        answer = rest.get(f"{self.url}/api/v1/{path}", params=query, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def values(self, query: str) -> list[float]:
        """All values of a query since the beginning, every second."""
        span = {"start": self.began, "end": time.time(), "step": "1"}
        found = self.get("query_range", query=query, **span)["result"]
        return [float(value) for series in found for _, value in series["values"] if value != "NaN"]

    def firing(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}

    def await_fired(self, wanted: set[str]) -> None:
        """Wait until each of these has fired since the beginning."""

        def missing() -> set[str]:
            self.learn()
            found = self.get("query", query='count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1h]))')
            return wanted - {series["metric"]["alertname"] for series in found["result"]}

        await_empty("alert that has not fired", missing)

    def await_value(self, query: str) -> None:
        def found() -> Any:
            self.learn()
            return self.get("query", query=query)["result"]

        until(query, found, 60)

    def await_health(self) -> None:
        """Wait until the pipeline runs, both sides are the same, and no alert has been about to fire for 3 s."""
        well = [0.0]

        def ailing() -> set[str]:
            self.learn()
            found = {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"]}
            found |= {fact for fact in HEALTHY if not self.get("query", query=fact)["result"]}
            well[0] = 0.0 if found else well[0] or time.monotonic()
            return found or (set() if time.monotonic() - well[0] > 3 else {"not long enough"})

        await_empty("obstacle", ailing)

    def learn(self) -> None:
        """Keep type and help of the metrics that are there now: Prometheus forgets them soon after the metric."""
        self.metadata.update(self.get("metadata"))


def await_empty(what: str, look: Callable[[], set[str]]) -> None:
    end = time.monotonic() + patient(150)
    while found := look():
        assert time.monotonic() < end, f"still an {what}: {sorted(found)}"
        time.sleep(0.3)


@contextmanager
def monitor(stack: embedded.Stack, folder: Path, listen: int) -> Iterator[Monitor]:
    """As `stack up --monitor` has it, with a scrape every two seconds and the quick rules."""
    file, port = folder / "prometheus.json", free_port()
    write_targets(folder, listen)
    ports = {name: free_port() for name in ("connect-0", "kafka")}
    for name in ports:
        show_metrics(stack, name, ports[name])
    jobs = {"connect": {"connect-0": ports["connect-0"]}, "kafka": {"kafka": ports["kafka"]}}
    plan.write_prometheus(file, jobs, rules.quick(folder / "alerts.yaml", LIMITS), "2s")
    log = folder / "prometheus.log"
    with (
        log.open("w") as out,
        started(plan.prometheus_command(file, folder / "prometheus", port), stdout=out, stderr=subprocess.STDOUT),
    ):
        url = f"http://127.0.0.1:{port}"
        until("Prometheus", lambda: answers(f"{url}/-/ready"), 20)
        yield Monitor(url, time.time(), ports["connect-0"])


def write_targets(folder: Path, *ports: int) -> None:
    """What Prometheus scrapes as the job `towpath`, from now on."""
    (folder / "towpath-targets.json").write_text(json.dumps([{"targets": [f"127.0.0.1:{port}" for port in ports]}]))


@contextmanager
def monitored(port: int, *files: Path) -> Iterator[None]:
    with started([TOWPATH, "monitor", *files, "--listen", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL):
        yield


def without(pipeline: Pipeline, address: str, name: str) -> Path:
    """Its file with an address at which nothing answers, and another name."""
    file, text = pipeline.file.with_name(f"without-{name}.toml"), pipeline.file.read_text()
    assert address in text
    text = text.replace(f'name = "{pipeline.name}"', f'name = "{name}"')
    file.write_text(text.replace(address, re.sub(r":\d+", ":1", address)))
    file.chmod(0o600)
    return file


def show_metrics(stack: embedded.Stack, name: str, port: int) -> None:
    """Load the agent into a JVM that runs: the stack that tests share starts without, and so sooner."""
    pid = embedded.status(stack.directory).processes[name].pid
    options = f"{HOST}:{port}:{plan.WORKER_RULES}"
    command = ["jcmd", str(pid), "JVMTI.agent_load", str(parts.parts(print).agent), options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "return code: 0" in done.stdout, done.stdout + done.stderr


def answers(url: str) -> bool:
    try:
        return rest.get(url, timeout=2).is_success
    except httpx.HTTPError:
        return False


def test_prometheus_sees_the_failures_of_a_pipeline(
    make_pipeline: MakePipeline, stack: embedded.Stack, tmp_path: Path
) -> None:
    pipeline, listen = make_pipeline(SETTINGS), free_port()
    for name in "abcde":
        pipeline.source(name).insert_many([{"_id": n, "n": n} for n in range(250)])
    pipeline.write()
    options = ("--deploy", "--listen", f"127.0.0.1:{listen}")
    with monitor(stack, tmp_path, listen) as look, running(pipeline, tmp_path, "run", *options) as run:
        look.await_value("last_over_time(towpath_copy_remaining_seconds[1h])")
        look.await_value("towpath_copy_done == 1")
        assert max(look.values(f"{OPLOG_NEEDED} and towpath_copy_done == 0")) > 0
        other, addresses = free_port(), pipeline.addresses
        no_worker = without(pipeline, addresses.connect, "away")
        no_source = without(pipeline, addresses.source.partition("?")[0], pipeline.name)
        with monitored(other, no_worker, no_source):
            write_targets(tmp_path, listen, other)
            make_failures(pipeline, run)
            lag_behind(pipeline, look)
            look.await_fired(set(rules.NAMES) - {DOWN, MISSING, LOG_BREAKS})
            api.refuse(rest.get(f"http://127.0.0.1:{listen}/api/v1/pipelines/{pipeline.name}").json(), "Pipeline")
        with Connect(addresses.connect) as connect:
            connect.delete(f"{pipeline.name}-sink")
        look.await_fired({DOWN, MISSING})
        with monitored(other, pipeline.file):
            pipeline.deploy()
            await_empty("alert that fires", lambda: look.firing() & {DOWN, MISSING, ERRORS})
        write_targets(tmp_path, listen)
        with repaired(pipeline, look, tmp_path):
            look.await_health()
            lose_connect(stack, look)
            look.await_health()
        assert_documented(look)
        assert_panels_have_data(look, pipeline)


def make_failures(pipeline: Pipeline, run: Running) -> None:
    """One of each kind; that no one has verified, and that `towpath compact` does not run, are two more."""
    fill_oplog(pipeline)
    pipeline.source("b").drop()
    pipeline.destination("a").update_one({"_id": 7}, {"$set": {"n": "damaged"}})
    towpath("verify", pipeline.file, "--processes", "1", expect=1)
    pipeline.destination_client[pipeline.name].command({"collMod": "a", "validator": REFUSING})
    pipeline.source("a").update_many({"_id": {"$lt": 2}}, {"$set": {"refused": True}})
    run.await_word("Document failed validation (121)")
    pipeline.source("a").insert_many([{"_id": 2000 + n, "refused": True} for n in range(300)])


def lag_behind(pipeline: Pipeline, look: Monitor) -> None:
    """The capture stands until the alert about the recovery point fires."""
    with Connect(pipeline.addresses.connect) as connect:
        connect.pause(f"{pipeline.name}-source")
        look.await_fired({"TowpathRecoveryPoint"})
        connect.resume(f"{pipeline.name}-source")


@contextmanager
def repaired(pipeline: Pipeline, look: Monitor, folder: Path) -> Iterator[None]:
    """What the runbooks say, while it lasts."""
    pipeline.destination_client[pipeline.name].command({"collMod": "a", "validator": {}})
    resize_oplog(pipeline, 512 << 10)
    with Service(pipeline.file, "1s", folder / "compact"):
        look.await_value(f'towpath_lag_records{{pipeline="{pipeline.name}"}} == 0')
        pipeline.destination("b").drop()
        towpath("ddl", pipeline.file, "--accept")
        towpath("repair", pipeline.file, "--yes")
        try:
            with started([TOWPATH, "verify", pipeline.file, "--follow", "--processes", "1"], stdout=subprocess.DEVNULL):
                yield
        finally:
            resize_oplog(pipeline, 1024)


def fill_oplog(pipeline: Pipeline) -> None:
    """Write so much within a minute that the oplog would be full within hours."""
    others = pipeline.source_client[f"{pipeline.name}-others"]
    others["bulk"].insert_many([{"_id": n, "noise": os.urandom(1 << 20)} for n in range(60)])
    others.client.drop_database(others.name)


def resize_oplog(pipeline: Pipeline, megabytes: float) -> None:
    pipeline.source_client.admin.command({"replSetResizeOplog": 1, "size": float(megabytes)})


def lose_connect(stack: embedded.Stack, look: Monitor) -> None:
    control.kill(stack.directory, "connect-0")
    until("both alerts", lambda: look.firing() >= {DOWN, UNKNOWN}, 30, 0.3)
    control.start(stack.directory, "connect-0")
    show_metrics(stack, "connect-0", look.worker)


def assert_documented(look: Monitor) -> None:
    """What the pages list is what was scraped, with help and type, and units in the names."""
    seen, help_texts = set(look.get("label/__name__/values")), look.metadata
    pages = documented("metrics.md") | documented("prometheus.md")
    missing = [
        name for name in pages if name not in seen and f"{name}_bucket" not in seen and not ABSENT.fullmatch(name)
    ]
    assert missing == []
    kinds = {"info": ("gauge", "info")} | {kind: (kind,) for kind in ("histogram", "counter", "gauge")}
    for name, row in pages.items():
        if not ABSENT.fullmatch(name):
            families = [f for f in (name, name.removesuffix("_total"), name.removesuffix("_info")) if f in help_texts]
            assert families, f"{name} has neither help nor type"
            told = help_texts[families[0]][0]
            assert told["help"], name
            assert told["type"] in kinds[row.split(" ")[0]], name
    for name, row in documented("metrics.md").items():
        unit = row.rsplit(" | ", 2)[1]
        assert UNITS.get(unit, "") in name, name
    ours = {name for name in seen if re.match("towpath_|debezium_|kafka_", name)}
    known = pages.keys() | {f"{name}_{end}" for name in pages for end in ("bucket", "sum", "count")}
    assert sorted(name for name in ours if name not in known and not name.endswith("_created")) == []


def assert_panels_have_data(look: Monitor, pipeline: Pipeline) -> None:
    queries = [query for panels in dashboard.DASHBOARD.values() for panel in panels for query in panel.queries.values()]
    asked = [query.replace(dashboard.PIPELINE, pipeline.name).replace(dashboard.INTERVAL, "10s") for query in queries]
    assert [query for query in asked if not look.values(query)] == []
