"""The pipeline file: TOML, read strictly, so that a mistyped key is an error and is not ignored.

New ones are written from the template `pipeline.toml`.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from towpath.config import mongo_uri
from towpath.config.logins import read_connect_login, read_kafka_login, refuse_files, refuse_open, shown
from towpath.config.pipeline import Cluster, Mode, Pipeline
from towpath.errors import BadPipelineFile, TowpathError
from towpath.files import replacing

_TEMPLATE = Path(__file__).with_name("pipeline.toml")
#: What the name of a pipeline, and that of its file, get for its reverse pipeline.
REVERSE = "-back"


def reverse_file_path(path: Path) -> Path:
    """The path of the reverse pipeline's file: beside the pipeline's file."""
    return path.with_name(f"{path.stem}{REVERSE}.toml")


def read(path: Path) -> Pipeline:
    """Read and check a pipeline file. Raises `BadPipelineFile`, which lists every fault in the file."""
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadPipelineFile(
            f"there is no pipeline file {path}", f"`towpath init {path} --include …` writes one", where=str(path)
        ) from error
    except (OSError, ValueError) as error:
        raise BadPipelineFile(f"cannot read the pipeline file {path}: {error}", where=str(path)) from error
    return parse(content, path)


def parse(content: str, path: Path) -> Pipeline:
    """The pipeline of a file with this `content` at `path`, which need not exist. Raises as `read` does."""
    return _with_secrets(as_written(content, path), path)


def as_written(content: str, path: Path) -> Pipeline:
    """The pipeline of a file; nothing that it names is read. Raises `BadPipelineFile`."""
    try:
        return Pipeline.model_validate(_toml(content, path), context=path.parent)
    except ValidationError as error:
        faults = "\n".join(f"  {_description(fault)}" for fault in error.errors(include_url=False))
        raise BadPipelineFile(f"{path} cannot be used:\n{faults}", where=str(path)) from error


def _toml(content: str, path: Path) -> dict[str, Any]:
    if content.startswith("\ufeff"):
        raise BadPipelineFile(
            f"{path} begins with a byte order mark, which TOML does not have; save it as plain UTF-8", where=str(path)
        )
    try:
        return tomllib.loads(content)
    except RecursionError as error:
        raise BadPipelineFile(f"{path} is not TOML: it is nested too deeply", where=str(path)) from error
    except ValueError as error:  # not only TOMLDecodeError: a number with thousands of digits
        raise BadPipelineFile(f"{path} is not TOML: {error}", where=str(path)) from error


def _description(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    match fault["type"]:
        case "extra_forbidden" | "is_instance_of":
            return f"{place}: unknown key; is it misspelt, or in the wrong section?"
        case "missing":
            return f"{place}: is missing"
        case "string_pattern_mismatch":
            return f"{place}: {shown(fault['input'])} does not fit {fault['ctx']['pattern']}"
        case "tuple_type":
            return f"{place}: input should be a list"
        case "byte_size" | "byte_size_unit":
            return f"{place}: {shown(fault['input'])} is not a size; write a number of bytes, or a text such as 64MiB"
        case _:
            message = fault["msg"].removeprefix("Value error, ")
            return f"{place}: {message[0].lower()}{message[1:]}" if place else message


def _with_secrets(pipeline: Pipeline, path: Path) -> Pipeline:
    """The pipeline with what is in the files and variables that it names. Raises `BadPipelineFile`."""
    kafka, connect = pipeline.kafka, pipeline.connect
    key = pipeline.collections.hash_key_file
    return pipeline.changed(
        collections={"hash_key": _hash_key(key, f"{path}: [collections] hash_key_file")} if key else {},
        source={"uri": _uri(pipeline.source, "source", path, pipeline.mode)},
        destination={"uri": _uri(pipeline.destination, "destination", path, pipeline.mode)},
        kafka={"login": read_kafka_login(kafka.client, f"{path}: [kafka] client") if kafka.client else kafka.login},
        connect={"login": read_connect_login(connect.user_file, connect.ca, connect.certificate, str(path))},
    )


def _uri(cluster: Cluster, side: str, path: Path, mode: Mode) -> str:
    if cluster.uri_env is not None:
        uri = os.environ.get(cluster.uri_env)
        if not uri:
            raise BadPipelineFile(
                f"the environment variable {cluster.uri_env} is not set", where=f"{path}: [{side}] uri_env"
            )
    elif cluster.uri_file is not None:
        file = cluster.uri_file
        try:
            uri = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise BadPipelineFile(f"cannot read {file}: {error}", where=f"{path}: [{side}] uri_file") from error
        refuse_open(file, f"it holds the URI of the {side}")
    else:
        uri = cluster.uri
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        raise BadPipelineFile("the URI must begin with mongodb:// or mongodb+srv://", where=f"{path}: [{side}]")
    try:
        urlsplit(uri)
    except ValueError as error:
        raise BadPipelineFile(f"the URI is not valid: {error}", where=f"{path}: [{side}]") from error
    if cluster.uri and holds_secret(uri):
        refuse_open(path, f"it holds the password of the {side}")
    refuse_files(mongo_uri.files(uri), f"{path}: [{side}]", plain_sink=side == "destination" and mode == "plain")
    return uri


_HASH_KEY_BYTES = 16


def _hash_key(file: Path, where: str) -> bytes:
    try:
        key = file.read_bytes().strip()
    except OSError as error:
        raise BadPipelineFile(f"cannot read {file}: {error.strerror}", where=where) from error
    refuse_open(file, "it holds the key of hashes")
    if len(key) < _HASH_KEY_BYTES:
        raise BadPipelineFile(
            f"{file} holds a key of {len(key)} bytes, and at least {_HASH_KEY_BYTES} are needed",
            f"run: openssl rand -hex 32 > {file}",
            where=where,
        )
    return key


def holds_secret(uri: str) -> bool:
    """Whether the URI holds the password of a user or of a key."""
    return ":" in uri.partition("://")[2].rpartition("@")[0] or "password=" in uri.lower()


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
    secrets = (
        '# secrets = "/etc/towpath/secrets"' if places.secrets is None else f"secrets = {_as_toml(places.secrets)}"
    )
    fields = {key: _as_toml(value) for key, value in values.items()} | {"secrets": secrets}
    fields |= {"source": _place(places.source), "destination": _place(places.destination)}
    return _TEMPLATE.read_text(encoding="utf-8") % fields


def _place(place: str | Path) -> str:
    return f"uri_file = {_as_toml(str(place))}" if isinstance(place, Path) else f"uri = {_as_toml(place)}"


def _as_toml(value: str | Sequence[str]) -> str:
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
