"""What one pipeline is, as values: what the pipeline file says after it was read and checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from connectors.namespaces import Renames, Selection


@dataclass(frozen=True, slots=True, repr=False)
class Pipeline:
    """One pipeline. URIs may hold passwords: print `source_address` and `destination_address` instead."""

    name: str
    source_uri: str
    destination_uri: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    renames: Renames
    whole_documents: tuple[str, ...]
    bootstrap: str
    partitions: int
    replication_factor: int
    """-1 leaves it to the broker."""
    connect_url: str
    secrets: Path
    """The properties file, on the machines of the Connect workers, that holds both URIs."""
    write_concern: str
    """`1`, `majority`, `majority+journal`, …"""
    tasks: int
    retention_ms: int
    """-1 keeps the log for ever."""

    @property
    def selection(self) -> Selection:
        """Every namespace of the pipeline."""
        return Selection(self.include, self.exclude)

    @property
    def captured_by_update(self) -> Selection:
        """The namespaces whose updates travel as updates."""
        return Selection(self.include, self.exclude + self.whole_documents)

    @property
    def captured_whole(self) -> Selection | None:
        """The namespaces whose updates travel as whole documents, looked up at the source; None if there are none."""
        return Selection(self.include, self.exclude, self.whole_documents) if self.whole_documents else None

    @property
    def source_connector(self) -> str:
        return f"{self.name}-source"

    @property
    def whole_source_connector(self) -> str:
        return f"{self.name}-source-whole"

    @property
    def source_connectors(self) -> tuple[str, ...]:
        return (self.source_connector, *((self.whole_source_connector,) if self.whole_documents else ()))

    @property
    def sink_connector(self) -> str:
        return f"{self.name}-sink"

    @property
    def connectors(self) -> tuple[str, ...]:
        return (*self.source_connectors, self.sink_connector)

    @property
    def database(self) -> str:
        """The sink's setting `database`: nothing is written by it, but mongo-kafka looks there, and not at the
        namespaces that are written, for what its user may do. So it is a database that the pipeline writes."""
        database, _, _ = self.renames.destination(self.include[0]).partition(".")
        return self.name if "*" in database else database

    @property
    def sink_group(self) -> str:
        """The sink's consumer group, as Connect names it."""
        return f"connect-{self.sink_connector}"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.name}.dead-letters"

    @property
    def heartbeat_topics(self) -> tuple[str, ...]:
        """Debezium's heartbeats: `__debezium-heartbeat.<topic.prefix of the connector>`."""
        return tuple(f"__debezium-heartbeat.{prefix}" for prefix in self.capture_prefixes)

    @property
    def capture_prefixes(self) -> tuple[str, ...]:
        """Debezium's `topic.prefix` of each source connector; its offsets are kept under it."""
        return (self.name, *((f"{self.name}-whole",) if self.whole_documents else ()))
