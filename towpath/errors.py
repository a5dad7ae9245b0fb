"""What can go wrong, as one tree. Errors are data: `what`, `where`, `advice` and `code`; the message is made of them.

TowpathError                    root
├── BadPipelineFile             the pipeline file is missing, unreadable or says something that cannot be
├── ConnectError                the Connect REST API answered, but not with what was asked for
│   ├── ConnectUnreachable      no worker answers at the Connect URL
│   ├── NoSuchConnector         Connect does not know the connector
│   └── Unresolved              a worker cannot read a file that a configuration refers to
├── KafkaRefused                the brokers refuse the login or the connection, or its settings cannot be used
├── KafkaUnreachable            no broker answers at the bootstrap address
├── TopicError                  a topic is not as the record contract needs it
├── Refused                     the change would break the order of records or lose some of them
│   └── Overtaken               another command is at the same work by now
├── MongoError                  a cluster refuses the user or a command, or its URI cannot be used
│   └── MongoUnreachable        no server of a cluster answers: the only one that a command may tolerate
├── NotWhole                    the log cannot rebuild all documents
├── NotYet                      what was waited for did not come about in time
└── StackError                  the embedded stack cannot do what was asked
    └── NoStack                 the folder holds no stack

The verifier is a library and has its own root with the same fields: `towpath_verifier.VerifierError`.
"""

from __future__ import annotations


class TowpathError(Exception):
    """Root of the tree.

    `what` was found; `where`: a file, URL, host, topic, side or namespace; `advice`: what to do; `code`: as in
    `docs/errors.md`. What is not known is empty. The message is `code: where: what; advice`, without the code and the
    place where `what` names them itself.
    """

    def __init__(self, what: str, advice: str = "", *, where: str = "", code: str = "") -> None:
        self.what, self.where, self.advice, self.code = what, where, advice, code
        super().__init__(f"{self.sentence}; {advice}" if advice else self.sentence)

    @property
    def sentence(self) -> str:
        """The message without the advice."""
        return "".join(f"{part}: " for part in (self.code, self.where) if part and part not in self.what) + self.what


def fields(error: BaseException) -> dict[str, str]:
    """An error as data; one of a foreign package is its words alone."""
    return {"what": getattr(error, "what", str(error))} | {
        name: getattr(error, name, "") for name in ("where", "advice", "code")
    }


class BadPipelineFile(TowpathError):
    """The pipeline file is missing, unreadable or says something that cannot be."""


class ConnectError(TowpathError):
    """Connect answered a request with something other than success."""

    def __init__(
        self, what: str, advice: str = "", *, where: str = "", code: str = "", status: int | None = None
    ) -> None:
        super().__init__(what, advice, where=where, code=code)
        self.status = status


class ConnectUnreachable(ConnectError):
    """No worker answers at the Connect URL."""


class NoSuchConnector(ConnectError):
    """Connect does not know a connector of that name."""


class Unresolved(ConnectError):
    """A worker cannot resolve the `${file:…}` of a configuration."""


class KafkaRefused(TowpathError):
    """The brokers refuse the login or the connection, or the settings of [kafka] client cannot be used."""


class KafkaUnreachable(TowpathError):
    """No broker answers at the bootstrap address. It may be lost."""


class TopicError(TowpathError):
    """A topic is not as the record contract needs it."""


class Refused(TowpathError):
    """The change asked for would break the order of records or lose some of them."""


class Overtaken(Refused):
    """Another command is at the same work by now, and continues instead of this one."""


class MongoError(TowpathError):
    """A cluster refuses the user or a command, or its URI cannot be used. It does not pass without a change."""


class MongoUnreachable(MongoError):
    """No server of a cluster answers, or not in time. It may be lost."""


class NotWhole(TowpathError):
    """The log cannot rebuild all documents; nothing was changed."""


class NotYet(TowpathError):
    """What was waited for did not come about in time; the message names the last state seen."""


class StackError(TowpathError):
    """The embedded stack cannot do what was asked: something is missing, in use, different, or has ended."""


class NoStack(StackError):
    """The folder holds no stack."""
