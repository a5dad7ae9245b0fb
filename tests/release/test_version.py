"""One version for tool and plugin, and a changelog that knows it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
POMS = subprocess.check_output(["git", "ls-files", "*pom.xml"], cwd=ROOT, text=True).split()
PROJECTS = ("pyproject.toml", "verifier/pyproject.toml")
_POM = "{http://maven.apache.org/POM/4.0.0}"
_SEMANTIC = r"(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2}"


def test_the_version_is_a_semantic_one_and_the_one_that_is_installed() -> None:
    assert re.fullmatch(_SEMANTIC, VERSION)
    assert metadata.version("towpath") == VERSION


def test_the_verifier_has_the_version_of_the_tool_which_requires_exactly_that() -> None:
    verifier = tomllib.loads((ROOT / "verifier" / "pyproject.toml").read_text())["project"]
    assert verifier["version"] == VERSION
    assert f"{verifier['name']}=={VERSION}" in metadata.requires("towpath")


@pytest.mark.parametrize(("project", "package"), [("", "kafka-python"), ("", "pymongo"), ("verifier", "pymongo")])
def test_a_package_whose_private_parts_are_used_is_of_the_minor_version_that_is_tested(
    project: str, package: str
) -> None:
    texts = tomllib.loads((ROOT / project / "pyproject.toml").read_text())["project"]["dependencies"]
    [required] = [one for one in map(Requirement, texts) if one.name == package]
    tested = Version(metadata.version(package))
    assert tested in required.specifier
    assert f"{tested.major}.{tested.minor + 1}" not in required.specifier


def versions_in(pom: Path) -> list[str]:
    root = ElementTree.parse(pom).getroot()
    versions = [root.findtext(f"{_POM}version"), root.findtext(f"{_POM}parent/{_POM}version")]
    return [version for version in versions if version]


@pytest.mark.parametrize("pom", POMS)
def test_every_pom_has_the_version_of_the_project(pom: str) -> None:
    assert versions_in(ROOT / pom) == [VERSION]


def test_the_command_of_the_release_page_sets_the_version_in_all_of_them(tmp_path: Path) -> None:
    [command] = re.findall(r"`(sed -i [^`]+)`", (ROOT / "docs" / "releasing.md").read_text())
    for file in (*PROJECTS, *POMS):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    words = command.replace("OLD", VERSION).replace("NEW", "98.7.6")
    subprocess.run(["sh", "-euc", words], cwd=tmp_path, check=True)
    found = [tomllib.loads((tmp_path / file).read_text())["project"] for file in PROJECTS]
    assert [project["version"] for project in found] == ["98.7.6"] * 2
    assert "towpath-verifier==98.7.6" in found[0]["dependencies"]
    assert [versions_in(tmp_path / pom) for pom in POMS] == [["98.7.6"]] * len(POMS)
    changed = subprocess.check_output(["git", "diff", "--numstat"], cwd=tmp_path, text=True).splitlines()
    assert sorted(line.split("\t")[0] for line in changed) == ["1"] * (len(POMS) + 1) + ["2"]


def test_the_changelog_goes_from_what_is_not_released_down_through_the_versions() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(rf"\[({_SEMANTIC})\] - \d{{4}}-\d\d-\d\d", heading) for heading in headings[1:]]
    assert all(released), headings
    versions = [tuple(map(int, match[1].split("."))) for match in released if match]
    assert versions == sorted(set(versions), reverse=True)
    assert versions[0] <= tuple(map(int, VERSION.split("."))) if versions else True
