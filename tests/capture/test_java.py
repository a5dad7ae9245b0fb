"""The Java tests, in one run of Maven: two JVMs, each with a replica set for the tests that need a server.

They run where something that they depend on has changed since they last passed: a stamp in `transforms/target` says so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support import fuzz, mongod
from tests.verifier import masks
from towpath.stack import tools

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
TRANSFORMS = ROOT / "transforms"
#: What passed: the files that Java's tests depend on, and their environment.
STAMP = TRANSFORMS / "target" / "passed"
_FORKS = 2


def inputs() -> str:
    """A digest of the sources, the versions, and what tests read of the documentation."""
    folders = (
        TRANSFORMS / "src",
        ROOT / "connectors",
        ROOT / "docs" / "reference",
        ROOT / "towpath" / "stack" / "versions",
    )
    files = [
        TRANSFORMS / "pom.xml",
        masks.FILE,
        *(file for folder in folders for file in folder.rglob("*") if file.is_file()),
    ]
    digest = hashlib.sha256(f"{fuzz.SEED} {fuzz.TIMES} {tools.java().resolve()}".encode())
    for file in sorted(files):
        digest.update(f"\0{file.relative_to(ROOT)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


@pytest.mark.timeout(2460)
def test_java_tests_and_those_that_need_a_server(tmp_path: Path, nightly: bool) -> None:
    given = inputs()
    if not nightly and STAMP.is_file() and STAMP.read_text() == given:
        pytest.skip(f"they passed with these sources ({STAMP.relative_to(ROOT)})")
    maven = [tools.maven(), "-q", "-B", "-f", str(TRANSFORMS), f"-Dtowpath.forks={_FORKS}", "verify"]
    if nightly:
        maven.append("-DexcludedGroups=none")
    reports = TRANSFORMS / "target" / "surefire-reports"
    shutil.rmtree(reports, ignore_errors=True)
    with ExitStack() as parts:
        options = ["--setParameter", "enableTestCommands=1"]
        places = [tmp_path / str(number) for number in range(_FORKS)]
        uris = [parts.enter_context(mongod.start_replica_set(place, options=options)).uri for place in places]
        random_masks = tmp_path / "masks.json"
        random_masks.write_text(masks.text(fuzz.SEED, 300 * fuzz.TIMES), encoding="utf-8")
        environment = os.environ | {
            "TOWPATH_TEST_MONGODB_URI": " ".join(uris),
            "TOWPATH_TEST_MASKS": str(random_masks),
        }
        done = subprocess.run(maven, env=environment, capture_output=True, text=True, timeout=2400, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
    suites = [ElementTree.parse(report).getroot() for report in reports.glob("TEST-*.xml")]
    assert sum(int(suite.get("skipped", 0)) for suite in suites) == 0
    assert sum(int(suite.get("tests", 0)) for suite in suites if str(suite.get("name")).endswith("ServerTest")) > 40
    assert sum(int(suite.get("tests", 0)) for suite in suites) > 300
    STAMP.write_text(given)
