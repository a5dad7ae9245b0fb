"""What a bug report needs, without secrets: versions, states, configurations and logs, in a ZIP archive.

Only its owner can read the archive. Commands run as separate processes, so that one that fails or hangs is reported
like any other.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import javaproperties

from towpath.clients.mongo.client import Cluster
from towpath.config import mongo_uri
from towpath.config.mongo_uri import without_credentials
from towpath.config.pipeline import Pipeline
from towpath.errors import TowpathError, fields
from towpath.log.definitions import SETTINGS, plugins
from towpath.run.children import Launcher
from towpath.session import ERRORS, Session

_COMMANDS = ("status", "check")
_TIMEOUT = 120.0  # seconds
_LOG_BYTES = 5_000_000  # of the end of each log
_PACKAGES = ("towpath", "click", "confluent-kafka", "httpx", "kafka-python", "pydantic", "pymongo")

Json = dict[str, Any]


def write(session: Session, file: Path, logs: Sequence[Path], archive: Path, launcher: Launcher) -> list[str]:
    """Write the archive, which must not exist yet, and return the names in it. Raises `TowpathError`.

    `file` is the pipeline file; `logs` are files, or folders with `*.log`.
    """
    entries, redacted = list(_logs(logs)), Redaction.of(session.pipeline)  # a wrong path is an error at once
    try:
        stream = os.fdopen(os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        with stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as opened:
            for name, text in (*_states(session, file, launcher), *entries):
                opened.writestr(name, redacted(text))
    except OSError as error:
        raise TowpathError(f"cannot write {archive}: {error.strerror}", "name another file with --output") from error
    return opened.namelist()


def tracker() -> str | None:
    """Where to report a bug; None in a checkout, whose address is a placeholder."""
    labelled = (url.partition(", ") for url in metadata.metadata("towpath").get_all("Project-URL") or ())
    return next((url for name, _, url in labelled if name == "Issues" and ".example" not in url), None)


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


def _states(session: Session, file: Path, launcher: Launcher) -> Iterator[tuple[str, str]]:
    answers: dict[str, Callable[[], Json]] = {
        "versions": lambda: _versions(session),
        "pipeline": lambda: _pipeline_file(session, file),
        "connectors": lambda: _connectors(session),
        "topics": lambda: _topics(session),
    }
    with ThreadPoolExecutor(len(_COMMANDS)) as pool:
        outputs = {name: pool.submit(_output, name, launcher(name, [str(file), "--json"])) for name in _COMMANDS}
        for name, answer in answers.items():
            yield f"{name}.json", json.dumps(_tried(answer), indent=2, default=str) + "\n"
        yield from ((f"{name}.txt", output.result()) for name, output in outputs.items())


def _tried(answer: Callable[[], Any]) -> Any:
    """The answer, or the error in its place."""
    try:
        return answer()
    except ERRORS as error:
        return {"error": fields(error)}


def _output(name: str, command: Sequence[str]) -> str:
    """All that a command prints, and its exit code."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"towpath {name} did not end within {_TIMEOUT:.0f} s\n"
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
    connect, ours = session.connect, f"{session.pipeline.name}-"
    asked: dict[str, Callable[[str], Any]] = {
        "config": connect.config,
        "status": lambda name: asdict(connect.status(name)),
        "offsets": connect.offsets,
    }
    return {
        name: {part: _tried(partial(ask, name)) for part, ask in asked.items()}
        for name in connect.names()
        if name.startswith(ours)
    }


def _topics(session: Session) -> Json:
    """Offsets and settings of the pipeline's topics."""
    ours = {name: topic for name, topic in session.topics.all().items() if name.startswith(f"{session.pipeline.name}.")}
    ends, settings = session.topics.ends(ours.values()), session.topics.settings_of_all(ours, SETTINGS)
    return {
        name: {
            "partitions": {place[1]: list(offsets) for place, offsets in sorted(ends.items()) if place[0] == name},
            "settings": settings[name],
        }
        for name in ours
    }


HIDDEN = "[hidden]"

#: The user part of a URI, up to the last @: characters of a password may be unescaped.
_USER = re.compile(r"(?<![a-z0-9+.\-])([a-z][a-z0-9+.\-]*://)[^\s\"'<>]*@", re.IGNORECASE)
_NAME = r"""[\w.\-]*(?:passw(?:or)?d|pwd|passphrase|secret|token|credential|(?:api|access|private)[_.\-]?key)[\w.\-]*"""
_ELSE = r"""(?!["']?(?:\[hidden\]|\$\{)|null\b|true\b|false\b)"""
#: `ssl.key.password = …` on a separate line: the value goes up to the end of the line.
_LINE = re.compile(rf"""^([ \t]*{_NAME}[ \t]*[=:][ \t]*+){_ELSE}(?!\\*["'{{\[(]).+""", re.IGNORECASE | re.MULTILINE)
#: `password=…`, `"ssl.key.password": "…"`, `Authorization: Basic …`, `Authorization=[Basic …]`, `--password …`. A text
#: whose closing quote is missing goes up to the end of the line.
_NAMED = re.compile(
    rf"""(?<![\w.\-])((?:{_NAME}|authorization)\\*["']?\s*[=:]\s*+|--{_NAME}\s++){_ELSE}
        (?:b?(\\*["'])(?:.*?(?<!\\)\2|.*)
        |\[[^\]\n]+\]?
        |(?:(?:basic|bearer|digest|negotiate)\s+)?[^\s"']*[^\s"',;&()\[\]{{}}])""",
    re.IGNORECASE | re.VERBOSE,
)
#: `sasl.jaas.config = …` up to the end of the line.
_JAAS = re.compile(r"""(sasl\.jaas\.config\\*["']?\s*[=:]\s*+)(?!["']?(?:\$\{|\[hidden\])).*""", re.IGNORECASE)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Redaction:
    """Replaces the known secrets, the longest first, and then everything that has the form of one."""

    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, pipeline: Pipeline) -> Redaction:
        """With all secrets that the pipeline file names, in every form in which they may be written."""
        found = {form for secret in _secrets(pipeline) if secret for form in _forms(secret)}
        return cls(tuple(sorted(found, key=len, reverse=True)))

    def __call__(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        text = _PEM.sub(HIDDEN, text)
        text = _JAAS.sub(rf"\1{HIDDEN}", text)
        text = _USER.sub(rf"\1{HIDDEN}@", text)
        text = _LINE.sub(rf"\1{HIDDEN}", text)
        return _NAMED.sub(rf"\1{HIDDEN}", text)


def _secrets(pipeline: Pipeline) -> Iterator[str]:
    for uri in (pipeline.source.uri, pipeline.destination.uri):
        after = uri.partition("://")[2]
        for part in (after, after.partition("?")[0]):  # an @ may be in the options as well
            yield part.rpartition("@")[0].partition(":")[2]
        yield mongo_uri.split(uri).pem.get("tls.key.password", "")
    yield pipeline.connect.login.password
    client = pipeline.kafka.login
    yield from (value for key, value in client.settings.items() if "password" in key or "jaas" in key)
    yield from client.secrets
    key = pipeline.collections.hash_key
    yield from (key.hex(), key.decode(errors="replace"))
    if token_file := pipeline.run.token_file:
        with suppress(OSError, ValueError):  # not there yet
            yield token_file.read_text(encoding="utf-8").strip()


def _forms(secret: str) -> Iterator[str]:
    """As it is, decoded and encoded for a URI, and escaped as in JSON, Java properties and JAAS."""
    for text in {secret, unquote(secret)}:
        yield from (text, quote(text, ""), quote_plus(text), json.dumps(text)[1:-1])
        yield javaproperties.escape(text)
        yield re.sub(r'(["\\])', r"\\\1", text)
