"""What was damaged at the destination is found, read again through the log while the source changes, and mended."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import bson
import pytest
from bson import json_util

from tests.conftest import MakePipeline
from tests.support.damage import damage, document
from tests.support.pipeline import Settings, towpath
from tests.support.raw import Documents
from tests.support.ticker import Ticker

COUNT, PLACES = 2_000, 50


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Verdicts of these tests are kept here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def lines(*arguments: str | Path, expect: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What a verb prints as JSON: the lines, and the last one, which counts them."""
    found = [json.loads(line) for line in towpath(*arguments, "--json", expect=expect).stdout.splitlines()]
    return found[:-1], found[-1]


def writer(documents: Documents, seed: int) -> Ticker:
    """Counts up a field of some documents all the time, damaged ones among them."""
    random = Random(seed)
    return Ticker(
        0.05,
        lambda: documents.update_many({"_id": {"$in": random.sample(range(COUNT), 20)}}, {"$inc": {"v": 1}}),
    )


def test_documents_named_in_a_file_are_mended_while_the_source_changes(
    make_pipeline: MakePipeline, seed: int, tmp_path: Path
) -> None:
    pipeline = make_pipeline(Settings(rename={"docs": "papers"}))
    documents = pipeline.source("docs")
    documents.insert_many(map(document, range(COUNT)))
    pipeline.deploy()
    pipeline.wait()
    with writer(documents, seed):
        harmed = damage(pipeline.destination("docs"), Random(seed), range(COUNT), PLACES)
        file = tmp_path / "ids"
        file.write_text("".join(f"{json_util.dumps(bson.decode(id))}\n" for id in harmed))
        found, counts = lines("repair", pipeline.file, "--ids", pipeline.namespace("papers"), file, expect=0)
    assert {bytes.fromhex(one["id_bson"]): one["result"] for one in found} == dict.fromkeys(harmed, "mended")
    assert (counts["mended"], counts["left"]) == (PLACES, 0)
    pipeline.wait()
    pipeline.assert_same("docs", at_least=COUNT)
