"""What `pip install` brings: all of Towpath, which works far from its sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support import oracle
from towpath import stack as embedded

pytestmark = pytest.mark.servers

_ROOT = Path(__file__).parents[2]
#: Folders of the checkout that are not for users; what else has Python modules or is opened by them is in the wheel.
_NOT_INSTALLED = {"tests", "docs", "scripts"}
_MADE = shutil.ignore_patterns("__pycache__", "*.egg-info", "target", ".*", "build", "dist")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with pip's usual isolation from a copy of the sources that holds nothing built before."""
    copy, made = tmp_path_factory.mktemp("sources") / "towpath", tmp_path_factory.mktemp("wheel")
    shutil.copytree(_ROOT, copy, ignore=_MADE)
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, copy])
    (found,) = made.glob("*.whl")
    return found


@dataclass(frozen=True, slots=True)
class Installed:
    """Towpath in a virtual environment of its own, called from a folder that is not the checkout."""

    programs: Path
    folder: Path

    def __call__(self, *words: str | Path) -> str:
        return _run([self.programs / "towpath", *words], self.folder)


@pytest.fixture
def installed(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    _run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"])
    programs, folder = tmp_path / "venv" / "bin", tmp_path / "elsewhere"
    # not the slow way, by ensurepip; and nothing is compiled that nobody imports
    pip = [sys.executable, "-m", "pip", "--python", programs / "python"]
    _run([*pip, "install", "--quiet", "--no-compile", wheel, "pip"])
    folder.mkdir()
    return Installed(programs, folder)


def _run(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """What it prints; fails with all that it said. Knows nothing of the environment that the tests run in."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _needed() -> set[str]:
    """Every file of the packages, and what the connector plugin is built from."""
    packages = {init.parent.name for init in _ROOT.glob("*/__init__.py")} - _NOT_INSTALLED
    assert {"connectors", "towpath", "verifier"} <= packages
    places = [*(_ROOT / name for name in packages), _ROOT / "transforms" / "src" / "main"]
    files = [_ROOT / "transforms" / "pom.xml", *(file for place in places for file in place.rglob("*"))]
    return {str(file.relative_to(_ROOT)) for file in files if file.is_file() and "__pycache__" not in file.parts}


def test_every_file_of_the_packages_and_the_plugins_sources_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == _needed()


@contextmanager
def _stack(installed: Installed, place: Path) -> Iterator[embedded.Stack]:
    try:
        installed("stack", "up", "--dir", place)
        yield embedded.status(place)
    finally:
        embedded.down(place)


def test_an_installed_wheel_replicates_and_verifies_far_from_its_sources(installed: Installed, tmp_path: Path) -> None:
    place, file = tmp_path / "stack", installed.folder / "shop.toml"
    assert "0.1.0" in installed("--version")
    with _stack(installed, place) as stack:
        with MongoClient[dict[str, Any]](stack.source) as client:
            client.shop.orders.insert_many([{"_id": n} for n in range(100)])
        installed("init", file, "--include", "shop.*", "--stack", place)
        installed("deploy", file)
        installed("wait", file, "--timeout", "120")
        assert "same" in installed("verify", file)
        oracle.assert_same(stack.source, stack.destination, ["shop.orders"], at_least=100)
        installed("remove", file, "--topics", "--yes")
        assert "kafka" in installed("stack", "down", "--dir", place)
    assert not any(process.running for process in stack.processes.values())
