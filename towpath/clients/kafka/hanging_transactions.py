"""Finds hanging transactions (KAFKA-20734, see `towpath.log.lag`), and ends them as their coordinator decided; and
fences the tasks that have begun them.

The proof has three steps: the partition's broker reports an open transaction; the coordinator has none there, because
the producer has committed or aborted it; and the partition's broker still reports the same one. The decision is in the
coordinators' own log, `__transaction_state`, and determines the marker to write. Formats:
Kafka's `TransactionLogKey.json`, `TransactionLogValue.json` and `TransactionState`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaException
from kafka import TopicPartition
from kafka.errors import KafkaError

from towpath.clients.kafka.consume import messages
from towpath.clients.kafka.protocol import OpenTransaction, Protocol
from towpath.clients.kafka.topics import Place, Topics
from towpath.errors import TopicError, TowpathError

_LOG = "__transaction_state"
_OF_WORKERS = "connect-cluster-"  # before their `group.id`
_ONGOING, _COMMIT, _ABORT = 1, 2, 3  # TransactionState: Ongoing, PrepareCommit, PrepareAbort
_HEAD = struct.Struct(">hqhib")  # version, producer's id and epoch, timeout, state


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, but not at its coordinator."""

    place: Place
    transactional_id: str
    open: OpenTransaction

    @property
    def about(self) -> str:
        topic, partition = self.place
        return (
            f"{topic}, partition {partition}: the transaction of {self.transactional_id} at offset {self.open.offset}"
        )


def find(topics: Topics, source_connectors: Iterable[str], places: Iterable[Place]) -> list[HangingTransaction]:
    """The hanging transactions at `places` of the Connect cluster that runs `source_connectors`.

    Raises `TopicError` when the brokers do not answer, or deny it.
    """
    try:
        with topics.protocol() as protocol:
            return list(_hanging(protocol, tuple(source_connectors), sorted(places)))
    except KafkaError as error:
        raise TopicError(f"cannot look for hanging transactions: {error}") from error


def fence(topics: Topics, source_connectors: Iterable[str], timeout: float) -> None:
    """Fence the tasks of these source connectors, which are stopped, as Connect does before it starts tasks again.

    What a worker that has lost contact still writes is refused from then on, and what it had open is aborted.
    `timeout` is in seconds, for each task. Raises `TopicError` when brokers do not answer, or deny it.
    """
    names = tuple(source_connectors)
    try:
        with topics.protocol() as protocol:
            listed = [listing.transactional_id for found in protocol.list_transactions().values() for listing in found]
        groups = {one.removeprefix(_OF_WORKERS) for one in listed if one.startswith(_OF_WORKERS)}
        tasks = {f"{group}-{name}" for group in groups for name in names}
        own = {one for one in listed if one.rpartition("-")[0] in tasks and one.rpartition("-")[2].isdecimal()}
        for transactional_id in sorted(own):
            topics.producer(**{"transactional.id": transactional_id}).init_transactions(timeout)
    except (KafkaError, KafkaException) as error:
        raise TopicError(f"cannot fence the tasks of {', '.join(names)}: {error}") from error


def end(topics: Topics, hanging: HangingTransaction) -> bool:
    """Write the marker of the decision; whether that is to commit.

    Raises `TopicError` when the broker denies it, and when the decision cannot be read.
    """
    try:
        commits = _decision(topics, hanging)
    except TowpathError as error:
        raise TopicError(
            f"{hanging.about} has lost its end, and whether to commit it is not known: {error}. Run the command again;"
            " if it says so again, end the transaction with kafka-transactions.sh, as docs/how-to/recover.md describes"
        ) from error
    try:
        with topics.protocol() as protocol:
            protocol.write_end(hanging.place, hanging.open, commits=commits)
    except KafkaError as error:
        raise TopicError(f"cannot end {hanging.about}: {error}") from error
    return commits


def _hanging(protocol: Protocol, connectors: tuple[str, ...], places: list[Place]) -> Iterator[HangingTransaction]:
    candidates = [(place, candidate) for place in places for candidate in protocol.open_at(place)]
    if not candidates:
        return
    listed = [listing for listings in protocol.list_transactions().values() for listing in listings]
    groups = {_group(listing.transactional_id, connector) for listing in listed for connector in connectors} - {None}
    ids = {listing.producer_id: listing.transactional_id for listing in listed}
    for place, candidate in candidates:
        name = ids.get(candidate.producer, "")
        if not any(name.startswith(f"{group}-") or name == f"{_OF_WORKERS}{group}" for group in groups):
            continue
        current = protocol.describe_transactions([name])[name]
        is_ongoing = current.producer_id != candidate.producer or TopicPartition(*place) in current.topic_partitions
        if not is_ongoing and candidate in protocol.open_at(place):
            yield HangingTransaction(place, name, candidate)


def _group(transactional_id: str, connector: str) -> str | None:
    """`group.id` of the workers, if that is the id of one of the connector's tasks: `<group.id>-<connector>-<task>`
    (Kafka Connect, `Worker.taskTransactionalId`); the workers' own is `connect-cluster-<group.id>`."""
    task_of, _, task = transactional_id.rpartition("-")
    return task_of.removesuffix(f"-{connector}") if task.isdecimal() and task_of.endswith(f"-{connector}") else None


def _decision(topics: Topics, hanging: HangingTransaction) -> bool:
    """Whether the last transaction of that producer and epoch that included the partition was to be committed.

    Since `transaction.version` 2 each transaction has a separate epoch, and the decision has the next one.
    """
    log = topics.all().get(_LOG)
    if log is None:
        raise TopicError(f"this user may not see {_LOG}")
    at = _LOG, _hash(hanging.transactional_id) % log.partitions
    consumer, included = topics.consumer(), False
    decided: bool | None = None
    try:
        for _, message in messages(consumer, {at: topics.ends([log])[at]}):
            key, value = message.key(), message.value()
            if not key or not value or key[4:] != hanging.transactional_id.encode():
                continue
            _, owner, epoch, _, state = _HEAD.unpack_from(value)
            if owner != hanging.open.producer:
                included = False
            elif state == _ONGOING:
                included = epoch == hanging.open.epoch and hanging.place in _places(value)
                decided = None if included else decided
            elif state in (_COMMIT, _ABORT) and included:
                decided, included = state == _COMMIT, False
    finally:
        consumer.close()
    if decided is None:
        raise TopicError(f"{_LOG}, partition {at[1]}, does not show it")
    return decided


def _places(value: bytes) -> set[Place]:
    """The partitions that a record of the coordinators' log names; since version 1 counts are varints, from 1."""
    is_compact, at = value[1] > 0, _HEAD.size

    def number(layout: str) -> int:
        nonlocal at
        (field,) = struct.unpack_from(layout, value, at)
        at += struct.calcsize(layout)
        return int(field)

    def varint() -> int:
        low, shift = 0, 0
        while (byte := number("B")) & 0x80:
            low, shift = low | (byte & 0x7F) << shift, shift + 7
        return low | byte << shift

    def count(layout: str) -> int:
        return varint() - 1 if is_compact else number(layout)

    places: set[Place] = set()
    for _ in range(count(">i")):
        length = count(">h")
        topic, at = value[at : at + length].decode(), at + length
        places |= {(topic, number(">i")) for _ in range(count(">i"))}
        if is_compact:
            varint()  # no tagged fields
    return places


def _hash(text: str) -> int:
    """The absolute value of Java's `String.hashCode`, which selects the log's partition for a transactional id (Kafka,
    `TransactionStateManager.partitionFor` and `Utils.abs`, where that of the smallest number is 0)."""
    code = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        code = (31 * code + unit) & 0xFFFFFFFF
    return min(code, -code & 0xFFFFFFFF) & 0x7FFFFFFF
