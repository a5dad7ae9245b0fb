"""The exit code of `run`: 0 only if what it was asked to verify is verified."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cutover.test_gate import verdict
from tests.run.test_screens import status
from tests.run.test_supervising import FILE
from tests.verify.test_running_verdict import verdict as following
from towpath.cli import launcher
from towpath.config.events import Following
from towpath.deploy.schema_changes import SchemaChanges
from towpath.run.children import Events
from towpath.run.supervisor import Supervisor
from towpath.session import opened
from towpath.store import verdict_file
from towpath.store.verdict_file import FollowState
from towpath.verify.verdict import EVERYTHING as ALL
from towpath.verify.verdict import Origin, VerdictContext, Verification

FULL = verdict()
KNOWN = Verification(FULL, FULL, followed=ALL)
EVERYTHING = "no verdict on everything counts"
CHANGES = "what changed since the verdict on everything is not compared"
REST = "not all changes are compared yet"


def followed(age: float = 0.0, **counts: int | None) -> Following:
    now = replace(following(), following=False, behind_records=0, behind_seconds=0.0)
    return replace(now, at=time.time() - age, **counts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "follow", "code", "words"),
    {
        "all": (KNOWN, {}, 0, ""),
        "before the end of the first comparison": (Verification(), None, 2, EVERYTHING),
        "of another deployment": (Verification(doubt="it was restored"), {}, 2, EVERYTHING),
        "nothing follows": (KNOWN, None, 2, CHANGES),
        "what follows has failed since": (KNOWN, {"age": 600}, 2, CHANGES),
        "to be compared again": (KNOWN, {"waiting": 1}, 2, REST),
        "behind": (KNOWN, {"behind_records": 1}, 2, REST),
        "unknown how far behind": (KNOWN, {"behind_records": None, "behind_seconds": None}, 2, REST),
        "only a part is followed": (replace(KNOWN, followed="everything of shop.a"), {}, 2, CHANGES),
        "differs": (KNOWN, {"missing": 1}, 1, ""),
        "differs, and something waits": (KNOWN, {"missing": 1, "waiting": 1}, 1, REST),
        "not judged": (KNOWN, {"unresolved": 1}, 1, REST),
    }.values(),
)
@pytest.mark.parametrize("verifies", [True, False])
def test_nothing_is_called_the_same_that_was_not_compared(
    known: Verification,
    follow: dict[str, Any] | None,
    code: int,
    words: str,
    verifies: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verified = known if follow is None else replace(known, follow=followed(**follow))
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


@pytest.mark.parametrize("of", [ALL, f"{ALL} of shop.a"])
def test_of_what_follows_it_is_known_what_it_covers(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = Origin({}, {}, {"topic": "id"}, {}, "")
    state = FollowState("1", of, False, True, origin.as_json(), 0.0, {}, ())
    found = {"read_full": None, "path": Path("/nothing"), "read_running": followed(), "read_followed": state}
    for name, value in found.items():
        monkeypatch.setattr(verdict_file, name, lambda pipeline, value=value: value)
    monkeypatch.setattr(Origin, "deployment_doubt", lambda self, now: "")
    known = Verification.of("shop", VerdictContext(origin, "", None, ""))
    assert (known.follow is None, known.followed) == (False, of)
