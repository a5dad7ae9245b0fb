"""Text without secrets: the pipeline's own, wherever they stand, and whatever looks like one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, quote_plus, unquote

import javaproperties

from towpath.config import mongo_uri
from towpath.config.pipeline import Pipeline

HIDDEN = "[hidden]"

#: The user part of a URI, up to the last @: characters of a password may be unescaped.
_USER = re.compile(r"(?<![a-z0-9+.\-])([a-z][a-z0-9+.\-]*://)[^\s\"'<>]*@", re.IGNORECASE)
_NAME = r"""[\w.\-]*(?:passw(?:or)?d|pwd|passphrase|secret|token|credential|(?:api|access|private)[_.\-]?key)[\w.\-]*"""
_ELSE = r"""(?!["']?(?:\[hidden\]|\$\{)|null\b|true\b|false\b)"""
#: `ssl.key.password = …` as a line of its own: the value goes up to the end of the line.
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
    if client.user:
        yield client.user[1]
    if token_file := pipeline.run.token_file:
        with suppress(OSError, ValueError):  # not there yet
            yield token_file.read_text(encoding="utf-8").strip()


def _forms(secret: str) -> Iterator[str]:
    """As it is, decoded and encoded for a URI, and escaped as in JSON, Java properties and JAAS."""
    for text in {secret, unquote(secret)}:
        yield from (text, quote(text, ""), quote_plus(text), json.dumps(text)[1:-1])
        yield javaproperties.escape(text)
        yield re.sub(r'(["\\])', r"\\\1", text)
