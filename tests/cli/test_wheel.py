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
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
from pymongo import MongoClient

from release import archives, sbom
from tests.support.mongod import start_standalone
from tests.support.page import Command, commands, differs
from towpath.stack import parts

pytestmark = [pytest.mark.servers, pytest.mark.nightly]

_ROOT = Path(__file__).parents[2]
#: What a wheel takes of the checkout → where it is in the wheel.
_TOOL = {
    "towpath": "towpath",
    "connectors": "towpath/connectors",
    "transforms/pom.xml": "towpath/transforms/pom.xml",
    "transforms/src/main": "towpath/transforms/src/main",
}
_VERIFIER = {"verifier/towpath_verifier": "towpath_verifier"}
_MADE = shutil.ignore_patterns("__pycache__", "*.egg-info", "target", ".*", "build", "dist")

PAGE = (_ROOT / "docs" / "tutorial.md").read_text()
INSTALL = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S))
COMMANDS = commands(PAGE)
#: All that the page needs in addition to Python and Java.
_PROGRAMS = ("bash", "awk", "grep")
#: Between the outputs of two commands.
_MARK = "@@ %d"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels, built with pip's usual isolation from a copy of the sources that holds nothing built before."""
    copy, made = tmp_path_factory.mktemp("sources") / "towpath", tmp_path_factory.mktemp("wheels")
    shutil.copytree(_ROOT, copy, ignore=_MADE)
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, copy / "verifier", copy])
    return {wheel.name.partition("-")[0]: wheel for wheel in made.glob("*.whl")}


def _environment() -> dict[str, str]:
    """Nothing of the environment that the tests run in."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def _run(command: Sequence[str | Path]) -> str:
    """What it prints; fails with all that it said."""
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _needed(places: Mapping[str, str]) -> set[str]:
    """What has to be in a wheel: every file that git knows there."""
    tracked = subprocess.check_output(["git", "ls-files", *places], cwd=_ROOT, text=True).splitlines()
    found = {to + file.removeprefix(of) for of, to in places.items() for file in tracked if file.startswith(of)}
    assert len(found) == len(tracked) > 10
    return found


@pytest.mark.parametrize(("name", "places"), [("towpath", _TOOL), ("towpath_verifier", _VERIFIER)])
def test_a_wheel_has_every_file_of_its_package_and_nothing_else(
    wheels: dict[str, Path], name: str, places: dict[str, str]
) -> None:
    with zipfile.ZipFile(wheels[name]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == _needed(places)


def test_the_verifier_is_installed_without_kafkas_client_and_its_example_finds_what_is_missing(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    readme = (_ROOT / "verifier" / "README.md").read_text()
    (script,) = re.findall(r'^```python\n("""compare_two\.py .*?)^```', readme, re.M | re.S)
    (shown,) = re.findall(r"^\$ python compare_two\.py .*?\n(.*?)^```", readme, re.M | re.S)
    (tmp_path / "compare_two.py").write_text(script)
    python = tmp_path / "venv" / "bin" / "python"
    _run([sys.executable, "-m", "venv", tmp_path / "venv"])
    constraints = ["--constraint", _ROOT / "constraints.txt"]
    _run([python, "-m", "pip", "install", "--quiet", "--no-compile", wheels["towpath_verifier"], *constraints])
    installed = {line.partition("==")[0] for line in _run([python, "-m", "pip", "freeze"]).splitlines()}
    assert {name.partition(" @ ")[0] for name in installed} == {"dnspython", "pymongo", "tenacity", "towpath-verifier"}
    with start_standalone(tmp_path / "source") as source, start_standalone(tmp_path / "destination") as destination:
        for side, left_out in ((source, -1), (destination, 3)):
            with MongoClient[dict[str, int]](side.uri) as client:
                client.shop.orders.insert_many([{"_id": n} for n in range(100) if n != left_out])
        command = [python, "compare_two.py", source.uri, destination.uri]
        done = subprocess.run(command, cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == (shown, 1), done.stderr


def _script(given: list[Command]) -> str:
    """One shell for all commands, which keeps `$?` from each to the next."""
    lines = [f'echo "{_MARK % number}"\n(exit $status)\n{one.text}\nstatus=$?' for number, one in enumerate(given)]
    return "\n".join(["status=0", "exec 2>&1", *lines])


def test_an_installed_wheel_does_the_tutorial_as_its_page_shows(wheels: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for wheel in wheels.values():
        shutil.copy(wheel, folder)
    constraints = folder / f"towpath-{version('towpath')}-constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in sbom.installed()))
    scripts = re.findall(r'^```python\n("""(\w+\.py) .*?)^```', PAGE, re.M | re.S)
    for text, name in scripts:
        (folder / name).write_text(text)
    archives.of_plugin(parts.plugins(print) / "towpath", version("towpath"), folder)
    archives.of_kafka(parts.jars(print), version("towpath"), folder)
    cache, path = tmp_path / "cache", tmp_path / "bin"
    for fetched in (parts.mongod(print).parent, parts.java(print).parents[1]):
        (cache / fetched.parent.name).mkdir(parents=True)
        (cache / fetched.parent.name / fetched.name).symlink_to(fetched)
    path.mkdir()
    for program, place in {
        "python3": getattr(sys, "_base_executable"),  # noqa: B009
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
    assert not [name for name in ("java", "mvn") if shutil.which(name, path=own["PATH"])]

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

    assert "pip install towpath*.whl" in INSTALL
    run("bash", "-euc", INSTALL, timeout=240)
    assert version("towpath") in run("towpath", "--version", timeout=60)
    assert "_TOWPATH_COMPLETE" in run("towpath", "completion", "bash", timeout=60)
    try:
        printed = run("bash", "-c", _script(COMMANDS), timeout=540)
    finally:
        run("towpath", "stack", "down", "--dir", "stack", timeout=60)
    assert sorted(place.name for place in cache.iterdir()) == ["caches", "java", "mongod"], "nothing is built"
    outputs = re.split(r"^@@ \d+\n", printed, flags=re.MULTILINE)[1:]
    assert len(scripts) == 1
    assert len(COMMANDS) == len(outputs) > 20
    wrong = {one.text: differs(one.output, output) for one, output in zip(COMMANDS, outputs, strict=True)}
    assert {text: line for text, line in wrong.items() if line is not None} == {}, printed
