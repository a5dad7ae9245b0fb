"""What `towpath replay` is given: the destination, without a password on the command line, and a moment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from towpath import mongo_uri
from towpath.cluster_time import ClusterTime
from towpath.config.credential_files import refuse_files, refuse_open
from towpath.config.loading import holds_secret
from towpath.errors import TowpathError
from towpath.replay.plan import END_OF_SECOND


@dataclass(frozen=True, slots=True, repr=False)
class Given:
    """The three ways to name the destination; one of them is not None."""

    uri: str | None
    file: Path | None
    variable: str | None

    @property
    def count(self) -> int:
        return sum(value is not None for value in (self.uri, self.file, self.variable))


def destination(given: Given) -> str:
    """The URI. Raises `TowpathError` for one that others could read a password in, or that is none."""
    if given.variable is not None:
        uri, where = os.environ.get(given.variable, ""), f"--destination-env {given.variable}"
        if not uri:
            raise TowpathError(f"{where}: the environment variable is not set")
    elif given.file is not None:
        uri, where = _from_file(given.file), f"--destination-file {given.file}"
    else:
        uri, where = given.uri or "", "--destination"
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        raise TowpathError(f"{where}: the URI must begin with mongodb:// or mongodb+srv://")
    if given.uri is not None and holds_secret(uri):
        raise TowpathError(
            "--destination: the URI holds a password, which everyone on this machine can read in the list of processes;"
            " put it into a file that only you can read and pass --destination-file FILE, or into an environment"
            " variable and pass --destination-env NAME"
        )
    refuse_files(mongo_uri.files(uri), where, plain_sink=False)
    return uri


def _from_file(file: Path) -> str:
    try:
        uri = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TowpathError(f"--destination-file: cannot read {file}: {error}") from error
    refuse_open(file, "it holds the URI of the replay's destination")
    return uri


def moment(text: str) -> ClusterTime:
    """A cluster time `seconds:ordinal`, or a time of day in ISO 8601, UTC if no zone is given: a whole second, up to
    its end. Raises `TowpathError` for what is neither."""
    if re.fullmatch(r"\d{1,10}:\d{1,10}", text):
        seconds, _, ordinal = text.partition(":")
        if int(seconds) < 2**32 and int(ordinal) < 2**31:
            return ClusterTime(int(seconds), int(ordinal))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _no_moment(text, "it is neither") from None
    if not re.search(r"[T ]\d\d:?\d\d:?\d\d", text):
        raise _no_moment(text, "the time of day is missing, or its seconds")
    if found.microsecond:
        raise _no_moment(text, "cluster times are whole seconds")
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    seconds_since = int(found.timestamp())
    if not 0 < seconds_since < 2**32:
        raise _no_moment(text, "it is out of range")
    return ClusterTime(seconds_since, END_OF_SECOND)


def _no_moment(text: str, why: str) -> TowpathError:
    return TowpathError(
        f"--until {text!r}: {why}; give a time in ISO 8601 to the second, such as 2026-11-21T18:00:00Z, or a cluster"
        " time as seconds:ordinal"
    )
