"""What the tool makes of schema changes in the log, as far as it needs no server: settings, records, words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import bson
import pytest

from tests.checks.test_check_judgements import PIPELINE
from tests.support.lives import Lives, mark
from towpath.cli import ddl
from towpath.clients.mongo.client import ClusterTime
from towpath.config.loading import read, write_pipeline_file
from towpath.config.pipeline import Ddl
from towpath.cutover.reverse_pipeline import reverse_file_text
from towpath.deploy.schema_changes import SchemaChanges, Shown, chosen
from towpath.errors import BadPipelineFile, Refused
from towpath.history.unprotected import Part
from towpath.log.barrier import uncaptured
from towpath.log.definitions import definitions
from towpath.log.records import ends_documents, is_key, is_schema_change, schema_change_in_short
from towpath.log.source_offsets import source_state
from towpath.store.schema_changes import SchemaChange

LOGGED = PIPELINE.changed(mode="exactly-once", ddl=Ddl())
KEY = bson.encode({"ddl": "1700000000:1/1/shop.a"})
UUID = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"


@pytest.mark.parametrize(
    ("namespace", "taken"),
    [
        (f"shop.tmp.agg_out.{UUID}", False),
        ("shop.tmp.agg_out.5", True),
        ("shop.tmp.agg_out", True),
        ("shop.tmpAb1Zz.renameCollection", False),
        ("shop.tmpAb1Zz.renameCollection2", True),
        ("shop.tmpAb1Z.renameCollection", True),
        ("shop.tmpAb1Zz.convertToCapped.orders.x", False),
        ("shop.tmpAb1Zz.convertToCapped", True),
        ("shop.tmp", True),
        ("shop.orders", True),
    ],
)
def test_the_servers_temporary_collections_are_no_part_of_a_pipeline_with_ddl(namespace: str, taken: bool) -> None:
    assert LOGGED.selection.matches(namespace) is taken
    assert PIPELINE.selection.matches(namespace)
    topic = LOGGED.selection.topic_regex("move")
    assert (re.fullmatch(topic, f"move.{namespace}") is not None) is taken
    assert "," not in LOGGED.selection.namespace_regex
    config = definitions(LOGGED)
    assert config["move-source"]["collection.include.list"] == LOGGED.selection.namespace_regex
    assert config["move-sink"]["topics.regex"] == topic


def test_a_pipeline_without_ddl_has_the_configuration_that_it_had() -> None:
    before = definitions(LOGGED.changed(ddl={"apply": False}))
    assert not any("ddl" in key for config in before.values() for key in config)
    of_both = definitions(LOGGED.changed(capture={"whole_documents": ("shop.whole",)}))
    assert {name: config.get("towpath.ddl") for name, config in of_both.items()} == {
        "move-source": "true",
        "move-source-whole": "true",
        "move-sink": None,
    }
    assert of_both["move-sink"]["towpath.ddl.drop"] == "hold"
    assert "towpath.ddl.replay" not in of_both["move-sink"]


@pytest.mark.parametrize(
    ("section", "ddl"),
    [
        ("", Ddl(apply=False)),
        ("[ddl]", Ddl()),
        ("[ddl]\napply = false", Ddl(apply=False)),
        ('[ddl]\ndrop = "apply"', Ddl(drop="apply")),
    ],
)
def test_the_section_of_the_file(tmp_path: Any, section: str, ddl: Ddl) -> None:
    file = tmp_path / "p.toml"
    write_pipeline_file(file, include=("shop.*",))
    file.write_text(f"{file.read_text()}\n{section}\n")
    assert read(file).ddl == ddl
    assert ("[ddl]\n" in reverse_file_text(file).replace(" ", "")) is ddl.apply


def test_plain_mode_has_no_schema_changes_in_its_log(tmp_path: Any) -> None:
    file = tmp_path / "p.toml"
    write_pipeline_file(file, include=("shop.*",), mode="plain")
    text = file.read_text()
    file.write_text(f"{text}\n[ddl]\n")
    with pytest.raises(BadPipelineFile, match="only MongoSink"):
        read(file)
    file.write_text(f"{text}\n[ddl]\napply = false\n")
    assert not read(file).ddl.apply


def value(kind: str, **more: Any) -> bytes:
    return bson.encode({"ddl": kind, "ns": "shop.a", **more, "topics": {"move.shop.a": 4}})


def test_a_schema_change_is_no_document_s_record_and_ends_the_documents_before_it() -> None:
    assert is_schema_change(KEY)
    assert not is_key(KEY)
    assert not is_schema_change(bson.encode({"_id": {"ddl": "x"}}))
    ending = {kind for kind in ("create", "rename", "drop", "replace", "collMod") if ends_documents(KEY, value(kind))}
    assert ending == {"rename", "drop", "replace"}
    assert not ends_documents(bson.encode({"_id": 1}), value("drop"))
    assert not ends_documents(KEY, None)
    assert not ends_documents(KEY, b"damaged")
    part, one = Part(), bson.encode({"_id": 1})
    part.take(0, 0, one, bson.encode({"$set": {"a": 1}}))
    part.take(1, 0, KEY, value("collMod"))
    assert part.oldest is not None
    part.take(2, 0, KEY, value("drop"))
    assert (part.oldest, part.safe) == (None, 3)


def test_people_read_a_schema_change() -> None:
    assert schema_change_in_short(value("drop"), canonical=False) == "drop shop.a"
    renamed = value("rename", to="shop.b", indexes=[{"name": "x"}])
    assert schema_change_in_short(renamed, canonical=False) == 'rename shop.a to shop.b {"indexes": [{"name": "x"}]}'
    assert schema_change_in_short(b"x", canonical=False) is None


def change(**more: Any) -> SchemaChange:
    document = {
        "_id": {"pipeline": "move", "id": "1700000000:1/1/shop.a"},
        "t": "1700000000:1",
        "change": {"ddl": "drop", "ns": "shop.a", "topics": {"move.shop.a": 4}},
        "namespace": "shop.a2",
        "state": "held",
        "reason": "it would delete 7 documents",
        "since": datetime(2023, 11, 14, tzinfo=UTC),
        "arrived": 4,
        "expected": 4,
    }
    return SchemaChange.of({**document, **more})


def test_what_is_held_says_what_releases_it_and_what_waits_for_it() -> None:
    held = Shown(change(), ("shop.a",))
    line = held.line("shop.toml")
    assert line.startswith("schema change held: drop shop.a; for ")
    assert "it would delete 7 documents; later changes of shop.a wait" in line
    command = f"towpath ddl shop.toml --{{}} {held.change.id}"
    assert line.endswith(f"run: {command.format('apply')}; or: {command.format('skip')}")
    of_replay = Shown(held.change, (), replay="b").commands("shop.toml")
    assert of_replay[0] == f"towpath ddl shop.toml --replay b --apply {held.change.id}"
    assert SchemaChanges((held,)).stuck == (held,)
    decided = Shown(change(decision="skip"), ("shop.a",))
    assert not decided.is_stuck
    assert "to skip, as was decided" in decided.line()
    index: Mapping[str, Any] = {"ddl": "createIndexes", "ns": "shop.a", "indexes": [{"name": "x_1"}]}
    built = Shown(change(state="running", reason="", change=index), (), (250, 1000))
    assert "running: build indexes on shop.a (x_1); 250 of 1,000 (25 %); for" in built.line()
    assert built.as_json("f")["total"] == 1000
    assert chosen([held, built], "shop.a2", LOGGED) == [held]
    assert chosen([built], "1700000000:1/1/shop.a", LOGGED) == [built]
    assert chosen([built], "shop.a", LOGGED) == []


def test_what_is_refused_after_all_is_shown_again() -> None:
    refused = Shown(change(state="refused", decision="apply"), ("shop.a",))
    assert refused.is_stuck
    assert "to apply, as was decided" in refused.line()
    assert refused.line().endswith("--skip 1700000000:1/1/shop.a")
    assert not Shown(change(state="refused", decision="skip"), ()).is_stuck
    assert not Shown(change(decision="apply"), ()).is_stuck  # a drop that is about to be made


def test_what_is_refused_stays_refused_while_it_is_tried_again() -> None:
    before = datetime(2023, 11, 14, tzinfo=UTC)
    retried = Shown(change(state="running", reason="exists (code 86)", refused=before), ("shop.a",), (1, 4))
    assert retried.is_stuck
    line = retried.line("shop.toml")
    assert line.startswith("schema change refused: drop shop.a; it is being tried again; 1 of 4 (25 %); for ")
    assert "exists (code 86); later changes of shop.a wait; run: towpath ddl shop.toml --apply 1700000000:1/1/" in line
    assert (retried.as_json("f")["state"], len(retried.as_json("f")["commands"])) == ("refused", 2)
    assert chosen([retried], "shop.a", LOGGED) == [retried]
    refused = Shown(change(state="refused", reason="exists (code 86)", refused=before), ("shop.a",))
    assert refused.is_stuck
    assert "tried again" not in refused.line()
    assert not Shown(change(state="done", refused=before), ()).is_stuck


def test_a_problem_that_lasts_is_to_be_resolved() -> None:
    def stuck(progress: tuple[int, int] | None = None, *, minutes: int = 6, **more: Any) -> bool:
        began = datetime.now(UTC) - timedelta(minutes=minutes)
        shown = Shown(change(**{"state": "running", "reason": "no quorum", "began": began, **more}), (), progress)
        assert bool(shown.as_json("f")["commands"]) is shown.is_stuck
        return shown.is_stuck

    assert stuck()
    assert stuck((0, 0))
    assert not stuck(minutes=4)
    assert not stuck(reason="")
    assert not stuck((3, 4)), "the build continues after the problem"
    assert not stuck(decision="skip")
    assert not stuck(began=None, state="waiting")


def test_a_change_that_waits_for_partitions_can_be_named_if_no_other_is_meant() -> None:
    held = Shown(change(), ("shop.a",))
    waiting = Shown(change(_id={"pipeline": "move", "id": "1700000001:1/1/shop.a"}, state="waiting"), ("shop.a",))
    assert chosen([held, waiting], "shop.a", LOGGED) == [held]
    assert chosen([waiting], "shop.a", LOGGED) == [waiting]
    assert chosen([waiting], "shop.b", LOGGED) == []
    unauthorised = Shown(change(state="running", reason="not authorized"), ("shop.a",))
    assert chosen([unauthorised], "shop.a", LOGGED) == [unauthorised]


def drop(namespace: str, destination: str, time: int = 1700000000) -> Shown:
    id = {"pipeline": "move", "id": f"{time}:1/0/{namespace}"}
    made = change(_id=id, t=f"{time}:1", change={"ddl": "drop", "ns": namespace}, namespace=destination)
    return Shown(made, (namespace,))


def test_the_source_s_name_of_a_collection_wins_over_the_destination_s() -> None:
    chain = LOGGED.changed(collections={"rename": {"shop.a": "shop.b", "shop.b": "shop.c"}})
    a, b = drop("shop.a", "shop.b"), drop("shop.b", "shop.c")
    assert chosen([a, b], "shop.b", chain) == [b]
    assert chosen([a], "shop.b", chain) == [], "the drop of shop.b was decided before"
    assert chosen([a, b], "shop.c", chain) == [b]
    assert chosen([a, b], "shop.a", chain) == [a]


def test_a_printed_command_is_about_the_change_that_it_was_printed_with() -> None:
    first, second = drop("shop.a", "shop.a"), drop("shop.a", "shop.a", 1700000009)
    name = first.commands("shop.toml")[0].split()[-1]
    assert chosen([first], name, LOGGED) == [first]
    assert chosen([second], name, LOGGED) == [], "the first was decided before"


def test_no_change_is_decided_where_a_name_means_several(monkeypatch: pytest.MonkeyPatch) -> None:
    several = SchemaChanges((drop("shop.a", "shop.a"), drop("shop.a", "shop.a", 1700000009)))
    cluster: Any = SimpleNamespace(connected=nullcontext)
    session: Any = SimpleNamespace(pipeline=LOGGED, destination=cluster, file="shop.toml")
    decided = list[list[str]]()
    monkeypatch.setattr(ddl.changes, "read", lambda *_: several)
    monkeypatch.setattr(ddl.schema_changes, "decide", lambda client, sink, ids, decision: decided.append(ids))
    with pytest.raises(Refused, match=r"2 schema changes can be meant by shop\.a; nothing was changed") as refused:
        ddl._logged(session, None, "shop.a", "apply")
    id = several.open[1].change.id
    assert f"towpath ddl shop.toml --apply {id} (drop shop.a)" in str(refused.value)
    assert not decided
    assert ddl._logged(session, None, id, "apply") == (several, [id])
    assert decided == [[id]]


def test_wait_waits_for_the_rows_of_a_renamed_collection() -> None:
    def words(refills: str) -> str:
        root = {"phase": "stream", "selection": "x", "start": "90:1", "copied": "89:1", "namespaces": "[]"}
        offsets = [
            {"partition": {"towpath": "shop"}, "offset": root},
            {"partition": {"towpath": "shop", "schema": True}, "offset": {"upto": "300:1", "refills": refills}},
            {"partition": {"server_id": "shop"}, "offset": {"sec": 300, "ord": 1}},
        ]
        return uncaptured("shop-source", source_state(offsets), ClusterTime(200, 1), "x")

    assert words('[{"namespace": "shop.b", "from": "100:1", "to": "101:1"}]') == ""
    assert "still reading shop.b, which was renamed or replaced at 100:1" in words(
        '[{"namespace": "shop.b", "from": "100:1"}]'
    )


def seen(*events: tuple[str, int, tuple[int, int] | None]) -> Lives:
    lives = Lives()
    for collection, identity, life in events:
        event: dict[str, Any] = {"ns": {"db": "d", "coll": collection}, "documentKey": {"_id": identity}}
        if life is None:
            lives.add({**event, "operationType": "delete"})
        else:
            lives.add({**event, "operationType": "insert", "fullDocument": mark(*life)})
    return lives


def test_the_order_of_lives_is_held_against_that_of_the_source() -> None:
    order = {"d.a": [1, 3], "d.b": [2, 1]}
    good = seen(("a", 1, (1, 1)), ("b", 1, (2, 2)), ("b", 1, (1, 1)), ("a", 1, None), ("a", 1, (3, 5)))
    assert good.faults(order) == []
    assert len(seen(("a", 1, (3, 1)), ("a", 1, (1, 2))).faults(order)) == 1
    assert len(seen(("b", 1, (1, 1)), ("b", 2, (2, 2))).faults(order)) == 1
    assert len(seen(("a", 1, (2, 1))).faults(order)) == 1
    assert len(seen(("a", 1, (1, 2)), ("a", 1, (1, 1))).faults(order)) == 1
    assert len(seen(("a", 1, (1, 2)), ("a", 1, None), ("a", 1, (1, 2))).faults(order)) == 1
