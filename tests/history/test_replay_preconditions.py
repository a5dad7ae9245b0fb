"""Which points in time a replay refuses, without servers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.verify.test_repair_targets import FILE
from towpath.clients.mongo.client import ClusterTime
from towpath.config import loading as pipeline_file
from towpath.history.preconditions import ReplayFacts, point_in_time
from towpath.log.source_offsets import SourcePosition, SourceState, source_state

WHOLE = FILE + '[capture]\nwhole_documents = ["shop.dotted"]\n'


@pytest.mark.parametrize(
    ("text", "names", "refused"),
    [
        (WHOLE, ("dotted", "orders"), ["shop.dotted"]),
        (WHOLE, ("orders",), []),  # with --only
        (FILE, ("dotted", "orders"), []),
    ],
)
def test_a_collection_whose_updates_are_looked_up_has_no_point_in_time(
    tmp_path: Path, text: str, names: tuple[str, ...], refused: list[str]
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(text)
    inventory: Any = SimpleNamespace(
        pipeline=pipeline_file.read(file),
        sources={"shop-source": SourceState(SourcePosition(ClusterTime(9, 1), False))},
        copied=ClusterTime(1, 1),
        options=SimpleNamespace(until=ClusterTime(5, 1), only=()),
        log={(f"shop.shop.{name}", 0): (0, 9) for name in names},
    )
    found = list(point_in_time(cast(ReplayFacts, inventory)))
    assert [name for finding in found for name in ("shop.dotted", "shop.orders") if name in str(finding)] == refused
    assert all("whole_documents" in str(finding) for finding in found)
    inventory.options.until = None
    assert list(point_in_time(cast(ReplayFacts, inventory))) == []


REPORT = {"namespace": "shop.report", "id": "40:1/0/shop.report", "from": "20:1", "to": "41:1"}


@pytest.mark.parametrize(
    ("refills", "only", "until", "refused"),
    [
        ([REPORT], (), 20, "shop.report was renamed or replaced at 20:1"),
        ([REPORT | {"changes": 3}], (), 20, "shop.report: 3 renames or replacements between 20:1"),
        ([REPORT | {"changes": 3}], ("shop.report",), 40, "no longer known"),
        ([REPORT | {"changes": 3}], (), 19, ""),
        ([REPORT | {"changes": 3}], (), 41, ""),
        ([REPORT | {"changes": 3}], ("shop.orders",), 40, ""),
        # of several collections
        ([REPORT | {"namespace": "", "changes": 2}], ("shop.orders",), 40, "some collections: 2 renames"),
        ([REPORT | {"namespace": "", "changes": 2}], ("shop.orders",), 41, ""),
    ],
)
def test_a_point_in_time_is_refused_while_the_log_may_not_have_all_of_a_replaced_collection(
    tmp_path: Path, refills: list[dict[str, Any]], only: tuple[str, ...], until: int, refused: str
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(FILE)
    schema = {"partition": {"towpath": "shop", "schema": True}, "offset": {"refills": json.dumps(refills)}}
    root = {"phase": "stream", "selection": "x", "namespaces": "[]", "copied": "1:1"}
    state = source_state([{"partition": {"towpath": "shop"}, "offset": root}, schema])
    inventory: Any = SimpleNamespace(
        pipeline=pipeline_file.read(file),
        sources={"shop-source": replace(state, position=SourcePosition(ClusterTime(99, 1), False))},
        options=SimpleNamespace(until=ClusterTime(until, 1), only=only),
        log={("shop.shop.report", 0): (0, 9)},
    )
    found = list(point_in_time(cast(ReplayFacts, inventory)))
    assert [refused in str(finding) for finding in found] == ([True] if refused else [])
    assert all("20:1 (1970-01-01T00:00:20Z), or 41:1" in finding.advice for finding in found)
