"""The questions of `towpath init` on a terminal: what each value is, a default, a check at once, a test."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import click
from pymongo.errors import PyMongoError

from towpath.cli.options import say
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Topics
from towpath.clients.mongo.client import Client, Cluster
from towpath.clients.mongo.replica_set import replica_set
from towpath.config.loading import holds_secret
from towpath.config.namespaces import RESERVED, is_pattern
from towpath.config.text import counted, first_few
from towpath.errors import TowpathError

_SHOWN = 8  # databases
_EXAMPLE = ".example:"  # a host that exists nowhere (RFC 2606)
_BROKERS = re.compile(r"[^\s,:/]+:[0-9]{1,5}(,\s*[^\s,:/]+:[0-9]{1,5})*")

#: What is wrong with an answer; empty when nothing is.
Check = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Answers:
    """The values of a pipeline file; None and empty: not given."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    source: str | Path | None = None
    """The URI, or the file that holds it."""
    destination: str | Path | None = None
    bootstrap: str | None = None
    connect: str | None = None
    uri_files: dict[Path, str] = field(default_factory=dict)
    """Files to write → the URI in each."""


def on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(given: Answers, file: Path, examples: Answers) -> Answers:
    """Ask for what is not given. `examples` are the defaults. Raises `click.Abort` at Ctrl-C; nothing is written."""
    say(f"Ctrl-C leaves without writing {file}; Enter takes the value in brackets.")
    tests = click.confirm("Test each connection as you enter it?", default=True, err=True)
    answers, databases = given, list[str]()
    for side in ("source", "destination"):
        if getattr(answers, side) is None:
            uri, databases_there = _cluster(side, str(getattr(examples, side)), tests=tests)
            databases = databases_there if side == "source" else databases
            answers = _with_uri(answers, side, uri, file)
    if not answers.include:
        answers = replace(answers, include=_include(databases))
        exclude = _value("leave out", "Namespaces and patterns to leave out of these.", "", _patterns)
        answers = replace(answers, exclude=(*answers.exclude, *_split(exclude)))
    if answers.bootstrap is None:
        example = str(examples.bootstrap)
        answers = replace(answers, bootstrap=_kafka(example, tests=tests))
    if answers.connect is None:
        answers = replace(answers, connect=_connect(str(examples.connect), tests=tests))
    return answers


def _value(name: str, explanation: str, default: str | None, check: Check) -> str:
    """One question, until its answer is valid."""
    if explanation:
        say(f"\n{explanation}")
    while True:
        answer = str(click.prompt(name, default=default, show_default=bool(default), err=True)).strip()
        fault = check(answer)
        if not fault:
            return answer
        say(f"  {fault}")


def _tested(name: str, explanation: str, default: str, check: Check, test: Callable[[str], str], *, tests: bool) -> str:
    """As `_value`, and tried out. `test` returns what it found, or raises `TowpathError`."""
    while True:
        answer = _value(name, explanation, default, check)
        if not tests or _EXAMPLE in answer:
            return answer
        try:
            say(f"  ok: {test(answer)}")
            return answer
        except TowpathError as error:
            say(f"  {error}")
            if not click.confirm("Enter it again?", default=True, err=True):
                return answer
            explanation, default = "", default if holds_secret(answer) else answer


def _cluster(side: str, example: str, *, tests: bool) -> tuple[str, list[str]]:
    """The URI of a cluster, and its databases if it answered."""
    databases: list[str] = []

    def test(uri: str) -> str:
        with closing(Cluster(uri, side)) as cluster, cluster.connected(timeout=5) as client:
            databases[:] = _databases(client)
            members = replica_set(client, side)
            version = client.server_info()["version"]
        if not members.name:
            raise TowpathError("a standalone mongod answers; Towpath needs a replica set (one member is enough)")
        return f"replica set {members.name}, {counted(len(members.hosts), 'member')}, MongoDB {version}"

    direction = "read from" if side == "source" else "write to"
    explanation = (
        f"The {side}: the replica set to {direction}, MongoDB 5.0 or later.\n"
        "mongodb://HOST:27017/?replicaSet=NAME, with USER:PASSWORD@ before HOST if it asks for a login."
    )
    return _tested(f"{side} URI", explanation, example, uri_fault, test, tests=tests), databases


def uri_fault(uri: str) -> str:
    """What is wrong with a MongoDB URI, without a password in the answer."""
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        return "it must begin with mongodb:// or mongodb+srv://"
    try:
        urlsplit(uri)
    except ValueError as error:
        return f"it is not a URI: {error}"
    if not uri.partition("://")[2].rpartition("@")[2].partition("/")[0]:
        return "it names no host"
    return ""


def _databases(client: Client) -> list[str]:
    try:
        return [name for name in client.list_database_names() if name not in RESERVED]
    except PyMongoError:  # the user may not list them
        return []


def _with_uri(answers: Answers, side: str, uri: str, file: Path) -> Answers:
    """The answers with a URI, or with a file for it where it holds a password."""
    place: str | Path = uri
    files = answers.uri_files
    if holds_secret(uri):
        own = Path(f"{file.stem}-{side}.uri")
        say("  It holds a password. In a separate file that only you can read, it stays out of the pipeline file.")
        target = file.with_name(own.name)
        there = ", and overwrite what it holds" if target.exists() else ""
        if click.confirm(f"Write the URI to {target}{there}?", default=not there, err=True):
            place, files = own, files | {target: uri}
    return (
        replace(answers, source=place, uri_files=files)
        if side == "source"
        else replace(answers, destination=place, uri_files=files)
    )


def _include(databases: list[str]) -> tuple[str, ...]:
    found = f" At the source: {first_few(databases, _SHOWN)}." if databases else ""
    explanation = f"The namespaces to replicate: database.collection, * for any characters, with commas.{found}"
    default = f"{databases[0]}.*" if len(databases) == 1 else None
    return _split(_value("namespaces", explanation, default, lambda text: _patterns(text) or _none(text)))


def _none(text: str) -> str:
    return "" if _split(text) else "give at least one"


def _split(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[,\s]+", text) if part)


def _patterns(text: str) -> str:
    wrong = [part for part in _split(text) if not is_pattern(part)]
    return f"{wrong[0]!r} is not a namespace; write database.collection, such as shop.*" if wrong else ""


def _kafka(example: str, *, tests: bool) -> str:
    def check(text: str) -> str:
        return "" if _BROKERS.fullmatch(text) else "write host:port, or several with commas"

    def test(bootstrap: str) -> str:
        with Topics(bootstrap) as topics:
            brokers, cluster, _ = topics.overview()
            return f"{counted(len(brokers), 'broker')}, cluster {cluster}"

    explanation = "Kafka: addresses of its brokers. A login goes into a file, [kafka] client (docs/how-to/secure.md)."
    return _tested("Kafka brokers", explanation, example, check, test, tests=tests)


def _connect(example: str, *, tests: bool) -> str:
    def check(text: str) -> str:
        if "@" in text:
            return "leave the user out; a login goes into a file, [connect] user_file (docs/how-to/secure.md)"
        try:
            parts = urlsplit(text)
            is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # such as a port that is too large
            is_url = False
        is_one_word = not re.search(r"\s", text)
        return "" if is_url and is_one_word else "write the URL of a worker: http://HOST:8083"

    def test(url: str) -> str:
        with Connect(url) as connect:
            return f"Kafka Connect {connect.worker()[0]}"

    explanation = "Kafka Connect: the REST API of a worker with Towpath's plugin."
    return _tested("Connect URL", explanation, example, check, test, tests=tests)
