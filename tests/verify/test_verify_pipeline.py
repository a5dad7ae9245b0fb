"""`towpath verify` of a pipeline that runs: from its exit code to the page for a change ticket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Int64

from tests.conftest import MakePipeline
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.ticker import Ticker
from towpath.store import verdict_file

pytestmark = pytest.mark.servers

COUNTS = ("missing", "extra", "different", "order")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def verify(pipeline: Pipeline, *options: str, expect: int = 0) -> list[dict[str, Any]]:
    done = towpath("verify", pipeline.file, "--json", *options, expect=expect)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_running_pipeline_is_verified_damaged_and_verified_again(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    pipeline = make_pipeline(Settings(rename={"old": "<new> & co"}))
    pipeline.source("orders").insert_many([{"_id": number, "n": number, "m": 1} for number in range(3_000)])
    pipeline.source("old").insert_many([{"_id": number} for number in range(100)])
    pipeline.source_client[pipeline.name].create_collection("seen", viewOn="orders", pipeline=[])
    pipeline.write()
    done = towpath("verify", pipeline.file, "--tries", "1", "--json", expect=1)
    assert "is not deployed: a difference is reported after all tries" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["missing"] == 3_100
    pipeline.deploy()
    pipeline.wait()

    def write() -> None:
        pipeline.source("orders").update_one({"_id": 5}, {"$inc": {"n": 1}})

    with Ticker(0.01, write) as writer:
        clean = verify(pipeline)
        _damage(pipeline)
        writer.wait_for(writer.done + 10)
        report = tmp_path / "report.html"
        found = verify(pipeline, "--report", str(report), expect=1)
    assert [(one["clean"], one["compared"], one["metadata"]) for one in clean] == [(True, 3_100, 0)]
    documents, [stray] = [one for one in found[:-1] if "id_bson" in one], [one for one in found if "command" in one]
    assert (stray["kind"], stray["what"]) == ("collection", "the collection is only at the destination")
    assert sorted((one["kind"], one["id"]["_id"].get("$numberInt")) for one in documents) == [
        ("different", "7"),
        ("extra", "-1"),
        ("extra", "1"),
        ("missing", "3"),
        ("order", "9"),
    ]
    last = found[-1]
    assert {kind: last[kind] for kind in COUNTS} == {"missing": 1, "extra": 2, "different": 1, "order": 1}
    assert (last["clean"], last["compared"], last["metadata"], last["of"]) == (False, 3_102, 1, "everything")
    assert last["documents_per_second"] > 0
    [retyped] = [one for one in found if one.get("kind") == "different"]
    assert retyped["paths"] == [["m", '{"$numberInt": "1"}', '{"$numberLong": "1"}']]
    assert retyped["id_bson"] == bson.encode({"_id": 7}).hex()
    _kept(pipeline, documents)
    shown = pipeline.status()["verification"]["last"]
    assert (shown["missing"], shown["verdict"]) == (1, "not the same")
    [line] = [line for line in towpath("status", pipeline.file).stdout.splitlines() if line.startswith("verified")]
    assert "not the same (1 missing, 2 extra, 1 different, 1 order, 1 metadata): 3,102 documents, everything" in line
    _page(report.read_text(), pipeline)


def _damage(pipeline: Pipeline) -> None:
    orders = pipeline.destination("orders")
    orders.delete_one({"_id": 3})
    orders.update_one({"_id": 7}, {"$set": {"m": Int64(1)}})
    orders.replace_one({"_id": 9}, {"_id": 9, "m": 1, "n": 9})
    orders.insert_one({"_id": -1, "script": "<script>alert(1)</script>"})
    pipeline.destination_client[pipeline.name]["stray"].insert_one({"_id": 1})


def _kept(pipeline: Pipeline, documents: list[dict[str, Any]]) -> None:
    """The verdict is kept for `repair`, for its owner's eyes only."""
    place = verdict_file.path(pipeline.name)
    assert (place.stat().st_mode & 0o777, place.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    kept = list(verdict_file.read(place))
    assert sorted((one.namespace, one.id_bson, one.kind) for one in kept) == sorted(
        (one["namespace"], one["id_bson"], one["kind"]) for one in documents
    )
    assert verdict_file.counts(place)["missing"] == 1


def _page(page: str, pipeline: Pipeline) -> None:
    assert f'{pipeline.name}: <span class="bad">not the same</span>' in page
    assert f"{pipeline.name}.old → {pipeline.name}.&lt;new&gt; &amp; co" in page
    assert "the collection is only at the destination" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page
    assert "http://" not in page.replace("mongodb://", ""), "nothing is loaded from elsewhere"
