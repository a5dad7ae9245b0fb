"""`towpath init`"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

import stack as embedded
from connectors.spec import Mode
from towpath.errors import TowpathError
from towpath.opened import say

_TEMPLATE = Path(__file__).parent / "pipeline.toml"


@click.command()
@click.argument("file", metavar="PIPELINE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--include", "include", multiple=True, required=True, metavar="NS", help="Namespace or pattern; repeatable."
)
@click.option(
    "--exclude", "exclude", multiple=True, metavar="NS", help="Namespace or pattern to leave out; repeatable."
)
@click.option(
    "--mode",
    type=click.Choice(["exactly-once", "plain"]),
    default="exactly-once",
    show_default=True,
    help="Each change once, in transactions; or stock connectors, at least once.",
)
@click.option("--name", help="Name of the pipeline and prefix of its topics; default: the file's name.")
@click.option(
    "--stack",
    "stack_dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Fill in the addresses of the embedded stack in this folder.",
)
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
def init(
    file: Path,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    mode: Mode,
    name: str | None,
    stack_dir: Path | None,
    force: bool,
) -> None:
    """Write a commented pipeline file to PIPELINE."""
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
    """Write a pipeline file, with the addresses of a stack if there is one. Raises `TowpathError`."""
    values = {
        "name": name or re.sub(r"[^A-Za-z0-9]+", "-", file.stem).strip("-") or "pipeline",
        "mode": mode,
        "copy": "towpath" if mode == "exactly-once" else "debezium",
        "include": _strings(include),
        "exclude": _strings(exclude),
        "source": "mongodb://source.example:27017/?replicaSet=rs0",
        "destination": "mongodb://destination.example:27017/?replicaSet=rs0",
        "bootstrap": "127.0.0.1:9092",
        "connect": "http://127.0.0.1:8083",
        "secrets": '# secrets = "/etc/towpath"',
    }
    if stack is not None:
        values |= {
            "source": stack.source,
            "destination": stack.destination,
            "bootstrap": stack.bootstrap,
            "connect": stack.connect,
            "secrets": f'secrets = "{stack.directory.resolve() / "secrets"}"',
        }
    try:
        with file.open("w" if force else "x") as stream:
            stream.write(_TEMPLATE.read_text() % values)
        file.chmod(0o600)
    except FileExistsError as error:
        raise TowpathError(f"{file} is there already; pass --force to overwrite it") from error
    except OSError as error:
        raise TowpathError(f"cannot write {file}: {error.strerror}") from error
    return file


def _strings(values: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"
