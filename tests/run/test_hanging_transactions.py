"""Transactions whose end Kafka has lost are ended as was decided: by `towpath restart`, and by `towpath run`.

The loss is a real one (KAFKA-20734): the only broker with a partition is away while a transaction's coordinator, which
is another broker, is to tell it of the end.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient

from tests.support import log
from tests.support.awaited import promised, until
from tests.support.command import Command
from tests.support.pipeline import towpath
from tests.support.shapes import SHAPES
from tests.support.site import Site, site
from towpath.session import opened

pytestmark = pytest.mark.servers

_GROUP = "towpath-stack"  # the workers'
_TOPIC = "elsewhere"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(SHAPES["three"], tmp_path_factory.mktemp("three")) as found:
        yield found


def begun(there: Site, transactional_id: str) -> Producer:
    """A producer that may begin a transaction."""
    producer = Producer(
        {"bootstrap.servers": there.addresses.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    )
    producer.init_transactions(60)
    return producer


def lose_ends(there: Site, connector: str, topic: str) -> None:
    """A record to be committed in partition 0, one to be aborted in partition 1, both in transactions without end."""
    names = [f"{_GROUP}-{connector}-{task}" for task in range(5, 9)]
    producers = {name: begun(there, name) for name in names}
    with closing(KafkaAdminClient(bootstrap_servers=there.addresses.bootstrap)) as admin:
        coordinators = {name: found.coordinator_id for name, found in admin.describe_transactions(names).items()}
    away = min((1, 2, 3), key=list(coordinators.values()).count)  # one of four at most is there
    committed, aborted = (producers[name] for name in [one for one in names if coordinators[one] != away][:2])
    client = AdminClient({"bootstrap.servers": there.addresses.bootstrap, "log_level": 0})
    client.create_topics([NewTopic(topic, 2, replica_assignment=[[away], [away]])])[topic].result(30)
    for partition, producer in enumerate((committed, aborted)):
        producer.begin_transaction()
        producer.produce(topic, b"to be committed" if producer is committed else b"to be aborted", partition=partition)
        assert producer.flush(30) == 0
    there.kill(there.brokers[away - 1], signal.SIGTERM)

    def has_no_leader() -> bool:
        return all(one.leader == -1 for one in client.list_topics(topic, timeout=10).topics[topic].partitions.values())

    until("partitions without leader", has_no_leader, 60, 0.1)
    committed.commit_transaction(60)
    aborted.abort_transaction(60)
    there.start(there.brokers[away - 1])
    until("partitions with leader", lambda: not has_no_leader(), 60, 0.1)


@pytest.mark.nightly
@pytest.mark.serial
def test_a_transaction_that_has_lost_its_end_gets_the_one_that_was_decided(there: Site, tmp_path: Path) -> None:
    with there.deployed(tmp_path) as pipeline, opened(pipeline.file) as it:
        pipeline.wait()

        def open_ones() -> set[int]:
            return {partition for topic, partition in it.topics.open_transactions() if topic.startswith(_TOPIC)}

        for command in ("restart", "run"):
            topic = f"{_TOPIC}-{command}"
            lose_ends(there, f"{pipeline.name}-source", topic)
            assert open_ones() == {0, 1}
            if command == "restart":
                said = towpath("restart", pipeline.file).stderr
            else:
                with Command(tmp_path, pipeline.file, "run") as running:
                    promised("transactions that are ended", lambda: not open_ones(), 60, 0.2)
                    until("look at the pipeline", lambda: "is running" in running.said, 60, 0.2)
                    running.process.send_signal(signal.SIGINT)
                    running.ended(0)
                    said = running.said
            assert (
                f"{topic}, partition 0: the transaction of" in said
                and "committed it, as its coordinator had decided" in said
            )
            assert (
                f"{topic}, partition 1: the transaction of" in said
                and "aborted it, as its coordinator had decided" in said
            )
            assert not open_ones()
            assert [one.value for one in log.records(there.addresses.bootstrap, topic)] == [b"to be committed"]
        pipeline.source("docs").update_many({}, {"$set": {"n": 1}})
        pipeline.wait()
        pipeline.assert_same("docs", at_least=100)
