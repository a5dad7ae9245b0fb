"""What a source connector has committed, as Connect lists it: the stream's position, copies, requests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towpath.checks.capture import Captured
from towpath.clients.mongo.client import ClusterTime
from towpath.deploy.unreplicated import SourceChange
from towpath.errors import TowpathError
from towpath.history.resnapshot import Captures
from towpath.log.barrier import uncaptured
from towpath.log.source_offsets import DdlHistory, SourceState, Splices, in_order, source_state
from towpath.run.report import as_json
from towpath.run.status import awaiting_stream, copied_by_ranges

SELECTION = "^(?-i:shop\\..*)$"
MOMENT = ClusterTime(200, 1)


def item(offset: dict[str, Any], **partition: Any) -> dict[str, Any]:
    return {"partition": partition, "offset": offset}


def root(phase: str, *namespaces: str, selection: str = SELECTION) -> dict[str, Any]:
    listed = json.dumps(namespaces)
    return item(
        {"phase": phase, "selection": selection, "start": "90:1", "copied": "89:1", "namespaces": listed},
        towpath="shop",
    )


def debezium(seconds: int, **more: Any) -> dict[str, Any]:
    return item({"sec": seconds, "ord": 1, **more}, server_id="shop")


def plan(namespace: str, ranges: int, documents: int = 1000) -> dict[str, Any]:
    offset = {"ranges": ranges, "documents": documents, "bytes": 10 * documents, "began": 1_700_000_000_000}
    return item(offset, towpath="shop", namespace=namespace)


def part(namespace: str, number: int, rows: int, *, done: bool = False, **more: Any) -> dict[str, Any]:
    offset = {"rows": rows, "bytes": 10 * rows, "done": done, **more}
    return item(offset, towpath="shop", namespace=namespace, range=number)


def words(*offsets: dict[str, Any], selection: str | None = SELECTION) -> str:
    return uncaptured("shop-source", source_state(offsets), MOMENT, selection)


def test_debezium_s_position_is_told_from_ours() -> None:
    state = source_state([root("stream"), part("shop.a", 0, 5), debezium(300)])
    assert state.position is not None
    assert state.position.time == ClusterTime(300, 1)
    assert source_state([root("copy", "shop.a"), plan("shop.a", 2)]).position is None


def test_the_stream_has_to_pass_all_rows_of_the_copy_also_if_they_are_later_than_what_is_waited_for() -> None:
    copied = [root("stream", "shop.a"), plan("shop.a", 1), part("shop.a", 0, 400, done=True, t="320:9")]
    assert words(*copied, debezium(320)) == "shop-source has captured up to 320:1, and must pass 320:9"
    assert words(*copied, debezium(321)) == ""


def test_of_debezium_s_own_connector_there_is_a_position_only() -> None:
    assert source_state([debezium(300)]) == SourceState(source_state([debezium(300)]).position)
    assert source_state([]) == SourceState(None)


def test_ranges_add_up_in_any_order() -> None:
    offsets = [
        part("shop.a", 10, 30, retries=2, reason="later error"),
        part("shop.a", 2, 400, done=True, t="120:9", retries=1, reason="first error"),
        plan("shop.a", 12),
        root("copy", "shop.b", "shop.a"),
        part("shop.a", 1, 300, done=True, t="120:10"),
    ]
    a, b = source_state(offsets).copies
    assert (a.namespace, a.planned, a.ranges_done, a.rows, a.bytes_read) == ("shop.a", 12, 2, 730, 7300)
    assert (a.time, a.retries, a.reason) == (ClusterTime(120, 10), 3, "later error")
    assert (b.namespace, b.planned, b.rows, b.done) == ("shop.b", None, 0, False)


def test_a_copy_is_not_done_while_documents_wait_for_a_reread() -> None:
    offsets = [root("stream", "shop.a"), debezium(300), plan("shop.a", 1), part("shop.a", 0, 10, done=True, t="250:1")]
    pending = [item({"documents": n, "keys": ""}, towpath="shop", pending="shop.a", chunk=n) for n in (0, 1, 2)]
    (copy,) = copying = source_state([*offsets, *pending]).copying
    assert (copy.pending, copy.ranges_done, copy.planned) == (3, 1, 1)
    assert [(it.done, it.pending_documents) for it in copied_by_ranges("shop", copying, {})] == [(False, 3)]
    assert "still copying" in words(*offsets, *pending)
    assert words(*offsets) == ""


def test_changed_documents_that_are_not_read_yet_are_not_in_the_log() -> None:
    """Of a collection with a filter, which is not being copied."""
    stored = root("stream")
    stored["offset"]["pending"] = '["shop.a"]'
    pending = [item({"documents": n, "keys": ""}, towpath="shop", pending="shop.a", chunk=n) for n in (1, 2)]
    state = source_state([stored, debezium(300), *pending])
    assert (dict(state.changed), state.copies) == ({"shop.a": 3}, ())
    assert words(stored, debezium(300), *pending) == "shop-source has still to read 3 changed documents of shop.a"


def test_a_copy_is_done_when_all_its_ranges_are() -> None:
    offsets = [root("stream", "shop.a", "shop.b", "shop.c"), debezium(300)]
    offsets += [plan("shop.a", 1), part("shop.a", 0, 10, done=True, t="250:1")]
    offsets += [plan("shop.b", 2), part("shop.b", 0, 10, done=True, t="250:1")]
    offsets += [plan("shop.c", 0, documents=0)]
    state = source_state(offsets)
    assert [copy.namespace for copy in state.copying] == ["shop.b"]
    assert [copy.namespace for copy in state.held] == ["shop.a", "shop.c"]
    assert [(one.namespace, one.time) for one in awaiting_stream(state.held)] == [("shop.a", "250:1")]


def test_what_was_copied_last_is_known_while_it_is_copied_and_ever_after() -> None:
    offsets = [plan("shop.a", 2), part("shop.a", 0, 10, done=True, t="250:7"), part("shop.a", 1, 10, t="250:6")]
    assert source_state([told("90:1", "shop.a"), *offsets]).copied == ClusterTime(250, 7)
    assert source_state([told("260:1", "shop.a"), *offsets]).copied == ClusterTime(260, 1)
    assert source_state([told("250:7"), debezium(300)]).copied == ClusterTime(250, 7)


def told(copied: str, *namespaces: str) -> dict[str, Any]:
    one = root("copy" if namespaces else "stream", *namespaces)
    one["offset"]["copied"] = copied
    return one


def test_a_copy_s_progress_rate_and_time_left() -> None:
    state = source_state([root("copy", "shop.a", "shop.b"), plan("shop.a", 4), part("shop.a", 0, 200, done=True)])
    a, b = copied_by_ranges("shop", state.copies, {"shop.shop.a": 40.0})
    assert (a.documents, a.estimated_documents, a.ranges, a.done_ranges) == (200, 1000, 4, 1)
    assert (a.remaining_seconds, as_json(a)["remaining_seconds"]) == (20.0, 20.0)
    assert not b.started
    assert b.remaining_seconds is None, "it is not known yet how much there is"
    more = source_state([root("copy", "shop.a"), plan("shop.a", 1, documents=50), part("shop.a", 0, 80)])
    (grown,) = copied_by_ranges("shop", more.copies, {})
    assert (grown.documents, grown.estimated_documents, grown.remaining_seconds) == (80, 80, None)


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([], "has not captured anything yet"),
        ([root("copy", "shop.a"), plan("shop.a", 3), part("shop.a", 0, 70)], "(shop.a: 70 of about 1,000)"),
        ([root("copy", "shop.a", "shop.b")], "still making the initial copy (shop.a: 0 of about 0; 2 coll"),
        ([root("stream")], "has not captured anything yet"),
        ([root("stream", selection="other"), debezium(300)], "has not applied the present"),
        (
            [root("stream", "shop.a"), debezium(300)],
            "still copying collections new to the pipeline (shop.a",
        ),
        ([root("stream"), debezium(200)], "has captured up to 200:1, and must pass 200:1"),
        ([root("stream"), debezium(201)], ""),
    ],
)
def test_what_wait_waits_for(offsets: list[dict[str, Any]], expected: str) -> None:
    assert (expected in words(*offsets)) if expected else words(*offsets) == ""


def test_what_wait_waits_for_with_debezium_s_own_connector() -> None:
    assert "still making the initial copy" in words(debezium(300, initsync=True), selection=None)
    assert words(debezium(201), selection=None) == ""


def test_a_copied_collection_whose_time_is_still_held_does_not_hold_wait_up() -> None:
    assert words(root("stream", "shop.a"), plan("shop.a", 1), part("shop.a", 0, 5, done=True), debezium(201)) == ""


def test_a_request_is_answered_once_the_next_one_is_due() -> None:
    offset = {"next": 7, "index": 3, "waiting": "capture is behind", "skipped": 2}
    answered = item(offset, towpath="shop", requests="shop.requests")
    state = source_state([root("stream"), answered, debezium(300)])
    assert state.requests is not None
    assert (state.requests.waiting, state.requests.skipped) == ("capture is behind", 2)
    assert [state.has_answered(offset) for offset in (6, 7)] == [True, False]
    assert not source_state([root("stream")]).has_answered(0)


def test_splices_are_counted_and_an_earlier_version_counted_none() -> None:
    counted = item({"splices": 5, "saved": 900, "dropped": 1}, towpath="shop", splices=True)
    assert source_state([root("stream"), debezium(300), counted]).splices == Splices(5, 900, 1)
    assert source_state([root("stream")]).splices == source_state([debezium(300)]).splices == Splices(0, 0, 0)
    assert Splices(5, 900, 1) + Splices(1, 2, 3) == Splices(6, 902, 4)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, ""),
        ({"refills": [{"namespace": "shop.a", "from": "90:1", "to": "95:1"}]}, ""),
        (
            {
                "refills": [
                    {"namespace": "shop.a", "from": "80:1", "to": "85:1"},
                    {"namespace": "shop.b", "from": "90:1"},
                ]
            },
            "still reading shop.b, which was renamed or replaced at 90:1",
        ),
        ({"on": False, "refills": [{"namespace": "shop.b", "from": "90:1"}]}, ""),
    ],
)
def test_wait_waits_for_the_rows_of_what_was_renamed_or_replaced(schema: dict[str, Any], expected: str) -> None:
    offset = schema | ({"refills": json.dumps(schema["refills"])} if "refills" in schema else {})
    found = words(root("stream"), debezium(300), item(offset, towpath="shop", schema=True))
    assert (expected in found) if expected else found == ""


def test_schema_changes_that_several_connectors_have_seen_are_each_told_once_in_their_order() -> None:
    def history(*events: dict[str, str]) -> DdlHistory:
        offset = {"events": json.dumps(events), "dropped": 0, "error": ""}
        found = source_state([root("stream"), debezium(300), item(offset, towpath="shop", ddl=True)]).ddl
        assert found is not None
        return found

    drop = {"t": "120:9", "kind": "drop", "namespace": "shop.a", "to": ""}
    later, rename = drop | {"t": "120:10"}, {"t": "7:1", "kind": "rename", "namespace": "shop.b", "to": "shop.c"}
    found = in_order([history(later, drop), history(drop, rename)])
    assert [ddl.mark for ddl in found] == ["7:1 rename shop.b shop.c", "120:9 drop shop.a", "120:10 drop shop.a"]
    assert (found[0].namespaces, found[1].namespaces) == (("shop.b", "shop.c"), ("shop.a",))
    shown = {"time": "7:1", "kind": "rename", "namespace": "shop.b", "to": "shop.c", "at": "1970-01-01T00:00:07+00:00"}
    assert SourceChange.of(found[0]) == SourceChange(**shown)


@pytest.mark.parametrize("broken", [{"selection": "x", "namespaces": "[]"}, {"phase": "stream", "selection": "x"}])
def test_offsets_that_cannot_be_understood_are_said(broken: dict[str, Any]) -> None:
    with pytest.raises(TowpathError, match="cannot be understood"):
        source_state([item(broken, towpath="shop")])


GOOD = [
    root("copy", "shop.a", "shop.b"),
    debezium(300),
    plan("shop.a", 2),
    part("shop.a", 0, 10, done=True, t="250:1"),
    part("shop.a", 1, 20, t="260:1", retries=1, reason="slow"),
    item({"documents": 3, "keys": ""}, towpath="shop", pending="shop.a", chunk=0),
    item({"next": 7, "index": 0, "waiting": ""}, towpath="shop", requests=True),
    item({"splices": 5, "saved": 900, "dropped": 1}, towpath="shop", splices=True),
]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.permutations(GOOD))
def test_offsets_say_the_same_in_any_order(offsets: list[dict[str, Any]]) -> None:
    assert source_state(offsets) == source_state(GOOD)


@given(st.data(), st.integers(0, len(GOOD) - 1), anything)
def test_offsets_that_someone_has_changed_are_understood_or_refused(data: st.DataObject, at: int, value: Any) -> None:
    changed = {**GOOD[at], "offset": dict(GOOD[at]["offset"])}
    changed["offset"][data.draw(st.sampled_from(sorted(changed["offset"])))] = value
    try:
        source_state([*GOOD[:at], changed, *GOOD[at + 1 :]])
    except TowpathError as refused:
        assert "the source connector committed" in str(refused)


def test_what_the_copy_warns_of_is_told() -> None:
    warned = root("copy", "shop.orders")
    warned["offset"]["warning"] = "the oplog is short"
    assert source_state([warned]).warning == "the oplog is short"
    assert source_state([root("copy", "shop.orders")]).warning == ""


def test_a_resnapshot_is_under_way_until_it_is_closed() -> None:
    begun = root("copy", "shop.a")
    begun["offset"] |= {"resnapshot": "again", "gap": "80:2", "closed": ""}
    state = source_state([begun])
    assert (state.start, state.gap, state.resnapshot) == (ClusterTime(90, 1), ClusterTime(80, 2), "again")
    captured = Captured("shop-source", state, ClusterTime(90, 1), False, "again", ".*")
    assert captured.under_way
    pipeline: Any = None
    assert Captures(pipeline, [captured], ()).started == [captured]
    # its task has refused that one, and may be asked for another
    refused = Captures(pipeline, [replace(captured, resnapshot="more")], ())
    assert refused.started == [] and refused.interrupted is None
    begun["offset"] |= {"phase": "stream", "closed": "again", "gap": ""}
    closed = source_state([begun])
    assert closed.gap is None
    assert not replace(captured, state=closed).under_way
    assert not replace(captured, resnapshot="", state=closed).under_way
