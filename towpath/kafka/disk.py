"""How many bytes topics take on the brokers' disks: the one question that the main client library cannot ask."""

from __future__ import annotations

from towpath.kafka_client import KafkaClient

_TIMEOUT_MS = 5_000


def bytes_of_topics(bootstrap: str, settings: KafkaClient) -> dict[str, int] | None:
    """Topic → bytes of one replica of each of its partitions, as compressed as they lie there, with what the cleaner
    has given up and not removed yet. None when the brokers do not tell (the user may not describe the cluster)."""
    from kafka.admin import KafkaAdminClient  # 0.15 s of processor, which only `status` shall pay
    from kafka.errors import KafkaError

    try:
        client = KafkaAdminClient(
            bootstrap_servers=bootstrap,
            request_timeout_ms=_TIMEOUT_MS,
            bootstrap_timeout_ms=_TIMEOUT_MS,
            **settings.for_kafka_python(),
        )
        try:
            brokers = client.describe_log_dirs()
        finally:
            client.close()
    except KafkaError:
        return None
    sizes: dict[tuple[str, int], int] = {}
    for topic in (topic for broker in brokers for folder in broker["log_dirs"] for topic in folder["topics"]):
        for partition in topic["partitions"]:
            place = str(topic["name"]), int(partition["partition_index"])
            sizes[place] = max(sizes.get(place, 0), int(partition["partition_size"]))
    found: dict[str, int] = {}
    for (name, _), size in sizes.items():
        found[name] = found.get(name, 0) + size
    return found
