"""Reading topics to their ends, where no broker answers."""

from __future__ import annotations

import pytest

from towpath.clients.kafka import consume
from towpath.clients.kafka.topics import Topics
from towpath.errors import TopicError


def test_a_broker_that_sends_nothing_is_given_up_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "_PATIENCE", 0.3)
    consumer = Topics("127.0.0.1:1").consumer()
    window = {("shop.orders", 1): (0, 5), ("shop.orders", 0): (5, 5)}
    try:
        with pytest.raises(TopicError, match=r"^no answer from Kafka for 0 s when reading shop.orders, partition 1$"):
            list(consume.messages(consumer, window))
        assert list(consume.messages(consumer, {("shop.orders", 0): (5, 5)})) == []
    finally:
        consumer.close()
