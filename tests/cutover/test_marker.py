"""The marker of a cutover on a real server: of two commands, only the one whose token it has changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support import mongod
from tests.support.cutover_world import pipeline_of
from towpath.errors import Overtaken
from towpath.store import cutover as cutovers
from towpath.store.cutover import Cutover

pytestmark = pytest.mark.servers
Client = MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        mongod.start_replica_set(tmp_path_factory.mktemp("marker")) as running,
        MongoClient[dict[str, Any]](running.uri, tz_aware=True) as client,
    ):
        yield client


def test_only_who_has_the_token_changes_the_marker(client: Client, tmp_path: Path) -> None:
    shop, mine, other = pipeline_of(tmp_path), Cutover("cutting over", ("ready",), 1.0), ["of another"]
    assert cutovers.read(client, shop) is None
    cutovers.insert(client, shop, mine)
    cutovers.insert(client, shop, mine)  # the reply to the first was lost
    with pytest.raises(Overtaken):
        cutovers.insert(client, shop, Cutover("cutting over", (), 2.0))
    over = replace(mine, state="destination primary")
    with pytest.raises(Overtaken, match="another command has taken over"):
        cutovers.replace_own(client, shop, other, over)
    with pytest.raises(Overtaken):
        cutovers.delete_own(client, shop, other)
    with pytest.raises(Overtaken):
        cutovers.take(client, shop, other, "later")
    assert cutovers.read(client, shop) == mine

    cutovers.replace_own(client, shop, [mine.token], mine.begin("block"))
    taken = cutovers.take(client, shop, [*other, mine.token], "later")
    assert taken == replace(mine, steps=("ready", "block"), token="later")
    with pytest.raises(Overtaken):
        cutovers.redirected(client, shop, [mine.token], "done")
    cutovers.redirected(client, shop, ["later"], "begun")
    taken = replace(taken, redirect="begun")
    assert cutovers.read(client, shop) == taken
    with pytest.raises(Overtaken):  # it arrives late
        cutovers.replace_own(client, shop, [mine.token], over)
    assert cutovers.read(client, shop) == taken

    cutovers.delete_own(client, shop, ["later"])
    assert cutovers.read(client, shop) is None
    cutovers.delete_own(client, shop, ["later"])  # the reply to the first was lost
    with pytest.raises(Overtaken):
        cutovers.replace_own(client, shop, ["later"], taken)
    with pytest.raises(Overtaken):
        cutovers.take(client, shop, ["later"], "again")
    assert cutovers.read(client, shop) is None
