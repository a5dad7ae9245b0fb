"""Topics whose partitions have no leader yet, at a real broker."""

from __future__ import annotations

import uuid

import pytest

from tests.support.pipeline import Addresses
from towpath.clients.kafka.topics import Topic, Topics

pytestmark = pytest.mark.servers


def test_a_topic_can_be_read_as_soon_as_it_is_created(addresses: Addresses) -> None:
    topics = Topics(addresses.bootstrap)
    created = list[str]()
    try:
        for _ in range(20):
            name = f"t{uuid.uuid4().hex[:8]}"
            topics.create([name], 8, 1, {})
            created.append(name)
            assert set(topics.ends([Topic(name, 8)]).values()) == {(0, 0)}
    finally:
        topics.delete(created)
