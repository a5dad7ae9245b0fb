"""`towpath tail`"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import click
from confluent_kafka import Consumer, KafkaError, TopicPartition

from connectors.errors import TopicError
from connectors.namespaces import topic_of
from connectors.records import Record, record
from towpath.opened import Opened, json_option, opened, pipeline_argument


@click.command()
@pipeline_argument
@click.argument("namespace")
@click.option("--from-beginning", is_flag=True, help="Start at the first record of the log; default: at its end.")
@click.option("--limit", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--no-follow", is_flag=True, help="Stop at the present end of the log.")
@click.option("--canonical", is_flag=True, help="Extended JSON with the type of every number.")
@json_option
def tail(
    file: Path,
    namespace: str,
    from_beginning: bool,
    limit: int | None,
    no_follow: bool,
    canonical: bool,
    as_json: bool,
) -> None:
    """Print the records of NAMESPACE (source's name) as Extended JSON, as they come in."""
    with opened(file) as it:
        found = _records(it, namespace, from_beginning=from_beginning, follow=not no_follow)
        for count, line in enumerate(found, 1):
            shown = line.as_json(canonical=canonical)
            click.echo(json.dumps(shown, ensure_ascii=False) if as_json else _line(shown))
            if count == limit:
                break


def _records(it: Opened, namespace: str, *, from_beginning: bool, follow: bool) -> Iterator[Record]:
    topics = it.topics.all()
    topic = topics.get(topic_of(it.pipeline.name, namespace))
    if topic is None:
        known = sorted(n for n in topics if re.fullmatch(it.pipeline.selection.topic_regex(it.pipeline.name), n))
        raise TopicError(
            f"no topic {topic_of(it.pipeline.name, namespace)} at {it.pipeline.bootstrap};"
            f" there are: {', '.join(n.removeprefix(it.pipeline.name + '.') for n in known) or 'none'}"
        )
    ends = it.topics.ends([topic])
    consumer = it.topics.consumer()
    try:
        starts = {place: first if from_beginning else end for place, (first, end) in ends.items()}
        consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
        open_ends = {p for (_, p), (_, end) in ends.items() if follow or starts[topic.name, p] < end}
        while open_ends:
            yield from _polled(consumer, open_ends, follow=follow)
    finally:
        consumer.close()


def _polled(consumer: Consumer, open_ends: set[int], *, follow: bool) -> Iterator[Record]:
    message = consumer.poll(0.5)
    if message is None:
        return
    error = message.error()
    if error is None:
        yield record(message)
    elif error.code() != KafkaError._PARTITION_EOF:
        raise TopicError(f"cannot read {message.topic()}: {error.str()}")
    elif not follow:
        open_ends.discard(message.partition() or 0)


def _line(shown: dict[str, object]) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(int(str(shown["at_ms"])) / 1000))
    place = f"{shown['partition']}:{shown['offset']}"
    return f"{at}  {place:>8}  {shown['kind']:<8}  {shown['key']}  {shown['value'] if shown['value'] else ''}".rstrip()
