"""`towpath init`"""

from __future__ import annotations

from pathlib import Path

import click

from towpath import stack as embedded
from towpath.cli.options import FILE, FOLDER, flag, pipeline_argument, say
from towpath.cli.questions import Answers, ask, on_terminal
from towpath.config.draft import (
    COMPOSE,
    EXAMPLE,
    Places,
    content,
    refuse_existing,
    require_valid,
    uri_files,
    write_pipeline_file,
)
from towpath.config.loading import holds_secret
from towpath.config.sections import Mode
from towpath.errors import TowpathError


def places_of(stack: embedded.Stack) -> Places:
    """The addresses of the embedded stack."""
    return Places(stack.source, stack.destination, stack.bootstrap, stack.connect, str(stack.options.secrets.resolve()))


def _answered(places: Places, answers: Answers) -> Places:
    """These addresses where no answer gives another."""
    return Places(
        answers.source or places.source,
        answers.destination or places.destination,
        answers.bootstrap or places.bootstrap,
        answers.connect or places.connect,
        places.secrets,
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
    places = COMPOSE if compose else EXAMPLE if stack_dir is None else places_of(embedded.status(stack_dir))
    if not (yes or compose or stack_dir is not None) and on_terminal():
        refuse_existing(file, force=force)
        if not file.parent.is_dir():
            raise TowpathError(f"cannot write {file}: there is no folder {file.parent}")
        given = content(file, include or ("db.*",), exclude, mode, name, _answered(places, answers))
        require_valid(given, file)  # what is wrong with options is an error before any question
        examples = Answers((), (), places.source, places.destination, places.bootstrap, places.connect)
        answers = ask(answers, file, examples)
    elif not include:
        raise click.UsageError("Missing option '--include'.")
    places = _answered(places, answers)
    with uri_files(answers.uri_files):
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
