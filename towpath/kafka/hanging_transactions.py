"""Transactions whose end the brokers have lost (KAFKA-20734, see `unended`): proven, and ended as was decided.

Proven is it in three steps: the partition's broker tells of an open transaction; the coordinator knows of none there,
so that its producer has committed or aborted; and the partition's broker still tells of the same one. What was decided
stands in the coordinators' own log, `__transaction_state`, and is what the marker says that is written then. Formats:
Kafka's `TransactionLogKey.json`, `TransactionLogValue.json` and `TransactionState`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, TopicAuthorizationFailedError, for_code
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from towpath.errors import TopicError
from towpath.kafka.consume import messages
from towpath.kafka.topics import Place, Topics

_LOG = "__transaction_state"
_TIMEOUT_MS = 10_000
_ONGOING, _COMMIT, _ABORT = 1, 2, 3  # TransactionState: Ongoing, PrepareCommit, PrepareAbort
_HEAD = struct.Struct(">hqhib")  # version, producer's id and epoch, timeout, state


class _Open(NamedTuple):
    """A transaction that is open in a partition, as the partition's broker tells it."""

    offset: int
    producer: int
    epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class LostEnd:
    """One that is open in a partition, and of which its coordinator knows nothing any more."""

    place: Place
    transactional_id: str
    open: _Open
    commits: bool | None
    """What was decided; None where that is not known, or must not be read."""

    @property
    def about(self) -> str:
        topic, partition = self.place
        return (
            f"{topic}, partition {partition}: the transaction of {self.transactional_id} at offset {self.open.offset}"
        )


def find(topics: Topics, source_connectors: Iterable[str], places: Iterable[Place]) -> list[LostEnd]:
    """Those at `places` of the Connect cluster that runs `source_connectors`: all its tasks share a topic of offsets.

    Raises `TopicError` when the brokers do not answer, or do not allow it.
    """
    try:
        with closing(_Admin.of(topics)) as admin:
            return list(_found(topics, admin, tuple(source_connectors), sorted(places)))
    except KafkaError as error:
        raise TopicError(f"cannot look for the end of a transaction: {error}") from error


def end(topics: Topics, lost: LostEnd) -> None:
    """Write its marker as was decided. Raises `TopicError` when the broker refuses, or when that is not known."""
    if lost.commits is None:
        raise TopicError(
            f"{lost.about} has lost its end, and whether it was to be committed does not stand in {_LOG}, or must not"
            " be read there: end it with kafka-transactions.sh, as the README says under `When it stops`"
        )
    try:
        with closing(_Admin.of(topics)) as admin:
            admin.write_end(lost)
    except KafkaError as error:
        raise TopicError(f"cannot end {lost.about}: {error}") from error


class _Admin(KafkaAdminClient):  # type: ignore[misc]
    """The one client that can ask for a marker; its own method knows only how to abort."""

    @classmethod
    def of(cls, topics: Topics) -> _Admin:
        return cls(
            bootstrap_servers=topics.bootstrap,
            request_timeout_ms=_TIMEOUT_MS,
            bootstrap_timeout_ms=_TIMEOUT_MS,
            **topics.client.for_kafka_python(),
        )

    def open_at(self, place: Place) -> list[_Open]:
        """The transactions that are open there; none where they must not be seen."""
        partition = TopicPartition(*place)
        try:
            found = self.describe_producers([partition])[partition].active_producers
        except TopicAuthorizationFailedError:
            return []  # somebody else's
        return [
            _Open(one.current_transaction_start_offset, one.producer_id, one.producer_epoch, one.coordinator_epoch)
            for one in found
            if one.current_transaction_start_offset >= 0
        ]

    def write_end(self, lost: LostEnd) -> None:
        self._manager.run(self._write_end, lost)

    async def _write_end(self, lost: LostEnd) -> None:
        topic, partition = lost.place
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=lost.open.producer,
                    producer_epoch=lost.open.epoch,
                    transaction_result=lost.commits,
                    topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
                    coordinator_epoch=max(lost.open.coordinator_epoch, 0),
                )
            ]
        )
        [leader] = await self._async_get_leader_for_partitions([TopicPartition(topic, partition)])
        response = await self._manager.send(request, node_id=leader)
        for code in (p.error_code for m in response.markers for t in m.topics for p in t.partitions):
            if code:
                raise for_code(code)()


def _found(topics: Topics, admin: _Admin, connectors: tuple[str, ...], places: list[Place]) -> Iterator[LostEnd]:
    open_now = [(place, one) for place in places for one in admin.open_at(place)]
    if not open_now:
        return
    listed = [one for found in admin.list_transactions().values() for one in found]
    groups = {_group(one.transactional_id, connector) for one in listed for connector in connectors} - {None}
    ids = {one.producer_id: one.transactional_id for one in listed}
    for place, one in open_now:
        name = ids.get(one.producer, "")
        if not any(name.startswith(f"{group}-") or name == f"connect-cluster-{group}" for group in groups):
            continue
        told = admin.describe_transactions([name])[name]
        is_under_way = told.producer_id != one.producer or TopicPartition(*place) in told.topic_partitions
        if not is_under_way and one in admin.open_at(place):
            yield LostEnd(place, name, one, _decision(topics, name, one, place))


def _group(transactional_id: str, connector: str) -> str | None:
    """`group.id` of the workers, if that is the id of one of the connector's tasks: `<group.id>-<connector>-<task>`
    (Kafka Connect, `Worker.taskTransactionalId`); the workers' own is `connect-cluster-<group.id>`."""
    task_of, _, task = transactional_id.rpartition("-")
    return task_of.removesuffix(f"-{connector}") if task.isdecimal() and task_of.endswith(f"-{connector}") else None


def _decision(topics: Topics, transactional_id: str, one: _Open, place: Place) -> bool | None:
    """What was decided about the last transaction of that producer and epoch that took in the partition.

    Since `transaction.version` 2 each transaction has an epoch of its own, and is decided under the next one.
    """
    log = topics.all().get(_LOG)
    if log is None:
        return None  # it must not be seen
    at = _LOG, _hash(transactional_id) % log.partitions
    consumer, decided, taken_in = topics.consumer(), None, False
    try:
        for _, message in messages(consumer, {at: topics.ends([log])[at]}):
            key, value = message.key(), message.value()
            if not key or not value or key[4:] != transactional_id.encode():
                continue
            _, owner, epoch, _, state = _HEAD.unpack_from(value)
            if owner != one.producer:
                taken_in = False
            elif state == _ONGOING:
                taken_in = epoch == one.epoch and place in _places(value)
                decided = None if taken_in else decided
            elif state in (_COMMIT, _ABORT) and taken_in:
                decided, taken_in = state == _COMMIT, False
    except TopicError:
        return None  # it must not be read
    finally:
        consumer.close()
    return decided


def _places(value: bytes) -> set[Place]:
    """The partitions that a record of the coordinators' log names; since version 1 counts are varints, from 1."""
    is_compact, at = value[1] > 0, _HEAD.size

    def number(layout: str) -> int:
        nonlocal at
        (found,) = struct.unpack_from(layout, value, at)
        at += struct.calcsize(layout)
        return int(found)

    def varint() -> int:
        found, shift = 0, 0
        while (byte := number("B")) & 0x80:
            found, shift = found | (byte & 0x7F) << shift, shift + 7
        return found | byte << shift

    def count(layout: str) -> int:
        return varint() - 1 if is_compact else number(layout)

    found: set[Place] = set()
    for _ in range(count(">i")):
        length = count(">h")
        topic, at = value[at : at + length].decode(), at + length
        found |= {(topic, number(">i")) for _ in range(count(">i"))}
        if is_compact:
            varint()  # no tagged fields
    return found


def _hash(words: str) -> int:
    """Java's `String.hashCode`, without its sign: what spreads the ids over the partitions of the log."""
    found = 0
    for (unit,) in struct.iter_unpack(">H", words.encode("utf-16-be")):
        found = (31 * found + unit) & 0xFFFFFFFF
    return found & 0x7FFFFFFF
