"""What other commands do to a pipeline during a cutover, and after it, without servers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import click
import pytest

from tests.support.cutover_world import pipeline_of
from tests.support.sessions import session_of
from towpath.checks.facts import OwnTopics
from towpath.cli import control
from towpath.errors import Refused
from towpath.store import cutover as cutovers
from towpath.store import positions
from towpath.store.cutover import Cutover, State

#: The states in which only the marker says what is left to do.
OPEN: tuple[State, ...] = tuple(state for state in get_args(State) if state != "destination primary")


class Place:
    """A pipeline, and the marker at its destination."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.marker: Cutover | None = None
        self.removed = False
        self.on_question: Callable[[], object] = lambda: None
        self.session = session_of(pipeline_of(folder), topics=SimpleNamespace(brokers=lambda: [1]))
        patch.setattr(cutovers, "read", lambda client, pipeline: self.marker)
        patch.setattr(control, "opened", lambda file: nullcontext(self.session))
        patch.setattr(control, "Facts", lambda session: self._facts())
        patch.setattr(control.target, "gather", lambda *_, **__: None)
        patch.setattr(control, "require", lambda rules, facts: [])
        patch.setattr(control, "find_all", lambda *_: ())
        patch.setattr(control.deployment, "remove", self._remove)
        patch.setattr(click, "confirm", lambda *_, **__: self.on_question())

    def _facts(self) -> Any:
        topics = OwnTopics({"shop.shop.orders": "1"})
        return SimpleNamespace(session=self.session, pipeline=self.session.pipeline, own_topics=topics)

    def _remove(self, *_: Any, **__: Any) -> None:
        self.removed = True

    def does(self, command: click.Command, *options: str) -> None:
        command.main(["shop.toml", *options], standalone_mode=False)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


@pytest.mark.parametrize("options", [(), ("--topics",), ("--topics", "--yes"), ("--dry-run",)], ids=" ".join)
@pytest.mark.parametrize("state", OPEN)
def test_a_pipeline_is_not_removed_before_its_cutover_is_complete_or_undone(
    place: Place, state: State, options: tuple[str, ...]
) -> None:
    """Its marker is the only record of what was stopped and changed."""
    place.marker = Cutover(state, (), 0.0)
    with pytest.raises(Refused, match=r"`towpath (cutover|takeover) --(undo|back)`"):
        place.does(control.remove, *options)
    assert not place.removed


def test_a_cutover_that_begins_while_the_removal_asks_ends_the_removal(place: Place) -> None:
    place.on_question = lambda: setattr(place, "marker", Cutover("cutting over", (), 0.0))
    with pytest.raises(Refused, match="a cutover of shop is under way"):
        place.does(control.remove, "--topics")
    assert not place.removed


@pytest.mark.parametrize("marker", [None, Cutover("destination primary", (), 0.0)])
def test_a_pipeline_is_removed_without_a_cutover_or_after_it(place: Place, marker: Cutover | None) -> None:
    place.marker = marker
    place.does(control.remove, "--topics")
    assert place.removed


@pytest.mark.parametrize("state", get_args(State))
def test_only_the_marker_of_a_cutover_that_is_complete_is_forgotten(
    place: Place, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a cutover begins while a removal is under way."""
    kept = {positions.CUTOVERS: [{"_id": "shop", "state": state}]}

    def collection_of(client: object, name: str) -> Any:
        documents = kept.setdefault(name, [])

        def delete(wanted: dict[str, Any]) -> Any:
            documents[:] = [one for one in documents if not wanted.items() <= one.items()]
            return SimpleNamespace(deleted_count=0)

        return SimpleNamespace(delete_one=delete, delete_many=lambda wanted: SimpleNamespace(deleted_count=0))

    monkeypatch.setattr(positions, "collection_of", collection_of)
    positions.forget(place.session.destination.client(), place.session.pipeline)
    assert bool(kept[positions.CUTOVERS]) is (state in OPEN)
