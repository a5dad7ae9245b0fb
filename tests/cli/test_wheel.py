"""What `pip install` brings: all of Towpath, which works far from its sources.

The tutorial is run with it, and with the archives of a release, as it stands in `docs/tutorial.md`: each command ends
and prints as the page shows. There is no Maven, and nothing in the cache but mongod.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from release import archives, sbom
from tests.support.page import Command, commands, differs
from towpath.stack import parts, tools

pytestmark = [pytest.mark.servers, pytest.mark.nightly]

_ROOT = Path(__file__).parents[2]
_MADE = shutil.ignore_patterns("__pycache__", "*.egg-info", "target", ".*", "build", "dist")

PAGE = (_ROOT / "docs" / "tutorial.md").read_text()
INSTALL = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S))
COMMANDS = commands(PAGE)
#: All that the page needs besides Python and Java.
_PROGRAMS = ("bash", "awk", "grep")
#: Between the outputs of two commands.
_MARK = "@@ %d"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with pip's usual isolation from a copy of the sources that holds nothing built before."""
    copy, made = tmp_path_factory.mktemp("sources") / "towpath", tmp_path_factory.mktemp("wheel")
    shutil.copytree(_ROOT, copy, ignore=_MADE)
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, copy])
    (found,) = made.glob("*.whl")
    return found


def _environment() -> dict[str, str]:
    """Nothing of the environment that the tests run in."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def _run(command: Sequence[str | Path]) -> str:
    """What it prints; fails with all that it said."""
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _needed() -> set[str]:
    """Every file of the packages, and what the connector plugin is built from."""
    homes = {
        "connectors": _ROOT,
        "towpath": _ROOT,
        "transforms/src/main": _ROOT,
        "towpath_verifier": _ROOT / "verifier",
    }
    files = ((file, home) for place, home in homes.items() for file in (home / place).rglob("*") if file.is_file())
    return {str(file.relative_to(home)) for file, home in files if "__pycache__" not in file.parts} | {
        "transforms/pom.xml"
    }


def test_every_file_of_the_packages_and_the_plugins_sources_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == _needed()


def _script(given: list[Command]) -> str:
    """One shell for all commands, which keeps `$?` from each to the next."""
    lines = [f'echo "{_MARK % number}"\n(exit $status)\n{one.text}\nstatus=$?' for number, one in enumerate(given)]
    return "\n".join(["status=0", "exec 2>&1", *lines])


def test_an_installed_wheel_does_the_tutorial_as_its_page_shows(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(wheel, folder)
    constraints = folder / f"towpath-{version('towpath')}-constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in sbom.installed()))
    scripts = re.findall(r'^```python\n("""(\w+\.py) .*?)^```', PAGE, re.M | re.S)
    for text, name in scripts:
        (folder / name).write_text(text)
    archives.of_plugin(parts.plugins(print) / "towpath", version("towpath"), folder)
    archives.of_kafka(parts.jars(print), version("towpath"), folder)
    mongod, cache, path = parts.mongod(print).parent, tmp_path / "cache", tmp_path / "bin"
    (cache / "mongod").mkdir(parents=True)
    (cache / "mongod" / mongod.name).symlink_to(mongod)
    path.mkdir()
    for program, place in {
        "java": tools.java(),
        "python3": sys._base_executable,
        **{name: shutil.which(name) for name in _PROGRAMS},
    }.items():
        (path / program).symlink_to(str(place))
    own = {
        "PATH": f"{folder / 'venv' / 'bin'}:{path}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "TOWPATH_CACHE": str(cache),
        "PIP_NO_COMPILE": "1",
    }
    environment = _environment() | own
    assert shutil.which("mvn", path=own["PATH"]) is None

    def run(*command: str, timeout: float) -> str:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=timeout,
            check=False,
        ).stdout

    assert "pip install towpath" in INSTALL
    run("bash", "-euc", INSTALL, timeout=240)
    assert version("towpath") in run("towpath", "--version", timeout=60)
    assert "_TOWPATH_COMPLETE" in run("towpath", "completion", "bash", timeout=60)
    try:
        printed = run("bash", "-c", _script(COMMANDS), timeout=540)
    finally:
        run("towpath", "stack", "down", "--dir", "stack", timeout=60)
    assert [place.name for place in cache.iterdir()] == ["mongod"]
    outputs = re.split(r"^@@ \d+\n", printed, flags=re.MULTILINE)[1:]
    assert len(scripts) == 1
    assert len(COMMANDS) == len(outputs) > 20
    wrong = {one.text: differs(one.output, output) for one, output in zip(COMMANDS, outputs, strict=True)}
    assert {text: line for text, line in wrong.items() if line is not None} == {}, printed
