"""Records that Towpath did not write, in a running pipeline's topics: they become dead letters, and nothing stops."""

from __future__ import annotations

import json
from typing import Any

import bson
import pytest
from bson import Int64
from confluent_kafka import Producer

from tests.conftest import MakePipeline
from tests.support.group import await_shares
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.progress import applied

pytestmark = pytest.mark.servers

COUNT = 60
Header = tuple[str, bytes]


def key(id: object) -> bytes:
    return bson.encode({"_id": id})


def headers(at: str = "1700000000000", version: str = "1", time: str = "1700000000:1") -> list[Header]:
    return [("v", f"{version} u {time} {at}".encode())]


#: Key, value and headers of records that are refused. One without a key is refused by Kafka: the topic is compacted.
BAD: list[tuple[bytes | None, bytes | None, list[Header]]] = [
    (b'{"id": "7"}', b'{"after": "{\\"_id\\": 7}", "op": "c"}', []),
    (key(Int64(7)), b'{"_id": 7, "v": "JSON"}', headers()),
    (key(Int64(7)), b"\0\0\0\0\x2a\x02\x0ahello", headers()),
    (key(Int64(7)), bson.encode({"_id": 8, "v": "of another key"}), headers()),
    (key(7), bson.encode({"_id": 7, "v": "a key that is not canonical"}), headers()),
    (key(Int64(7)), bson.encode({"_id": 7, "v": "of another version"}), headers(version="2")),
    (key(Int64(7)), bson.encode({"_id": 7, "a": {"b": "cut"}})[:-3], headers(at="yesterday", time="never")),
]
#: A clock that was set back, set forward, and is no clock; the same for the cluster's time.
JUMPING = [headers("0", time="1:1"), headers("4102444800000", time="4000000000:1"), headers("", time="")]


def produce(pipeline: Pipeline, topic: str, records: list[tuple[bytes | None, bytes | None, list[Header]]]) -> None:
    producer = Producer({"bootstrap.servers": pipeline.addresses.bootstrap, "partitioner": "murmur2_random"})
    refused: list[object] = []
    for of_record, value, said in records:
        told = lambda error, _: refused.append(error) if error else None  # noqa: E731
        producer.produce(topic, key=of_record, value=value, headers=said, on_delivery=told)
    assert producer.flush(30) == 0
    assert not refused


def lines(*arguments: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in towpath(*arguments, "--json").stdout.splitlines()]


@pytest.mark.nightly
def test_garbage_in_the_topics_becomes_dead_letters_and_stops_nothing(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(extra="[log]\ncompact = true"))
    documents = pipeline.source("docs")
    documents.insert_many([{"_id": i, "n": 0} for i in range(COUNT)])
    pipeline.deploy()
    pipeline.wait()
    await_shares(pipeline, [2, 2])  # a task that comes second takes partitions over
    documents.update_many({}, {"$inc": {"n": 1}})
    pipeline.wait()  # each task has written to its partitions, and so has taken them
    epochs = sum(one.epoch for one in applied(pipeline).values())

    produce(pipeline, pipeline.topic("docs"), BAD)
    hand = [(key("hand"), bson.encode({"_id": "hand", "v": v}), said) for v, said in enumerate(JUMPING)]
    produce(pipeline, pipeline.topic("docs"), hand)
    produce(pipeline, f"{pipeline.name}.requests", [(None, value, said) for _, value, said in BAD])
    produce(pipeline, f"{pipeline.name}.dead-letters", [(b"\xff", b"{}", [])])
    documents.update_many({}, {"$inc": {"n": 1}})
    pipeline.wait()
    assert pipeline.destination("docs").find_one({"_id": "hand"}) == {"_id": "hand", "v": len(JUMPING) - 1}

    letters = lines("tail", pipeline.file, "--dead-letters", "--no-follow")
    assert len(letters) == len(BAD) + 1
    assert sum(one["reason"].startswith("no record of Towpath's: ") for one in letters) == len(BAD)
    shown = lines("tail", pipeline.file, pipeline.namespace("docs"), "--from-beginning", "--no-follow")
    assert len(shown) == 3 * COUNT + len(BAD) + len(JUMPING)
    assert sum(one["kind"] == "foreign" for one in shown) >= 5
    towpath("tail", pipeline.file, pipeline.namespace("docs"), "--from-beginning", "--no-follow")

    produce(pipeline, pipeline.topic("docs"), [(key("hand"), None, headers())])
    status = pipeline.status()
    assert (status["dead_letters"], status["requests_skipped"]) == (len(BAD) + 1, len(BAD))
    towpath("verify", pipeline.file, "--last", "1000")
    towpath("compact", pipeline.file, "--once", "--timeout", "120")
    towpath("repair", pipeline.file, "--dead-letters")
    pipeline.wait()
    pipeline.assert_same("docs", at_least=COUNT)
    assert sum(one.epoch for one in applied(pipeline).values()) == epochs, "a task began again"
