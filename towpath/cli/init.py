"""`towpath init`, and its questions on a terminal: what each value is, a default, a check at once, a test."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from pymongo.errors import PyMongoError

from towpath import stack as embedded
from towpath.cli.options import FILE, FOLDER, flag, pipeline_argument, say
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Topics
from towpath.clients.mongo.client import Cluster
from towpath.clients.mongo.replica_set import replica_set
from towpath.config import loading
from towpath.config.loading import COMPOSE, EXAMPLE, Places, holds_secret
from towpath.config.namespaces import RESERVED, is_pattern
from towpath.config.pipeline import Mode
from towpath.config.text import counted, first_few
from towpath.errors import TowpathError

_SHOWN = 8  # databases
_EXAMPLE = ".example:"  # a host that exists nowhere (RFC 2606)
_BROKERS = re.compile(r"[^\s,:/]+:[0-9]{1,5}(,\s*[^\s,:/]+:[0-9]{1,5})*")

#: What is wrong with an answer; empty when nothing is.
Check = Callable[[str], str]
#: What an answer leads to; raises `TowpathError` where it leads nowhere.
Test = Callable[[str], str]


@dataclass(slots=True)
class Answers:
    """The values of a pipeline file, as far as they are given."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    places: dict[str, Any]
    """Field of `Places` → its value."""
    uri_files: dict[Path, str] = field(default_factory=dict)
    """Files to write → the URI in each."""


def places_of(stack: embedded.Stack) -> Places:
    """The addresses of the embedded stack."""
    return Places(stack.source, stack.destination, stack.bootstrap, stack.connect, str(stack.options.secrets.resolve()))


@click.command()
@pipeline_argument
@click.option("--include", multiple=True, metavar="NS", help="Namespace or pattern to replicate; repeatable.")
@click.option("--exclude", multiple=True, metavar="NS", help="Namespace or pattern to leave out; repeatable.")
@click.option("--source", metavar="URI", help="URI of the source's replica set.")
@click.option("--source-file", type=FILE, help="A file with this URI that only you can read, in place of --source.")
@click.option("--destination", metavar="URI", help="URI of the destination's replica set.")
@click.option("--destination-file", type=FILE, help="A file with this URI, in place of --destination.")
@click.option("--bootstrap", metavar="HOST:PORT", help="Addresses of Kafka's brokers, separated by commas.")
@click.option("--connect", metavar="URL", help="REST API of a Kafka Connect worker.")
@click.option(
    "--mode",
    type=click.Choice(["exactly-once", "plain"]),
    default="exactly-once",
    help="exactly-once: each change once, in transactions; plain: stock connectors, at least once.",
)
@click.option("--name", help="Name of the pipeline and prefix of its topics; default: the file's name.")
@click.option("--stack", "stack_dir", type=FOLDER, help="Fill in the addresses of the embedded stack in this folder.")
@flag("--compose", help="Fill in the addresses of the services in docker-compose.yml.")
@flag("--yes", help="Ask nothing, also on a terminal: addresses that are not given are examples to edit.")
@flag("--force", help="Overwrite the file if it exists.")
def init(
    file: Path,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    mode: Mode,
    name: str | None,
    stack_dir: Path | None,
    compose: bool,
    yes: bool,
    force: bool,
    source: str | None,
    source_file: Path | None,
    destination: str | None,
    destination_file: Path | None,
    bootstrap: str | None,
    connect: str | None,
) -> None:
    """Write a commented pipeline file to PIPELINE.

    Run it first. On a terminal it asks for the addresses and namespaces that no option gives, explains each, and tests
    the connections if you like. Elsewhere, and with --yes, --stack or --compose, it asks nothing: --include is required
    then, and addresses that are not given are examples to edit in the file.

    Exit codes: 0 written; 2 the file exists already or cannot be written, or an option is not valid.
    """
    if compose and stack_dir is not None:
        raise click.UsageError("--compose and --stack name different servers: pass one of them")
    given = {
        "source": _one_of("source", source, source_file, file),
        "destination": _one_of("destination", destination, destination_file, file),
        "bootstrap": bootstrap,
        "connect": connect,
    }
    answers = Answers(include, exclude, {name: value for name, value in given.items() if value})
    places = COMPOSE if compose else EXAMPLE if stack_dir is None else places_of(embedded.status(stack_dir))
    if not (yes or compose or stack_dir is not None) and on_terminal():
        loading.refuse_existing(file, force=force)
        if not file.parent.is_dir():
            raise TowpathError(f"cannot write {file}: there is no folder {file.parent}")
        text = loading.content(file, include or ("db.*",), exclude, mode, name, replace(places, **answers.places))
        loading.require_valid(text, file)  # what is wrong with options is an error before any question
        ask(answers, file, places)
    elif not include:
        raise click.UsageError("Missing option '--include'.")
    places = replace(places, **answers.places)
    with loading.uri_files(answers.uri_files):
        loading.write_pipeline_file(
            file, include=answers.include, exclude=answers.exclude, mode=mode, name=name, places=places, force=force
        )
    for side, place in (("source", places.source), ("destination", places.destination)):
        if isinstance(place, str) and holds_secret(place):
            say(f"{file} holds the password of the {side}; --{side}-file FILE names a file for the URI instead")
    say(f"wrote {file}; next: towpath check {file}, towpath plan {file}, towpath deploy {file}")


def _one_of(side: str, uri: str | None, uri_file: Path | None, file: Path) -> str | Path | None:
    """The URI, or the file that holds it as the pipeline file names it."""
    if uri is not None and uri_file is not None:
        raise click.UsageError(f"give one of --{side} and --{side}-file")
    if uri_file is None:
        return uri
    whole = uri_file.resolve()
    return Path(whole.name) if whole.parent == file.resolve().parent else whole


def on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(answers: Answers, file: Path, examples: Places) -> None:
    """Ask for what is not given. `examples` are the defaults. Raises `click.Abort` at Ctrl-C; nothing is written."""
    say(f"Ctrl-C leaves without writing {file}; Enter takes the value in brackets.")
    tests = click.confirm("Test each connection as you enter it?", default=True, err=True)
    databases: list[str] = []
    for side, example in (("source", examples.source), ("destination", examples.destination)):
        if side not in answers.places:
            uri, databases_there = _cluster(side, str(example), tests=tests)
            databases = databases_there if side == "source" else databases
            _take_uri(answers, side, uri, file)
    if not answers.include:
        answers.include = _include(databases)
        exclude = _value("leave out", "Namespaces and patterns to leave out of these.", "", _patterns)
        answers.exclude = (*answers.exclude, *_split(exclude))
    if "bootstrap" not in answers.places:
        answers.places["bootstrap"] = _kafka(examples.bootstrap, tests=tests)
    if "connect" not in answers.places:
        answers.places["connect"] = _connect(examples.connect, tests=tests)


def _value(name: str, explanation: str, default: str | None, check: Check, test: Test | None = None) -> str:
    """One question, until its answer is valid; then it is tried out."""
    while True:
        if explanation:
            say(f"\n{explanation}")
        answer = str(click.prompt(name, default=default, show_default=bool(default), err=True)).strip()
        explanation = ""
        if fault := check(answer):
            say(f"  {fault}")
            continue
        if test is None or _EXAMPLE in answer:
            return answer
        try:
            say(f"  ok: {test(answer)}")
            return answer
        except TowpathError as error:
            say(f"  {error}")
            if not click.confirm("Enter it again?", default=True, err=True):
                return answer
            default = default if holds_secret(answer) else answer


def _cluster(side: str, example: str, *, tests: bool) -> tuple[str, list[str]]:
    """The URI of a cluster, and its databases if it answered."""
    databases: list[str] = []

    def test(uri: str) -> str:
        with closing(Cluster(uri, side)) as cluster, cluster.connected(timeout=5) as client:
            databases.clear()
            with suppress(PyMongoError):  # the user may not list them
                databases.extend(name for name in client.list_database_names() if name not in RESERVED)
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
    return _value(f"{side} URI", explanation, example, uri_fault, test if tests else None), databases


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


def _take_uri(answers: Answers, side: str, uri: str, file: Path) -> None:
    """Take a URI as an answer, or a file for it where it holds a password."""
    answers.places[side] = uri
    if holds_secret(uri):
        own = Path(f"{file.stem}-{side}.uri")
        say("  It holds a password. In a separate file that only you can read, it stays out of the pipeline file.")
        target = file.with_name(own.name)
        there = ", and overwrite what it holds" if target.exists() else ""
        if click.confirm(f"Write the URI to {target}{there}?", default=not there, err=True):
            answers.places[side], answers.uri_files[target] = own, uri


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
    return _value("Kafka brokers", explanation, example, check, test if tests else None)


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
    return _value("Connect URL", explanation, example, check, test if tests else None)
