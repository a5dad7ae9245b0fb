"""`wait` is a barrier: once it returns, everything written before the call is at the destination."""

from __future__ import annotations

from contextlib import closing

import httpx
import pytest
from confluent_kafka import Producer
from kafka import TopicPartition
from kafka.admin import AbortTransactionSpec, KafkaAdminClient

from tests.support.awaited import until
from tests.support.pipeline import Pipeline, towpath
from towpath.errors import TopicError
from towpath.log import lag
from towpath.log.lag import pipeline_ends
from towpath.session import opened

pytestmark = pytest.mark.servers


@pytest.mark.usefixtures("quiet_source")
def test_what_was_written_before_wait_is_there_when_it_returns(pipeline: Pipeline) -> None:
    """With a source where nothing else happens: its time advances by the server's own entry once a second."""
    documents, copies = pipeline.source("docs"), pipeline.destination("docs")
    documents.insert_one({"_id": "counter", "n": 0})
    pipeline.deploy()
    for turn in range(4):
        documents.update_one({"_id": "counter"}, {"$inc": {"n": 1}})
        documents.insert_many([{"_id": f"{turn}-{n}", "turn": turn} for n in range(1 + turn % 5 * 100)])
        pipeline.source(f"new{turn % 3}").insert_one({"turn": turn})
        pipeline.wait()
        assert copies.find_one({"_id": "counter"}) == {"_id": "counter", "n": turn + 1}
        assert copies.count_documents({"turn": turn}) == 1 + turn % 5 * 100
        assert pipeline.destination(f"new{turn % 3}").count_documents({"turn": turn}) == 1
    pipeline.assert_same("docs", "new0", "new1", "new2", at_least=600)


@pytest.mark.nightly
def test_wait_gives_up_with_exit_1_while_the_sink_is_paused(pipeline: Pipeline) -> None:
    pipeline.source("docs").insert_one({"_id": 1})
    pipeline.deploy()
    sink = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-sink"
    httpx.put(f"{sink}/pause", timeout=30).raise_for_status()
    pipeline.source("docs").insert_one({"_id": 2})
    said = towpath("wait", pipeline.file, "--timeout", "3", expect=1)
    assert f"{pipeline.name}-sink" in said.stderr
    assert pipeline.status(expect=1)["state"] == "paused"
    assert pipeline.destination("docs").count_documents({"_id": 2}) == 0
    towpath("resume", pipeline.file)
    pipeline.wait()
    pipeline.assert_same("docs", at_least=2)


@pytest.mark.nightly
def test_wait_does_not_take_the_end_of_what_can_be_read_for_the_end_of_what_was_written(pipeline: Pipeline) -> None:
    """A transaction of someone else's stands for one of which a broker has not heard yet that it was committed."""
    pipeline.source("docs").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    producer = Producer({"bootstrap.servers": pipeline.addresses.bootstrap, "transactional.id": pipeline.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.topic("docs"), b"unknown", b"unknown", partition=0)
    producer.flush(30)
    said = towpath("wait", pipeline.file, "--timeout", "3", expect=1)
    assert f"a transaction on {pipeline.topic('docs')}, partition 0, has not ended" in said.stderr
    producer.abort_transaction(30)
    pipeline.wait()


@pytest.mark.nightly
def test_a_transaction_that_has_lost_its_end_is_told_until_it_is_ended(pipeline: Pipeline) -> None:
    """What ends it here is what kafka-transactions.sh asks of the broker."""
    pipeline.source("docs").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    place = TopicPartition(pipeline.topic("docs"), 0)
    producer = Producer({"bootstrap.servers": pipeline.addresses.bootstrap, "transactional.id": pipeline.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(place.topic, b"unknown", b"unknown", partition=0)
    producer.flush(30)
    pipeline.source("docs").insert_many([{"_id": n} for n in range(2, 50)])

    admin = KafkaAdminClient(bootstrap_servers=pipeline.addresses.bootstrap)
    with opened(pipeline.file) as it, closing(admin):

        def told(longest: float) -> None:
            lag.refuse_hanging_transactions(it.pipeline, it.topics, pipeline_ends(it.pipeline, it.topics), longest)

        def only_unknown() -> list[lag.OpenTransaction] | None:
            """Once the source connector has ended its own for the new documents."""
            found = lag.open_transactions(it.pipeline, it.topics, pipeline_ends(it.pipeline, it.topics), 0)
            return found if [one.place for one in found] == [(place.topic, 0)] else None

        told(60)
        hanging = until("no transaction but the unknown one is open", only_unknown)
        assert hanging[0].seconds < 60
        with pytest.raises(TopicError, match=f"{place.topic}, partition 0: .* has not ended"):
            told(0)
        found = admin.describe_producers([place])[place].active_producers
        ours = next(one for one in found if one.current_transaction_start_offset >= 0)
        admin.abort_transaction(AbortTransactionSpec(place, ours.producer_id, ours.producer_epoch))
        told(0)
    pipeline.wait()
    pipeline.assert_same("docs", at_least=49)
