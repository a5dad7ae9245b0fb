"""The checkouts of other versions that tests and benchmarks run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checkout import NoRevision, checkout


def test_a_revision_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoRevision, match="does not hold no-such-revision"):
        checkout("no-such-revision", tmp_path / "there", tmp_path)


def test_the_tool_of_a_revision_is_that_of_its_own_sources(tmp_path: Path) -> None:
    try:
        version = checkout("HEAD", tmp_path / "there", tmp_path)
    except NoRevision as error:
        pytest.skip(str(error))
    (version.folder / "towpath" / "cli" / "__init__.py").write_text("def main():\n    print(__file__)\n")
    assert version("anything").strip() == str(version.folder / "towpath" / "cli" / "__init__.py")
