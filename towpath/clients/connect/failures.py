"""Why a connector has failed: the relevant line of its stack trace, and the code that determines the remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: One exception of a stack trace: its class, and our code where the message begins with one.
_EXCEPTION = re.compile(r"^(?:[\w$]+\.)*([\w$]+)(?:: (?:(TWP-[A-Z-]+[A-Z]): )?|$)")
_AT_FRONT = re.compile(r"(TWP-[A-Z-]+[A-Z]): ")
_CAUSE = "Caused by: "
#: Class names that add nothing to the message after them.
_PLAIN = re.compile(
    r"^(?:org\.apache\.kafka\.connect\.errors\.\w+|io\.towpath\.record\.ContractException|[\w.$]+(?=: TWP-)): "
)
#: Failures of other software that map to one of our codes: by the class of the exception, ...
_CLASSES = dict.fromkeys(("ConfigException", "ClassNotFoundException", "NoClassDefFoundError"), "TWP-CONFIG")
#: ... by MongoDB's error code in the driver's message (286 is ChangeStreamHistoryLost), ...
_SERVER_ERROR = re.compile(r"\b(?:error|code) (\d+)\b")
_SERVER_CODES = {"286": "TWP-HISTORY-LOST"}
#: ... and by text: of Debezium and Kafka Connect.
_WORDS = {
    "may no longer be in the oplog": "TWP-HISTORY-LOST",
    r"Invalid value .* for configuration": "TWP-CONFIG",
    "Failed to find any class": "TWP-CONFIG",
}
#: User and password of a MongoDB URI, also where somebody has not escaped an @, a slash or a space.
_USER = re.compile(r"(mongodb(?:\+srv)?://)(?:[^@\s]*|[^@/]*)@(?:\S*@)?")


@dataclass(frozen=True, slots=True)
class Failure:
    """The essence of a Java stack trace, which is all that Connect reports."""

    what: str
    """One line: the exception with a code, or else the deepest cause."""
    code: str
    """As in `docs/errors.md`; empty where a restart may help."""

    @classmethod
    def of(cls, trace: str) -> Failure:
        lines = [line.strip() for line in trace.splitlines()] or [""]
        causes = [line for n, line in enumerate(lines) if n == 0 or line.startswith(_CAUSE)]
        causes = [line.removeprefix(_CAUSE) for line in causes]
        coded = ((line, match[2]) for line in causes if (match := _EXCEPTION.match(line)) and match[2])
        line, code = next(coded, (causes[-1], _foreign(causes[-1])))
        return cls(without_users(_PLAIN.sub("", line)), code)


def without_users(text: str) -> str:
    """URIs in it lose their users: mongo-kafka quotes a URI that it cannot use, with its password."""
    return _USER.sub(r"\1", text)


def code_of(message: str) -> str:
    """The code at the front of a message of our connectors; empty without one."""
    match = _AT_FRONT.match(message)
    return match[1] if match else ""


def _foreign(line: str) -> str:
    kind, server = _EXCEPTION.match(line), _SERVER_ERROR.search(line)
    by_kind = _CLASSES.get(kind[1], "") if kind else ""
    by_server = _SERVER_CODES.get(server[1], "") if server else ""
    return by_kind or by_server or next((code for words, code in _WORDS.items() if re.search(words, line)), "")
