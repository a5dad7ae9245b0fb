"""One version for tool and plugin, and a changelog that knows it."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
POMS = ("towpath/stack/versions/pom.xml", "towpath/stack/parts/pom.xml", "transforms/pom.xml")
_POM = "{http://maven.apache.org/POM/4.0.0}"
_SEMANTIC = r"(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2}"


def test_the_version_is_a_semantic_one_and_the_one_that_is_installed() -> None:
    assert re.fullmatch(_SEMANTIC, VERSION)
    assert metadata.version("towpath") == VERSION


@pytest.mark.parametrize("pom", POMS)
def test_every_pom_has_the_version_of_the_project(pom: str) -> None:
    root = ElementTree.parse(ROOT / pom).getroot()
    versions = [root.findtext(f"{_POM}version"), root.findtext(f"{_POM}parent/{_POM}version")]
    assert [version for version in versions if version] == [VERSION]


def test_the_changelog_goes_from_what_is_not_released_down_through_the_versions() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(rf"\[({_SEMANTIC})\] - \d{{4}}-\d\d-\d\d", heading) for heading in headings[1:]]
    assert all(released), headings
    versions = [tuple(map(int, match[1].split("."))) for match in released if match]
    assert versions == sorted(set(versions), reverse=True)
    assert versions[0] <= tuple(map(int, VERSION.split("."))) if versions else True
