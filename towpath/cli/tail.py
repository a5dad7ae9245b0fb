"""`towpath tail`"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
from confluent_kafka import Message

from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json, span
from towpath.clients.kafka import consume
from towpath.clients.mongo.client import ClusterTime, cluster_time
from towpath.config.namespaces import topic_of
from towpath.errors import TopicError, TowpathError
from towpath.history.plan import END_OF_SECOND, point_in_time
from towpath.log.dead_letters import letters
from towpath.log.records import in_short, is_chunk, readable, record, schema_change_in_short
from towpath.log.selection import Selection, starts
from towpath.session import Session
from towpath.verify.repair import id_of
from towpath_verifier import id_key

_NO_TIME = "----------T--:--:--Z"


@click.command()
@pipeline_argument
@click.argument("namespace", required=False)
@flag("--dead-letters", help="Print the dead letters, from the first one, with their reasons.")
@flag("--from-beginning", help="Start at the first record of the log; default: at its end.")
@click.option(
    "--since",
    metavar="TIME",
    help="Only changes at or after a time of the source: 2026-11-21T18:00:00+01:00 (UTC without a zone), a cluster"
    " time, seconds:ordinal, or how long ago, such as 10m.",
)
@click.option(
    "--until",
    metavar="TIME",
    help="Only changes at or before a time of the source, in the same form; a whole second is included. Stops at the"
    " current end of the log.",
)
@click.option(
    "--id",
    "id_text",
    metavar="ID",
    help="Only changes of this document: its _id as Extended JSON, or a string; and drops, renames and replacements of"
    " its collection, once in each partition. Without --since it starts at the first record.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Stop after this many records.")
@flag("--no-follow", help="Stop at the current end of the log.")
@flag("--canonical", help="Print canonical Extended JSON, with the type of every number.")
@json_option
def tail(
    file: Path,
    namespace: str | None,
    dead_letters: bool,
    from_beginning: bool,
    since: str | None,
    until: str | None,
    id_text: str | None,
    limit: int | None,
    no_follow: bool,
    canonical: bool,
    as_json: bool,
) -> None:
    """Print the records of NAMESPACE (source's name) as Extended JSON, as they arrive.

    Run it to see what the log holds, or what was changed at a time or in a document. Each line begins with the
    source's time of the change, in UTC, and its cluster time; `replay --until` takes both. Then come partition and
    offset. With --dead-letters it prints the records that the destination refused, of all namespaces if you name none.

    Exit codes: 0 done; 2 it cannot be done, or you interrupted it.
    """
    if namespace is None and not dead_letters:
        raise click.UsageError("give a NAMESPACE, or pass --dead-letters")
    if dead_letters and (since or until or id_text is not None):
        raise click.UsageError("--since, --until and --id do not go with --dead-letters")
    if since and from_beginning:
        raise click.UsageError("give one of --since and --from-beginning, not both")
    wanted = _selection(since, until, id_text, time.time())
    begins = from_beginning or wanted != Selection()
    with opened(file) as session:
        if dead_letters:
            lines = _letters(session, namespace, follow=not no_follow, canonical=canonical)
        else:
            follow = not (no_follow or until)
            messages = _records(session, str(namespace), wanted, begins=begins, follow=follow)
            lines = _changes(filter(wanted.takes, messages), canonical=canonical)
        for count, (fields, text) in enumerate(lines, 1):
            print_json(fields) if as_json else click.echo(text)
            if count == limit:
                break


def _selection(since: str | None, until: str | None, id_text: str | None, now: float) -> Selection:
    """What the options want. Raises `TowpathError`."""
    document = None if id_text is None else id_key(id_of(id_text))
    return Selection(_moment("--since", since, 0, now), _moment("--until", until, END_OF_SECOND, now), document)


def _moment(option: str, text: str | None, ordinal: int, now: float) -> ClusterTime | None:
    """A time of the source, or so long before `now`. `ordinal`: of a time that is a whole second."""
    if text is None:
        return None
    if ago := span(text):
        return ClusterTime(max(0, int(now - ago.total_seconds())), ordinal)
    try:
        return point_in_time(text, option, ordinal=ordinal)
    except TowpathError as error:
        raise TowpathError(error.what, f"{error.advice}, or how long ago, such as 10m") from None


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


def _records(session: Session, namespace: str, wanted: Selection, *, begins: bool, follow: bool) -> Iterator[Message]:
    """The records from the first that may be wanted on; unless it `begins`, from the end on."""
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
        lasts = {place: end for place, (_, end) in ends.items()}
        begin = starts(session.topics, ends, wanted.since) if begins else lasts
        if not follow:
            window = {place: (begin[place], end) for place, (_, end) in ends.items()}
            yield from (message for _, message in consume.messages(consumer, window))
            return
        yield from consume.follow(consumer, begin)


def _as_text(fields: dict[str, object]) -> str:
    """A line for people: the source's second and cluster time of the change; of a foreign record, when it came."""
    try:
        changed = str(fields.get("cluster_time") or "")
        seconds = cluster_time(changed).seconds if changed else int(str(fields["time_ms"])) / 1000
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        changed, at = "", _NO_TIME  # a foreign record can have any timestamp
    place = f"{fields['partition']}:{fields['offset']}"
    line = f"{at}  {changed or '-':<14}  {place:>8}  {fields['kind']:<8}  {fields['key']}  {fields['value'] or ''}"
    return line.rstrip()
