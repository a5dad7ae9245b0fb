"""What the sections of a page show of a report, without a browser."""

from __future__ import annotations

import html
import re
from typing import Any

from towpath.monitor import pages


def text(section: str, **report: Any) -> str:
    """Of a section, without tags."""
    shown = pages.sections({"p": {"name": "shop", "file": "shop.toml", "state": "running", **report}})[section]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def test_the_copy_of_a_collection_has_its_progress_and_the_time_left() -> None:
    copy = {"documents": 500, "of": 2000, "ranges": 4, "ranges_done": 1, "per_second": 50.0, "pending": 0}
    copies = [
        {"namespace": "shop.a", "seconds_left": 30.0, "reason": "no primary", "retries": 2, **copy},
        {"namespace": "shop.b", "seconds_left": None, "reason": "", **copy},
        {"namespace": "shop.c", "seconds_left": 0.0, "reason": "", **copy, "ranges_done": 4},
    ]
    shown = text("copy", snapshot={"done": False, "collections": copies})
    assert "1,500 of about 6,000 documents in 3 collections, 150/s" in shown
    assert "shop.a 500 500 of 2,000 1 of 4 50/s 30 s retried 2 times, last: no primary" in shown
    assert "shop.b 500 500 of 2,000 1 of 4 50/s unknown" in shown
    assert "4 of 4 50/s done" in shown
    assert text("copy", snapshot={"done": True, "collections": []}) == ""


def test_a_schema_change_that_is_held_has_its_commands() -> None:
    held = {"kind": "drop", "namespace": "shop.a", "state": "held", "reason": "drops are held", "holds_up": ["shop.a"]}
    change = {**held, "commands": ["towpath ddl shop.toml --apply 1"], "total": 0}
    shown = text("ddl", schema_changes=[change], ddl=[])
    assert shown == ("held drop shop.a: drops are held; later changes of shop.a wait towpath ddl shop.toml --apply 1")
    assert text("ddl", schema_changes=[], ddl=[]) == "None waits."
    assert text("ddl") == "Unknown."


def test_replays_have_their_progress() -> None:
    replay = {"state": "RUNNING", "label": "b", "destination": "mongodb://other", "follow": True, "reasons": []}
    figures = {"records": 2000, "records_done": 1500, "records_behind": 7, "dead_letters": 1}
    shown = text("replays", replays=[{**replay, **figures}])
    assert shown.startswith(
        "Replays RUNNING b to mongodb://other: 1,500 of about 2,000 records; 7 behind; 1 dead letter"
    )
    away = text("replays", replays=[{**replay, **figures, "records_done": None, "trouble": "it does not answer"}])
    assert "progress unknown; it does not answer" in away
    assert text("replays", replays=[]) == ""


def test_what_is_not_known_is_unknown_and_not_0() -> None:
    lag = {"records": 3, "seconds": None, "capture_seconds": None, "apply_seconds": 1.0}
    shown = text("way", lag=lag, dead_letters=None, records_per_second=0.0, sink_records_per_second=0.0)
    assert "unknown behind" in shown
    assert "3 records, 1.0 s behind" in shown
    assert text("dead-letters", dead_letters=None) == "Unknown."
    assert text("dead-letters", dead_letters=0) == "None."
