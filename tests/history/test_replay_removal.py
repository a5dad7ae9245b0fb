"""The removal of a replay that ends at any of its steps is completed by the next `remove --topics`."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checks.test_check_judgements import PIPELINE
from tests.support.memory_topics import MemoryTopics
from tests.support.sessions import FakeCluster, session_of
from towpath.checks.change import REPLAY_OF
from towpath.clients.mongo.client import Cluster
from towpath.history import replay
from towpath.history.plan import PLAN, Plan, find_all, find_interrupted, sink_of
from towpath.log.definitions import DESTINATION_SET
from towpath.store import credentials

NAME, LETTERS = "move-replay-a", "move-replay-a.dead-letters"
STEPS = ("stop", "forget_offsets", "delete", "forget", "delete topics", "unlink")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_the_next_removal_finds_what_an_interrupted_one_has_left(
    step: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = PIPELINE.changed(connect={"secrets": tmp_path})
    sink, topics = sink_of(pipeline, "a", "mongodb://c:1/"), MemoryTopics(**{LETTERS: 1})
    plan = Plan(only=(), forced=False, began=0.0, letters=0, log={})
    config = {REPLAY_OF: "move", PLAN: json.dumps(plan.as_json()), DESTINATION_SET: "c/c:1"}
    configs, did = {NAME: config}, list[str]()

    def does(name: str, act: Any = lambda *_: None) -> Any:
        def do(*arguments: Any, **_: Any) -> Any:
            if name == step and step not in did and not after:
                did.append(name)
                raise KeyboardInterrupt
            result = act(*arguments)
            is_first = name == step and step not in did
            did.append(name)
            if is_first:
                raise KeyboardInterrupt
            return result

        return do

    connect: Any = SimpleNamespace(
        names=lambda: list(configs),
        config=configs.get,
        forget_offsets=does("forget_offsets"),
        delete=does("delete", lambda name: configs.pop(name)),
    )
    monkeypatch.setattr(replay, "stop", does("stop"))
    monkeypatch.setattr(replay.positions, "forget", does("forget"))
    monkeypatch.setattr(topics, "delete", does("delete topics", lambda names: topics._topics.pop(*names)))
    monkeypatch.setattr(Cluster, "of_replay", lambda uri: FakeCluster("replay"))
    credentials.write(sink.secrets_file, credentials.replay_properties(sink, "c"))
    for name in ("move", "move-replay-c"):  # pipelines
        it = pipeline.changed(name=name)
        credentials.write(it.secrets_file, credentials.properties(it, "a", "b"))
    monkeypatch.setattr(Path, "unlink", does("unlink", lambda file: file.exists() and file.rename(tmp_path / "gone")))
    session = session_of(pipeline, connect, topics)

    def remove() -> int:
        found = find_all(connect, pipeline) + find_interrupted(connect, topics, pipeline)
        for one in found:
            replay.remove(one, session, keep_letters=False)
        return len(found)

    with suppress(KeyboardInterrupt):
        remove()
        pytest.fail("it was not interrupted")
    assert remove() == (0 if (step, after) == ("unlink", True) else 1)
    assert not configs and LETTERS not in topics.all() and "forget" in did
    assert sorted(file.name for file in tmp_path.iterdir()) == ["gone", "move-replay-c.properties", "move.properties"]


def test_the_replay_of_another_pipeline_is_no_leftover(tmp_path: Path) -> None:
    """One that is called as a replay of this one, in another Connect cluster."""
    pipeline = PIPELINE.changed(connect={"secrets": tmp_path})
    connect: Any = SimpleNamespace(config=lambda name: None)
    for name in ("move-replay", "move-replay-c"):
        sink = sink_of(pipeline.changed(name=name), "b", "mongodb://c:1/")
        credentials.write(sink.secrets_file, credentials.replay_properties(sink, "c"))
    assert find_interrupted(connect, MemoryTopics(), pipeline) == ()
    ours = sink_of(pipeline, "a", "mongodb://c:1/")
    credentials.write(ours.secrets_file, credentials.replay_properties(ours, "c"))
    assert [one.label for one in find_interrupted(connect, MemoryTopics(), pipeline)] == ["a"]
