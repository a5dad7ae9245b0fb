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


def test_what_the_destination_refuses_is_left_with_the_reason_until_that_is_gone(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings())
    documents, bad = pipeline.source("docs"), [3, 5]
    pipeline.destination_client[pipeline.name].command({"create": "docs", "validator": {"bad": {"$ne": True}}})
    documents.insert_many([{"_id": n, "bad": n in bad} for n in range(100)])
    pipeline.deploy()
    pipeline.wait()
    found, counts = lines("repair", pipeline.file, "--dead-letters", expect=1)
    assert {one["id"]["_id"]["$numberLong"] for one in found} == {str(n) for n in bad}
    assert {(one["result"], one["kind"]) for one in found} == {("left", "missing")}
    assert all("failed validation (121)" in one["reason"] for one in found)
    assert (counts["mended"], counts["left"]) == (0, 2)
    said = towpath("repair", pipeline.file, "--dead-letters", expect=1).stdout
    assert "Document failed validation" in said
    pipeline.destination_client[pipeline.name].command({"collMod": "docs", "validator": {}})
    said = towpath("repair", pipeline.file, "--dead-letters").stdout
    assert f"{pipeline.namespace('docs')}: 2 mended, 0 left" in said
    pipeline.assert_same("docs", at_least=100)


def test_what_cannot_be_repaired_is_refused_with_words(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    pipeline = make_pipeline(Settings())
    pipeline.create("docs")
    pipeline.deploy()
    name, file = pipeline.namespace("docs"), tmp_path / "ids"
    assert "run `towpath verify`" in towpath("repair", pipeline.file, expect=2).stderr
    file.write_text('1\n"a"\n{"_id": {"$oid": "0123456789abcdef01234567"}, "x": 1}\n\n')
    assert "3 documents" in towpath("repair", pipeline.file, "--ids", name, file, "--dry-run").stdout
    assert "nothing was ever captured" in towpath("repair", pipeline.file, "--ids", f"{name}x", file, expect=2).stderr
    assert "is not in the pipeline" in towpath("repair", pipeline.file, "--ids", "other.docs", file, expect=2).stderr
    file.write_text("1\nnonsense\n")
    assert "line 2" in towpath("repair", pipeline.file, "--ids", name, file, expect=2).stderr


def test_a_pipeline_of_debeziums_connector_is_refused(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(mode="plain"))
    pipeline.write()
    said = towpath("repair", pipeline.file, "--ids", pipeline.namespace("docs"), "/dev/null", expect=2).stderr
    assert 'copy = "towpath"' in said
