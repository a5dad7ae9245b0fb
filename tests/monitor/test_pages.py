"""What the sections of a page show of a report, without a browser."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import Any

from towpath.monitor import pages
from towpath.run.report import Copied, Copy, Lag, LoggedChange, Problem, ReplayState, Report

CHANGE = LoggedChange(
    *("1", "7:1", "drop", "shop.a", "", "shop.a", "held", "drops are held", None, None, None, None),
    *(4, 4, None, None, ("shop.a",), "", ("towpath ddl shop.toml --apply 1",)),
)
REPLAY = ReplayState(
    *("b", "shop-replay-b", "b/other", (), None, True, 0.0, "RUNNING", ()),
    *(2000, 1500, 7, 1, "shop.b.dead-letters", None),
)


def report(**fields: Any) -> Report:
    """Of a pipeline `shop` that runs; all else is not known."""
    known = {"name": "shop", "mode": "exactly-once", "file": "shop.toml", "state": "running"}
    return Report(**known | {"source": "mongodb://a", "destination": "mongodb://b"} | fields)


def text(section: str, **fields: Any) -> str:
    """Of a section, without tags."""
    shown = pages.sections({"p": report(**fields), "events": (), "commands": (), "dry_run": None})[section]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def test_the_copy_of_a_collection_has_its_progress_and_the_time_left() -> None:
    copy = Copied("shop.a", 500, 2000, 1, 4, 4, 1, 50.0)
    copies = (
        replace(copy, reason="no primary", retries=2),
        Copied("shop.b", 500, 2000, 1, 4, None, 1, 50.0),
        replace(copy, namespace="shop.c", done_ranges=4),
    )
    shown = text("copy", copy=Copy(False, copies, ()))
    assert "1,500 of about 6,000 documents in 3 collections, 150/s" in shown
    assert "shop.a 500 500 of 2,000 1 of 4 50/s 30 s retried 2 times, last: no primary" in shown
    assert "shop.b 500 500 of 2,000 not known yet 50/s unknown" in shown
    assert "4 of 4 50/s done" in shown
    assert text("copy", copy=Copy(True, (), ())) == text("copy") == ""


def test_a_schema_change_that_is_held_has_its_commands() -> None:
    shown = text("ddl", schema_changes=(CHANGE,), ddl=())
    assert shown == ("held drop shop.a: drops are held; later changes of shop.a wait towpath ddl shop.toml --apply 1")
    assert text("ddl", schema_changes=(), ddl=()) == "None waits."
    assert text("ddl") == "Unknown."


def test_replays_have_their_progress() -> None:
    shown = text("replays", replays=(REPLAY,))
    assert shown.startswith("Replays RUNNING b to b/other: 1,500 of about 2,000 records; 7 behind; 1 dead letter")
    away = text("replays", replays=(replace(REPLAY, records_done=None, error=Problem("it does not answer")),))
    assert "progress unknown; it does not answer" in away
    assert "unknown; not authorized" in text("replays", rebuild_error=Problem("not authorized"))
    assert text("replays") == ""


def test_what_is_not_known_is_unknown_and_not_0() -> None:
    shown = text("way", lag=Lag(3, None, 1.0), records_per_second=0.0, sink_records_per_second=0.0)
    assert "unknown behind" in shown
    assert "3 records, 1.0 s behind" in shown
    assert "12 s behind (limit 10 s)" in text("way", lag=Lag(3, 12.0, 1.0), recovery_point_seconds=10.0)
    assert "1,200 changes, 12 s behind" in text("way", lag=Lag(3, 12.0, 1.0, 1_200))
    assert text("dead-letters") == "Unknown."
    assert text("dead-letters", dead_letters=0) == "None."
    unread = pages.sections({"p": report(state="unknown"), "events": (), "commands": (), "dry_run": None})
    assert set(unread) == set(pages.SECTIONS)
