"""One partition of the log, looked through for `towpath.log.integrity`: keys with updates, and their documents."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Message

from towpath.cluster_time import ClusterTime, cluster_time
from towpath.errors import TopicError
from towpath.kafka.topics import Place
from towpath.log.records import headers_of, is_key
from towpath.log.unprotected import is_update


@dataclass(frozen=True, slots=True)
class Cut:
    """The cleaner may have been at what the brokers appended before `time_ms`: at offsets before `offset` (-1: all)."""

    time_ms: int
    offset: int


class Scan:
    """One partition: what the two passes over it find."""

    def __init__(self, place: Place, bounds: tuple[int, int], cut: Cut | None) -> None:
        self.place = place
        self.start, self.end = bounds
        self.records = 0
        self.next = self.start
        """The next offset of the pass that is under way."""
        self.moment: ClusterTime | None = None
        """Before it the partition does not tell all."""
        self.updated: dict[bytes, int] = {}
        """Key → offset of its first update; in the second pass only those whose document was not found yet."""
        self._cut = cut
        self._cut_at = 0 if cut is None else self.end if cut.offset < 0 else cut.offset
        self.first_ms: int | None = None
        """The brokers' time of the first record."""
        self._old: Message | None = None
        self._young: Message | None = None

    @property
    def length(self) -> int:
        return self.end - self.start

    def gather(self, message: Message) -> None:
        """The first pass: keys with updates, and the records on both sides of the cut."""
        offset = message.offset() or 0
        if self.first_ms is None:
            self.first_ms = message.timestamp()[1]
        if offset < self._cut_at:
            self._old = message
        elif self._young is None:
            self._young = message
        self.records += 1
        self.next = offset + 1
        key = message.key()
        if is_key(key) and is_update(message.value()):
            self.updated.setdefault(key, offset)

    def gathered(self) -> None:
        """The first pass is over."""
        if self._cut is not None and self.length:
            self.moment = self._cleaned_up_to(self._cut)
        self._old = self._young = None
        self.next = self.start

    def _cleaned_up_to(self, cut: Cut) -> ClusterTime | None:
        """No record that the cleaner dropped is later than this.

        What it drops has a later record of its key that is as old; only deletes are dropped without one. Where
        offsets are missing at the cut, deletes may have been there: the next record is later than they were.
        """
        last = self.start - 1 if self._old is None else self._old.offset() or 0
        following = self.end if self._young is None else self._young.offset() or 0
        if following - last - 1 <= 1:  # the end of a transaction has an offset as well
            return None if self._old is None else _time(self._old)
        return ClusterTime(cut.time_ms // 1000 + 1, 0) if self._young is None else _time(self._young)

    def resolve(self, message: Message) -> None:
        """The second pass: the first whole document, or delete, of each key that has updates."""
        offset, key = message.offset() or 0, message.key()
        self.next = offset + 1
        update_at = self.updated.get(key) if isinstance(key, bytes) else None
        if update_at is None or is_update(message.value()):
            return
        if offset > update_at:  # until then only an update tells of the document
            self.moment = max(_time(message), self.moment or _time(message))
        del self.updated[key]  # type: ignore[arg-type]  # it was in there


def _time(message: Message) -> ClusterTime:
    try:
        return cluster_time(dict(headers_of(message))["t"].decode())
    except (KeyError, ValueError, AttributeError) as error:
        raise TopicError(f"{_where(message)}: a record without a cluster time, so none of Towpath's") from error


def _where(message: Message) -> str:
    return f"{message.topic()}, partition {message.partition()}, offset {message.offset()}"
