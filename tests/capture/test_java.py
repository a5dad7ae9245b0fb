"""The Java tests, in one run: those that need a server have a replica set of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support import mongod
from towpath.stack import tools

pytestmark = pytest.mark.servers

TRANSFORMS = Path(__file__).parents[2] / "transforms"


@pytest.mark.timeout(2460)
def test_java_tests_and_those_that_need_a_server(tmp_path: Path) -> None:
    maven = [*map(str, [tools.maven(), "-q", "-B", "-f", TRANSFORMS / "pom.xml"]), "verify"]
    reports = TRANSFORMS / "target" / "surefire-reports"
    shutil.rmtree(reports, ignore_errors=True)
    with mongod.start_replica_set(tmp_path, options=["--setParameter", "enableTestCommands=1"]) as servers:
        environment = os.environ | {"TOWPATH_TEST_MONGODB_URI": servers.uri}
        done = subprocess.run(maven, env=environment, capture_output=True, text=True, timeout=2400, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
    suites = [ElementTree.parse(report).getroot() for report in reports.glob("TEST-*.xml")]
    assert sum(int(suite.get("skipped", 0)) for suite in suites) == 0
    assert sum(int(suite.get("tests", 0)) for suite in suites if str(suite.get("name")).endswith("ServerTest")) > 40
    assert sum(int(suite.get("tests", 0)) for suite in suites) > 300
