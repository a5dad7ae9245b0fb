"""Which points in time a replay refuses, without servers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.verify.test_repair_targets import FILE
from towpath.clients.mongo.client import ClusterTime
from towpath.config import loading as pipeline_file
from towpath.history.preconditions import ReplayFacts, point_in_time
from towpath.log.source_offsets import SourcePosition, SourceState

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
