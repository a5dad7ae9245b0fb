"""Schema changes go through the log in order with the documents, and are made at the destination, whatever happens."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pymongo import IndexModel, MongoClient

from tests.conftest import MakePipeline
from tests.deploy.schema_writer import SchemaWriter
from tests.support import cleaner, control, definitions, fuzz, log, mongod, oracle, progress, raw, rest, schema, workers
from tests.support.awaited import until
from tests.support.cleaner import Disk
from tests.support.compactor import Service
from tests.support.lives import LivesWatch
from tests.support.mongod import MongodSizes
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from tests.support.started import started
from towpath import stack as embedded
from towpath.clients.mongo.client import Cluster
from towpath.config.loading import read
from towpath.session import opened
from towpath.store.schema_changes import latest

pytestmark = pytest.mark.servers

BULKS = 10 if fuzz.TIMES == 1 else 20 * fuzz.TIMES  # of a hundred writes
SMALL = MongodSizes(0.25, 64)


def ddl(drop: str = "hold", more: str = "") -> Settings:
    return Settings(extra=f'{more}\n[ddl]\ndrop = "{drop}"')


class Twice:
    """A pipeline of two databases, into and out of which a writer renames."""

    def __init__(self, pipeline: Pipeline, seed: int, *, names: int = 4) -> None:
        self.pipeline, one = pipeline, pipeline.name
        self.databases = one, f"{one}x"
        self.names = [f"{one}.c{n}" for n in range(names)] + [f"{one}x.c{n}" for n in range(2)]
        self.writer = SchemaWriter(seed, pipeline.source_client, self.names, f"{one}outside")

    def deploy(self) -> None:
        pipeline = self.pipeline
        pipeline.write()
        own = json.dumps([f"{pipeline.name}.*"])
        text = pipeline.file.read_text()
        assert f"include = {own}" in text
        both = json.dumps([f"{name}.*" for name in self.databases])
        pipeline.file.write_text(text.replace(f"include = {own}", f"include = {both}"))
        towpath("deploy", pipeline.file)

    def assert_same(self, destination: raw.Client, uri: str, *, at_least: int) -> None:
        definitions.assert_same(self.pipeline.source_client, destination, self.databases)
        found = definitions.definitions(self.pipeline.source_client, self.databases)
        collections = [name for name, (kind, _, _) in found.items() if kind == "collection"]
        oracle.assert_same(self.pipeline.addresses.source, uri, collections, at_least=at_least)

    def assert_sides_same(self, *, at_least: int) -> None:
        self.assert_same(self.pipeline.destination_client, self.pipeline.addresses.destination, at_least=at_least)


@pytest.fixture
def gone(make_pipeline: MakePipeline) -> Iterator[list[Pipeline]]:
    """Pipelines whose other databases are dropped at the end."""
    made: list[Pipeline] = []
    yield made
    for pipeline in made:
        for client in (pipeline.source_client, pipeline.destination_client):
            for name in (f"{pipeline.name}x", f"{pipeline.name}outside"):
                client.drop_database(name)


def changes(pipeline: Pipeline) -> list[dict[str, Any]]:
    """What the destination has stored of the pipeline's schema changes."""
    found = pipeline.destination_client["towpath"]["schema_changes"].find({"_id.pipeline": pipeline.name})
    return sorted(found, key=lambda it: it["_id"]["id"])


def stuck(pipeline: Pipeline, state: str) -> dict[str, Any] | None:
    """The one change in this state, as `status` shows it."""
    lines = towpath("status", pipeline.file, "--json", expect=1).stdout if any_in(pipeline, state) else ""
    found = [it for it in json.loads(lines or '{"schema_changes": []}')["schema_changes"] if it["state"] == state]
    return found[0] if found else None


def any_in(pipeline: Pipeline, *states: str) -> bool:
    return any(it["state"] in states for it in changes(pipeline))


def test_every_schema_change_is_made_in_its_place_while_documents_change(
    make_pipeline: MakePipeline, gone: list[Pipeline], stack: embedded.Stack, seed: int, nightly: bool
) -> None:
    twice = Twice(make_pipeline(ddl("apply")), seed)
    pipeline, writer = twice.pipeline, twice.writer
    gone.append(pipeline)
    for name in (*twice.names[:3], twice.names[-1]):
        writer.bulk(name)
    pipeline.source_client[pipeline.name]["c0"].create_index("n", name="plain")
    with LivesWatch(pipeline.destination_client, pipeline.name) as watch:
        twice.deploy()
        pipeline.wait()  # rows of the copy may be later than the schema changes behind them
        with writer.beside() as written:
            writer.write(BULKS // 2)
            if nightly:
                control.restart(stack.directory, workers.FIRST)
            writer.write(BULKS // 2)
            while left := writer.never():
                writer.change()
                writer.bulk(writer.affected)
                print(f"not done yet: {left}")
        pipeline.wait(180)
    print(dict(writer.done), f"and {written[0]} changes beside")
    assert written[0] > 100
    assert not any_in(pipeline, "held", "refused", "waiting", "running"), changes(pipeline)[-1]
    twice.assert_sides_same(at_least=100)
    watch.seen(writer.order, at_least=500 if nightly else 300)
    assert pipeline.status()["dead_letters"] == 0


@pytest.mark.nightly
def test_a_drop_is_held_and_a_refused_change_waits_while_other_collections_go_on(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings())
    for name in ("old", "kept", "other", "more"):
        pipeline.source(name).insert_many([{"_id": n, "u": n % 7} for n in range(50)])
    pipeline.deploy()
    pipeline.wait()
    pipeline.source("old").create_index("before")
    pipeline.destination("more").create_index("u", name="u", sparse=True)
    pipeline.wait()
    assert not changes(pipeline)
    assert "towpath.ddl" not in str(pipeline.file.read_text())
    pipeline.file.write_text(f"{pipeline.file.read_text()}\n[ddl]\n")
    towpath("deploy", pipeline.file)
    until(
        "descriptions of what exists",
        lambda: len(changes(pipeline)) >= 4 and not any_in(pipeline, "waiting", "running"),
    )
    assert "before_1" in pipeline.destination("old").index_information()

    pipeline.source("old").drop()
    pipeline.source("old").insert_one({"_id": "again"})
    pipeline.source("other").insert_one({"_id": "flows"})
    held = until("held drop", lambda: stuck(pipeline, "held"))
    assert held["namespace"] == pipeline.namespace("old")
    assert held["holds_up"] == [pipeline.namespace("old")]
    until("document of another collection", lambda: pipeline.destination("other").find_one({"_id": "flows"}))
    assert "1 schema change to resolve" in towpath("ddl", pipeline.file, expect=1).stdout
    late = towpath("wait", pipeline.file, "--timeout", "2", expect=1).stderr
    assert f"the schema change drop of {pipeline.namespace('old')} is held" in late
    assert pipeline.destination("old").count_documents({}) == 50
    run_reports(pipeline, "old")
    said = towpath("ddl", pipeline.file, "--apply", pipeline.namespace("old")).stdout
    pipeline.wait()
    assert [one["_id"] for one in pipeline.destination("old").find()] == ["again"]
    assert "0 schema changes to resolve" in towpath("ddl", pipeline.file).stdout, said

    assert "waits for a decision" in towpath(*shlex.split(held["commands"][0])[1:], expect=2).stderr

    pipeline.source("kept").drop()
    held = until("held drop", lambda: stuck(pipeline, "held"))
    towpath(*shlex.split(held["commands"][1])[1:])
    pipeline.wait()
    assert pipeline.destination("kept").count_documents({}) == 50

    pipeline.source("more").create_index("u", name="u")
    pipeline.source("more").insert_one({"_id": "behind"})
    refused = until("refused index", lambda: stuck(pipeline, "refused"))
    place = f'db.getSiblingDB("{pipeline.name}")'
    assert f'; to fix it: {place}.runCommand({{"dropIndexes": "more", "index": ["u"]}})' in refused["reason"]
    assert pipeline.destination("more").find_one({"_id": "behind"}) is None
    towpath("ddl", pipeline.file, "--apply", pipeline.namespace("more"))
    assert until("index that is refused again", lambda: stuck(pipeline, "refused"))["decision"] == "apply"
    pipeline.destination_client[pipeline.name].command({"dropIndexes": "more", "index": ["u"]})
    pipeline.wait()
    assert pipeline.destination("more").index_information()["u"].get("sparse") is None
    assert pipeline.destination("more").find_one({"_id": "behind"})
    a_ttl_index_that_was_made_and_changed_is_restored(pipeline)
    a_capped_collection_does_not_stop_a_deployment(pipeline)
    a_database_is_dropped_collection_by_collection(pipeline)


def a_ttl_index_that_was_made_and_changed_is_restored(pipeline: Pipeline) -> None:
    def expiry() -> int | None:
        found: int | None = pipeline.destination("other").index_information()["at_1"].get("expireAfterSeconds")
        return found

    pipeline.source("other").create_index("at", expireAfterSeconds=3600)
    index = {"name": "at_1", "expireAfterSeconds": 7200}
    pipeline.source_client[pipeline.name].command({"collMod": "other", "index": index})
    pipeline.wait()
    assert expiry() is None
    said = towpath("prepare", pipeline.file, "--final", expect=1).stderr
    assert f"{pipeline.namespace('kept')}: the collection is only at the destination" in said
    assert expiry() == 7200


def a_capped_collection_does_not_stop_a_deployment(pipeline: Pipeline) -> None:
    pipeline.source_client[pipeline.name].create_collection("capped", capped=True, size=4096)
    pipeline.wait()
    assert "capped" in pipeline.destination_client[pipeline.name].list_collection_names()
    text = pipeline.file.read_text()
    pipeline.file.write_text(text.replace("[ddl]", '[ddl]\ndrop = "apply"'))
    assert "towpath.ddl.drop" in towpath("deploy", pipeline.file, "--dry-run").stderr
    pipeline.file.write_text(text)


def a_database_is_dropped_collection_by_collection(pipeline: Pipeline) -> None:
    pipeline.source_client[pipeline.name].create_collection("view", viewOn="other")
    pipeline.wait()
    there, names = pipeline.destination_client[pipeline.name], ["capped", "more", "old", "other"]
    assert set(there.list_collection_names()) == {*names, "kept", "view", "system.views"}
    pipeline.source_client.drop_database(pipeline.name)
    until("drop of the view", lambda: "view" not in there.list_collection_names())
    until("held drops", lambda: sum(it["state"] == "held" for it in changes(pipeline)) == len(names))
    assert set(there.list_collection_names()) >= set(names)
    towpath("ddl", pipeline.file, "--apply", pipeline.namespace("more"), expect=1)  # the others are held
    until("drop of one", lambda: "more" not in there.list_collection_names())
    for number, name in enumerate(("capped", "old", "other")):
        towpath("ddl", pipeline.file, "--skip", pipeline.namespace(name), expect=int(number < 2))
    pipeline.wait()
    assert set(there.list_collection_names()) >= {"kept", "capped", "old", "other"}


@pytest.mark.nightly
def test_a_change_that_no_partition_waits_for_any_more_can_be_skipped(make_pipeline: MakePipeline) -> None:
    """As an accepted log gap leaves it: the positions are moved here."""
    pipeline = make_pipeline(ddl())
    pipeline.source("old").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    pipeline.source("old").drop()
    held = until("held drop", lambda: stuck(pipeline, "held"))
    sink = f"{pipeline.name}-sink"
    with opened(pipeline.file) as session:
        session.connect.stop(sink)
        until("end of the sink's tasks", lambda: not session.connect.status(sink).tasks)
        past = {"$inc": {"offset": 1, "epoch": 1}, "$unset": {"barrier": ""}}
        pipeline.destination_client["towpath"]["offsets"].update_many({"barrier": held["id"]}, past)
        said = towpath("ddl", pipeline.file, "--skip", pipeline.namespace("old")).stdout
        assert "schema change skipped: drop" in said
        assert not any_in(pipeline, "held")
        session.connect.resume(sink)
    pipeline.source("old").insert_one({"_id": 2})
    pipeline.wait()
    assert pipeline.destination("old").count_documents({}) == 2


def run_reports(pipeline: Pipeline, collection: str) -> None:
    """`run` says that the drop of this collection is held, also with its exit code."""
    with started([TOWPATH, "run", pipeline.file, "--json"], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        held = next(line for line in run.stdout if '"event": "ddl"' in line)
        run.send_signal(signal.SIGTERM)
        end = json.loads([held, *run.stdout][-1])
        assert run.wait(60) == 1, (held, end)
    schema.refuse(("run", "--json"), held)
    told = json.loads(held)["change"]
    assert (told["kind"], told["namespace"], told["state"]) == ("drop", pipeline.namespace(collection), "held")
    assert [one["id"] for one in end["schema_changes"]] == [told["id"]]


@pytest.fixture
def third(tmp_path: Path) -> Iterator[tuple[str, raw.Client]]:
    """A separate replica set, which knows fail points."""
    options = ("--setParameter", "enableTestCommands=1")
    with (
        mongod.start_replica_set(tmp_path / "third", name="third", sizes=SMALL, options=options) as servers,
        MongoClient[dict[str, Any]](servers.uri) as client,
    ):
        yield servers.uri, client


@contextmanager
def builds_held(client: raw.Client, at: Mapping[str, Any]) -> Iterator[None]:
    """Index builds of a server continue behind a document with these fields only at the end of the `with`."""
    point = "hangIndexBuildDuringCollectionScanPhaseBeforeInsertion"
    client.admin.command("configureFailPoint", point, mode="alwaysOn", data={"fieldsToMatch": at})
    try:
        yield
    finally:
        client.admin.command("configureFailPoint", point, mode="off")


@pytest.mark.nightly
def test_an_index_build_holds_up_its_collection_only_and_goes_on_over_a_pause(
    make_pipeline: MakePipeline, third: tuple[str, raw.Client]
) -> None:
    made = make_pipeline(ddl())
    addresses = replace(made.addresses, destination=third[0])
    pipeline = replace(made, addresses=addresses, destination_client=third[1])
    for name in ("built", "other"):
        pipeline.source(name).insert_many([{"_id": n, "n": n} for n in range(200)])
    pipeline.deploy()
    pipeline.wait()
    with builds_held(pipeline.destination_client, {"n": 150}):
        pipeline.source("built").create_index("n")
        pipeline.source("built").insert_one({"_id": "behind"})
        pipeline.source("other").insert_one({"_id": "flows"})
        until("running build", lambda: any_in(pipeline, "running"))
        until("document of another collection", lambda: pipeline.destination("other").find_one({"_id": "flows"}))
        running = until("progress", lambda: [it for it in pipeline.status()["schema_changes"] if it["total"]])[0]
        assert (running["state"], running["total"]) == ("running", 200)
        assert running["done"] < 200
        assert f"build indexes on {pipeline.namespace('built')} (n_1); {running['done']} of 200 (" in running["words"]
        assert running["holds_up"] == [pipeline.namespace("built")]
        towpath("pause", pipeline.file)
        towpath("resume", pipeline.file)
        pipeline.source("other").insert_one({"_id": "flows again"})
        until("document after the pause", lambda: pipeline.destination("other").find_one({"_id": "flows again"}))
        assert pipeline.destination("built").find_one({"_id": "behind"}) is None
    pipeline.wait()
    assert "n_1" in pipeline.destination("built").index_information()
    it_stays_refused_while_it_is_tried_again(pipeline)
    pipeline.assert_same("built", "other", at_least=400)
    pipeline.remove()


def it_stays_refused_while_it_is_tried_again(pipeline: Pipeline) -> None:
    """An index that the destination refuses only once it has come to one of its documents."""
    built = pipeline.destination("built")
    built.insert_one({"_id": "in the way", "h": [1]})
    pipeline.source("built").create_index([("h", "hashed")])
    refused = until("refused index", lambda: stuck(pipeline, "refused"))
    with builds_held(pipeline.destination_client, {"n": 150}):
        towpath("ddl", pipeline.file, "--apply", pipeline.namespace("built"))
        until("next attempt", lambda: any_in(pipeline, "running"))
        [shown] = [it for it in pipeline.status(expect=1)["schema_changes"] if it["id"] == refused["id"]]
        assert (shown["state"], shown["reason"]) == ("refused", refused["reason"])
        assert "it is being tried again" in shown["words"]
        built.delete_one({"_id": "in the way"})
    pipeline.wait()
    assert "h_hashed" in built.index_information()


@pytest.mark.nightly
def test_a_compacted_log_makes_the_same_schema(
    make_pipeline: MakePipeline, stack: embedded.Stack, tmp_path: Path, third: tuple[str, raw.Client]
) -> None:
    compacted = '[log]\ncompact = true\ncompaction_lag = "3s"\ndelete_retention = "3600s"'
    pipeline = make_pipeline(ddl("apply", compacted))
    source = pipeline.source
    for name in ("a", "out"):
        source(name).insert_many([{"_id": n, "of": name} for n in range(100)])
    source("a").create_index("of")
    pipeline.deploy()
    pipeline.wait()
    source("a").update_many({}, {"$set": {"updated": 1}})
    source("a").rename("b")
    source("a").insert_many([{"_id": n, "of": "a again"} for n in range(50, 120)])
    source("b").delete_many({"_id": {"$lt": 10}})
    source("b").update_many({"_id": {"$lt": 60}}, {"$set": {"after": 2}})
    source("out").aggregate([{"$match": {"_id": {"$gt": 90}}}, {"$out": "b2"}])
    source("out").drop()
    pipeline.wait()
    pipeline.assert_same("a", "b", "b2", at_least=150)
    disk = Disk(stack.directory, pipeline.topic("b"))
    with cleaner.busy(stack.bootstrap), Service(pipeline.file, "1s", tmp_path / "service") as service:

        def cleaned() -> bool:
            source("b").update_one({"_id": 70}, {"$inc": {"n": 1}})
            return disk.passes() > 0 and len(service.passes) > 2

        until("pass of the cleaner", cleaned, 90, 0.5)
        pipeline.wait()
        kept = [
            it for it in log.records(pipeline.addresses.bootstrap, pipeline.topic("b")) if it.contract["op"] == b"ddl"
        ]
        assert len(kept) >= 2 * pipeline.settings.partitions
        uri, client = third
        towpath("replay", pipeline.file, "--destination", uri)
        definitions.assert_same(pipeline.source_client, client, [pipeline.name])
        names = [pipeline.namespace(name) for name in ("a", "b", "b2")]
        oracle.assert_same(pipeline.addresses.source, uri, names, at_least=150)
        towpath("replay", pipeline.file, "--destination", uri, "--only", names[1], "--empty", "--yes")
        oracle.assert_same(pipeline.addresses.source, uri, names, at_least=150)
        towpath("replay", pipeline.file, "--rebuild", "--yes")
        assert "towpath.ddl.replay" not in json.dumps(sink_configuration(pipeline))
        pipeline.wait()
        definitions.assert_same(pipeline.source_client, pipeline.destination_client, [pipeline.name])
        pipeline.assert_same("a", "b", "b2", at_least=150)


def sink_configuration(pipeline: Pipeline) -> dict[str, str]:
    answer = rest.get(f"{pipeline.addresses.connect}/connectors/{pipeline.name}-sink/config", timeout=30)
    found: dict[str, str] = answer.raise_for_status().json()
    return found


def refills(pipeline: Pipeline) -> list[dict[str, str]]:
    found_offsets = progress.offsets(pipeline)
    found = next((offset for partition, offset in found_offsets if "schema" in partition), {})
    listed: list[dict[str, str]] = json.loads(found.get("refills", "[]"))
    return listed


@pytest.mark.nightly
def test_a_point_in_time_has_the_schema_of_that_time_and_the_new_topic_alone_rebuilds_what_was_renamed(
    make_pipeline: MakePipeline, third: tuple[str, raw.Client]
) -> None:
    pipeline = make_pipeline(ddl("apply"))
    source = pipeline.source
    source("a").insert_many([{"_id": n} for n in range(100)])
    pipeline.deploy()
    pipeline.wait()
    source("a").create_index("early")
    source("a").rename("b")
    pipeline.wait()
    source("b").insert_one({"_id": "between"})
    before_drop = pipeline.source_client.admin.command("ping")["operationTime"]
    pipeline.source_client[pipeline.name].create_collection("d", validator={"of": "d"}, validationAction="warn")
    source("d").insert_many([{"_id": n, "of": "d"} for n in range(30)])
    source("d").create_index("of", name="of", sparse=True)
    source("d").rename("e")
    source("d").insert_one({"_id": "again"})
    source("b").drop_index("early_1")
    source("b").drop()
    source("c").insert_one({"_id": 1})
    pipeline.wait()
    refill = next(one for one in refills(pipeline) if one["namespace"] == pipeline.namespace("b"))
    uri, client = third
    at = f"{before_drop.time}:{before_drop.inc}"
    towpath("replay", pipeline.file, "--destination", uri, "--until", at)
    assert client[pipeline.name].list_collection_names() == ["b"]
    assert client[pipeline.name]["b"].count_documents({}) == 101
    assert "early_1" in client[pipeline.name]["b"].index_information()
    client.drop_database(pipeline.name)
    words = ("replay", pipeline.file, "--destination", uri, "--until", refill["from"])
    if refill["to"] != refill["from"]:
        said = towpath(*words, expect=2).stderr
        assert "its documents follow in the log" in said
        assert refill["to"] in said
    towpath("replay", pipeline.file, "--destination", uri, "--until", refill["to"])
    assert client[pipeline.name]["b"].count_documents({}) == 100
    client.drop_database(pipeline.name)
    towpath("replay", pipeline.file, "--destination", uri, "--only", pipeline.namespace("e"))
    assert client[pipeline.name].list_collection_names() == ["e"]
    of_both = [definitions.definitions(side, [pipeline.name]) for side in (pipeline.source_client, client)]
    assert of_both[0][pipeline.namespace("e")] == of_both[1][pipeline.namespace("e")]
    assert of_both[1][pipeline.namespace("e")][1]["validator"] == {"of": "d"}
    assert "of" in of_both[1][pipeline.namespace("e")][2]
    oracle.assert_same(pipeline.addresses.source, uri, [pipeline.namespace("e")], at_least=30)
    said = towpath("replay", pipeline.file, "--rebuild", "--only", pipeline.namespace("e"), "--yes", expect=2).stderr
    assert f"add --only {pipeline.namespace('d')}," in said


@pytest.mark.nightly
def test_a_description_that_was_refused_is_shown_and_others_are_not(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings())
    stored, config = pipeline.destination_client["towpath"]["schema_changes"], read(pipeline.write())
    for number, (state, is_snapshot) in enumerate([("done", True), ("skipped", True), ("done", False)]):
        change = {"ddl": "create", "ns": f"{pipeline.name}.a", "snapshot": is_snapshot}
        mark = {"pipeline": pipeline.name, "id": str(number)}
        stored.insert_one({"_id": mark, "t": "1:1", "change": change, "state": state, "ended": number})
    with Cluster(config.destination.uri, "destination").connected() as client:
        assert [change.id for change in latest(client, config, 5)] == ["2", "1"]


@pytest.mark.nightly
def test_the_build_of_an_index_on_a_million_documents_holds_up_no_other_collection(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(ddl())
    built, other = pipeline.source("built"), pipeline.source("other")
    for start in range(0, 1_000_000, 50_000):
        built.insert_many(
            [{"_id": n, "text": f"{n * 7919 % 1_000_003:x}" * 8} for n in range(start, start + 50_000)], ordered=False
        )
    other.insert_one({"_id": 0})
    pipeline.deploy()
    pipeline.wait(600)
    together = [IndexModel([("text", 1), ("_id", -1), (f"none{n}", 1)], name=f"large {n}") for n in range(3)]
    built.create_indexes(together)  # long enough for a pause of the pipeline
    seen, slowest, progress_seen = 0, 0.0, set[int]()
    until("build that runs", lambda: any_in(pipeline, "running"), 120, 0.02)
    towpath("pause", pipeline.file)
    towpath("resume", pipeline.file)
    while any_in(pipeline, "waiting", "running"):
        seen, begun = seen + 1, time.monotonic()
        other.update_one({"_id": 0}, {"$set": {"seen": seen}})
        until("change of the other", lambda: pipeline.destination("other").find_one({"seen": seen}), 60, 0.01)  # noqa: B023
        slowest = max(slowest, time.monotonic() - begun)
        if not progress_seen:
            shown = [it for it in pipeline.status()["schema_changes"] if it["state"] == "running"]
            progress_seen |= {it["total"] for it in shown if it["total"]}
    print(f"{seen} changes beside the build, the slowest {slowest:.2f} s; {progress_seen}")
    assert seen > 1
    assert progress_seen == {1_000_000}
    assert slowest < 5
    pipeline.wait(300)
    definitions.assert_same(pipeline.source_client, pipeline.destination_client, [pipeline.name])
    pipeline.assert_same("built", "other", at_least=1_000_001)


@pytest.mark.nightly
def test_schema_changes_go_back_after_a_cutover_and_on_after_the_fail_back(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(ddl("apply"))
    limits = ("--max-pause", "2m", "--max-lag", "60", "--stop-with", "true")
    source, destination = pipeline.source, pipeline.destination
    for name in ("orders", "old"):
        source(name).insert_many([{"_id": n, "u": f"u{n}", "at": None} for n in range(100)])
    source("orders").create_index("u", name="unique", unique=True)
    source("orders").create_index("at", name="expires", expireAfterSeconds=3600)
    pipeline.deploy()
    pipeline.wait()
    source("orders").create_index("since", name="since", expireAfterSeconds=3600)
    for name in ("expires", "since"):
        change = {"name": name, "expireAfterSeconds": 7200}
        pipeline.source_client[pipeline.name].command({"collMod": "orders", "index": change})
    pipeline.wait()
    assert not any("expireAfterSeconds" in index for index in destination("orders").index_information().values())
    towpath("verify", pipeline.file)
    back = pipeline.file.with_name(f"{pipeline.file.stem}-back.toml")
    try:
        towpath("cutover", pipeline.file, *limits)
        restored = destination("orders").index_information()
        assert restored["unique"]["unique"]
        assert [restored[name]["expireAfterSeconds"] for name in ("expires", "since")] == [7200, 7200]
        destination("orders").create_index([("u", -1)], name="made at the destination")
        destination("old").rename("new")
        destination("orders").insert_one({"_id": "there", "u": "x"})
        destination("fresh").insert_one({"_id": 1})
        towpath("wait", back)
        assert "made at the destination" in source("orders").index_information()
        assert sorted(pipeline.source_client[pipeline.name].list_collection_names()) == ["fresh", "new", "orders"]
        assert not json.loads(towpath("ddl", back, "--json").stdout)["unfollowed"]
        towpath("cutover", pipeline.file, "--back", *limits)
    finally:
        if back.exists():
            towpath("remove", back, "--topics", "--yes")
    source("new").rename("newer")
    source("fresh").drop()
    pipeline.wait()
    pipeline.assert_same("orders", "newer", at_least=201)
    definitions.assert_same(pipeline.source_client, pipeline.destination_client, [pipeline.name])
