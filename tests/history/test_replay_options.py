"""The destination of a replay is not shown to others, and a moment means one thing."""

import json
from dataclasses import replace

import pytest

from towpath.checks.change import is_written
from towpath.checks.rule import Rule, require
from towpath.cli import control
from towpath.cli.replay import destination
from towpath.clients.kafka.topics import Topic
from towpath.clients.mongo.client import ClusterTime
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config.loading import read, write_pipeline_file
from towpath.errors import Refused, TowpathError
from towpath.history import preconditions
from towpath.history.plan import END_OF_SECOND, Options, Plan, Replay, definition, point_in_time
from towpath.history.preconditions import ReplayFacts
from towpath.session import opened


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1795283962:7", ClusterTime(1795283962, 7)),
        ("2026-11-21T18:00:00Z", ClusterTime(1795284000, END_OF_SECOND)),
        ("2026-11-21T19:00:00+01:00", ClusterTime(1795284000, END_OF_SECOND)),
        ("2026-11-21 18:00:00", ClusterTime(1795284000, END_OF_SECOND)),
    ],
)
def test_a_moment(text, expected):
    assert point_in_time(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-11-21",
        "2026-11-21T18:00",
        "2026-11-21T18:00:00.5Z",
        "1795283962:",
        "1:-1",
        "9" * 20 + ":1",
    ],
)
def test_no_moment(text):
    with pytest.raises(TowpathError, match="ISO 8601 to the second"):
        point_in_time(text)


def test_a_password_is_refused_on_the_command_line_and_read_from_a_private_file_or_the_environment(
    tmp_path, monkeypatch
):
    uri, file = "mongodb://me:secret@db:27017/?replicaSet=rs0", tmp_path / "uri"
    with pytest.raises(TowpathError, match="in the process list") as told:
        destination(uri, None, None)
    assert "secret" not in str(told.value)
    assert destination("mongodb://me@db:27017/", None, None) == "mongodb://me@db:27017/"
    file.write_text(f"{uri}\n")
    file.chmod(0o644)
    with pytest.raises(TowpathError, match="chmod 600"):
        destination(None, file, None)
    file.chmod(0o600)
    assert destination(None, file, None) == uri
    monkeypatch.setenv("ELSEWHERE", uri)
    assert destination(None, None, "ELSEWHERE") == uri
    with pytest.raises(TowpathError, match="is not set"):
        destination(None, None, "NOWHERE")
    with pytest.raises(TowpathError, match="mongodb://"):
        destination("http://db", None, None)


def test_a_plan_is_read_as_it_was_written():
    log = {("shop.shop.orders", 1): (3, 9), ("shop.shop.orders", 0): (0, 0)}
    plan = Plan(only=("shop.*",), until=ClusterTime(5, 6), follow=False, forced=True, began=1.5, letters=2, log=log)
    assert Plan.from_json(plan.as_json()) == plan
    assert plan.matches(Options(("shop.*",), False, 1, until=ClusterTime(5, 6)))
    assert not plan.matches(Options((), False, 1, until=ClusterTime(5, 6)))
    assert plan.words == "--only shop.* --until 5:6"


def test_a_replay_makes_no_schema_changes_behind_its_ends_unless_it_follows(tmp_path):
    pipeline = read(write_pipeline_file(tmp_path / "shop.toml", include=["shop.*"]))
    log = {("shop.shop.b", 1): (3, 9), ("shop.shop.b", 0): (0, 4), ("shop.shop.a", 0): (0, 0)}
    plan = Plan(only=(), until=None, follow=False, forced=False, began=1.5, letters=0, log=log)
    once = definition(Replay(pipeline, "other", ReplicaSet("rs", ("c:1",)), "mongodb://c:1/", plan))
    assert json.loads(once["towpath.ddl.ends"]) == {"shop.shop.a": [0], "shop.shop.b": [4, 9]}
    following = Replay(pipeline, "other", ReplicaSet("rs", ("c:1",)), "mongodb://c:1/", replace(plan, follow=True))
    assert "towpath.ddl.ends" not in definition(following)


@pytest.mark.parametrize(("forced", "copy"), [(True, "none"), (False, None)])
def test_a_replay_that_is_forced_expects_updates_without_their_document(tmp_path, forced, copy):
    pipeline = read(write_pipeline_file(tmp_path / "shop.toml", include=["shop.*"]))
    plan = Plan(only=(), until=None, follow=True, forced=forced, began=1.5, letters=0, log={})
    replayed = definition(Replay(pipeline, "other", ReplicaSet("rs", ("c:1",)), "mongodb://c:1/", plan))
    assert replayed.get("towpath.copy") == copy


TOPICS = ("shop.shop.orders", "shop.shop.parcels", "shop.requests", "x.shop.a")


def errors(check, path, *only, topics=TOPICS, force=False, **settings):
    """The messages of a precondition, for a rebuild with these options, settings of the file and existing topics."""
    path.mkdir()
    with opened(write_pipeline_file(path / "shop.toml", include=["shop.*"], **settings)) as session:
        inventory = ReplayFacts(session, Options(only, force, 1))
        inventory.deployed.existing = {name: Topic(name, 1) for name in topics}
        return [finding.finding + finding.advice for finding in check(inventory) if finding.level == "error"]


def test_what_has_no_log_to_replay_is_refused(tmp_path):
    assert errors(preconditions.selected, tmp_path / "a", "shop.o*") == []
    (error,) = errors(preconditions.selected, tmp_path / "b", "shop.orders", "other.orders")
    assert "no such namespace" in error and "there are: shop.orders, shop.parcels" in error
    (error,) = errors(preconditions.selected, tmp_path / "c", topics=["shop.requests"])
    assert "no log to replay" in error
    (error,) = errors(preconditions.exactly_once, tmp_path / "d", mode="plain")
    assert 'mode = "plain"' in error


def test_both_names_of_a_rename_are_rebuilt_together(tmp_path):
    def lacking(*only):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        with opened(write_pipeline_file(folder / "shop.toml", include=["shop.*"])) as session:
            inventory = ReplayFacts(session, Options(only, False, 1))
            inventory.log = {(f"shop.shop.{name}", 0): (0, 1) for name in "abcd" if f"shop.{name}" in only or not only}
            inventory.target.ask = lambda query: (("shop.a", "shop.b"), ("shop.b", "shop.c"), ("shop.d", "other.d"))
            return [finding.advice for finding in preconditions.renamed(inventory)]

    assert lacking("shop.a") == ["add --only shop.b --only shop.c, or rebuild everything"]
    assert lacking("shop.a", "shop.c") == ["add --only shop.b, or rebuild everything"]
    assert lacking("shop.a", "shop.b", "shop.c") == []
    assert lacking("shop.d") == []
    assert lacking() == []


def test_a_log_without_a_copy_is_replayed_by_force_only(tmp_path):
    pipeline = read(write_pipeline_file(tmp_path / "shop.toml", include=["shop.*"]))
    with opened(tmp_path / "shop.toml") as session:
        session = replace(session, pipeline=pipeline.changed(capture={"copy_method": "none"}))
        for force in (False, True):
            inventory = ReplayFacts(session, Options((), force, 1))
            assert len(list(preconditions.copied(inventory))) == (not force)


def test_all_violations_are_reported_together(tmp_path):
    with opened(write_pipeline_file(tmp_path / "shop.toml", include=["shop.*"], mode="plain")) as session:
        inventory = ReplayFacts(session, Options(("a.b",), False, 1))
        inventory.deployed.existing = {"shop.shop.orders": Topic("shop.shop.orders", 1)}
        with pytest.raises(Refused, match=r"(?s)plain.*\n--only a\.b"):
            require([*preconditions.OF_COMMAND, Rule("replay", preconditions.selected)], inventory)


@pytest.mark.parametrize("label", ["", "a.b", "-a", "a" * 33, "../other"])
def test_a_label_is_refused(tmp_path, label):
    """Also of a replay to remove, whose file of secrets is named after it."""
    with opened(write_pipeline_file(tmp_path / "shop.toml", include=["shop.*"])) as session:
        if label:
            options = Options((), False, 1, "mongodb://127.0.0.1:1", label)
            with pytest.raises(Refused, match="cannot be the label of a replay"):
                require([Rule("replay", preconditions.valid_label)], ReplayFacts(session, options))
        with pytest.raises(Refused, match="cannot be the label of a replay"):
            control._remove_replay(session, label, dry_run=False)


@pytest.mark.parametrize(
    ("config", "target", "expected"),
    [
        ({"topics.regex": r"^p\.shop\..*$"}, "shop.orders", True),
        ({"topics.regex": r"^p\.shop\..*$"}, "other.orders", False),
        ({"topics": "p.shop.orders,p.shop.parcels"}, "shop.parcels", True),
        ({"topics": "p.shop.orders"}, "shop.parcels", False),
        ({"topics.regex": r"^p\.shop\..*$", "towpath.rename": '{"shop.orders": "old.orders"}'}, "old.orders", True),
        ({"topics.regex": r"^p\.shop\..*$", "towpath.rename": '{"shop.orders": "old.orders"}'}, "shop.orders", False),
    ],
)
def test_which_namespaces_a_sink_writes(config, target, expected):
    assert is_written({"towpath.rename": "{}"} | config, "p", target) == expected
