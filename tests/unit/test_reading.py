"""Reading topics to their ends, where no broker answers."""

from __future__ import annotations

import pytest

from connectors import reading
from connectors.errors import TopicError
from connectors.topics import Topics


def test_a_broker_that_sends_nothing_is_given_up_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PATIENCE", 0.3)
    consumer = Topics("127.0.0.1:1").consumer()
    window = {("shop.orders", 1): (0, 5), ("shop.orders", 0): (5, 5)}
    try:
        with pytest.raises(TopicError, match="^no answer from Kafka for 0 s when reading shop.orders, partition 1$"):
            list(reading.messages(consumer, window))
        assert list(reading.messages(consumer, {("shop.orders", 0): (5, 5)})) == []
    finally:
        consumer.close()
