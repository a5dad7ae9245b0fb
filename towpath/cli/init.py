"""`towpath init`"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import click

from towpath import stack as embedded
from towpath.cli.options import FOLDER, flag, pipeline_argument, say
from towpath.config.loading import parse
from towpath.errors import BadPipelineFile, TowpathError
from towpath.pipeline import Mode

_TEMPLATE = Path(__file__).parent.parent / "config" / "pipeline.toml"


@click.command()
@pipeline_argument
@click.option(
    "--include", multiple=True, required=True, metavar="NS", help="Namespace or pattern to replicate; repeatable."
)
@click.option("--exclude", multiple=True, metavar="NS", help="Namespace or pattern to leave out; repeatable.")
@click.option(
    "--mode",
    type=click.Choice(["exactly-once", "plain"]),
    default="exactly-once",
    help="exactly-once: each change once, in transactions; plain: stock connectors, at least once.",
)
@click.option("--name", help="Name of the pipeline and prefix of its topics; default: the file's name.")
@click.option("--stack", "stack_dir", type=FOLDER, help="Fill in the addresses of the embedded stack in this folder.")
@flag("--force", help="Overwrite the file if it exists.")
def init(
    file: Path,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    mode: Mode,
    name: str | None,
    stack_dir: Path | None,
    force: bool,
) -> None:
    """Write a commented pipeline file to PIPELINE.

    Run it first, then edit the addresses and options in the file.

    Exit codes: 0 written; 2 the file exists already or cannot be written, or an option is not valid.
    """
    stack = embedded.status(stack_dir) if stack_dir is not None else None
    write_pipeline_file(file, include=include, exclude=exclude, mode=mode, name=name, stack=stack, force=force)
    say(f"wrote {file}; next: towpath check {file}, towpath deploy {file}")


def write_pipeline_file(
    file: Path,
    *,
    include: Sequence[str],
    exclude: Sequence[str] = (),
    mode: Mode = "exactly-once",
    name: str | None = None,
    stack: embedded.Stack | None = None,
    force: bool = False,
) -> Path:
    """Write a pipeline file, with the addresses of `stack` if given. Raises `TowpathError`, also for bad values."""
    values: dict[str, str | Sequence[str]] = {
        "name": name or re.sub(r"[^A-Za-z0-9]+", "-", file.stem).strip("-") or "pipeline",
        "mode": mode,
        "copy": "towpath" if mode == "exactly-once" else "debezium",
        "include": include,
        "exclude": exclude,
        "source": "mongodb://source.example:27017/?replicaSet=rs0",
        "destination": "mongodb://destination.example:27017/?replicaSet=rs0",
        "bootstrap": "127.0.0.1:9092",
        "connect": "http://127.0.0.1:8083",
    }
    secrets = '# secrets = "/etc/towpath"'
    if stack is not None:
        values |= {name: getattr(stack, name) for name in ("source", "destination", "bootstrap", "connect")}
        secrets = f"secrets = {_toml(str(stack.directory.resolve() / 'secrets'))}"
    fields = {key: _toml(value) for key, value in values.items()} | {"secrets": secrets}
    _write(file, _TEMPLATE.read_text(encoding="utf-8") % fields, force=force)
    return file


def _toml(value: str | Sequence[str]) -> str:
    """A string or an array of strings as TOML. JSON's escapes are valid in TOML, which also requires one for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write the file atomically, and only if it can be loaded. Raises `TowpathError`."""
    if file.exists() and not force:
        raise TowpathError(f"{file} exists already", "pass --force to overwrite it")
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        parse(text, file)
        temporary.replace(file)
    except BadPipelineFile as error:
        raise TowpathError(f"no pipeline file was written: {error.sentence}", error.advice) from error
    except UnicodeEncodeError as error:
        raise TowpathError(f"no pipeline file was written: {error.object[:80]!r} is not valid UTF-8 text") from error
    except OSError as error:
        raise TowpathError(f"cannot write {file}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
