"""What the pause of a cutover takes of the users, seen before it on servers with access control."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support import mongod
from tests.support.pipeline import pipeline_text
from towpath.checks.rule import Finding, Rule, run
from towpath.cutover import gate
from towpath.cutover.gate import Readiness, Result, _line
from towpath.cutover.reverse_pipeline import opened_reverse, reverse_file_text
from towpath.cutover.steps import CutoverOptions
from towpath.session import opened

pytestmark = pytest.mark.servers

#: User -> its roles. `sides` may write and nothing more; `one` may only read one database; `writer` is what
#: docs/reference/roles.md gives a destination's user before the reverse pipeline.
USERS: dict[str, list[Any]] = {
    "sides": ["readWriteAnyDatabase"],
    "sink": ["readWriteAnyDatabase", "dbAdminAnyDatabase", "bypass"],
    "one": [{"role": "read", "db": "shop"}],
    "writer": ["towpathWriter", {"role": "dbAdmin", "db": "copied"}],
}

WRITES = ["find", "insert", "update", "remove"]
WRITER = [
    {"resource": {"db": "towpath", "collection": ""}, "actions": WRITES},
    {
        "resource": {"db": "copied", "collection": ""},
        "actions": [*WRITES, "listCollections", "listIndexes", "collStats"],
    },
]
RENAME = '[collections.rename]\n"shop.orders" = "copied.orders"\n'


@pytest.fixture(scope="module")
def uris(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """User -> URI, of one replica set that is source and destination. What is copied misses a validator."""
    root = mongod.Root("root", "secret")
    bypass = [{"resource": {"cluster": True}, "actions": ["bypassWriteBlockingMode"]}]
    with (
        mongod.start_replica_set(tmp_path_factory.mktemp("guarded"), root=root) as running,
        MongoClient[dict[str, Any]](running.uri) as client,
    ):
        client.admin.command("createRole", "bypass", privileges=bypass, roles=[])
        client.admin.command("createRole", "towpathWriter", privileges=WRITER, roles=[])
        for name, roles in USERS.items():
            client.admin.command("createUser", name, pwd="secret", roles=roles)
        client.shop.create_collection("orders", validator={"a": {"$gt": 0}})
        client.copied.create_collection("orders")
        client.towpath.create_collection("writers")
        yield {name: running.uri.replace("root:", f"{name}:") for name in ("root", *USERS)}


def look(
    folder: Path, rule: Callable[[Readiness], Result], source: str, destination: str, *, returns: bool = False
) -> Finding:
    options = CutoverOptions(max_age=10, newest=1, blocks=True, timeout=10)
    with opened(folder / "shop.toml", pipeline_text(source, destination, more=RENAME)) as session:
        (line,) = run([_line("a rule", rule)], Readiness(session, None, options, returns=returns, answers=False))
        return line


@pytest.mark.parametrize("returns", [False, True])
def test_a_user_whose_own_writes_would_be_refused_is_named(uris: dict[str, str], tmp_path: Path, returns: bool) -> None:
    """One replica set is both sides, so that its source's block is one of the destination as well."""
    check = look(tmp_path, gate.own_writes, uris["sink"], uris["sides"], returns=returns)
    assert check.level == "error" and "sides@admin misses bypassWriteBlockingMode" in check.finding
    assert "writes to the source" not in check.finding and "--stop-with" in check.advice
    assert look(tmp_path, gate.own_writes, uris["sink"], uris["sink"], returns=returns).level == "ok"


def test_a_user_who_may_not_change_forms_is_named(uris: dict[str, str], tmp_path: Path) -> None:
    check = look(tmp_path, gate.schemas, uris["sink"], uris["sides"])
    assert (check.level, check.finding) == ("error", "sides@admin misses collMod on copied.orders at the destination")
    assert look(tmp_path, gate.schemas, uris["sink"], uris["sink"]).level == "ok"


def test_a_user_who_lacks_the_privileges_of_the_reverse_pipeline_is_told_which(
    uris: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(pipeline_text(uris["sink"], uris["writer"], more=RENAME), encoding="utf-8")
    file.chmod(0o600)
    with opened(file) as session, opened_reverse(session, reverse_file_text(file)) as reverse:
        readiness = Readiness(session, reverse, CutoverOptions(), answers=False)
        readiness.__dict__["status"] = "not read"
        lines = run([_line("schemas", gate.schemas), Rule("pause", gate._pause)], readiness)
    for line in lines:
        assert line.level == "error" and "not authorized" not in line.finding
        assert "at the destination, the user writer@admin may not find, changeStream, listCollections" in line.finding
        assert 'grantRolesToUser("writer", [{role: "readAnyDatabase", db: "admin"}])' in line.advice
    assert [line.subject for line in lines] == ["schemas", "pause"]


def test_a_user_who_would_not_see_late_writes_is_told(uris: dict[str, str], tmp_path: Path) -> None:
    check = look(tmp_path, gate.late_writes, uris["one"], uris["sink"])
    assert check.level == "error" and "not authorized" in check.finding + check.advice
    assert look(tmp_path, gate.late_writes, uris["sides"], uris["sink"]).level == "ok"
