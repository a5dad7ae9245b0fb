"""Which records of a topic are wanted: by the source's cluster time, and by document.

Brokers find records only by the time at which they were appended. A change is appended after its cluster time, so the
records appended before `since` are earlier changes, as far as the clocks of the brokers and of the source agree. In the
order of the log, cluster times may go back: rows of a copy have the time at which they were read. So what is at or
before `until` can be anywhere up to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from towpath.clients.kafka.consume import Window
from towpath.clients.kafka.topics import Place, Topics
from towpath.clients.mongo.client import ClusterTime, cluster_time
from towpath.log.records import contract_headers, ends_documents, is_key
from towpath_verifier import Key, id_key

#: Seconds by which a broker's clock may be behind the source's. Such records are also read, and judged by their time.
CLOCKS_S = 600


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted of the records; None for any. Both times are included."""

    since: ClusterTime | None = None
    until: ClusterTime | None = None
    document: Key | None = None

    def takes(self, message: Message) -> bool:
        """Whether a record is wanted. One without a cluster time or a key is not, where that is asked for.

        A document ends also with its collection: so the schema changes that do this are of each document.
        """
        return self._is_in_time(message) and self._is_of_document(message)

    def _is_in_time(self, message: Message) -> bool:
        if self.since is None and self.until is None:
            return True
        try:
            time = cluster_time(contract_headers(message)["t"])
        except ValueError:
            return False
        return (self.since is None or self.since <= time) and (self.until is None or time <= self.until)

    def _is_of_document(self, message: Message) -> bool:
        if self.document is None:
            return True
        key = message.key()
        return id_key(key) == self.document if is_key(key) else ends_documents(key, message.value())


def starts(topics: Topics, ends: Window, since: ClusterTime | None) -> Mapping[Place, int]:
    """Partition → the offset before which no record is at or after `since`; by default the first one."""
    if since is None:
        return {place: first for place, (first, _) in ends.items()}
    at_ms = max(0, since.seconds - CLOCKS_S) * 1000
    found = topics.offsets_at(dict.fromkeys(ends, at_ms))
    return {
        place: max(first, min(end, found[place])) if found[place] >= 0 else end for place, (first, end) in ends.items()
    }
