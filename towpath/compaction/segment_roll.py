"""A partition that nothing comes to keeps its last segment open, and the cleaner never touches an open one.

So a document of it is read again: the record of that closes the segment, and what was deleted in it goes in time.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, TopicPartition

from towpath.errors import TopicError
from towpath.kafka.topics import Place, Topics
from towpath.log.records import is_key
from towpath.log.unprotected import Part, is_update
from towpath.pipeline import Compaction

_LOOKED_AT = 1_000  # records in which a document is looked for
_PATIENCE = 20.0  # seconds until a broker that sends nothing is given up


def is_due(part: Part, compaction: Compaction, now_ms: int) -> bool:
    """Whether the newest record is as old as the lag. Once closed, only tombstones have to go: their time is longer."""
    if part.last_ms is None or part.dirty:
        return False
    tombstones_ms = max(compaction.delete_retention_ms, 2 * compaction.lag_ms)  # sooner the cleaner does not come by
    return now_ms - part.last_ms > (tombstones_ms if part.quiet else compaction.lag_ms)


def key_in(topics: Topics, place: Place) -> bytes | None:
    """The key of the first document of a partition, or else of its first record; None when there is none.

    The first, because an old document is likely to be there still: of a deleted one another tombstone would come.
    """
    consumer, first = topics.consumer(**{"auto.offset.reset": "earliest"}), None
    try:
        consumer.assign([TopicPartition(*place, 0)])
        for _ in range(_LOOKED_AT):
            message = consumer.poll(_PATIENCE)
            if message is None:
                raise TopicError(f"no answer when reading {place[0]}, partition {place[1]}")
            error, key, value = message.error(), message.key(), message.value()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                break
            if error is not None:
                raise TopicError(f"cannot read {place[0]}, partition {place[1]}: {error.str()}")
            if not is_key(key):
                continue  # somebody else's
            if value is not None and not is_update(value):
                return key
            first = first or key
        return first
    finally:
        consumer.close()
