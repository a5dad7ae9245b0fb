"""The properties file through which URIs, passwords and the paths of keys reach the Connect workers."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from towpath import mongo_uri
from towpath.errors import TowpathError
from towpath.mongo_uri import with_option
from towpath.pipeline import Pipeline

_DESTINATION = "destination"
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNESCAPED = {escaped[1]: plain for plain, escaped in _ESCAPES.items()}


def destination_uri(pipeline: Pipeline) -> str:
    """The destination's URI, in plain mode with the write concern in it, which is how mongo-kafka takes it.

    In exactly-once mode the concern is a setting of the sink's, for its transactions.
    """
    if pipeline.exactly_once:
        return pipeline.destination_uri
    concern, _, journal = pipeline.write_concern.partition("+")
    uri = with_option(pipeline.destination_uri, "w", concern)
    return with_option(uri, "journal", "true") if journal else uri


def properties(pipeline: Pipeline, source_set: str, destination_set: str) -> str:
    """The text of the properties file.

    Debezium wants the name of the replica set in the URI, so it is added where it is missing; a standalone has none.
    """
    destination = destination_uri(pipeline)
    source = _lines("source", with_option(pipeline.source_uri, "replicaSet", source_set))
    return source + destination_only(destination, destination_set) + _kafka(pipeline)


def replay_properties(pipeline: Pipeline, destination_set: str) -> str:
    """The text of the properties file of a sink alone, as a replay has it."""
    return destination_only(pipeline.destination_uri, destination_set) + _kafka(pipeline)


def destination_only(uri: str, destination_set: str) -> str:
    return _lines(_DESTINATION, with_option(uri, "replicaSet", destination_set) if destination_set else uri)


def _kafka(pipeline: Pipeline) -> str:
    return "".join(_line(f"kafka.{key}", value) for key, value in pipeline.kafka_client.settings.items())


def _lines(side: str, uri: str) -> str:
    """The URI as Java's driver takes it, and the PEM files that it does not know."""
    found = mongo_uri.split(uri)
    return _line(f"{side}.uri", found.uri) + "".join(_line(f"{side}.{key}", text) for key, text in found.pem.items())


def read_destination(file: Path) -> str | None:
    """The destination's URI in a properties file of ours; None when that is not to be read here."""
    try:
        lines = file.read_text().split("\n")
    except OSError:
        return None
    told = {
        key.removeprefix(f"{_DESTINATION}."): re.sub(r"\\(.)", lambda escape: _UNESCAPED[escape[1]], text)
        for key, _, text in (line.partition("=") for line in lines)
        if key.startswith(f"{_DESTINATION}.")
    }
    uri = told.pop("uri", None)
    return None if uri is None else mongo_uri.joined(uri, told)


def _line(key: str, text: str) -> str:
    return f"{key}={''.join(_ESCAPES.get(c, c) for c in text)}\n"


def differs(file: Path, text: str) -> bool:
    """Whether the file is missing or says something else."""
    try:
        return file.read_text() != text
    except FileNotFoundError:
        return True
    except OSError as error:
        raise _unusable(file, error) from error


def write(file: Path, text: str) -> None:
    """Write the file in one piece, readable by its owner only."""
    new = file.with_suffix(".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(text)
        new.replace(file)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)  # half a file holds half the secrets
        raise _unusable(file, error) from error


def _unusable(file: Path, error: OSError) -> TowpathError:
    return TowpathError(
        f"cannot use {file}, from which the Connect workers read what is secret: {error.strerror}",
        "mend that, or name another place with [connect] secrets",
    )
