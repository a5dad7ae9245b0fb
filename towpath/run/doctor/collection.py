"""Gathers versions, states, configurations and logs, and writes them to a ZIP archive that only its owner can read.

Verbs of the command line run as processes of their own, so that one that fails or hangs is reported like any other.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from towpath.clients.connect.rest import Connect
from towpath.clients.mongo.client import Cluster
from towpath.config.mongo_uri import without_credentials
from towpath.errors import TowpathError, fields
from towpath.log.definitions import plugins
from towpath.run.doctor.redaction import Redaction
from towpath.session import ERRORS, Session

_VERBS = ("status", "check")
_VERB_TIMEOUT = 120.0  # seconds
_LOG_BYTES = 5_000_000  # of the end of each log
_PACKAGES = ("towpath", "click", "confluent-kafka", "httpx", "kafka-python", "pydantic", "pymongo")

Json = dict[str, Any]


def write(session: Session, file: Path, logs: Sequence[Path], archive: Path) -> list[str]:
    """Write the archive, which must not exist yet, and return the names in it. Raises `TowpathError`.

    `file` is the pipeline file; `logs` are files, or folders with `*.log`.
    """
    entries, redacted = list(_logs(logs)), Redaction.of(session.pipeline)  # a wrong path is an error at once
    try:
        stream = os.fdopen(os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        with stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as opened:
            for name, text in (*_states(session, file), *entries):
                opened.writestr(name, redacted(text))
    except OSError as error:
        raise TowpathError(f"cannot write {archive}: {error.strerror}", "name another file with --output") from error
    return opened.namelist()


def _logs(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """The end of each log, in whole lines: part of a line may be part of a secret. Folders in folders are left out."""
    files = [file for path in paths for file in (sorted(path.glob("*.log")) if path.is_dir() else [path])]
    for number, file in enumerate(files):
        try:
            with file.open("rb") as stream:
                if (begin := stream.seek(0, os.SEEK_END) - _LOG_BYTES) > 0:
                    stream.seek(begin - 1)
                    stream.readline()
                else:
                    stream.seek(0)
                yield f"logs/{number:02}-{file.name}", stream.read().decode(errors="replace")
        except OSError as error:
            raise TowpathError(f"cannot read the log {file}: {error.strerror}") from error


def _states(session: Session, file: Path) -> Iterator[tuple[str, str]]:
    answers: dict[str, Callable[[], Json]] = {
        "versions": lambda: _versions(session),
        "pipeline": lambda: _pipeline_file(session, file),
        "connectors": lambda: _connectors(session),
        "topics": lambda: _topics(session),
    }
    with ThreadPoolExecutor(len(_VERBS)) as pool:
        verbs = {verb: pool.submit(_verb, verb, file) for verb in _VERBS}
        for name, answer in answers.items():
            yield f"{name}.json", json.dumps(_tried(answer), indent=2, default=str) + "\n"
        yield from ((f"{verb}.txt", output.result()) for verb, output in verbs.items())


def _tried(answer: Callable[[], Any]) -> Any:
    """The answer, or the error in its place."""
    try:
        return answer()
    except ERRORS as error:
        return {"error": fields(error)}


def _verb(verb: str, file: Path) -> str:
    """All that the verb prints with `--json`, and its exit code."""
    command = [sys.executable, "-P", "-m", "towpath.cli", verb, str(file), "--json"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_VERB_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"towpath {verb} did not end within {_VERB_TIMEOUT:.0f} s\n"
    return f"{done.stdout}exit code {done.returncode}\n"


def _versions(session: Session) -> Json:
    return {
        "collected": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version,
        "platform": platform.platform(),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "connect": _tried(lambda: _worker(session)),
        "source": _tried(lambda: _server(session.source)),
        "destination": _tried(lambda: _server(session.destination)),
    }


def _worker(session: Session) -> Json:
    found = session.connect.plugins()
    versions = {name: found.get(name) for name in plugins(session.pipeline)}
    version, kafka = session.connect.worker()
    return {"version": version, "plugins": versions, "kafka": kafka}


def _server(cluster: Cluster) -> Json:
    with cluster.briefly() as client:
        hello = client.admin.command("hello")
        return {"version": client.server_info()["version"]} | {key: hello.get(key) for key in ("setName", "hosts")}


def _pipeline_file(session: Session, file: Path) -> Json:
    """The file without its comments, and with both URIs without credentials and options."""
    content, pipeline = tomllib.loads(file.read_text(encoding="utf-8")), session.pipeline
    for side, uri in (("source", pipeline.source.uri), ("destination", pipeline.destination.uri)):
        content[side]["uri"] = without_credentials(uri)
    return content


def _connectors(session: Session) -> Json:
    """Configuration, state and offsets of the pipeline's connectors, those of its replays included."""
    names = session.connect.names()
    return {name: _connector(session.connect, name) for name in names if name.startswith(f"{session.pipeline.name}-")}


def _connector(connect: Connect, name: str) -> Json:
    return {
        "config": _tried(lambda: connect.config(name)),
        "status": _tried(lambda: asdict(connect.status(name))),
        "offsets": _tried(lambda: connect.offsets(name)),
    }


def _topics(session: Session) -> Json:
    """Offsets and settings of the pipeline's topics."""
    ours = {name: topic for name, topic in session.topics.all().items() if name.startswith(f"{session.pipeline.name}.")}
    ends, settings = session.topics.ends(ours.values()), session.topics.settings_of_all(ours)
    return {
        name: {
            "partitions": {place[1]: list(offsets) for place, offsets in sorted(ends.items()) if place[0] == name},
            "settings": settings[name],
        }
        for name in ours
    }
