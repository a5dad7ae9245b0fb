"""What can go wrong, as one tree.

TowpathError                    root; its message says what was attempted, where, what was found, what to do
├── BadPipelineFile             the pipeline file is missing, unreadable or says something that cannot be
├── ConnectError                the Connect REST API answered, but not with what was asked for
│   ├── ConnectUnreachable      nobody answers at the Connect URL
│   └── NoSuchConnector         Connect does not know the connector
├── KafkaUnreachable            no broker answers at the bootstrap address
├── TopicError                  a topic is not as the record contract needs it
├── Refused                     the change would break the order of records or lose some of them
│   └── Overtaken               another command is at the same work by now
├── MongoUnreachable            a cluster does not answer, or refuses the credentials
├── NotWhole                    the log cannot rebuild all documents
└── NotYet                      what was waited for did not come about in time

The verifier and the embedded stack have roots of their own: `verifier.VerifierError`, `towpath.stack.StackError`.
"""


class TowpathError(Exception):
    """Root of the tree. `advice` is what to do, where the one who raises it knows; the message is both."""

    def __init__(self, found: str, advice: str = "") -> None:
        super().__init__(f"{found}; {advice}" if advice else found)
        self.found, self.advice = found, advice


class BadPipelineFile(TowpathError):
    """The pipeline file is missing, unreadable or says something that cannot be."""


class ConnectError(TowpathError):
    """Connect answered a request with something other than success."""

    def __init__(self, found: str, status: int | None = None, advice: str = "") -> None:
        super().__init__(found, advice)
        self.status = status


class ConnectUnreachable(ConnectError):
    """Nobody answers at the Connect URL."""


class NoSuchConnector(ConnectError):
    """Connect does not know a connector of that name."""


class KafkaUnreachable(TowpathError):
    """No broker answers at the bootstrap address."""


class TopicError(TowpathError):
    """A topic is not as the record contract needs it."""


class Refused(TowpathError):
    """The change asked for would break the order of records or lose some of them."""


class Overtaken(Refused):
    """Another command is at the same work by now, and goes on instead of this one."""


class MongoUnreachable(TowpathError):
    """A cluster does not answer, or refuses the credentials."""


class NotWhole(TowpathError):
    """The log cannot rebuild all documents; nothing was changed."""


class NotYet(TowpathError):
    """What was waited for did not come about in time; the message names the last state seen."""
