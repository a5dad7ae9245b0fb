"""The Java module's tests that ask a real server what it does."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import servers

POM = Path(__file__).parents[2] / "transforms" / "pom.xml"


@pytest.mark.timeout(420)
def test_what_the_java_module_says_of_the_server_is_what_the_server_does(tmp_path: Path) -> None:
    with servers.replica_set(tmp_path, "--setParameter", "enableTestCommands=1") as uri:
        done = subprocess.run(
            ["mvn", "-f", POM, "test", "-Dgroups=server"],
            env=os.environ | {"TOWPATH_TEST_MONGODB_URI": uri},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if "ERROR" in line)
    counts = [int(count) for count in re.findall(r"Tests run: (\d+), Failures: 0, Errors: 0, Skipped: 0\n", done.stdout)]
    assert counts and counts[-1] > 50, f"too few tests ran:\n{done.stdout[-2000:]}"
