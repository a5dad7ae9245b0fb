"""The properties file from which the Connect workers read URIs, passwords and the paths of keys."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import javaproperties

from towpath.config import mongo_uri
from towpath.config.mongo_uri import with_option
from towpath.config.pipeline import Pipeline
from towpath.files import file_errors, replacing

_DESTINATION = "destination"
#: The key of rules that hash, in hexadecimal digits.
HASH_KEY = "rules.key"
_URIS = ("mongodb.connection.string", "connection.uri")
#: The messages of Debezium and mongo-kafka for text that is not a URI, such as an unresolved `${file:…}`. Connect's
#: validation has no codes.
_NO_URI = ("Invalid connection string", "must start with")


def is_unresolved(setting: str, message: str) -> bool:
    """Whether a connector's objection says that the worker has left the reference to this file as it is."""
    return setting in _URIS and any(words in message for words in _NO_URI)


def advice(file: Path) -> str:
    """What to do when the workers do not resolve references to this file."""
    return (
        f"set [connect] secrets, which is {file.parent}, to a folder that every worker has under the same path, and"
        " that config.providers.file.param.allowed.paths names there, if it is set; every worker needs"
        " config.providers=file and"
        " config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider; the file on the"
        " workers' machines must be the one that deploy writes, and readable for the user who runs the worker"
    )


def destination_uri(pipeline: Pipeline) -> str:
    """The destination's URI; in plain mode with the write concern, which mongo-kafka reads from there.

    In exactly-once mode the write concern is a setting of the sink, for its transactions.
    """
    if pipeline.exactly_once:
        return pipeline.destination.uri
    concern, _, journal = pipeline.write.concern.partition("+")
    uri = with_option(pipeline.destination.uri, "w", concern)
    return with_option(uri, "journal", "true") if journal else uri


def properties(pipeline: Pipeline, source_set: str, destination_set: str) -> str:
    """The text of the properties file of a pipeline.

    Debezium needs the name of the replica set in the URI, so it is added if it is missing; a standalone has none.
    """
    source = _of_uri("source", with_option(pipeline.source.uri, "replicaSet", source_set))
    if key := pipeline.collections.hash_key:
        source[HASH_KEY] = key.hex()
    return _text(source | _of_sink(pipeline, destination_uri(pipeline), destination_set))


def replay_properties(pipeline: Pipeline, destination_set: str) -> str:
    """The text of the properties file of a replay, which has a sink only."""
    return _text(_of_sink(pipeline, pipeline.destination.uri, destination_set))


def _of_sink(pipeline: Pipeline, uri: str, replica_set: str) -> dict[str, str]:
    destination = _of_uri(_DESTINATION, with_option(uri, "replicaSet", replica_set) if replica_set else uri)
    return destination | {f"kafka.{key}": value for key, value in pipeline.kafka.login.settings.items()}


def _of_uri(side: str, uri: str) -> dict[str, str]:
    """The URI as the Java driver takes it, and its options for PEM files, which that driver does not know."""
    parts = mongo_uri.split(uri)
    return {f"{side}.uri": parts.uri} | {f"{side}.{key}": text for key, text in parts.pem.items()}


def _text(values: Mapping[str, str]) -> str:
    return javaproperties.dumps(values, timestamp=None)


def read_destination(file: Path) -> str | None:
    """The destination's URI in a properties file of Towpath; None if it is not readable on this machine."""
    try:
        found = javaproperties.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    prefix = f"{_DESTINATION}."
    values = {key.removeprefix(prefix): text for key, text in found.items() if key.startswith(prefix)}
    uri = values.pop("uri", None)
    return None if uri is None else mongo_uri.joined(uri, values)


def is_of_replay(file: Path) -> bool:
    """Whether it is a properties file of Towpath with a destination only, which a replay has."""
    try:
        return read_destination(file) is not None and "source.uri" not in file.read_text(encoding="utf-8")
    except OSError:
        return False


def differs(file: Path, text: str) -> bool:
    """Whether the file is missing or has another content."""
    with _file_errors(file):
        return not file.exists() or file.read_text(encoding="utf-8") != text


def write(file: Path, text: str) -> None:
    """Replace the file; only its owner can read it."""
    with _file_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(file) as stream:
            stream.write(text)


def _file_errors(file: Path) -> AbstractContextManager[None]:
    attempt = f"use {file}, from which the Connect workers read URIs and passwords"
    return file_errors(attempt, "correct that, or set [connect] secrets to another folder")
