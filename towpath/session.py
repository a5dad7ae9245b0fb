"""A pipeline file together with the services that it names, as every verb needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from confluent_kafka import KafkaException
from pymongo.errors import PyMongoError

from connectors.rest import Connect
from towpath.config import loading as pipeline_file
from towpath.errors import TowpathError
from towpath.kafka.topics import Topics
from towpath.pipeline import Pipeline
from verifier import VerifierError

#: What a step fails with.
ERRORS = (TowpathError, VerifierError, PyMongoError, OSError)
#: What may come of a look at a pipeline, and be over at the next one.
TROUBLE = (*ERRORS, KafkaException)


@dataclass(frozen=True, slots=True)
class Opened:
    pipeline: Pipeline
    connect: Connect
    topics: Topics
    file: Path


@contextmanager
def opened(file: Path, content: str | None = None) -> Iterator[Opened]:
    """Read the pipeline file and be ready to talk to Connect and Kafka (nothing is asked yet).

    With `content` the file need not be there yet.
    """
    pipeline = pipeline_file.read(file) if content is None else pipeline_file.parse(content, file)
    with Connect(pipeline.connect_url, pipeline.connect_login) as connect:
        yield Opened(pipeline, connect, Topics(pipeline.bootstrap, pipeline.kafka_client), file)


pipeline_argument = click.argument("file", metavar="PIPELINE", type=click.Path(path_type=Path, dir_okay=False))
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


def say(words: str) -> None:
    """Words for people go to standard error; standard output is for data."""
    click.echo(words, err=True)
