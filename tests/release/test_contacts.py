"""Where bugs are reported is in one place, and no release goes out with a placeholder."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata

import pytest

from docs.hooks import figures
from release import contacts
from release.archives import ROOT
from towpath.run import doctor

PROJECT = '[project.urls]\nIssues = "{}"\nSecurity = "mailto:security@shop.test"\n'
RELEASED = "## [Unreleased]\n\n## [1.2.3] - 2026-11-27\n"


def test_no_version_of_the_changelog_is_released_with_a_placeholder() -> None:
    with pytest.raises(SystemExit, match=r"1\.2\.3.* placeholders: Issues; docs/releasing\.md"):
        contacts.refuse_placeholders("1.2.3", RELEASED, PROJECT.format("https://towpath.example/issues"))
    contacts.refuse_placeholders("1.2.4", RELEASED, PROJECT.format("https://towpath.example/issues"))  # a trial
    contacts.refuse_placeholders("1.2.3", RELEASED, PROJECT.format("https://shop.test/issues"))


def test_pages_have_the_addresses_of_pyproject() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    address = urls["Security"].removeprefix("mailto:")
    assert figures("<old><!-- url: Issues -->.") == f"<{urls['Issues']}><!-- url: Issues -->."
    assert figures("to <a@b.c><!-- url: Security -->", comments=False) == f"to <{address}>"
    text = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert set(re.findall(r"<!-- url: (\w+) -->", text)) == set(urls)
    with pytest.raises(KeyError):
        figures("<x><!-- url: Home -->")


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        (["Security, mailto:a@shop.test", "Issues, https://shop.test/issues"], "https://shop.test/issues"),
        (["Issues, https://towpath.example/issues"], None),
        (None, None),
    ],
)
def test_doctor_knows_where_to_report_a_bug_once_a_release_says_it(
    monkeypatch: pytest.MonkeyPatch, urls: list[str] | None, expected: str | None
) -> None:
    class Metadata:
        def get_all(self, name: str) -> list[str] | None:
            return urls if name == "Project-URL" else None

    monkeypatch.setattr(metadata, "metadata", lambda package: Metadata())
    assert doctor.tracker() == expected
