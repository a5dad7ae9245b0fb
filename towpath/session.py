"""The services that a pipeline names, opened together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from pymongo.errors import PyMongoError

from towpath.clients.connect.control import missing, statuses
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Topics
from towpath.clients.mongo.client import Cluster
from towpath.config import loading as pipeline_file
from towpath.config.pipeline import Pipeline
from towpath.errors import TowpathError
from towpath_verifier import VerifierError

#: What using the services of a session raises, directly or from a library.
ERRORS = (TowpathError, VerifierError, PyMongoError, KafkaException, OSError)
#: Receives messages for people during an operation.
Say = Callable[[str], None]


def unsaid(words: str) -> None:
    """Discard a message."""


@dataclass(frozen=True, slots=True)
class Session:
    """A pipeline with its services. A client opens at its first use, stays open, and closes with the session."""

    pipeline: Pipeline
    source: Cluster
    destination: Cluster
    connect: Connect
    topics: Topics
    file: Path
    say: Say = unsaid
    _replays: dict[str, Cluster] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def replay_destination(self, uri: str) -> Cluster:
        """The cluster that a replay writes to."""
        with self._lock:
            return self._replays.setdefault(uri, Cluster.of_replay(uri))

    def renew(self) -> None:
        """Use new clients for all but Kafka, after a signal has interrupted the old: see `Cluster.renew`."""
        for service in (self.source, self.destination, self.connect):
            service.renew()

    def require_deployed(self) -> None:
        """Raise `NoSuchConnector` unless the pipeline has been deployed, and what `Topics` raises without Kafka.

        Kafka is queried first: without it Connect answers every request with 500, after 90 s.
        """
        self.topics.brokers()
        connectors = statuses(self.connect, self.pipeline.connectors)
        if error := missing(self.connect, connectors, "has the pipeline been deployed?"):
            raise error


@contextmanager
def opened(
    file: Path, content: str | Pipeline | None = None, say: Say = unsaid, shared: Sequence[Cluster] = ()
) -> Iterator[Session]:
    """Read the pipeline file, and prepare clients for Connect, Kafka and both clusters (without connecting).

    `content`: of the file, if it does not exist yet, or as it was read before. `shared`: clusters of another session,
    which closes them; one with the same URI is used. Raises `BadPipelineFile`.
    """
    if isinstance(content, Pipeline):
        pipeline = content
    else:
        pipeline = pipeline_file.read(file) if content is None else pipeline_file.parse(content, file)
    with ExitStack() as stack:

        def cluster(uri: str, side: str) -> Cluster:
            known = next((one for one in shared if one.uri == uri), None)
            return known or stack.enter_context(closing(Cluster(uri, side)))

        source, destination = cluster(pipeline.source.uri, "source"), cluster(pipeline.destination.uri, "destination")
        # connects in the background
        topics = stack.enter_context(Topics(pipeline.kafka.bootstrap, pipeline.kafka.login))
        connect = stack.enter_context(Connect(pipeline.connect.url, pipeline.connect.login))
        session = Session(pipeline, source, destination, connect, topics, file, say)
        try:
            yield session
        finally:
            for replayed in session._replays.values():
                replayed.close()
