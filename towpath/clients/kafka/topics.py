"""The topics of a Kafka cluster: creation, settings, offsets, sizes, and clients that read and write them.

A login has the names of Java's `client.properties`; the options of librdkafka and kafka-python are derived from them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
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

from towpath.clients.tls import TlsProblem, Trust, tls_problem
from towpath.config.logins import CA, CERTIFICATE, HOST_CHECK, KEY_PASSWORD, MECHANISM, PROTOCOL, KafkaLogin
from towpath.errors import KafkaRefused, KafkaUnreachable, TopicError, TowpathError

if TYPE_CHECKING:
    from towpath.clients.kafka.protocol import Protocol

T = TypeVar("T")
#: A partition: topic and number.
Place = tuple[str, int]

#: Bytes. 16 MiB is the largest document; a record adds its key, headers and the update's own wrapping.
LARGEST_RECORD = 17 * 1024 * 1024
_LIBRDKAFKA = {key: key for key in (PROTOCOL, MECHANISM, KEY_PASSWORD)} | {
    "ssl.ca.location": CA,
    "ssl.certificate.location": CERTIFICATE,
    "ssl.key.location": CERTIFICATE,
}
_KAFKA_PYTHON = {
    "security_protocol": PROTOCOL,
    "sasl_mechanism": MECHANISM,
    "ssl_cafile": CA,
    "ssl_certfile": CERTIFICATE,
    "ssl_keyfile": CERTIFICATE,
    "ssl_password": KEY_PASSWORD,
}
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_OF_URLS = str.maketrans("+/", "-_", "=")
_NO_SETTINGS = KafkaLogin()
_REACHED = 10.0  # seconds until the brokers count as unreachable
#: librdkafka's message for a connection that the broker closed, which it does without a login. The code is that of any
#: lost connection.
_NO_LOGIN = "broker might require SASL authentication"
_ATTEMPT = 1.0  # seconds until we look for the reason why no broker has answered yet
_EARLIEST, _LATEST = -2, -1  # in the place of a time, as in Kafka's requests
#: Of more partitions or topics, the brokers are asked by `Protocol`: 0.1 s for its import, and then much less for each.
_MANY = 500
_TIMEOUT = 15.0  # seconds for one request to the brokers
_UNDER_WAY = 100  # records that the brokers have not acknowledged yet
_ACKNOWLEDGED_S = 60.0  # until the brokers must have acknowledged all records
#: Half of what Kafka's controller writes for one request at most (`QuorumController.MAX_RECORDS_PER_USER_OP`).
_RECORDS_A_REQUEST = 5_000
_AGAIN = 0.1  # seconds until we ask once more about a partition without a leader
#: A broker's answers about a partition that has no leader yet (a new topic) or gets another one. The client asks such
#: brokers again when it reads or writes, but not for `list_offsets`.
_BETWEEN_LEADERS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._NOENT,  # the client's own, when none of the partitions has a leader
)


def topic_id(uuid: Uuid) -> str:
    """As Java writes it, in the base64 of URLs; librdkafka uses plain base64."""
    return str(uuid).translate(_OF_URLS)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int


@contextmanager
def interruptible() -> Iterator[None]:
    """For calls of the client that run callbacks: the client may lose an interrupt during them (seen with 2.16.1)."""
    try:
        yield
    except SystemError as error:  # "returned NULL without setting an exception" is all that remains of it
        raise KeyboardInterrupt from error


class Topics:
    """The topics of one Kafka cluster.

    Raises `KafkaUnreachable` when no broker answers, `KafkaRefused` when they refuse the client, and else `TopicError`.
    Inside `with`, clients stay connected between two uses; they are closed at its end.
    """

    def __init__(self, bootstrap: str, login: KafkaLogin = _NO_SETTINGS) -> None:
        self.bootstrap, self.login = bootstrap, login
        self._errors: list[KafkaError] = []
        self._client: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "socket.connection.setup.timeout.ms": 5000,
            **for_librdkafka(login),
        }
        self._keeps = False
        self._idle: dict[str, list[Any]] = {}
        """Clients that are connected and not in use, by their settings."""
        self._are_many = False
        """Whether there were more than `_MANY` topics when they were listed last."""
        self._empty: dict[Place, tuple[int, int]] = {}
        """Offsets [from, end) that hold no record."""

    def __enter__(self) -> Topics:
        self._keeps = self._admin is not None  # connects now, not when it is used first, which may be in a pause
        return self

    def __exit__(self, *error: object) -> None:
        self._keeps = False
        while self._idle:
            for client in self._idle.popitem()[1]:
                client.close()
        self.__dict__.pop("_admin", None)  # its threads must not outlive OpenSSL, which a process ends first

    @cached_property
    def _admin(self) -> AdminClient:
        try:
            return AdminClient(self._client | {"error_cb": self._errors.append})
        except KafkaException as error:  # a file of [kafka] client that cannot be used
            raise KafkaRefused(
                f"cannot use [kafka] client: {error.args[0].str()}",
                "see the files and the password of the key in it",
                where="[kafka] client",
            ) from error

    def all(self) -> dict[str, Topic]:
        """Every topic by name."""
        counts = self._quickly(lambda protocol: protocol.partitions(), None) if self._are_many else None
        topics = self.overview()[2] if counts is None else {name: Topic(name, n) for name, n in counts.items()}
        self._are_many = len(topics) > _MANY
        return topics

    def overview(self) -> tuple[list[int], str, dict[str, Topic]]:
        """The brokers, the id of the cluster, and every topic by name, in one request."""
        metadata = self._metadata()
        topics = {name: Topic(name, len(t.partitions)) for name, t in metadata.topics.items() if t.error is None}
        return sorted(metadata.brokers), str(metadata.cluster_id), topics

    def brokers(self) -> list[int]:
        """Their ids, without reading the topics."""
        cluster = self._answer(lambda: self._admin.describe_cluster(request_timeout=_ATTEMPT).result())
        return sorted(broker.id for broker in cluster.nodes)

    def _metadata(self) -> Any:
        return self._answer(lambda: self._admin.list_topics(timeout=_ATTEMPT))

    def _answer(self, ask: Callable[[], Any]) -> Any:
        """What the first broker answers that does."""
        until = time.monotonic() + _REACHED
        self._errors.clear()
        while True:
            try:
                return ask()
            except KafkaException as error:
                self._admin.poll(0)  # runs the callback for errors so far
                problem = _problem(self.login, self.bootstrap, self._refused())
                if problem is None and time.monotonic() < until:
                    continue
                kind = KafkaUnreachable if problem is None else KafkaRefused
                problem = problem or TlsProblem(error.args[0].str(), "is a broker running there? ([kafka] bootstrap)")
                what = f"cannot reach Kafka at {self.bootstrap}: {problem.what}"
                raise kind(what, problem.advice, where=self.bootstrap) from error

    def _refused(self) -> str:
        """The client's message about a login that the brokers refuse or require; empty without one."""
        errors = (e for e in self._errors if e.code() == KafkaError._AUTHENTICATION or _NO_LOGIN in e.str())
        return next((error.str() for error in errors), "")

    def create(
        self,
        names: list[str],
        partitions: int,
        replication_factor: int,
        settings: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> None:
        """Create topics that are alike; with `validate_only`, only have the brokers check that they would."""
        for some in _batches(names, 1 + partitions + len(settings)):
            new = [NewTopic(name, partitions, replication_factor, config=dict(settings)) for name in some]
            futures = self._admin.create_topics(new, request_timeout=_TIMEOUT, validate_only=validate_only)
            for name, future in futures.items():
                self._result(f"create the topic {name}", future)

    def settings_of_all(self, names: Iterable[str], keys: Collection[str]) -> dict[str, dict[str, str]]:
        """Topic → those of these settings that are in force for it, in one request."""
        from kafka.errors import KafkaError

        unique = sorted(set(names))
        if not unique:
            return {}
        try:
            with self.protocol() as client:
                return client.settings(unique, keys)
        except KafkaError as error:
            what = f"cannot read the settings of {unique[0]} and other topics at {self.bootstrap}: {error}"
            raise TopicError(what, where=self.bootstrap) from error

    def broker_settings(self, broker: int) -> dict[str, str]:
        """Every setting of one broker, by its id."""
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        future = self._admin.describe_configs([resource], request_timeout=_TIMEOUT)[resource]
        settings = self._result(f"read the settings of the broker {broker}", future)
        return {key: entry.value for key, entry in settings.items() if entry.value is not None}

    def without_records(self, window: Mapping[Place, tuple[int, int]]) -> set[Place]:
        """Of many partitions, those whose offsets [from, end) certainly hold no record, but ends of transactions only.

        One request to each broker. A partition whose broker does not tell is not among them, and of a few partitions
        none is: `peek` reads them in no time. What holds no record never will, so that no offset is asked for twice.
        """
        asked = {place: gap for place, gap in window.items() if self._empty.get(place) != gap}
        if len(asked) > _MANY:
            found = self._quickly(lambda protocol: protocol.without_records(asked), set[Place]())
            self._empty |= {place: asked[place] for place in found}
        return {place for place, gap in window.items() if self._empty.get(place) == gap}

    def _quickly(self, ask: Callable[[Protocol], T], otherwise: T) -> T:
        """What the brokers answer; `otherwise` if they do not, or do not allow it."""
        from kafka.errors import KafkaError

        try:
            with self.protocol() as protocol:
                return ask(protocol)
        except KafkaError:
            return otherwise

    @contextmanager
    def protocol(self) -> Iterator[Protocol]:
        """A client for Kafka's own requests, open during a `with`."""
        from towpath.clients.kafka.protocol import Protocol

        with self._client_of("", lambda: Protocol.of(self.bootstrap, for_kafka_python(self.login))) as protocol:
            yield protocol

    @contextmanager
    def _client_of(self, settings: str, connect: Callable[[], Any]) -> Iterator[Any]:
        """One that is not in use, or a new one."""
        try:
            client = self._idle[settings].pop()
        except LookupError:
            client = connect()
        try:
            yield client
        except BaseException:
            client.close()  # it may be in any state, and its connection lost
            raise
        if self._keeps:
            self._idle.setdefault(settings, []).append(client)
        else:
            client.close()

    def alter(self, names: list[str], settings: Mapping[str, str]) -> None:
        """Change these settings of topics; their other settings stay."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
        ]
        for some in _batches(names, len(settings)):
            resources = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries) for name in some]
            for resource, future in self._admin.incremental_alter_configs(resources).items():
                self._result(f"change the topic {resource.name}", future)

    def delete(self, names: Iterable[str]) -> None:
        doomed = list(names)
        if not doomed:
            return  # the client refuses an empty list
        futures = self._admin.delete_topics(doomed, operation_timeout=_TIMEOUT)
        for name, future in futures.items():
            self._result(f"delete the topic {name}", future)

    def ends(
        self, topics: Iterable[Topic], *, stable: bool = True, known: Mapping[Place, int] | None = None
    ) -> dict[Place, tuple[int, int]]:
        """Partition → (first offset, end).

        The end is the last stable offset: all before it is committed. Without `stable` it is the end of all that was
        written, including transactions that are open, or committed without this partition's broker knowing yet.
        `known` are ends that need not be asked for.
        """
        partitions, known = _partitions(topics), known or {}
        firsts = self._offsets(dict.fromkeys(partitions, _EARLIEST))
        asked = dict.fromkeys((place for place in partitions if place not in known), _LATEST)
        ends = {**known, **self._offsets(asked, stable=stable)}
        return {place: (firsts[place], ends[place]) for place in partitions}

    def written(self, topics: Iterable[Topic]) -> dict[Place, int]:
        """Partition → the end of all that was written, as in `ends` without `stable`."""
        return self._offsets(dict.fromkeys(_partitions(topics), _LATEST), stable=False)

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Existing topic → its id; a topic that is recreated under the same name has another one."""
        unique, ids = set(names), dict[str, str]()
        if len(unique) > _MANY:
            ids = self._quickly(lambda protocol: protocol.ids(unique), ids)
        if not (others := sorted(unique - ids.keys())):
            return ids  # the client refuses an empty list
        futures = self._admin.describe_topics(TopicCollection(others), request_timeout=_TIMEOUT)
        for name, future in futures.items():
            try:
                ids[name] = topic_id(future.result(timeout=2 * _TIMEOUT).topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self._result(f"read the id of the topic {name}", future)
        return ids

    def open_transactions(self, names: Collection[str] | None = None) -> dict[Place, int]:
        """Partition → first offset of its first open transaction, in these topics; by default in all visible ones but
        Kafka's own."""
        topics = self._metadata().topics
        partitions = {
            (name, number): _LATEST
            for name in (topics.keys() - set(_INTERNAL) if names is None else topics.keys() & set(names))
            for number, partition in topics[name].partitions.items()
            if partition.leader >= 0
        }
        written = self._offsets(partitions, stable=False)
        stable = self._offsets(partitions)
        return {place: end for place, end in stable.items() if end < written[place]}

    def offsets_at(self, times_ms: Mapping[Place, int]) -> dict[Place, int]:
        """Partition → the first offset at or after its time (ms since the epoch); -1 if there is none."""
        return self._offsets(times_ms)

    def _offsets(self, times: Mapping[Place, int], *, stable: bool = True) -> dict[Place, int]:
        """Partition → its offset of a time (ms since the epoch; `_EARLIEST`, `_LATEST`)."""
        level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        offsets: dict[Place, int] = {}
        if len(times) > _MANY:
            offsets = self._quickly(lambda protocol: protocol.offsets(times, level.value), offsets)
        specs = {TopicPartition(*place): _spec(time) for place, time in times.items() if place not in offsets}
        until = time.monotonic() + _REACHED
        while specs:
            asked, specs = specs, {}
            futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=_TIMEOUT)
            for partition, future in futures.items():
                if time.monotonic() < until and _is_between_leaders(future):
                    specs[partition] = asked[partition]
                else:
                    answer = self._result(f"read the ends of {partition.topic}", future)
                    offsets[partition.topic, partition.partition] = answer.offset
            if specs:
                time.sleep(_AGAIN)
                self._metadata()  # the client believes its cache
        return offsets

    def committed(self, group: str) -> dict[Place, int]:
        """Partition → the next offset that a consumer group will read."""
        return {place: offset for place, (offset, _) in self.committed_with_metadata(group).items()}

    def committed_with_metadata(self, group: str) -> dict[Place, tuple[int, str]]:
        """The same, with the metadata that was committed with each offset."""
        future = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=_TIMEOUT
        )[group]
        offsets = self._result(f"read the offsets of the consumer group {group}", future)
        return {(p.topic, p.partition): (p.offset, p.metadata or "") for p in offsets.topic_partitions if p.offset >= 0}

    def members(self, group: str) -> int:
        """How many consumers a group has."""
        future = self._admin.describe_consumer_groups([group], request_timeout=_TIMEOUT)[group]
        return len(self._result(f"read the members of the consumer group {group}", future).members)

    def bytes_on_disk(self) -> dict[str, int] | None:
        """Topic → bytes of one replica of each of its partitions: compressed, including segments that the cleaner has
        not removed yet. None when the brokers do not allow it (the user may not describe the cluster)."""
        folders = self._log_folders()
        if folders is None:
            return None
        sizes: dict[Place, int] = {}
        for entry in (topic for _, folder in folders for topic in folder.topics):
            for partition in entry.partitions:
                place = entry.name, partition.partition_index
                sizes[place] = max(sizes.get(place, 0), partition.partition_size)
        totals: Counter[str] = Counter()
        for (topic, _), size in sizes.items():
            totals[topic] += size
        return totals

    def disks(self) -> dict[str, tuple[int, int] | None] | None:
        """`broker 1: /folder` → (free, total) bytes of its file system; None where the broker is older than 3.3.

        None as a whole as in `bytes_on_disk`.
        """
        folders = self._log_folders()
        if folders is None:
            return None
        return {
            f"broker {broker}: {folder.log_dir}": (folder.usable_bytes, folder.total_bytes)
            if (folder.total_bytes or -1) >= 0
            else None
            for broker, folder in folders
        }

    def _log_folders(self) -> list[tuple[int, Any]] | None:
        """(broker, its answer about one of its folders)"""
        return self._quickly(lambda protocol: protocol.log_folders(), None)

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
        """A `consumer` without assigned partitions, open during a `with`."""
        with self._client_of(str(sorted(settings.items())), partial(self.consumer, **settings)) as consumer:
            yield consumer
            consumer.unassign()

    def producer(self, **settings: Any) -> Producer:
        """A producer whose records are on all replicas in sync once they are acknowledged, each once."""
        return Producer(
            self._client
            | {
                "acks": "all",
                "enable.idempotence": True,
                "message.max.bytes": LARGEST_RECORD,
                "delivery.timeout.ms": 45_000,
            }
            | settings
        )

    def send(self, topic: str, records: Iterable[Mapping[str, Any]]) -> int | None:
        """Write records (the arguments of `Producer.produce` but for the topic); return the offset of the last one.

        None for no records. Raises `TopicError` when the brokers do not accept all of them.
        """
        accepted: list[int] = []
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            else:
                accepted.append(message.offset() or 0)

        producer = self.producer()
        try:
            with interruptible():
                for record in records:
                    while len(producer) > _UNDER_WAY:
                        producer.poll(0.1)
                    producer.produce(topic, **record, on_delivery=delivered)
                unacknowledged = producer.flush(_ACKNOWLEDGED_S)
        except (KafkaException, BufferError) as error:
            raise TopicError(f"cannot write to {topic} at {self.bootstrap}: {error}") from error
        if failed or unacknowledged:
            reason = failed[0].str() if failed else f"no answer within {_ACKNOWLEDGED_S:.0f} s"
            raise TopicError(f"cannot write to {topic} at {self.bootstrap}: {reason}")
        return max(accepted, default=None)

    def _result(self, what: str, future: Any) -> Any:
        try:
            return future.result(timeout=2 * _TIMEOUT)
        except KafkaException as error:
            raise TopicError(
                f"cannot {what} at {self.bootstrap}: {error.args[0].str()}", where=self.bootstrap
            ) from error
        except TimeoutError as error:
            raise TowpathError(f"cannot {what} at {self.bootstrap}: no answer in time", where=self.bootstrap) from error


def _is_between_leaders(future: Any) -> bool:
    try:
        error = future.exception(timeout=2 * _TIMEOUT)
    except TimeoutError:
        return False
    return isinstance(error, KafkaException) and error.args[0].code() in _BETWEEN_LEADERS


def _batches(names: list[str], records: int) -> Iterator[list[str]]:
    """Parts of what one request may change, where each name takes this many of the controller's records."""
    share = max(1, _RECORDS_A_REQUEST // records)
    return (names[first : first + share] for first in range(0, len(names), share))


def _partitions(topics: Iterable[Topic]) -> list[Place]:
    return [(topic.name, number) for topic in topics for number in range(topic.partitions)]


def _spec(time_ms: int) -> OffsetSpec:
    named = {_EARLIEST: OffsetSpec.earliest, _LATEST: OffsetSpec.latest}
    spec: OffsetSpec = named.get(time_ms, lambda: OffsetSpec.for_timestamp(time_ms))()  # type: ignore[no-untyped-call]
    return spec


def for_librdkafka(login: KafkaLogin) -> dict[str, Any]:
    options = _renamed(login, _LIBRDKAFKA, "sasl.username", "sasl.password")
    if HOST_CHECK in login.settings:
        options[HOST_CHECK] = login.settings[HOST_CHECK] or "none"
    tokens = login.tokens
    if tokens and not tokens.url:
        options |= {
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={tokens.subject}",
        }
    elif tokens:
        texts = {"token.endpoint.url": tokens.url, "client.id": tokens.client, "client.secret": tokens.secret}
        texts |= {"method": "oidc", **({"scope": tokens.scope} if tokens.scope else {})}
        options |= {f"sasl.oauthbearer.{key}": text for key, text in texts.items()}
    return options


def for_kafka_python(login: KafkaLogin) -> dict[str, Any]:
    options = _renamed(login, _KAFKA_PYTHON, "sasl_plain_username", "sasl_plain_password")
    if login.settings.get(HOST_CHECK) == "":
        options["ssl_check_hostname"] = False
    if login.tokens:
        from towpath.clients.kafka.tokens import Tokens

        options["sasl_oauth_token_provider"] = Tokens(login.tokens)
    return options


def _renamed(login: KafkaLogin, names: Mapping[str, str], user: str, password: str) -> dict[str, Any]:
    """The settings under other names: `names` maps an option to Java's setting."""
    options = {name: login.settings[key] for name, key in names.items() if key in login.settings}
    return options | (dict(zip((user, password), login.user, strict=True)) if login.user else {})


def _problem(login: KafkaLogin, bootstrap: str, refused: str) -> TlsProblem | None:
    """What is wrong with TLS or the login, and what to do. `refused`: the client's message on a refused login."""
    if refused:
        return TlsProblem(
            f"the brokers refuse the user or the password: {refused.partition(': ')[2] or refused}",
            f"correct them, or {MECHANISM}, in the file of [kafka] client",
        )
    settings = login.settings
    trust = Trust(
        tls=settings.get(PROTOCOL, "PLAINTEXT").endswith("SSL"),
        ca=settings.get(CA, ""),
        key=settings.get(CERTIFICATE, ""),
        password=settings.get(KEY_PASSWORD, ""),
        switch=f"{PROTOCOL}=SSL or SASL_SSL in the file of [kafka] client",
        ca_option=f"{CA} in the file of [kafka] client",
        key_option=f"{CERTIFICATE} in the file of [kafka] client",
        checks_host=settings.get(HOST_CHECK) != "",
    )
    return tls_problem(_addresses(bootstrap), trust)


def _addresses(bootstrap: str) -> Iterator[tuple[str, int]]:
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if port.isdecimal():
            yield host.strip("[]"), int(port)
