"""New pipeline files, written from the template `pipeline.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from towpath.config.loading import parse
from towpath.config.pipeline import Mode
from towpath.errors import BadPipelineFile, TowpathError
from towpath.files import replacing

_TEMPLATE = Path(__file__).with_name("pipeline.toml")


@dataclass(frozen=True, slots=True)
class Places:
    """The addresses in a pipeline file, and `[connect] secrets`; without that, a comment stands in its place."""

    source: str | Path
    """The URI, or the file that holds it."""
    destination: str | Path
    bootstrap: str
    connect: str
    secrets: str | None = None


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
    refuse_existing(file, force=force)
    text = content(file, include, exclude, mode, name, places)
    _write_text(file, text, lambda: require_valid(text, file))
    return file


def content(
    file: Path, include: Sequence[str], exclude: Sequence[str], mode: Mode, name: str | None, places: Places
) -> str:
    """The text of a pipeline file with these values. `name` None: the file's name."""
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


def refuse_existing(file: Path, *, force: bool) -> None:
    """Raise `TowpathError` for a file that exists already."""
    if file.exists() and not force:
        raise TowpathError(f"{file} exists already", "pass --force to overwrite it")


def require_valid(text: str, file: Path) -> None:
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


@contextmanager
def uri_files(files: Mapping[Path, str]) -> Iterator[None]:
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
