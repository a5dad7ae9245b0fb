"""The services that a pipeline names, opened together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from towpath.clients.connect.control import missing, statuses
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Topics
from towpath.clients.mongo.client import kept_open
from towpath.config import loading as pipeline_file
from towpath.config.pipeline import Pipeline

#: Receives messages for people during an operation.
Say = Callable[[str], None]


def unsaid(words: str) -> None:
    """Discard a message."""


@dataclass(frozen=True, slots=True)
class Session:
    """A pipeline with its services. A client opens at its first use, stays open, and closes with the session."""

    pipeline: Pipeline
    connect: Connect
    topics: Topics
    file: Path
    say: Say = unsaid

    def require_deployed(self) -> None:
        """Raise `NoSuchConnector` unless the pipeline has been deployed, `KafkaUnreachable` when no broker answers.

        Kafka is queried first: without it Connect answers every request with 500, after 90 s.
        """
        self.topics.brokers()
        connectors = statuses(self.connect, self.pipeline.connectors)
        if error := missing(self.connect, connectors, "has the pipeline been deployed?"):
            raise error


@contextmanager
def opened(file: Path, content: str | None = None, say: Say = unsaid) -> Iterator[Session]:
    """Read the pipeline file, and prepare clients for Connect, Kafka and both clusters (without connecting).

    With `content` the file need not exist yet. Raises `BadPipelineFile`.
    """
    pipeline = pipeline_file.read(file) if content is None else pipeline_file.parse(content, file)
    with of(pipeline, file, say) as session:
        yield session


@contextmanager
def of(pipeline: Pipeline, file: Path, say: Say = unsaid) -> Iterator[Session]:
    """As `opened`, for a pipeline that was read from `file`."""
    with (
        kept_open(),
        Topics(pipeline.kafka.bootstrap, pipeline.kafka.login) as topics,  # connects in the background
        Connect(pipeline.connect.url, pipeline.connect.login) as connect,
    ):
        yield Session(pipeline, connect, topics, file, say)
