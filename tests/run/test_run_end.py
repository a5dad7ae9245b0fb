"""The exit code of `run`: 0 only if what it was asked to verify is verified."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cutover.test_gate import verdict
from tests.run.test_screens import status
from tests.run.test_supervising import FILE
from tests.verify.test_running_verdict import verdict as following
from towpath.cli import launcher
from towpath.deploy.schema_changes import SchemaChanges
from towpath.run.children import Events
from towpath.run.supervisor import Supervisor
from towpath.session import opened
from towpath.verify.verdict import Verification

FULL = verdict()
FOLLOWED = replace(following(), following=False, behind_records=0, behind_seconds=0.0)
PROVEN = Verification(FULL, FULL, follow=FOLLOWED)
OLD = replace(FOLLOWED, at=time.time() - 600)
EVERYTHING = "no verdict on everything counts"
CHANGES = "what changed since the verdict on everything is not compared"
REST = "not all changes are compared yet"


@pytest.mark.parametrize(
    ("verified", "code", "words"),
    {
        "all": (PROVEN, 0, ""),
        "before the end of the first comparison": (Verification(), 2, EVERYTHING),
        "of another deployment": (replace(PROVEN, last=None, full=None, doubt="restored"), 2, EVERYTHING),
        "nothing follows": (replace(PROVEN, follow=None), 2, CHANGES),
        "what follows has failed since": (replace(PROVEN, follow=OLD), 2, CHANGES),
        "to be compared again": (replace(PROVEN, follow=replace(FOLLOWED, waiting=1)), 2, REST),
        "behind": (replace(PROVEN, follow=replace(FOLLOWED, behind_records=1)), 2, REST),
        "differs": (replace(PROVEN, follow=replace(FOLLOWED, missing=1)), 1, ""),
        "differs, and something waits": (replace(PROVEN, follow=replace(FOLLOWED, missing=1, waiting=1)), 1, REST),
        "not judged": (replace(PROVEN, follow=replace(FOLLOWED, unresolved=1)), 1, REST),
    }.values(),
)
@pytest.mark.parametrize("verifies", [True, False])
def test_nothing_is_called_the_same_that_was_not_compared(
    verified: Verification, code: int, words: str, verifies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(f"{FILE}\n[run]\nverify = {str(verifies).lower()}\n")
    file.chmod(0o600)
    monkeypatch.setattr(Supervisor, "verified", lambda self: verified)
    with opened(file) as session:
        supervisor = Supervisor(session, Events(lambda event: None), launcher)
        supervisor.status = status(changes=SchemaChanges())
        end = supervisor.verdict()
    assert end.exit == (code if verifies else 1 if code == 1 else 0)
    assert (f"not verified: {words}" in str(end.words)) == bool(words and verifies)
    assert ("not verified" in str(end.words)) == bool(words and verifies)
