"""The destination of a replay is not shown to others, and a moment means one thing."""

from dataclasses import replace

import pytest

from towpath.cli.init import write_pipeline_file
from towpath.cli.replay import Given, destination, moment
from towpath.config.loading import read
from towpath.deploy.other_pipelines import is_written
from towpath.errors import Refused, TowpathError
from towpath.kafka.topics import Topic
from towpath.pipeline import ClusterTime
from towpath.replay import preconditions as refuse
from towpath.replay.plan import END_OF_SECOND, Plan, refuse_label


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
    assert moment(text) == expected


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
        moment(text)


def test_a_password_is_refused_on_the_command_line_and_read_from_a_private_file_or_the_environment(
    tmp_path, monkeypatch
):
    uri, file = "mongodb://me:secret@db:27017/?replicaSet=rs0", tmp_path / "uri"
    with pytest.raises(TowpathError, match="in the process list") as told:
        destination(Given(uri, None, None))
    assert "secret" not in str(told.value)
    assert destination(Given("mongodb://me@db:27017/", None, None)) == "mongodb://me@db:27017/"
    file.write_text(f"{uri}\n")
    file.chmod(0o644)
    with pytest.raises(TowpathError, match="chmod 600"):
        destination(Given(None, file, None))
    file.chmod(0o600)
    assert destination(Given(None, file, None)) == uri
    monkeypatch.setenv("ELSEWHERE", uri)
    assert destination(Given(None, None, "ELSEWHERE")) == uri
    with pytest.raises(TowpathError, match="is not set"):
        destination(Given(None, None, "NOWHERE"))
    with pytest.raises(TowpathError, match="mongodb://"):
        destination(Given("http://db", None, None))


def test_a_plan_is_read_as_it_was_written():
    log = {("shop.shop.orders", 1): (3, 9), ("shop.shop.orders", 0): (0, 0)}
    plan = Plan(("shop.*",), ClusterTime(5, 6), False, True, 1.5, 2, log)
    assert Plan.of(plan.as_json()) == plan
    assert plan.is_asked(["shop.*"], ClusterTime(5, 6), follow=False)
    assert not plan.is_asked([], ClusterTime(5, 6), follow=False)
    assert plan.words == "--only shop.* --until 5:6"


def test_what_has_no_log_to_replay_is_refused(tmp_path):
    pipeline = read(write_pipeline_file(tmp_path / "shop.toml", include=["shop.*"]))
    topics = {name: Topic(name, 1) for name in ("shop.shop.orders", "shop.shop.parcels", "shop.requests", "x.shop.a")}
    assert [topic.name for topic in refuse.selected(pipeline, ["shop.o*"], topics)] == ["shop.shop.orders"]
    with pytest.raises(Refused, match=r"no such namespace .* there are: shop\.orders, shop\.parcels"):
        refuse.selected(pipeline, ["shop.orders", "other.orders"], topics)
    with pytest.raises(Refused, match="no log to replay"):
        refuse.selected(pipeline, [], {"shop.requests": topics["shop.requests"]})
    plain = read(write_pipeline_file(tmp_path / "plain.toml", include=["shop.*"], mode="plain"))
    with pytest.raises(Refused, match='mode = "plain"'):
        refuse.refuse_plain(plain)
    with pytest.raises(Refused, match='copy = "none"'):
        refuse.refuse_uncopied(replace(pipeline, copy=replace(pipeline.copy, method="none")), force=False)
    for label in ("sink", "a.b", "-a", "a" * 33, ""):
        with pytest.raises(Refused, match="label"):
            refuse_label(label)


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
