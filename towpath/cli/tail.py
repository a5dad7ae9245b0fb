"""`towpath tail`"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
from confluent_kafka import Message

from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json
from towpath.clients.kafka import consume
from towpath.config.namespaces import topic_of
from towpath.errors import TopicError, TowpathError
from towpath.log.dead_letters import letters
from towpath.log.records import in_short, is_chunk, readable, record, schema_change_in_short
from towpath.session import Session


@click.command()
@pipeline_argument
@click.argument("namespace", required=False)
@flag("--dead-letters", help="Print the dead letters, from the first one, with their reasons.")
@flag("--from-beginning", help="Start at the first record of the log; default: at its end.")
@click.option("--limit", type=click.IntRange(min=1), help="Stop after this many records.")
@flag("--no-follow", help="Stop at the current end of the log.")
@flag("--canonical", help="Print canonical Extended JSON, with the type of every number.")
@json_option
def tail(
    file: Path,
    namespace: str | None,
    dead_letters: bool,
    from_beginning: bool,
    limit: int | None,
    no_follow: bool,
    canonical: bool,
    as_json: bool,
) -> None:
    """Print the records of NAMESPACE (source's name) as Extended JSON, as they arrive.

    Run it to see what the log holds. With --dead-letters it prints the records that the destination refused, of all
    namespaces if you name none.

    Exit codes: 0 done; 2 it cannot be done, or you interrupted it.
    """
    if namespace is None and not dead_letters:
        raise click.UsageError("give a NAMESPACE, or pass --dead-letters")
    with opened(file) as session:
        if dead_letters:
            lines = _letters(session, namespace, follow=not no_follow, canonical=canonical)
        else:
            messages = _records(session, str(namespace), from_beginning=from_beginning, follow=not no_follow)
            lines = _changes(messages, canonical=canonical)
        for count, (fields, text) in enumerate(lines, 1):
            print_json(fields) if as_json else click.echo(text)
            if count == limit:
                break


def _changes(messages: Iterator[Message], *, canonical: bool) -> Iterator[tuple[dict[str, object], str]]:
    """Each record as JSON fields and as a line for people; a document in chunks is one record."""
    for message in messages:
        if is_chunk(message.key()):
            continue
        short = None
        try:
            found = record(message)
            fields = found.as_json(canonical=canonical)
            shorten = schema_change_in_short if found.kind == "ddl" else in_short
            short = shorten(found.value, canonical=canonical) if found.value else None
        except TowpathError as error:
            fields = _foreign(message, str(error), canonical=canonical)
        yield fields, _as_text(fields | {"value": short} if short else fields)


def _foreign(message: Message, reason: str, *, canonical: bool) -> dict[str, object]:
    """The JSON fields of a record that Towpath did not write."""
    key, value = message.key(), message.value()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "time_ms": message.timestamp()[1],
        "kind": "foreign",
        "reason": reason,
        "key": readable(key if isinstance(key, bytes) else None, canonical=canonical),
        "value": readable(value if isinstance(value, bytes) else None, canonical=canonical),
    }


def _letters(
    session: Session, namespace: str | None, *, follow: bool, canonical: bool
) -> Iterator[tuple[dict[str, object], str]]:
    """Each dead letter as JSON fields and as text for people: the refusal, and the record on the next line."""
    topic = None if namespace is None else topic_of(session.pipeline.name, namespace)
    for letter in letters(session.pipeline, session.topics, follow=follow):
        if topic in (None, letter.place[0]):
            fields = letter.as_json(canonical=canonical)
            code = f" ({fields['code']})" if fields["code"] is not None else ""
            place = f"{fields['partition']}:{fields['offset']}"
            refusal = f"{fields['namespace'] or fields['topic']}  {fields['key']}{code}: {fields['reason']}"
            yield fields, f"{refusal}\n    {place}  {fields['kind'] or 'record'}  {fields['value'] or ''}".rstrip()


def _records(session: Session, namespace: str, *, from_beginning: bool, follow: bool) -> Iterator[Message]:
    pipeline, topics = session.pipeline, session.topics.all()
    name = topic_of(pipeline.name, namespace)
    topic = topics.get(name)
    if topic is None:
        namespaces = [n.removeprefix(f"{pipeline.name}.") for n in sorted(topics) if pipeline.is_change_topic(n)]
        raise TopicError(
            f"no topic {name} at {pipeline.kafka.bootstrap}; existing ones: {', '.join(namespaces) or 'none'}"
        )
    ends = session.topics.ends([topic])
    with closing(session.topics.consumer()) as consumer:
        starts = {place: first if from_beginning else end for place, (first, end) in ends.items()}
        if not follow:
            window = {place: (starts[place], end) for place, (_, end) in ends.items()}
            yield from (message for _, message in consume.messages(consumer, window))
            return
        yield from consume.follow(consumer, starts)


def _as_text(fields: dict[str, object]) -> str:
    try:
        at = time.strftime("%H:%M:%SZ", time.gmtime(int(str(fields.get("at_ms", fields["time_ms"]))) / 1000))
    except (OverflowError, ValueError, OSError):
        at = "--:--:--Z"  # a foreign record can have any timestamp
    place = f"{fields['partition']}:{fields['offset']}"
    return f"{at}  {place:>8}  {fields['kind']:<8}  {fields['key']}  {fields['value'] or ''}".rstrip()
