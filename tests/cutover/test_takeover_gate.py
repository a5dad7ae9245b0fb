"""What the gate of a takeover says of the log, from the source connector's offsets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cutover_world import pipeline_of
from tests.support.sessions import session_of
from towpath.checks.rule import Finding
from towpath.clients.mongo.client import ClusterTime
from towpath.cutover import takeover
from towpath.cutover.steps import CutoverOptions
from towpath.cutover.takeover import Loss, point
from towpath.errors import Refused
from towpath.log.source_offsets import CollectionCopy, Refill, SchemaCapture, SourcePosition, SourceState

BEFORE, AT, LATER = (ClusterTime(100, number) for number in range(3))
WHOLE = SourceState(SourcePosition(AT, False), phase="stream", copied=BEFORE)
SPLIT = {
    "lost": (replace(WHOLE, lost=True), "has lost a part of the source's changes"),
    "gap": (replace(WHOLE, gap=AT), "has lost a part of the source's changes"),
    "open": (replace(WHOLE, open=AT), "ends inside a transaction of 100:1"),
    "rows": (replace(WHOLE, copied=AT), "as of up to 100:1"),
    "changed": (replace(WHOLE, changed={"shop.users": 3}), "changes of 3 documents were not read"),
    "refill": (
        replace(WHOLE, schema=SchemaCapture(refills=(Refill("shop.users", AT, None),))),
        "is not read to its end",
    ),
}


def findings(tmp_path: Path, accepts: bool, *states: SourceState) -> list[Finding]:
    session = session_of(pipeline_of(tmp_path))
    loss = Loss(session, CutoverOptions(accepts=accepts))
    loss.__dict__["states"] = {f"source-{number}": state for number, state in enumerate(states)}
    return list(takeover._consistent(loss))


@pytest.mark.parametrize("case", SPLIT)
def test_what_is_not_one_state_of_the_source_is_told_until_it_is_accepted(tmp_path: Path, case: str) -> None:
    state, words = SPLIT[case]
    [found] = findings(tmp_path, False, state)
    assert (found.level, words in found.finding, "--accept" in found.advice) == ("error", True, True), found
    [found] = findings(tmp_path, True, state)
    assert (found.level, found.advice) == ("warning", "")


def test_one_state_is_green_and_two_connectors_at_two_times_are_not(tmp_path: Path) -> None:
    [found] = findings(tmp_path, False, WHOLE, WHOLE)
    assert (found.level, found.finding) == ("ok", "one state of the source")
    [found] = findings(tmp_path, False, WHOLE, replace(WHOLE, position=SourcePosition(LATER, False)))
    assert "100:1, 100:2" in found.finding


def test_the_point_is_that_of_the_slowest_and_there_is_none_before_the_copy_is_complete() -> None:
    later = replace(WHOLE, position=SourcePosition(LATER, False))
    assert point({"a": later, "b": WHOLE}) == AT
    for state in (
        replace(WHOLE, phase="copy"),
        replace(WHOLE, position=None),
        replace(WHOLE, position=SourcePosition(AT, True)),
        replace(WHOLE, copies=(CollectionCopy("shop.users", None, 0, 0, (), 0),)),
    ):
        with pytest.raises(Refused, match="has not completed its copy"):
            point({"a": state})
