"""The versions of the parts, and the poms that use them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from towpath.stack import tools
from towpath.stack.errors import PartUnavailable
from towpath.stack.parts import _PARTS_POM


def test_versions_are_read_without_comments() -> None:
    found = tools.versions()
    assert found["kafka.version"] == "4.3.1"
    assert all(re.fullmatch(r"[\w.:\-]+", value) for value in found.values())


def test_a_version_that_is_not_named_is_an_error_that_names_file_and_property() -> None:
    with pytest.raises(PartUnavailable, match=r"versions/pom\.xml does not name <no\.such\.version>"):
        tools.version("no.such.version")


def test_a_file_that_is_no_pom_is_an_error_that_names_it(tmp_path: Path) -> None:
    broken = tmp_path / "pom.xml"
    broken.write_text("<project>")
    with pytest.raises(PartUnavailable, match=re.escape(str(broken))):
        tools.properties(broken)


def test_the_parts_pom_takes_every_version_from_the_one_place() -> None:
    text = _PARTS_POM.read_text()
    own = text.split("</parent>")[1]
    assert re.findall(r"<version>([^$][^<]*)</version>", own) == []
    assert set(re.findall(r"\$\{([^}]+)}", tools.resolved(text))) == {"parts"}
