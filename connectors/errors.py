"""What can go wrong between Towpath, Kafka Connect, Kafka and the two clusters.

ConnectorsError                 root; its message says what was attempted, where, what was found, what to do
├── ConnectError                the Connect REST API answered, but not with what was asked for
│   ├── ConnectUnreachable      nobody answers at the Connect URL
│   └── NoSuchConnector         Connect does not know the connector
├── KafkaUnreachable            no broker answers at the bootstrap address
├── TopicError                  a topic is not as the record contract needs it
├── Refused                     the change would break the order of records or lose some of them
│   └── Overtaken               another command is at the same work by now
├── MongoUnreachable            a cluster does not answer, or refuses the credentials
└── NotYet                      what was waited for did not come about in time
"""


class ConnectorsError(Exception):
    """Root of all errors of this package. `advice` is what to do, where the one who raises it knows; its message is
    both."""

    def __init__(self, found: str, advice: str = "") -> None:
        super().__init__(f"{found}; {advice}" if advice else found)
        self.found, self.advice = found, advice


class ConnectError(ConnectorsError):
    """Connect answered a request with something other than success."""

    def __init__(self, found: str, status: int | None = None, advice: str = "") -> None:
        super().__init__(found, advice)
        self.status = status


class ConnectUnreachable(ConnectError):
    """Nobody answers at the Connect URL."""


class NoSuchConnector(ConnectError):
    """Connect does not know a connector of that name."""


class KafkaUnreachable(ConnectorsError):
    """No broker answers at the bootstrap address."""


class TopicError(ConnectorsError):
    """A topic is not as the record contract needs it."""


class Refused(ConnectorsError):
    """The change asked for would break the order of records or lose some of them."""


class Overtaken(Refused):
    """Another command is at the same work by now, and goes on instead of this one."""


class MongoUnreachable(ConnectorsError):
    """A cluster does not answer, or refuses the credentials."""


class NotYet(ConnectorsError):
    """What was waited for did not come about in time; the message names the last state seen."""
