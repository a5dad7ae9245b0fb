"""What was damaged at the destination is found, read again through the log while the source changes, and repaired."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import bson
import pytest
from bson import json_util

from tests.conftest import MakePipeline
from tests.support import fuzz, schema
from tests.support.awaited import until
from tests.support.damage import damage, document
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from tests.support.raw import Documents
from tests.support.started import started
from tests.support.ticker import Ticker
from towpath.config.text import counted
from towpath.session import opened

pytestmark = pytest.mark.servers

COUNT = 2000 * fuzz.TIMES
PLACES = 56 * fuzz.TIMES


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Verdicts of these tests are kept here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def lines(*arguments: str | Path, expect: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What a command prints as JSON: the lines, and the last one, which counts them."""
    found = [json.loads(line) for line in towpath(*arguments, "--json", expect=expect).stdout.splitlines()]
    return found[:-1], found[-1]


def writer(documents: Documents, seed: int) -> Ticker:
    """Counts up a field of some documents all the time, half of them those that `damage` harms with this seed."""
    random, harmed = Random(seed), Random(seed).sample(range(COUNT), PLACES)

    def change() -> None:
        some = random.sample(harmed, 10) + random.sample(range(COUNT), 10)
        documents.update_many({"_id": {"$in": some}}, {"$inc": {"v": 1}})

    return Ticker(0.05, change)


def named(found: list[dict[str, Any]]) -> dict[bytes, str]:
    """BSON `{_id: …}` → kind, in the lines of a verdict."""
    return {bytes.fromhex(one["id_bson"]): one["kind"] for one in found}


@pytest.fixture
def pipeline(make_pipeline: MakePipeline) -> Pipeline:
    """In step, with a collection that has another name at the destination."""
    made = make_pipeline(Settings(rename={"docs": "papers"}))
    for start in range(0, COUNT, 10_000):
        made.source("docs").insert_many(map(document, range(start, min(start + 10_000, COUNT))), ordered=False)
    made.deploy()
    made.wait(timeout=600)
    return made


def test_damage_of_every_kind_is_found_and_repaired_while_the_source_changes(pipeline: Pipeline, seed: int) -> None:
    with writer(pipeline.source("docs"), seed) as changes:
        harmed = damage(pipeline.destination("docs"), Random(seed), range(COUNT), PLACES)
        found, counts = lines("verify", pipeline.file, expect=1)
        assert named(found) == harmed
        assert (counts["clean"], counts["compared"]) == (False, COUNT + list(harmed.values()).count("extra"))
        assert f"{PLACES:,} documents" in towpath("repair", pipeline.file, "--dry-run").stdout
        extras = list(harmed.values()).count("extra")
        assert f"Delete {extras:,} documents" in towpath("repair", pipeline.file, expect=2).stderr
        found, counts = lines("repair", pipeline.file, "--yes", expect=0)
        assert {bytes.fromhex(one["id_bson"]): one["result"] for one in found} == dict.fromkeys(harmed, "repaired")
        assert (counts["repaired"], counts["left"]) == (PLACES, 0)
        assert "nothing to repair" in towpath("repair", pipeline.file, "--dry-run").stdout
        assert "repaired since" in towpath("status", pipeline.file).stdout
        found, counts = lines("verify", pipeline.file, expect=0)
        assert (found, counts["clean"], counts["compared"]) == ([], True, COUNT)
        changes.wait_for(changes.done + 1)
    pipeline.wait()
    pipeline.assert_same("docs", at_least=COUNT)


@pytest.mark.nightly
def test_only_what_the_newest_records_are_about_is_verified(pipeline: Pipeline) -> None:
    documents, copies = pipeline.source("docs"), pipeline.destination("docs")
    changed = COUNT // 10
    documents.update_many({"_id": {"$lt": changed}}, {"$inc": {"v": 1}})
    documents.delete_one({"_id": changed})
    pipeline.wait()
    copies.update_one({"_id": 50}, {"$set": {"deep.list.0.to.1": "c"}})
    copies.insert_one(document(changed))
    copies.delete_one({"_id": COUNT - 1})  # which nothing has changed lately
    harmed = {bson.encode({"_id": 50}): "different", bson.encode({"_id": changed}): "extra"}
    found, counts = lines("verify", pipeline.file, "--last", str(changed + 1), expect=1)
    assert (named(found), counts["compared"]) == (harmed, changed + 1)
    found, counts = lines("verify", pipeline.file, "--since", "1h", "-n", pipeline.namespace("other"), expect=0)
    assert (found, counts["compared"]) == ([], 0)
    found, counts = lines("verify", pipeline.file, "--since", "1h", expect=1)
    assert named(found) == harmed | {bson.encode({"_id": COUNT - 1}): "missing"}
    assert counts["compared"] == COUNT
    towpath("repair", pipeline.file, "--yes")
    pipeline.assert_same("docs", at_least=COUNT - 1)


@pytest.mark.nightly
def test_following_finds_damage_to_what_changes_and_status_shows_it(pipeline: Pipeline, seed: int) -> None:
    documents, copies = pipeline.source("docs"), pipeline.destination("docs")

    def verdict() -> dict[str, Any]:
        found: dict[str, Any] = pipeline.status()["verification"]["follow"] or {}
        return found

    def is_at_end(found: dict[str, Any]) -> bool:
        return found["behind_records"] == found["waiting"] == 0

    with started([TOWPATH, "verify", pipeline.file, "--follow", "--json"], stdout=subprocess.PIPE) as follower:
        until("running verdict", lambda: verdict().get("following"))
        with writer(documents, seed):
            until("documents compared", lambda: verdict()["compared"] > 100)
            copies.delete_one({"_id": 7})
            documents.update_one({"_id": 7}, {"$set": {"y": 1}})
            until("difference", lambda: verdict()["missing"] == 1)
            towpath("repair", pipeline.file)
            until("end of the difference", lambda: verdict()["missing"] == 0)
        found = until("end of the log", lambda: is_at_end(verdict()) and verdict())
        assert (found["extra"], found["different"], found["order"], found["unresolved"]) == (0, 0, 0, 0)
        assert found["age_seconds"] < 15
        follower.send_signal(signal.SIGINT)
        lines = follower.communicate(timeout=60)[0]
        schema.refuse(("verify", "--json"), lines if isinstance(lines, str) else lines.decode())
        said = [json.loads(line) for line in lines.splitlines()]
    assert follower.returncode == 0
    assert named([line for line in said if "id_bson" in line]) == {bson.encode({"_id": 7}): "missing"}
    assert not said[-1]["following"]
    assert "stopped: no differences" in towpath("status", pipeline.file).stdout


def test_options_and_indexes_are_verified_unless_told_not_to(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(rename={"docs": "papers"}))
    pipeline.write()
    for documents in (pipeline.source("docs"), pipeline.destination("docs")):
        documents.insert_one({"_id": 1, "n": 1})
    pipeline.source("docs").create_index("n", unique=True)
    pipeline.source_client[pipeline.name].command({"create": "seen", "viewOn": "docs", "pipeline": []})
    assert "in options, views and indexes" not in towpath("verify", pipeline.file, "--no-metadata").stdout
    said = towpath("verify", pipeline.file, expect=1).stdout
    assert "not the same: 1 document" in said
    assert "2 differences in options, views and indexes" in said
    assert 'the index n_1 on {"n": 1} is missing' in said
    assert "the view is missing" in said
    assert '"viewOn": "papers"' in said
    pipeline.destination("docs").create_index("n", unique=True)
    pipeline.destination_client[pipeline.name].command({"create": "seen", "viewOn": "papers", "pipeline": []})
    assert "0 differences in options, views and indexes" in towpath("verify", pipeline.file).stdout


@pytest.mark.nightly
def test_what_the_destination_refuses_is_left_with_the_reason_until_that_is_gone(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings())
    documents, bad = pipeline.source("docs"), [3, 5]
    pipeline.destination_client[pipeline.name].command({"create": "docs", "validator": {"bad": {"$ne": True}}})
    documents.insert_many([{"_id": n, "bad": n in bad} for n in range(100)])
    pipeline.deploy()
    pipeline.wait()
    found, counts = lines("repair", pipeline.file, "--dead-letters", expect=1)
    assert {one["id"]["_id"]["$numberInt"] for one in found} == {str(n) for n in bad}
    assert {(one["result"], one["kind"]) for one in found} == {("left", "missing")}
    assert all("failed validation (121)" in one["reason"] for one in found)
    assert (counts["repaired"], counts["left"]) == (0, 2)
    said = towpath("repair", pipeline.file, "--dead-letters", expect=1).stdout
    assert "Document failed validation" in said
    pipeline.destination_client[pipeline.name].command({"collMod": "docs", "validator": {}})
    said = towpath("repair", pipeline.file, "--dead-letters").stdout
    assert f"{pipeline.namespace('docs')}: 2 repaired, 0 left" in said
    pipeline.assert_same("docs", at_least=100)


@pytest.mark.nightly
def test_what_the_source_loses_after_a_verdict_is_deleted_only_after_a_question(pipeline: Pipeline) -> None:
    """Without `[ddl]` a drop is not replicated: the destination has the last copy."""
    pipeline.destination("docs").delete_one({"_id": 1})
    pipeline.destination("docs").update_many({"_id": {"$in": [2, 3]}}, {"$set": {"damaged": 1}})
    found, _ = lines("verify", pipeline.file, expect=1)
    assert sorted(one["kind"] for one in found) == ["different", "different", "missing"]
    pipeline.source("docs").drop()
    pipeline.wait()
    said = towpath("repair", pipeline.file, expect=2).stderr
    assert f"Delete 2 documents of {pipeline.namespace('papers')} that only" in said
    assert f"the source has dropped or renamed {pipeline.namespace('docs')}" in said
    assert pipeline.destination("docs").count_documents({}) == COUNT - 1
    towpath("repair", pipeline.file, "--yes")
    assert pipeline.destination("docs").count_documents({}) == COUNT - 3


@pytest.mark.nightly
def test_a_file_of_ids_is_repaired_or_refused_with_words(pipeline: Pipeline, seed: int, tmp_path: Path) -> None:
    harmed, file = damage(pipeline.destination("docs"), Random(seed), range(COUNT), 6), tmp_path / "ids"
    name = pipeline.namespace("docs")
    assert "run `towpath verify`" in towpath("repair", pipeline.file, expect=2).stderr
    file.write_text('1\n"a"\n{"_id": {"$oid": "0123456789abcdef01234567"}, "x": 1}\n\n')
    assert "3 documents" in towpath("repair", pipeline.file, "--ids", name, file, "--dry-run").stdout
    assert "was ever captured" in towpath("repair", pipeline.file, "--ids", f"{name}x", file, expect=2).stderr
    assert "is not in the pipeline" in towpath("repair", pipeline.file, "--ids", "other.docs", file, expect=2).stderr
    file.write_text("1\nnonsense\n")
    assert "line 2" in towpath("repair", pipeline.file, "--ids", name, file, expect=2).stderr
    file.write_text("".join(f"{json_util.dumps(bson.decode(id))}\n" for id in harmed))
    extras, arguments = list(harmed.values()).count("extra"), ("--ids", pipeline.namespace("papers"), file)
    if extras:
        said = towpath("repair", pipeline.file, *arguments, expect=2).stderr
        assert f"Delete {counted(extras, 'document')} of {pipeline.namespace('papers')}" in said
    said = towpath("repair", pipeline.file, *arguments, "--yes").stdout
    assert f"{name}: 6 repaired, 0 left" in said
    pipeline.assert_same("docs", at_least=COUNT)


@pytest.mark.nightly
def test_the_order_of_a_collation_deletes_nothing_and_odd_requests_stop_nothing(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(partitions=1, extra="[ddl]"))
    pipeline.source("docs").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    name, ids = pipeline.namespace("folded"), ["B", "a", "C", "d", "f", "E"]
    pipeline.source_client[pipeline.name].create_collection("folded", collation={"locale": "en", "strength": 2})
    pipeline.source("folded").insert_many([{"_id": id, "v": 1} for id in ids])
    pipeline.source_client[pipeline.name].create_collection("ring", capped=True, size=1 << 20)
    pipeline.source("ring").insert_one({"_id": 1})  # no server reads it as of a known time
    pipeline.wait()
    with opened(pipeline.file) as session:
        odd: list[dict[str, Any]] = [
            {"namespace": "orders", "ids": [1]},
            {"namespace": name, "ids": [{"$id": 5}, "a"]},
            {"namespace": pipeline.namespace("ring"), "ids": [1]},
            {"ids": 5},
            {},
        ]
        producer = session.topics.producer()
        for request in odd:
            producer.produce(session.pipeline.request_topic, bson.encode(request))
        assert producer.flush(60) == 0
    copies = pipeline.destination("folded")
    copies.update_many({"_id": {"$in": ["B", "a", "C"]}}, {"$set": {"v": 2}})
    copies.delete_one({"_id": "d"})
    copies.delete_one({"_id": "E"})
    copies.insert_one({"_id": "e", "v": 3})  # one `_id` with "E" by the collation
    lines("verify", pipeline.file, expect=1)
    _, counts = lines("repair", pipeline.file, "--yes", expect=0)
    assert counts["left"] == 0, counts
    pipeline.source("folded").insert_one({"_id": "after"})
    pipeline.wait()
    pipeline.assert_same("folded", at_least=len(ids))


def test_a_pipeline_of_debeziums_connector_is_refused(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(mode="plain"))
    pipeline.write()
    said = towpath("repair", pipeline.file, "--ids", pipeline.namespace("docs"), "/dev/null", expect=2).stderr
    assert 'copy = "towpath"' in said
