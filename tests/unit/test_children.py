"""Verbs as processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from towpath.children import Child


def test_a_verb_takes_no_module_of_the_folder_that_it_is_called_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('a script of somebody else')")
    monkeypatch.chdir(tmp_path)
    child = Child.start("--version", ())
    assert (child.process.wait(60), [line.text.split()[-1] for line in child.lines()]) == (
        0,
        ["0.1.0"],
    )
