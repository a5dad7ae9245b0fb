"""The properties file from which the Connect workers read URIs, passwords and the paths of keys."""

from __future__ import annotations

import re
from pathlib import Path

from towpath.clients.mongo import uri as mongo_uri
from towpath.clients.mongo.uri import with_option
from towpath.config.pipeline import Pipeline
from towpath.errors import TowpathError
from towpath.files import replacing

_DESTINATION = "destination"
_URIS = ("mongodb.connection.string", "connection.uri")
#: The messages of Debezium and mongo-kafka for text that is not a URI, such as an unresolved `${file:…}`. Connect's
#: validation has no codes.
_NO_URI = ("Invalid connection string", "must start with")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNESCAPED = {escaped[1]: plain for plain, escaped in _ESCAPES.items()}


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
        return pipeline.destination_uri
    concern, _, journal = pipeline.write_concern.partition("+")
    uri = with_option(pipeline.destination_uri, "w", concern)
    return with_option(uri, "journal", "true") if journal else uri


def properties(pipeline: Pipeline, source_set: str, destination_set: str) -> str:
    """The text of the properties file of a pipeline.

    Debezium needs the name of the replica set in the URI, so it is added if it is missing; a standalone has none.
    """
    source = _lines("source", with_option(pipeline.source_uri, "replicaSet", source_set))
    return source + _sink_lines(pipeline, destination_uri(pipeline), destination_set)


def replay_properties(pipeline: Pipeline, destination_set: str) -> str:
    """The text of the properties file of a replay, which has a sink only."""
    return _sink_lines(pipeline, pipeline.destination_uri, destination_set)


def _sink_lines(pipeline: Pipeline, uri: str, replica_set: str) -> str:
    destination = _lines(_DESTINATION, with_option(uri, "replicaSet", replica_set) if replica_set else uri)
    kafka = (_line(f"kafka.{key}", value) for key, value in pipeline.kafka_client.settings.items())
    return destination + "".join(kafka)


def _lines(side: str, uri: str) -> str:
    """The URI as the Java driver takes it, and its options for PEM files, which that driver does not know."""
    parts = mongo_uri.split(uri)
    return _line(f"{side}.uri", parts.uri) + "".join(_line(f"{side}.{key}", text) for key, text in parts.pem.items())


def read_destination(file: Path) -> str | None:
    """The destination's URI in a properties file of Towpath; None if it is not readable on this machine."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError:
        return None
    values = {
        key.removeprefix(f"{_DESTINATION}."): re.sub(r"\\(.)", lambda escape: _UNESCAPED[escape[1]], text)
        for key, _, text in (line.partition("=") for line in lines)
        if key.startswith(f"{_DESTINATION}.")
    }
    uri = values.pop("uri", None)
    return None if uri is None else mongo_uri.joined(uri, values)


def _line(key: str, text: str) -> str:
    return f"{key}={''.join(_ESCAPES.get(c, c) for c in text)}\n"


def differs(file: Path, text: str) -> bool:
    """Whether the file is missing or has another content."""
    try:
        return file.read_text(encoding="utf-8") != text
    except FileNotFoundError:
        return True
    except OSError as error:
        raise _unusable(file, error) from error


def write(file: Path, text: str) -> None:
    """Replace the file; only its owner can read it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(file) as stream:
            stream.write(text)
    except OSError as error:
        raise _unusable(file, error) from error


def _unusable(file: Path, error: OSError) -> TowpathError:
    return TowpathError(
        f"cannot use {file}, from which the Connect workers read URIs and passwords: {error.strerror}",
        "correct that, or set [connect] secrets to another folder",
    )
