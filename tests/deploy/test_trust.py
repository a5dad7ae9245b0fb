"""A pipeline with only the rights of docs/reference/roles.md runs, and nothing of what is secret gets out."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import ssl
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from pymongo.database import Database

from tests.support import control, oracle
from tests.support.awaited import until
from tests.support.certificates import Authority
from tests.support.pipeline import towpath
from tests.support.secured import NAME, Secured, running, worker_by_certificate, write
from towpath import stack as embedded
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka import hanging_transactions
from towpath.clients.kafka.protocol import Protocol
from towpath.clients.kafka.topics import Topics, for_kafka_python, for_librdkafka
from towpath.clients.mongo.client import Cluster
from towpath.config.logins import ConnectLogin, kafka_login
from towpath.errors import ConnectUnreachable, KafkaUnreachable, MongoUnreachable, TopicError, TowpathError

pytestmark = [pytest.mark.servers, pytest.mark.nightly]

DOCUMENTS = 200
_LEAK = re.compile(r"leak-[0-9a-f]{16}")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    place = tmp_path_factory.mktemp("secured")
    with pytest.MonkeyPatch.context() as shell:
        shell.setenv("SOURCE_URI", f"mongodb://me:leak-{0:016x}@db/")  # as for uri_env, in the shell of `stack up`
        with running(place, lambda words: print(words, file=sys.stderr)) as found:
            yield found


class Lines(list[str]):
    """All that commands have said."""

    def towpath(self, *arguments: str | Path, expect: int = 0) -> str:
        done = towpath(*arguments, expect=expect)
        self.extend((done.stdout, done.stderr))
        return done.stdout + done.stderr


@contextmanager
def watched_processes(seen: set[str]) -> Iterator[None]:
    """Notes the command line of every process that there is during this."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            seen.update(" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def same(secured: Secured, at_least: int) -> None:
    oracle.assert_same(
        secured.as_root(secured.stack.source),
        secured.as_root(secured.stack.destination),
        {"shop.orders": "shop.orders"},
        at_least=at_least,
    )


def failed(secured: Secured) -> bool:
    with secured.rest() as rest:
        return "FAILED" in rest.get(f"/connectors/{NAME}-source/status").raise_for_status().text


def test_a_pipeline_runs_behind_locked_doors_and_tells_no_secret(secured: Secured, tmp_path: Path) -> None:
    said, commands = Lines(), set[str]()
    with watched_processes(commands):
        answers = _a_whole_life(secured, said, tmp_path)
        collected = _report(secured, said)
    places = {
        "the archive of doctor": collected,
        "what was said": "\n".join(said),
        "the process list": "\n".join(commands),
        "Connect's REST API": "\n".join(answers),
        "environments": "\n".join(_environment(process) for process in _processes(secured)),
        "reports": "\n".join(file.read_text() for file in tmp_path.iterdir()),
    }
    assert all(len(text) > 100 for text in places.values()), {place: len(text) for place, text in places.items()}
    leaks = {place: _LEAK.findall(text) for place, text in places.items() if _LEAK.search(text)}
    assert leaks == {}, leaks
    assert leaking_files(secured) == []


def _report(secured: Secured, said: Lines) -> str:
    """All that `doctor` collects, given even the files that hold the secrets."""
    place, stack = secured.folder / "pipeline", secured.stack.directory
    files = [place / name for name in ("source.uri", "destination.uri", "client.properties", "connect.user")]
    files += [stack / "secrets" / f"{NAME}.properties", stack / "conf" / "connect-0.properties", stack / "logs"]
    archive = secured.folder / "doctor.zip"
    said.towpath(
        "doctor", place / f"{NAME}.toml", *(word for file in files for word in ("--log", file)), "--output", archive
    )
    with zipfile.ZipFile(archive) as opened:
        texts = {name: opened.read(name).decode() for name in opened.namelist()}
    assert json.loads(texts["versions.json"])["connect"]["plugins"]["io.towpath.source.MongoSource"]
    assert f"{NAME}-source" in texts["connectors.json"]
    assert f"{NAME}.shop.orders" in texts["topics.json"]
    assert texts["status.txt"].endswith("exit code 0\n")
    return "\n".join(texts.values())


def _processes(secured: Secured) -> list[embedded.Process]:
    """Those of the stack that live now."""
    return list(embedded.status(secured.stack.directory).processes.values())


def _environment(process: embedded.Process) -> str:
    return "\n".join(f"{key}={value}" for key, value in psutil.Process(process.pid).environ().items())


def leaking_files(secured: Secured) -> list[str]:
    """Files below the stack's folder that hold a secret and are not made for it: logs, topics, offsets, databases."""
    place = secured.stack.directory
    kept = (place / "secrets", place / "conf")
    files = [file for file in place.rglob("*") if file.is_file() and not any(one in file.parents for one in kept)]
    assert sum(file.suffix == ".log" and file.stat().st_size > 0 for file in files) > 10, (
        "topics and logs are looked at"
    )
    made_for_it = b"".join(file.read_bytes() for folder in kept for file in folder.iterdir())
    assert len(set(re.findall(_LEAK.pattern.encode(), made_for_it))) == 3, "they are found where they are"
    assert all(folder.stat().st_mode & 0o077 == 0 for folder in kept)
    assert all(file.stat().st_mode & 0o077 == 0 for file in kept[0].iterdir())
    leaking = []
    for file in files:
        with suppress(FileNotFoundError):  # servers remove files, such as parts of a journal
            if re.search(_LEAK.pattern.encode(), file.read_bytes()):
                leaking.append(str(file))
    return leaking


def _a_whole_life(secured: Secured, said: Lines, reports: Path) -> list[str]:
    """From check to replay, with failures in between; returns what Connect's REST API answered."""
    orders, there = secured.source.shop.orders, secured.destination.shop.orders
    orders.insert_many([{"_id": n, "lines": [n]} for n in range(DOCUMENTS)])
    file = write(secured, by="password")
    said.towpath("check", file)
    said.towpath("deploy", file)
    orders.update_many({}, {"$push": {"lines": 1}})
    said.towpath("wait", file)
    same(secured, DOCUMENTS)
    said.towpath("tail", file, "shop.orders", "--from-beginning", "--no-follow")

    there.delete_one({"_id": 7})
    said.towpath("verify", file, "--processes", "1", "--report", reports / "verdict.html", expect=1)
    said.towpath("repair", file)
    same(secured, DOCUMENTS)

    _source_locks_out(secured, said, file)
    answers = _everything_of(secured)
    orders.insert_one({"_id": DOCUMENTS})
    said.towpath("restart", file)
    said.towpath("wait", file)

    control.kill(secured.stack.directory, "destination-0")
    said.towpath("verify", file, "--processes", "1", expect=2)
    secured.start_again("destination-0")
    said.towpath("replay", file, "--rebuild", "--yes")
    same(secured, DOCUMENTS + 1)

    file = write(secured, by="token")
    said.towpath("check", file)
    said.towpath("deploy", file)
    orders.update_many({}, {"$set": {"by": "token"}})
    said.towpath("wait", file)
    same(secured, DOCUMENTS + 1)

    worker_by_certificate(secured)
    file = write(secured, by="certificate", ddl=True)
    said.towpath("check", file)
    assert "restart connector" not in said.towpath("deploy", file), "with the new secrets and the old configuration"
    orders.update_many({}, {"$set": {"by": "certificate"}})
    _change_schema(secured)
    said.towpath("wait", file)
    same(secured, DOCUMENTS + 1)
    assert schema(secured.destination.shop) == schema(secured.source.shop)
    said.towpath("status", file)
    file = write(secured, by="certificate", ddl=True, source=f"{secured.source_uri}&appName=shop")
    told = said.towpath("deploy", file)
    assert told.count("restart connector ") == 2 and "update connector" not in told
    said.towpath("wait", file)
    return answers + _everything_of(secured)


def _change_schema(secured: Secured) -> None:
    """Everything that `[ddl]` makes at the destination."""
    shop = secured.source.shop
    shop.create_collection("notes", validator={"n": {"$type": "int"}}, validationAction="warn")
    shop.notes.insert_one({"_id": 1, "n": 1})
    shop.notes.create_index("n", name="n")
    shop.notes.create_index("m", name="m")
    shop.notes.drop_index("n")
    shop.command({"collMod": "notes", "validator": {"n": {"$type": "long"}}})
    shop.notes.rename("archive")
    shop.gone.insert_one({"_id": 1})
    shop.gone.drop()
    shop.command({"create": "large", "viewOn": "orders", "pipeline": [{"$match": {"_id": {"$gt": 100}}}]})


def schema(database: Database[dict[str, Any]]) -> dict[str, Any]:
    """Collections and views with their options, and the indexes of collections."""
    found = {one["name"]: one for one in database.list_collections() if not one["name"].startswith("system.")}
    return {
        name: (one["type"], one["options"], sorted(database[name].index_information()) if one["type"] != "view" else [])
        for name, one in found.items()
    }


def _source_locks_out(secured: Secured, said: Lines, file: Path) -> None:
    """The password of the source's user changes under way: the task fails, and commands say so."""
    secured.source.admin.command("updateUser", "towpath", pwd="another")
    said.towpath("check", file, expect=1)
    with secured.rest() as rest:
        rest.post(f"/connectors/{NAME}-source/restart", params={"includeTasks": "true"}).raise_for_status()
    until("failure of the source's task", lambda: failed(secured))
    said.towpath("status", file, expect=1)
    said.towpath("wait", file, "--timeout", "5", expect=2)
    secured.source.admin.command("updateUser", "towpath", pwd=secured.known.source)


def _everything_of(secured: Secured) -> list[str]:
    """What Connect's REST API tells."""
    with secured.rest() as rest:
        paths = ["/", "/connectors?expand=info&expand=status", "/admin/loggers", "/connector-plugins"]
        for name in rest.get("/connectors").raise_for_status().json():
            paths += [f"/connectors/{name}/{what}" for what in ("config", "status", "offsets", "tasks", "topics")]
        return [rest.get(path).raise_for_status().text for path in paths]


def test_the_documented_rights_are_enough_to_end_a_transaction(secured: Secured) -> None:
    """One that is under way, which `find` leaves alone; what was decided is read once its producer has aborted it."""
    topics = Topics(secured.sasl_bootstrap, kafka_login(secured.kafka_by_password(), Path("/")))
    place, task = (f"{NAME}.ends", 0), f"towpath-stack-{NAME}-source-9"
    topics.create([place[0]], 1, -1, {})
    settings = for_librdkafka(topics.login) | {"bootstrap.servers": topics.bootstrap, "transactional.id": task}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(place[0], b"to be aborted")
    assert producer.flush(30) == 0
    assert topics.open_transactions() == {place: 0}
    assert hanging_transactions.find(topics, [f"{NAME}-source"], [place]) == []
    with closing(Protocol.of(topics.bootstrap, for_kafka_python(topics.login))) as protocol:
        [found] = protocol.open_at(place)
        hanging = hanging_transactions.HangingTransaction(place, task, found)
        with pytest.raises(TopicError, match=r"whether to commit it is not known: .* does not show it\. Run"):
            hanging_transactions.end(topics, hanging)
        protocol.write_end(place, found, commits=False)
    assert topics.open_transactions() == {}
    producer.abort_transaction(30)
    assert hanging_transactions._decision(topics, hanging) is False


@dataclasses.dataclass(frozen=True)
class Doors:
    """The secured servers, another CA, and two servers that are not what is looked for there."""

    secured: Secured
    other: Authority
    expired: str
    plain: str


@pytest.fixture(scope="module")
def doors(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    other = Authority(tmp_path_factory.mktemp("other"))
    other.issue("sink.pem", name="sink")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secured.authority.issue("expired.pem", "127.0.0.1", name="server", days=-1))
    with listening(context) as expired, listening(None) as plain:
        yield Doors(secured, other, expired, plain)


@contextmanager
def listening(context: ssl.SSLContext | None) -> Iterator[str]:
    """A server that makes the handshake, or knows none, and hangs up on whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    came, _ = server.accept()
                    came.settimeout(5)
                    with came, suppress(OSError):
                        came.sendall(b"\n" if context is None else b"")
                        (context.wrap_socket(came, server_side=True) if context else came).recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def mongo(uri: str, side: str = "source") -> None:
    with closing(Cluster(f"{uri}&serverSelectionTimeoutMS=300", side)) as it, it.connected() as client:
        client.admin.command("connectionStatus")


def kafka(settings: dict[str, str], bootstrap: str) -> None:
    Topics(bootstrap, kafka_login(settings, Path("/"))).brokers()


def connect(doors: Doors, url: str = "", **other: str) -> None:
    known = doors.secured
    login = ConnectLogin(
        "towpath", known.known.connect, str(known.authority.file), str(known.authority.folder / "rest.pem")
    )
    with Connect(url or known.stack.connect, dataclasses.replace(login, **other)) as client:
        client.worker()


def without(settings: dict[str, str], word: str) -> dict[str, str]:
    return {key: value for key, value in settings.items() if word not in key}


def renamed(address: str) -> str:
    """By a name that is in no certificate."""
    return address.replace("127.0.0.1", "localhost")


def _ca(doors: Doors) -> str:
    return str(doors.secured.authority.file)


WRONG: dict[str, tuple[Callable[[Doors], None], str]] = {
    "source: another CA": (
        lambda d: mongo(d.secured.source_uri.replace(_ca(d), str(d.other.file))),
        "does not come from the CA in .*name the CA that issued it with tlsCAFile",
    ),
    "source: another name": (
        lambda d: mongo(renamed(d.secured.source_uri)),
        "not for the name localhost; connect by a name that is in it",
    ),
    "source: expired": (
        lambda d: mongo(f"mongodb://{d.expired}/?tls=true&tlsCAFile={_ca(d)}"),
        "certificate of 127.0.0.1 has expired; give the server a new one",
    ),
    "source: no TLS": (
        lambda d: mongo(d.secured.source_uri.replace("tls=true", "tls=false").replace(f"&tlsCAFile={_ca(d)}", "")),
        "the server speaks TLS, and the client was not to; switch it on: tls=true",
    ),
    "source: TLS to a server without": (
        lambda d: mongo(f"mongodb://{d.plain}/?tls=true&tlsCAFile={_ca(d)}"),
        "does not speak TLS at this port",
    ),
    "source: another password": (
        lambda d: mongo(d.secured.source_uri.replace(":leak", ":lick")),
        "refuses the user or the password",
    ),
    "source: a password that is not escaped": (
        lambda d: mongo("mongodb://towpath:leak-0123456789abcdef/x@127.0.0.1/?tls=true"),
        "write %3A %2F",
    ),
    "destination: no certificate": (
        lambda d: mongo(f"{d.secured.stack.destination}&authMechanism=MONGODB-X509", "destination"),
        "wants a certificate of the client; name a PEM file with tlsCertificateKeyFile",
    ),
    "destination: a certificate of another CA": (
        lambda d: mongo(f"{d.secured.stack.destination}&tlsCertificateKeyFile={d.other.folder / 'sink.pem'}"),
        "refuses the client's certificate",
    ),
    "destination: another pass phrase": (
        lambda d: mongo(d.secured.destination_uri.replace("=leak", "=lick"), "destination"),
        "cannot use the PEM files .*password of an encrypted key",
    ),
    "destination: no pass phrase": (
        lambda d: mongo(d.secured.destination_uri.partition("&tlsCertificateKeyFilePassword")[0], "destination"),
        "cannot use the PEM files .*password of an encrypted key",
    ),
    "kafka: another CA": (
        lambda d: kafka(d.secured.kafka_by_password(ca=d.other.file), d.secured.sasl_bootstrap),
        "does not come from the CA in .*ssl.truststore.location",
    ),
    "kafka: another name": (
        lambda d: kafka(d.secured.kafka_by_password(), d.secured.sasl_bootstrap.replace("127.0.0.1", "localhost")),
        "not for the name localhost",
    ),
    "kafka: expired": (
        lambda d: kafka(d.secured.kafka_by_password(), d.expired),
        "certificate of 127.0.0.1 has expired",
    ),
    "kafka: no TLS": (
        lambda d: kafka({"security.protocol": "PLAINTEXT"}, d.secured.sasl_bootstrap),
        "the server speaks TLS, and the client was not to; switch it on: security.protocol=",
    ),
    "kafka: TLS to a server without": (
        lambda d: kafka(d.secured.kafka_by_password(), d.plain),
        "does not speak TLS at this port",
    ),
    "kafka: another password": (
        lambda d: kafka(d.secured.kafka_by_password("wrong"), d.secured.sasl_bootstrap),
        "the brokers refuse the user or the password",
    ),
    "kafka: no certificate": (
        lambda d: kafka(without(d.secured.kafka_by_certificate(), "keystore"), d.secured.stack.bootstrap),
        "wants a certificate of the client; name a PEM file with ssl.keystore.location",
    ),
    "connect: another CA": (lambda d: connect(d, ca=str(d.other.file)), "does not come from the CA in"),
    "connect: another name": (
        lambda d: connect(d, renamed(d.secured.stack.connect)),
        "not for the name localhost",
    ),
    "connect: expired": (lambda d: connect(d, f"https://{d.expired}"), "certificate of 127.0.0.1 has expired"),
    "connect: no TLS": (
        lambda d: connect(d, d.secured.stack.connect.replace("https", "http")),
        "the server speaks TLS, and the client was not to; switch it on: https://",
    ),
    "connect: TLS to a server without": (lambda d: connect(d, f"https://{d.plain}"), "does not speak TLS at this port"),
    "connect: another password": (lambda d: connect(d, password="wrong"), "401: .*user:password into the file"),
    "connect: no user": (lambda d: connect(d, user=""), "401: .*user:password into the file"),
    "connect: no certificate": (lambda d: connect(d, certificate=""), "wants a certificate of the client"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_whoever_does_not_get_in_is_told_why(doors: Doors, wrong: str) -> None:
    come, words = WRONG[wrong]
    with pytest.raises(TowpathError) as refused:
        come(doors)
    assert re.search(words, str(refused.value)), str(refused.value)
    assert not isinstance(refused.value, (ConnectUnreachable, KafkaUnreachable, MongoUnreachable))
    assert not _LEAK.search(str(refused.value)) and "0123456789abcdef" not in str(refused.value)
