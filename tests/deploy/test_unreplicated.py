"""What is told of drops, renames, options and indexes at the source, and what resolves it."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import platformdirs
import pytest

from towpath.clients.mongo.client import ClusterTime
from towpath.config.events import as_line
from towpath.config.namespaces import Selection
from towpath.deploy import unreplicated
from towpath.deploy.unreplicated import Sides, compare
from towpath.errors import TowpathError
from towpath.log.source_offsets import Ddl, in_order, source_state
from towpath.store import verdict_file
from towpath_verifier import Pair
from towpath_verifier.metadata import MetadataDifference
from towpath_verifier.repair_commands import Command

PIPELINE = SimpleNamespace(name="shop", selection=Selection(("shop.*",)), ddl=SimpleNamespace(apply=False))
FILE = Path("my shop.toml")
TIME = ClusterTime(1_700_000_000, 3)
EVENTS = [
    {"t": "1700000000:3", "kind": "drop", "namespace": "shop.a", "to": ""},
    {"t": "1700000001:1", "kind": "rename", "namespace": "shop.b", "to": "shop.c"},
]
OFFSET = {"upto": "1700000002:9", "events": json.dumps(EVENTS), "dropped": 0, "error": ""}


def of(kind, namespace="shop.a", to=""):
    return Ddl(TIME, kind, namespace, to)


def told(one, source=(), destination=None, metadata=(), changing=()):
    return compare(PIPELINE, FILE, one, Sides(frozenset(source), destination or {}, metadata, frozenset(changing)))


def test_a_connector_s_offset_says_what_was_done():
    root = {"phase": "stream", "selection": "x", "start": "1:1", "copied": "1:1", "namespaces": "[]"}
    offsets = [
        {"partition": {"towpath": "shop"}, "offset": root},
        {"partition": {"ddl": True, "towpath": "shop"}, "offset": OFFSET},
    ]
    found = source_state(offsets).ddl
    assert found.events == (of("drop"), Ddl(ClusterTime(1_700_000_001, 1), "rename", "shop.b", "shop.c"))
    assert in_order([found, found]) == found.events
    assert source_state(offsets[:1]).ddl is None


def test_a_drop_is_told_while_the_destination_has_documents():
    found = told(of("drop"), destination={"shop.a": 1_000})
    event, left = found.words.split("; ")
    assert event == "shop.a was dropped at 2023-11-14 22:13:20 UTC"
    assert left == "the destination still has 1,000 documents, which `repair` deletes"
    assert found.commands == ("towpath verify 'my shop.toml' -n shop.a", "towpath repair 'my shop.toml'")
    assert told(of("drop"), destination={"shop.a": 0}) is None
    assert told(of("drop"), source=["shop.a"]) is None


def test_a_collection_that_is_there_again_may_hold_documents_of_its_former_life():
    assert "from before the drop" in told(of("drop"), source=["shop.a"], destination={"shop.a": 1}).words


def test_a_rename_is_told_until_it_is_verified_and_the_new_name_has_a_topic_first():
    found = told(of("rename", to="shop.b"))
    assert [command.split()[1] for command in found.commands] == ["deploy", "verify", "repair"]
    assert found.commands[1].endswith("-n shop.a -n shop.b")
    gone = told(of("rename", to="other.b"), destination={"shop.a": 2})
    assert [command.split()[1] for command in gone.commands] == ["verify", "repair"]
    assert told(of("rename", to="other.b")) is None, "neither side has it any more"


def test_options_and_indexes_are_told_with_the_command_that_repairs_them():
    commands = (Command("shop", {"x": 1}), Command("shop", {"y": 1}))
    differs = MetadataDifference(Pair("shop.a", "shop.a"), "index", "x", "the index x is missing", {}, None, commands)
    found = told(of("createIndexes"), metadata=[differs])
    assert found.line.endswith(
        "; at the destination, the index x is missing; run at the destination: "
        + "; ".join(one.text for one in commands)
    )
    assert told(of("createIndexes", "shop.b"), metadata=[differs]) is None
    assert told(of("createIndexes"), metadata=[differs], changing=["shop.a"]) is None


def test_history_that_was_lost_takes_everything():
    found = told(Ddl(TIME, "unseen", "", ""))
    assert [command.split()[1] for command in found.commands] == ["verify", "repair"]
    assert "-n" not in found.commands[0]


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(platformdirs, "user_state_path", lambda _: tmp_path)
    return tmp_path


def verdict(*differing, only=(), done=(), **more):
    """Leave a verdict."""
    fields = {"destination_namespace": "x", "id": 0, "id_bson": "00", "kind": "extra", "paths": []}
    lines = [{"event": "difference", "namespace": name, **fields} for name in differing]
    counts = {"clean": not differing, "ddl": list(done), "only": list(only), "errors": [], **more}
    verdict_file.path("shop").write_text("".join(as_line(line) for line in [*lines, counts]))


RENAME = Ddl(TIME, "rename", "shop.a", "shop.b")


@pytest.mark.parametrize(
    ("differing", "only", "done", "resolves"),
    [
        ([], [], [RENAME.mark], True),
        (["shop.c"], [], [RENAME.mark], True),
        (["shop.b"], [], [RENAME.mark], False),
        ([], ["shop.a", "shop.b"], [RENAME.mark], True),
        ([], ["shop.a"], [RENAME.mark], False),
        ([], [], [], False),
    ],
)
def test_a_verdict_resolves_what_was_behind_the_pipeline_when_it_began(state, differing, only, done, resolves):
    verdict(*differing, only=only, done=done)
    assert unreplicated.resolved_by_verdict(PIPELINE, [RENAME]) == ({RENAME.mark} if resolves else set())


def test_a_verdict_with_errors_or_none_resolves_nothing(state):
    assert not unreplicated.resolved_by_verdict(PIPELINE, [RENAME])
    verdict(done=[RENAME.mark], errors=["shop.a could not be read"])
    assert not unreplicated.resolved_by_verdict(PIPELINE, [RENAME])


def test_what_is_resolved_is_remembered(state):
    assert unreplicated.resolved("shop") == set()
    unreplicated.resolve("shop", [RENAME.mark])
    assert unreplicated.resolved("shop") == {"1700000000:3 rename shop.a shop.b"}
    (state / "shop" / "ddl.json").write_text("{")
    with pytest.raises(TowpathError, match=r"ddl\.json"):
        unreplicated.resolved("shop")


@pytest.mark.parametrize("leads", [True, False])
def test_nothing_at_the_old_source_is_told_while_the_destination_is_primary(monkeypatch, leads):
    """What a cutover relaxes there would otherwise be offered for the primary, which would lose its TTL."""
    asked = []
    monkeypatch.setattr(unreplicated, "resolved", lambda name: set())
    monkeypatch.setattr(unreplicated, "resolved_by_verdict", lambda pipeline, known: set())
    monkeypatch.setattr(unreplicated, "_passed", lambda session, candidates: asked.append(candidates) or ())
    monkeypatch.setattr(
        unreplicated, "_sides", lambda session, candidates: Sides(frozenset(["shop.a"]), {}, (), frozenset())
    )
    monkeypatch.setattr(unreplicated.cutover, "leads", lambda session: leads)
    session = SimpleNamespace(pipeline=PIPELINE, file=FILE)
    assert unreplicated.unresolved(session, [of("collMod")], remember=False) == ()
    assert bool(asked) is not leads


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), {"shop.away"}),
        ((of("drop", "shop.a"),), {"shop.away", "shop.a"}),
        ((of("rename", "shop.b", "shop.a"),), {"shop.away", "shop.b", "shop.a"}),
        ((of("drop", "shop.other"), of("createIndexes", "shop.a"), of("unseen", "")), {"shop.away"}),
    ],
)
def test_documents_that_only_the_destination_may_have_are_known(monkeypatch, events, expected):
    """Those of a namespace that the source does not have, or that an unresolved drop or rename is about."""
    names = {"shop": ["a", "b"], "more": []}
    client = {
        database: SimpleNamespace(list_collection_names=lambda found=found: found) for database, found in names.items()
    }
    session = SimpleNamespace(source=SimpleNamespace(briefly=lambda: nullcontext(client)), pipeline=PIPELINE)
    monkeypatch.setattr(unreplicated, "observed", lambda session: events)
    monkeypatch.setattr(unreplicated, "unresolved", lambda session, changes, *, remember: () if remember else changes)
    assert unreplicated.gone(session, ["shop.a", "shop.b", "shop.away"]) == expected
    assert unreplicated.gone(session, ["more.c"]) == {"more.c"}
    assert unreplicated.gone(session, []) == set()


ENDED = [of("drop", "shop.other"), of("drop", "shop.b")]


@pytest.mark.parametrize(
    ("names", "events", "expected"),
    [
        (["shop.a", "shop.b"], ENDED[:1], set()),
        (["shop.a", "shop.b"], ENDED, {"shop.b"}),
        (["shop.away"], (), {"shop.away"}),
    ],
)
def test_a_destination_that_does_not_answer_keeps_no_other_collection_from_a_re_read(
    monkeypatch, names, events, expected
):
    """Else compaction would stop, and the cleaner would remove what the sink has still to apply."""

    def is_away(*_, **__):
        raise TowpathError("the destination does not answer")

    client = {"shop": SimpleNamespace(list_collection_names=lambda: ["a", "b"])}
    session = SimpleNamespace(source=SimpleNamespace(briefly=lambda: nullcontext(client)), pipeline=PIPELINE)
    session.destination = SimpleNamespace(briefly=is_away)
    monkeypatch.setattr(unreplicated, "observed", lambda session: events)
    monkeypatch.setattr(unreplicated, "resolved", lambda name: set())
    monkeypatch.setattr(unreplicated.cutover, "leads", is_away)
    assert unreplicated.gone(session, names) == expected


@pytest.mark.parametrize(
    ("seen", "passed", "left", "expected"),
    [
        (True, True, None, set()),
        (True, True, {"_id": 1}, {"shop.away"}),
        (True, False, None, {"shop.away"}),
        (False, True, None, {"shop.away"}),
    ],
)
def test_a_collection_that_neither_side_has_any_more_may_be_re_read(monkeypatch, seen, passed, left, expected):
    """A record of it closes its last segment, so that the cleaner can remove what was deleted. The sink must be past
    the drop: what it has still to apply may be the only copy."""
    drop = of("drop", "shop.away")
    found = SimpleNamespace(list_collection_names=list)
    there = {"moved": {"away": SimpleNamespace(find_one=lambda *_: left)}}
    pipeline = SimpleNamespace(
        name="shop", renamed=lambda name: name.replace("shop.", "moved."), ddl=SimpleNamespace(apply=False)
    )
    session = SimpleNamespace(
        source=SimpleNamespace(briefly=lambda: nullcontext({"shop": found})),
        destination=SimpleNamespace(briefly=lambda: nullcontext(there)),
        pipeline=pipeline,
    )
    monkeypatch.setattr(unreplicated, "observed", lambda session: (drop,) if seen else ())
    monkeypatch.setattr(unreplicated, "unresolved", lambda *_, **__: ())
    monkeypatch.setattr(unreplicated, "_passed", lambda session, changes: tuple(c.mark for c in changes if passed))
    assert unreplicated.gone(session, ["shop.away"]) == expected


@pytest.mark.parametrize(("open_now", "left", "expected"), [((), None, set()), (("shop.away",), None, {"shop.away"})])
def test_with_ddl_the_destination_says_whether_the_drop_is_still_to_be_made(monkeypatch, open_now, left, expected):
    """The source connector then notes no drop: it is in the log."""
    there = {"shop": {"away": SimpleNamespace(find_one=lambda *_: left)}}
    session = SimpleNamespace(
        source=SimpleNamespace(briefly=lambda: nullcontext({"shop": SimpleNamespace(list_collection_names=list)})),
        destination=SimpleNamespace(briefly=lambda: nullcontext(there)),
        pipeline=SimpleNamespace(name="shop", renamed=lambda name: name, ddl=SimpleNamespace(apply=True)),
    )
    monkeypatch.setattr(unreplicated, "observed", lambda session: ())
    monkeypatch.setattr(unreplicated, "unresolved", lambda *_, **__: ())
    changes = [SimpleNamespace(namespace=name) for name in open_now]
    monkeypatch.setattr(unreplicated, "open_changes", lambda client, pipeline: changes)
    assert unreplicated.gone(session, ["shop.away"]) == expected
    there["shop"]["away"] = SimpleNamespace(find_one=lambda *_: {"_id": 1})
    assert unreplicated.gone(session, ["shop.away"]) == {"shop.away"}
