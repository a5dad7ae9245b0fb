"""The topics of a pipeline: made with the right settings, compared with what is wanted, read for their ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from towpath.errors import KafkaUnreachable, TopicError, TowpathError
from towpath.kafka_client import ANYBODY, KafkaClient
from towpath.tls import Trouble
from towpath.topic_settings import LARGEST_RECORD

#: A partition: topic and number.
Place = tuple[str, int]

_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_OF_URLS = str.maketrans("+/", "-_", "=")
_REACHED = 10.0  # seconds until no broker is taken to answer
#: librdkafka's words, with the code of any lost connection: the broker closes one that does not log in.
_NO_LOGIN = "broker might require SASL authentication"
_ASKED = 1.0  # seconds until it is looked at why none has answered yet
_TIMEOUT = 15.0  # seconds for one request to the brokers


def topic_id(found: Uuid) -> str:
    """As Java writes it: librdkafka writes it in base64, Java in that of URLs."""
    return str(found).translate(_OF_URLS)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int


@contextmanager
def interruptible() -> Iterator[None]:
    """Around calls of the client that call back: it may lose an interrupt that comes meanwhile (seen with 2.16.1)."""
    try:
        yield
    except SystemError as error:  # "returned NULL without setting an exception" is what is left of it
        raise KeyboardInterrupt from error


class Topics:
    """The topics of one Kafka cluster. Raises `KafkaUnreachable` when no broker answers, `TopicError` for the rest.

    Inside `with`, readers stay connected between two uses and are closed at its end.
    """

    def __init__(self, bootstrap: str, client: KafkaClient = ANYBODY) -> None:
        self.bootstrap, self.client = bootstrap, client
        self._said: list[KafkaError] = []
        self._client: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "socket.connection.setup.timeout.ms": 5000,
            **client.for_librdkafka(),
        }
        self._admin = self._connected()
        self._keeps = False
        self._idle: dict[str, list[Consumer]] = {}
        """Readers that are connected and not in use, by their settings."""

    def __enter__(self) -> Topics:
        self._keeps = True
        return self

    def __exit__(self, *error: object) -> None:
        self._keeps = False
        while self._idle:
            for consumer in self._idle.popitem()[1]:
                consumer.close()

    def _connected(self) -> AdminClient:
        try:
            return AdminClient(self._client | {"error_cb": self._said.append})
        except KafkaException as error:  # a file of [kafka] client that cannot be used
            raise KafkaUnreachable(
                f"cannot use [kafka] client: {error.args[0].str()}",
                "see the files and the password of the key in it",
                where="[kafka] client",
            ) from error

    def all(self) -> dict[str, Topic]:
        """Every topic by name."""
        found = self._metadata().topics
        return {name: Topic(name, len(topic.partitions)) for name, topic in found.items() if topic.error is None}

    def brokers(self) -> list[int]:
        return sorted(self._metadata().brokers)

    def cluster(self) -> str:
        """The id of the Kafka cluster."""
        return str(self._metadata().cluster_id)

    def _metadata(self) -> Any:
        until = time.monotonic() + _REACHED
        self._said.clear()
        while True:
            try:
                return self._admin.list_topics(timeout=_ASKED)
            except KafkaException as error:
                self._admin.poll(0)  # has the client say what came in between
                trouble = self.client.trouble(self.bootstrap, self._refused())
                if trouble is None and time.monotonic() < until:
                    continue
                found = trouble or Trouble(error.args[0].str(), "is a broker running there? ([kafka] bootstrap)")
                words = f"cannot reach Kafka at {self.bootstrap}: {found.what}"
                raise KafkaUnreachable(words, found.advice, where=self.bootstrap) from error

    def _refused(self) -> str:
        """What the client says of a login that the brokers refuse, or miss; empty where they do neither."""
        return next((e.str() for e in self._said if e.code() == KafkaError._AUTHENTICATION or _NO_LOGIN in e.str()), "")

    def create(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        settings: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> None:
        """Create a topic; with `validate_only` ask the brokers whether they would, and create nothing."""
        new = NewTopic(name, partitions, replication_factor, config=dict(settings))
        futures = self._admin.create_topics([new], request_timeout=_TIMEOUT, validate_only=validate_only)
        self._done(f"create the topic {name}", futures[name])

    def settings(self, name: str) -> dict[str, str]:
        """Every setting that is in force for the topic."""
        return self._configuration(ConfigResource(ResourceType.TOPIC, name), f"the settings of the topic {name}")

    def settings_of_all(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Topic → every setting that is in force for it, asked for together."""
        wanted = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
        if not wanted:
            return {}  # the client refuses an empty list
        futures = self._admin.describe_configs(list(wanted.values()), request_timeout=_TIMEOUT)
        return {
            name: _values(self._done(f"read the settings of the topic {name}", futures[resource]))
            for name, resource in wanted.items()
        }

    def broker_settings(self, broker: int) -> dict[str, str]:
        """Every setting of one broker, by its id."""
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        return self._configuration(resource, f"the settings of broker {broker}")

    def _configuration(self, resource: ConfigResource, what: str) -> dict[str, str]:
        return _values(self._done(f"read {what}", self._admin.describe_configs([resource])[resource]))

    def alter(self, name: str, settings: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        self._done(f"change the topic {name}", self._admin.incremental_alter_configs([resource])[resource])

    def delete(self, names: Iterable[str]) -> None:
        doomed = list(names)
        if not doomed:
            return  # the client refuses an empty list
        futures = self._admin.delete_topics(doomed, operation_timeout=_TIMEOUT)
        for name, future in futures.items():
            self._done(f"delete the topic {name}", future)

    def ends(self, topics: Iterable[Topic], *, stable: bool = True) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) → (first offset, end).

        The end is the last stable offset: all before it is committed. Without `stable` it is the end of all that was
        written: also of a transaction that is committed, and of which this partition's broker has not heard yet.
        """
        partitions = [TopicPartition(topic.name, n) for topic in topics for n in range(topic.partitions)]
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        firsts, ends = self._offsets(partitions, earliest), self._offsets(partitions, latest, level)
        return {place: (firsts[place], end) for place, end in ends.items()}

    def written(self, topics: Iterable[Topic]) -> dict[tuple[str, int], int]:
        """(topic, partition) → the end of all that was written, as in `ends` without `stable`."""
        partitions = [TopicPartition(topic.name, n) for topic in topics for n in range(topic.partitions)]
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(partitions, latest, IsolationLevel.READ_UNCOMMITTED)

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Topic → its id, which a topic of the same name that is made later does not have; those that are there."""
        wanted = sorted(set(names))
        if not wanted:
            return {}  # the client refuses an empty list
        futures = self._admin.describe_topics(TopicCollection(wanted), request_timeout=_TIMEOUT)
        found = {}
        for name, future in futures.items():
            try:
                found[name] = topic_id(future.result(timeout=2 * _TIMEOUT).topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self._done(f"read the id of the topic {name}", future)
        return found

    def open_transactions(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → where the first transaction begins that has not ended, in every topic that may be seen
        but Kafka's own."""
        partitions = [
            TopicPartition(name, number)
            for name, topic in self._metadata().topics.items()
            for number, partition in topic.partitions.items()
            if name not in _INTERNAL and partition.leader >= 0
        ]
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        written = self._offsets(partitions, latest, IsolationLevel.READ_UNCOMMITTED)
        stable = self._offsets(partitions, latest)
        return {place: end for place, end in stable.items() if end < written[place]}

    def offsets_at(self, topics: Iterable[Topic], time_ms: int) -> dict[tuple[str, int], int]:
        """(topic, partition) → the first offset at or after a moment (ms since the epoch); -1 where there is none."""
        partitions = [TopicPartition(topic.name, n) for topic in topics for n in range(topic.partitions)]
        return self._offsets(partitions, OffsetSpec.for_timestamp(time_ms))

    def _offsets(
        self,
        partitions: list[TopicPartition],
        spec: OffsetSpec,
        level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[tuple[str, int], int]:
        if not partitions:
            return {}
        futures = self._admin.list_offsets(
            dict.fromkeys(partitions, spec),
            isolation_level=level,
            request_timeout=_TIMEOUT,
        )
        return {
            (partition.topic, partition.partition): self._done(f"read the ends of {partition.topic}", future).offset
            for partition, future in futures.items()
        }

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """(topic, partition) → the next offset that a consumer group will read."""
        return {place: offset for place, (offset, _) in self.committed_with_words(group).items()}

    def committed_with_words(self, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        """The same, with the metadata that was committed beside each offset."""
        future = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=_TIMEOUT
        )[group]
        found = self._done(f"read the offsets of the consumer group {group}", future)
        return {(p.topic, p.partition): (p.offset, p.metadata or "") for p in found.topic_partitions if p.offset >= 0}

    def consumer(self, **settings: Any) -> Consumer:
        """A consumer without a group that reads committed records only."""
        return Consumer(
            self._client
            | {
                "group.id": "towpath-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.message.max.bytes": LARGEST_RECORD,
            }
            | settings
        )

    @contextmanager
    def reader(self, **settings: Any) -> Iterator[Consumer]:
        """A `consumer` for the time of a `with`, which has no partitions at its beginning."""
        idle = self._idle.setdefault(str(sorted(settings.items())), []) if self._keeps else []
        consumer = idle.pop() if idle else self.consumer(**settings)
        try:
            yield consumer
            consumer.unassign()
        except BaseException:
            consumer.close()  # it may be in any state
            raise
        if self._keeps:
            idle.append(consumer)
        else:
            consumer.close()

    def producer(self) -> Producer:
        """A producer whose records are on all replicas in sync once they are acknowledged, each once."""
        return Producer(
            self._client
            | {
                "acks": "all",
                "enable.idempotence": True,
                "message.max.bytes": LARGEST_RECORD,
                "delivery.timeout.ms": 45_000,
            }
        )

    def _done(self, what: str, future: Any) -> Any:
        try:
            return future.result(timeout=2 * _TIMEOUT)
        except KafkaException as error:
            raise TopicError(
                f"cannot {what} at {self.bootstrap}: {error.args[0].str()}", where=self.bootstrap
            ) from error
        except TimeoutError as error:
            raise TowpathError(f"cannot {what} at {self.bootstrap}: no answer in time", where=self.bootstrap) from error


def _values(found: Mapping[str, Any]) -> dict[str, str]:
    return {key: entry.value for key, entry in found.items() if entry.value is not None}
