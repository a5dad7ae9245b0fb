"""What a command of a cutover reads first: the marker, the source that it belongs to, and the reverse pipeline."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from tests.support.cutover_world import pipeline_of
from tests.support.pipeline import pipeline_text
from tests.support.sessions import FakeCluster, session_of
from towpath.clients.mongo.client import ANSWER_S
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.cutover import reverse_pipeline, sides
from towpath.cutover.reverse_pipeline import write_reverse_file
from towpath.cutover.sides import Sides
from towpath.errors import MongoUnreachable, Refused
from towpath.session import Session
from towpath.store import cutover as cutovers
from towpath.store.cutover import Cutover

SET = ReplicaSet.parse("rs0/source:27017")
SWITCHED = Cutover("destination primary", (), 1.0)
ALONE = Cutover("destination primary", (), 1.0, has_reverse_pipeline=False)


class Place:
    """A pipeline's folder, and what its destination knows."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.file = folder / "shop.toml"
        self.session = session_of(pipeline_of(folder), file=self.file)
        self.marker: Cutover | None = None
        self.registered = "rs0/source:27017"
        patch.setattr(sides.cutovers, "read", self._read)
        patch.setattr(sides.writers, "read_all", lambda client: {"shop": SimpleNamespace(source=self.registered)})
        patch.setattr(sides, "source_set", lambda client: SET)
        patch.setattr(reverse_pipeline, "opened", self._open)

    def _read(self, client: object, pipeline: Any) -> Cutover | None:
        assert client == "destination" and pipeline is self.session.pipeline
        return self.marker

    def _open(self, path: Path, text: str | None, say: object, clusters: tuple[Any, Any]) -> Any:
        assert path == self.file.with_name("shop-back.toml") and say is self.session.say
        assert clusters == (self.session.source, self.session.destination), "both sides' clients are used again"
        return nullcontext("as the file is" if text is None else "as it would be written")

    def read(self, *, forward: bool = True, undoes: bool = False, has_reverse: bool = True) -> Sides:
        with ExitStack() as stack:
            return sides.read_sides(
                self.session, stack, goes_forward=forward, undoes=undoes, has_reverse_pipeline=has_reverse
            )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    uris = (f"mongodb://{side}/?replicaSet=rs0" for side in ("source", "destination"))
    (tmp_path / "shop.toml").write_text(pipeline_text(*uris))
    return Place(tmp_path, monkeypatch)


AS_IS, TO_WRITE = "as the file is", "as it would be written"


@pytest.mark.parametrize(
    ("marker", "there", "given", "reverse"),
    [
        (None, False, {}, TO_WRITE),  # a first cutover
        (None, True, {}, TO_WRITE),  # and one whose file is there already, which is compared with what would be written
        (None, True, {"forward": False}, None),
        (None, True, {"has_reverse": False}, None),
        (SWITCHED, True, {}, AS_IS),
        (SWITCHED, False, {}, TO_WRITE),
        (SWITCHED, True, {"forward": False}, AS_IS),
        (SWITCHED, True, {"has_reverse": False}, AS_IS),  # the marker knows it better
        (ALONE, True, {}, None),
    ],
)
def test_the_reverse_pipeline_is_that_of_the_marker(
    place: Place, marker: Cutover | None, there: bool, given: dict[str, bool], reverse: str | None
) -> None:
    place.marker = marker
    if there:
        write_reverse_file(place.file)
    found = place.read(**given)
    assert (found.forward, found.reverse, found.marker) == (place.session, reverse, marker)


@pytest.mark.parametrize("foreign", ['name = "other"', "no TOML", ""], ids=["another pipeline", "not TOML", "empty"])
@pytest.mark.parametrize("undoes", [False, True])
def test_a_file_of_another_pipeline_does_not_say_what_an_undo_removes(place: Place, foreign: str, undoes: bool) -> None:
    place.marker = SWITCHED
    file = write_reverse_file(place.file)
    text = file.read_text().replace('name = "shop-back"', foreign) if foreign.startswith("name") else foreign
    file.write_text(text)
    assert place.read(forward=False, undoes=undoes).reverse == TO_WRITE
    assert file.read_text() == text


def test_a_file_that_was_edited_since_stays_that_of_the_reverse_pipeline(place: Place) -> None:
    place.marker = SWITCHED
    file = write_reverse_file(place.file)
    file.write_text(file.read_text() + "\n[run]\nverify = true\n")
    assert place.read(forward=False).reverse == AS_IS


def test_a_marker_of_a_pipeline_with_another_source_is_refused(place: Place) -> None:
    place.registered = "other/elsewhere:27017"
    assert place.read().marker is None, "without a cutover nothing is in the way"
    place.marker = SWITCHED
    with pytest.raises(Refused, match=r"another pipeline shop, from other/elsewhere:27017"):
        place.read()
    away = FakeCluster(error=MongoUnreachable("no answer"))
    place.session = Session(
        place.session.pipeline, away, place.session.destination, place.session.connect, place.session.topics,
        place.file, place.session.say,
    )  # fmt: skip
    assert place.read().marker is SWITCHED, "a source that is away cannot be asked"


@pytest.mark.parametrize("undoes", [False, True])
def test_nothing_is_undone_without_the_marker(place: Place, undoes: bool) -> None:
    place.session = session_of(
        place.session.pipeline, file=place.file, destination=FakeCluster(error=MongoUnreachable("no answer"))
    )
    with pytest.raises(MongoUnreachable, match=r"^nothing was undone: .*no answer" if undoes else "^no answer"):
        place.read(undoes=undoes)


class Bounds(FakeCluster):
    """How it was asked."""

    def __init__(self) -> None:
        super().__init__("destination", side="destination")
        self.asked: list[object] = []

    def connected(self, **bounds: float) -> Any:
        self.asked.append(bounds)
        return super().connected()

    def briefly(self, **_: float) -> Any:
        self.asked.append("briefly")
        return super().connected()


def test_a_marker_that_the_user_may_not_read_is_none_where_that_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unauthorised(*_: object) -> Cutover:
        raise OperationFailure("not authorized", 13)

    destination = Bounds()
    session = session_of(pipeline_of(tmp_path), destination=destination)
    monkeypatch.setattr(cutovers, "read", unauthorised)
    assert cutovers.known(session) is None and not cutovers.leads(session)
    cutovers.refuse_takeover(session)
    cutovers.refuse_removal(session, log=True)
    bounded = {"answer": ANSWER_S}
    assert destination.asked == [bounded, "briefly", bounded, bounded], "no command waits forever"
    for strict in (cutovers.refuse, cutovers.is_cut_over):
        with pytest.raises(OperationFailure):  # the sink must not start because that is unknown
            strict(session)
