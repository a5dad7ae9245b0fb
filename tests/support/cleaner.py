"""What Kafka's cleaner has done, told by the broker's own files: segments and log lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

_BACKOFF = "log.cleaner.backoff.ms"


@contextmanager
def busy(bootstrap: str) -> Iterator[None]:
    """The cleaner looks for work five times a second, not every fifteen seconds."""
    _alter(bootstrap, AlterConfigOpType.SET)
    try:
        yield
    finally:
        _alter(bootstrap, AlterConfigOpType.DELETE)


def _alter(bootstrap: str, how: AlterConfigOpType) -> None:
    entry = ConfigEntry(_BACKOFF, "200", incremental_operation=how)
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([broker])[broker].result(30)


class Disk:
    """The log of one topic on the disk of an embedded stack's broker."""

    def __init__(self, directory: Path, topic: str) -> None:
        self._directory, self._topic = directory, topic

    def bytes(self) -> int:
        """Of all segments that are not given up."""
        return sum(file.stat().st_size for file in self._files("*.log"))

    def _files(self, pattern: str) -> Iterator[Path]:
        for folder in (self._directory / "data" / "kafka").glob(f"{self._topic}-*"):
            yield from folder.glob(pattern)

    def passes(self) -> int:
        """How often the cleaner has been through a partition of the topic."""
        said = (self._directory / "logs" / "kafka.log").read_text(errors="replace")
        return len(re.findall(rf"cleaned log {re.escape(self._topic)}-\d+ ", said))
