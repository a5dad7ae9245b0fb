"""The versions of the parts, and the poms that use them."""

from __future__ import annotations

import re

from towpath.stack import tools
from towpath.stack.parts import _PARTS_POM


def test_versions_are_read_without_comments() -> None:
    found = tools.versions()
    assert found["kafka.version"] == "4.3.1"
    assert all(re.fullmatch(r"[\w.:\-]+", value) for value in found.values())


def test_the_parts_pom_takes_every_version_from_the_one_place() -> None:
    text = _PARTS_POM.read_text()
    own = text.split("</parent>")[1]
    assert re.findall(r"<version>([^$][^<]*)</version>", own) == []
    assert set(re.findall(r"\$\{([^}]+)}", text)) - tools.versions().keys() == {"parts"}
