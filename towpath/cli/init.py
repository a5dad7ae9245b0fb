"""`towpath init`"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from towpath import stack as embedded
from towpath.cli.options import FILE, FOLDER, flag, pipeline_argument, say
from towpath.cli.questions import Answers, ask, on_terminal
from towpath.config.loading import holds_secret, parse
from towpath.config.pipeline import Mode
from towpath.errors import BadPipelineFile, TowpathError
from towpath.files import replacing

_TEMPLATE = Path(__file__).parent.parent / "config" / "pipeline.toml"


@dataclass(frozen=True, slots=True)
class Places:
    """The addresses in a pipeline file, and `[connect] secrets`; without that, a comment stands in its place."""

    source: str | Path
    """The URI, or the file that holds it."""
    destination: str | Path
    bootstrap: str
    connect: str
    secrets: str | None = None

    @classmethod
    def of(cls, stack: embedded.Stack) -> Places:
        secrets = str(stack.directory.resolve() / "secrets")
        return cls(stack.source, stack.destination, stack.bootstrap, stack.connect, secrets)

    def with_answers(self, answers: Answers) -> Places:
        """These addresses where no answer gives another."""
        return Places(
            answers.source or self.source,
            answers.destination or self.destination,
            answers.bootstrap or self.bootstrap,
            answers.connect or self.connect,
            self.secrets,
        )


EXAMPLE = Places(
    "mongodb://source.example:27017/?replicaSet=rs0",
    "mongodb://destination.example:27017/?replicaSet=rs0",
    "127.0.0.1:9092",
    "http://127.0.0.1:8083",
)
#: The services of docker-compose.yml, as they reach one another. The secrets are in a volume that two of them share.
COMPOSE = Places(
    "mongodb://source:27017/?replicaSet=source",
    "mongodb://destination:27018/?replicaSet=destination",
    "kafka:9092",
    "http://connect:8083",
    "/var/lib/towpath/secrets",
)


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
    answers = Answers(
        include=include,
        exclude=exclude,
        source=_one_of("source", source, source_file, file),
        destination=_one_of("destination", destination, destination_file, file),
        bootstrap=bootstrap,
        connect=connect,
    )
    places = COMPOSE if compose else EXAMPLE if stack_dir is None else Places.of(embedded.status(stack_dir))
    if not (yes or compose or stack_dir is not None) and on_terminal():
        _refuse_existing(file, force=force)
        if not file.parent.is_dir():
            raise TowpathError(f"cannot write {file}: there is no folder {file.parent}")
        given = _content(file, include or ("db.*",), exclude, mode, name, places.with_answers(answers))
        _parsed(given, file)  # what is wrong with options is an error before any question
        examples = Answers((), (), places.source, places.destination, places.bootstrap, places.connect)
        answers = ask(answers, file, examples)
    elif not include:
        raise click.UsageError("Missing option '--include'.")
    places = places.with_answers(answers)
    with _written(answers.uri_files):
        write_pipeline_file(
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


@contextmanager
def _written(files: Mapping[Path, str]) -> Iterator[None]:
    """Write the files of the URIs, which only their owner can read; if the `with` fails, all is as before."""
    before: dict[Path, str | None] = {}
    try:
        for file, uri in files.items():
            held = file.read_text(encoding="utf-8") if file.exists() else None
            _write_text(file, f"{uri}\n")
            before[file] = held
        yield
    except BaseException:
        for file, text in before.items():
            if text is None:
                file.unlink(missing_ok=True)
            else:
                _write_text(file, text)
        raise


def write_pipeline_file(
    file: Path,
    *,
    include: Sequence[str],
    exclude: Sequence[str] = (),
    mode: Mode = "exactly-once",
    name: str | None = None,
    places: Places = EXAMPLE,
    force: bool = False,
) -> Path:
    """Write a pipeline file with these addresses. Raises `TowpathError`, also for bad values."""
    _write(file, _content(file, include, exclude, mode, name, places), force=force)
    return file


def _content(
    file: Path, include: Sequence[str], exclude: Sequence[str], mode: Mode, name: str | None, places: Places
) -> str:
    values: dict[str, str | Sequence[str]] = {
        "name": name or re.sub(r"[^A-Za-z0-9]+", "-", file.stem).strip("-") or "pipeline",
        "mode": mode,
        "copy": "towpath" if mode == "exactly-once" else "debezium",
        "include": include,
        "exclude": exclude,
        "bootstrap": places.bootstrap,
        "connect": places.connect,
    }
    secrets = '# secrets = "/etc/towpath"' if places.secrets is None else f"secrets = {_toml(places.secrets)}"
    fields = {key: _toml(value) for key, value in values.items()} | {"secrets": secrets}
    fields |= {"source": _uri(places.source), "destination": _uri(places.destination)}
    return _TEMPLATE.read_text(encoding="utf-8") % fields


def _uri(place: str | Path) -> str:
    return f"uri_file = {_toml(str(place))}" if isinstance(place, Path) else f"uri = {_toml(place)}"


def _toml(value: str | Sequence[str]) -> str:
    """A string or an array of strings as TOML. JSON's escapes are valid in TOML, which also requires one for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _refuse_existing(file: Path, *, force: bool) -> None:
    if file.exists() and not force:
        raise TowpathError(f"{file} exists already", "pass --force to overwrite it")


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write the file atomically, and only if it can be loaded. Raises `TowpathError`."""
    _refuse_existing(file, force=force)
    _write_text(file, text, lambda: _parsed(text, file))


def _parsed(text: str, file: Path) -> None:
    """Raise `TowpathError` for a text that could not be loaded from this file."""
    try:
        parse(text, file)
    except BadPipelineFile as error:
        raise TowpathError(f"no pipeline file was written: {error.sentence}", error.advice) from error


def _write_text(file: Path, text: str, check: Callable[[], object] = lambda: None) -> None:
    """Write a file that only its owner can read, atomically. `check` is called before it takes its place."""
    try:
        with replacing(file) as stream:
            stream.write(text)
            check()
    except UnicodeEncodeError as error:
        raise TowpathError(f"no pipeline file was written: {error.object[:80]!r} is not valid UTF-8 text") from error
    except OSError as error:
        raise TowpathError(f"cannot write {file}: {error.strerror}") from error
