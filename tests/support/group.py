"""The consumer group of a pipeline's sink, as its coordinator shows it."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.support.awaited import until
from tests.support.pipeline import Pipeline


def shares(pipeline: Pipeline) -> Sequence[int] | None:
    """How many partitions each task has, fewest first; None while they are being shared out."""
    admin = AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap, "log_level": 0})
    group = admin.describe_consumer_groups([pipeline.sink_group])[pipeline.sink_group].result(30)
    found = sorted(len(member.assignment.topic_partitions) for member in group.members)
    return found if group.state == ConsumerGroupState.STABLE else None


def await_shares(pipeline: Pipeline, wanted: Sequence[int]) -> None:
    """Wait until the tasks have so many partitions each."""
    until(f"sink tasks with {wanted} partitions", lambda: shares(pipeline) == wanted, 120, 0.5)
