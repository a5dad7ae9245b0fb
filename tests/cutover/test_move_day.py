"""The commands of docs/how-to/move-day.md and sizing.md, line by line, by users with the rights that the page gives."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.support import mongod, oracle
from tests.support.awaited import until
from tests.support.page import commands
from tests.support.pipeline import TOWPATH
from tests.support.secured import Secured, documented_roles, properties, running, secret_file
from tests.support.secured_stack import Security

pytestmark = [pytest.mark.servers, pytest.mark.nightly]

_HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
#: The headings with blocks.
_DAYS = "T−7", "T−5", "T−3", "T−1", "T", "T+1 to T+7", "T+7"
_COLLECTIONS = ("orders", "customers", "carts")
_PASSWORD = "day:of/the@move"
#: Where the page's blocks for MongoDB's shell run, in their order.
_SIDES = (("source",), ("destination",)) * 3 + (("source",),) + (("source", "destination"),) * 4
_ROLES = "towpathReader", "towpathWriter", "towpathSchema"
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.M | re.S)
_CONTINUED = re.compile(r"(?: \\|(?<=,))\n +")
_STATEMENT = re.compile(r'db\.getSiblingDB\("(\w+)"\)(?:\.getCollection\("(\w+)"\))?\.(\w+)\((.*)\)')
#: What every cutover here gets as well: this machine may have more to do.
_LIMITS = "--max-lag 60 --max-pause 2m"
_CUTOVER = re.compile(r"(towpath cutover \S+)")
_INTERRUPTED = "press Ctrl-C when it asks"


@dataclass(frozen=True)
class Block:
    """Some lines of a page, below a heading; a line that continues is one with the next."""

    heading: str
    language: str
    lines: list[str]


def blocks(page: str) -> list[Block]:
    text, found = (_HOW_TO / page).read_text(), []
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        for _, language, lines in _BLOCK.findall(section):
            whole = [line.strip() for line in _CONTINUED.sub(" ", lines).splitlines()]
            found.append(Block(section.partition(":")[0], language, whole))
    return found


class Writer:
    """The application: it writes to the old cluster, until a command stops it, and then where one has started it."""

    def __init__(self, secured: Secured, folder: Path) -> None:
        self._secured, self._folder, self._over = secured, folder, threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.written = 0
        stop = "touch stop\nuntil [ -e stopped ]; do sleep 0.05; done"
        for name, lines in (
            ("stop-old", f"[ ! -e new ]\n{stop}"),
            ("start-new", "touch new\nrm stop stopped"),
            ("stop-new", f"[ -e new ]\n{stop}"),
            ("start-old", "rm new stop stopped"),
        ):
            script = folder / name
            script.write_text(f"#!/bin/sh\nset -e\n{lines}\n")
            script.chmod(0o755)

    def _write(self) -> None:
        was_stopped = False
        for number in count():
            if self._over.wait(0.02):
                return
            if (self._folder / "stop").exists():
                if not was_stopped:
                    (self._folder / "stopped").touch()
                was_stopped = True
                continue
            was_stopped = False
            side = self._secured.destination if (self._folder / "new").exists() else self._secured.source
            orders = side.shop.orders
            orders.insert_one({"_id": f"new {number}", "lines": []})
            orders.update_one({"_id": number % 500}, {"$push": {"lines": {"n": number}}})
            self.written += 1

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()


class Day:
    """The person who follows the page."""

    def __init__(self, secured: Secured, folder: Path, scratch: str) -> None:
        self.secured, self.folder = secured, folder
        self.sides = iter(_SIDES)
        self._environment = os.environ | {"PATH": f"{TOWPATH.parent}:{os.environ['PATH']}"}
        self.services: dict[str, subprocess.Popen[str]] = {}
        secret_file(folder / "source.uri", self._uri(secured.stack.source))
        secret_file(folder / "destination.uri", self._uri(secured.stack.destination))
        secret_file(folder / "scratch.uri", scratch)
        secret_file(folder / "client.properties", properties(secured.kafka_by_password()))
        secret_file(folder / "connect.user", f"towpath:{secured.known.connect}\n")

    def _uri(self, uri: str) -> str:
        return self.secured.by_password(uri, "towpath", _PASSWORD)

    def does(self, block: Block) -> None:
        print(f"{block.heading}: {block.language}", file=sys.stderr)
        if block.language == "toml":
            secret_file(self.folder / "shop.toml", self._adapted("\n".join(block.lines)))
        elif block.language == "js":
            for side in next(self.sides):
                for line in block.lines:
                    self._shell(side, line)
        elif block.language == "console":
            for line in block.lines:
                assert line.startswith("$ "), line
                command = _CUTOVER.sub(rf"\1 {_LIMITS}", line[2:])
                (self._interrupt if _INTERRUPTED in line else self.run)(command)

    def _adapted(self, text: str) -> str:
        """The page's file, with the addresses and logins of this stack, which has one broker."""
        secured, certificates = self.secured, self.secured.authority.folder
        for before, after in (
            ("kafka1:9093,kafka2:9093,kafka3:9093", secured.sasl_bootstrap),
            ("replication_factor = 3", "replication_factor = 1"),
            ("https://connect1:8083", secured.stack.connect),
            ("/etc/towpath/secrets", str(secured.stack.directory / "secrets")),
            ('ca = "ca.pem"', f'ca = "{secured.authority.file}"\ncertificate = "{certificates / "rest.pem"}"'),
            ("127.0.0.1:9300", "127.0.0.1:0"),
        ):
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        return text

    def _shell(self, side: str, line: str) -> None:
        """What mongosh would do, by a user who may do everything."""
        statement = _STATEMENT.fullmatch(line)
        assert statement is not None, line
        database, collection, function, given = statement.groups()
        client = getattr(self.secured, side)
        arguments = json.loads(f"[{_quoted(given)}]")
        if function == "createUser":
            (user,) = arguments
            client[database].command(function, user["user"], pwd=user["pwd"], roles=user["roles"])
        elif function == "grantRolesToUser":
            client[database].command(function, arguments[0], roles=arguments[1])
        elif function in ("dropUser", "dropRole"):
            client[database].command(function, *arguments)
        elif function == "countDocuments":
            assert client[database][collection].count_documents(*arguments) == 0, line
        elif function == "createCollection":
            client[database].create_collection(arguments[0], **arguments[1])
        elif function == "createIndex":
            keys, given = arguments
            client[database][collection].create_index(list(keys.items()), **given)
        elif function == "insertMany":
            client[database][collection].insert_many(*arguments)
        elif function == "insertOne":
            client[database][collection].insert_one(*arguments)
        elif function == "updateOne":
            assert client[database][collection].update_one(*arguments).modified_count == 1, line
        elif function == "find":
            assert len(list(client[database][collection].find(*arguments))) == 2, line
        elif function == "drop":
            client[database].drop_collection(collection)
        else:
            assert function == "dropDatabase", line
            client.drop_database(database)

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        print(f"$ {command}\n{done.stdout}{done.stderr}", file=sys.stderr)
        assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _interrupt(self, command: str) -> None:
        words = command.partition("#")[0].split()
        assert words[:2] == ["towpath", "cutover"]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [TOWPATH, *words[1:]], cwd=self.folder, stdin=pipe, stdout=pipe, text=True, env=self._environment
        ) as process:
            assert process.stdout is not None
            told = []
            for line in process.stdout:
                told.append(line)
                if line.startswith("Stop all writes"):
                    process.send_signal(signal.SIGINT)
            assert process.wait(60) == 1, told
        assert any("everything is as before: the source is primary" in line for line in told), told

    def supervise(self, name: str) -> None:
        """The service of a pipeline."""
        with (self.folder / f"{name}.log").open("a") as log:
            words = [TOWPATH, "run", f"{name}.toml", "--json"]
            self.services[name] = subprocess.Popen(words, cwd=self.folder, stdout=log, stderr=log, text=True)

    def end(self, name: str) -> list[dict[str, Any]]:
        """Stop a service; what it has told."""
        service = self.services.pop(name)
        service.send_signal(signal.SIGTERM)
        service.wait(60)
        lines = (self.folder / f"{name}.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def _quoted(text: str) -> str:
    return re.sub(r"(\$?\w+):", r'"\1":', text).replace("passwordPrompt()", json.dumps(_PASSWORD))


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    place = tmp_path / "secured"
    place.mkdir()
    with running(place, lambda words: print(words, file=sys.stderr), with_users=False) as found:
        yield found


def test_the_plan_for_the_day_moves_a_collection_and_leaves_nothing(secured: Secured, tmp_path: Path) -> None:
    plan, (before, after, *_) = blocks("move-day.md"), commands((_HOW_TO / "sizing.md").read_text())
    assert {block.heading for block in plan} == {*_DAYS}, "each block is run"
    folder = tmp_path / "here"
    folder.mkdir()
    roles = documented_roles()
    for client in (secured.source, secured.destination):
        for role in _ROLES:
            client.admin.command("createRole", role, privileges=roles[role], roles=[])
    for name in _COLLECTIONS:
        secured.source.shop[name].insert_many([{"_id": n, "lines": [], "email": f"e{n}"} for n in range(2000)])
        secured.source.shop[name].create_index("email", name="by email", unique=True, sparse=True)
    secured.source.shop.carts.create_index("until", name="expired", expireAfterSeconds=3600)
    writer = Writer(secured, folder)
    with mongod.start_replica_set(tmp_path / "scratch", name="scratch") as scratch, writer.writing():
        day = Day(secured, folder, scratch.uri)
        try:
            _follow(day, plan, before.text, after.text)
        finally:
            for service in day.services.values():
                service.kill()
    assert writer.written > 500
    _assert_nothing_left(secured)


def _follow(day: Day, plan: list[Block], before: str, after: str) -> None:
    secured = day.secured

    def of(heading: str) -> list[Block]:
        return [block for block in plan if block.heading == heading]

    for block in of("T−7"):
        day.does(block)
        if block.language == "toml":
            day.run(before)
    day.run(after)
    for block in of("T−5"):
        day.does(block)
    day.supervise("shop")
    assert "grant" in _refused(day, "towpath cutover shop.toml --dry-run")
    for heading in ("T−3", "T−1", "T"):
        for block in of(heading):
            day.does(block)
    day.supervise("shop-back")
    for block in of("T+1 to T+7"):
        day.does(block)
    day.end("shop-back")
    _assert_same(day, "shop")
    for block in of("T"):
        day.does(block)
    day.supervise("shop-back")
    _assert_same(day, "shop-back")
    told = day.end("shop") + day.end("shop-back")
    assert [one for one in told if one["event"] == "difference"] == []
    assert _unique(secured.destination) and _unique(secured.source)
    for block in of("T+7"):
        day.does(block)
    assert next(day.sides, None) is None, "each block for MongoDB's shell is run"


def _refused(day: Day, command: str) -> str:
    """What a command says that has to end with 1."""
    return day.run(f"! {command}")


def _unique(client: Any) -> bool:
    return all(client.shop[name].index_information()["by email"].get("unique") for name in _COLLECTIONS)


def _assert_same(day: Day, name: str) -> None:
    """Both sides are the same, as far as the writer has come."""
    secured = day.secured
    (day.folder / "stop").touch()
    until("the writer", (day.folder / "stopped").exists)
    day.run(f"towpath wait {name}.toml")
    source, destination = secured.as_root(secured.stack.source), secured.as_root(secured.stack.destination)
    same = {f"shop.{each}": f"shop.{each}" for each in _COLLECTIONS}
    oracle.assert_same(source, destination, same, at_least=6000)


def _assert_nothing_left(secured: Secured) -> None:
    for client in (secured.source, secured.destination):
        assert "towpath" not in client.list_database_names()
        assert [one["user"] for one in client.admin.command("usersInfo")["users"]] == ["root"]
        assert client.admin.command("rolesInfo", 1)["roles"] == []
    with secured.rest() as rest:
        assert rest.get("/connectors").raise_for_status().json() == []
    own = Security(secured.authority.folder).for_librdkafka()
    topics = AdminClient({"bootstrap.servers": secured.stack.bootstrap, **own}).list_topics(timeout=30).topics
    assert [name for name in topics if "shop" in name] == []
    assert list((secured.stack.directory / "secrets").iterdir()) == []
