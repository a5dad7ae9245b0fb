"""A pipeline: all of its file, and what follows from that."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

import platformdirs
from pydantic import Field, model_validator

from towpath.config.namespaces import Selection, namespace_of
from towpath.config.sections import (
    KUBERNETES_NAME,
    Capture,
    Cluster,
    Collections,
    Connect,
    CopyMethod,
    Ddl,
    Kafka,
    Log,
    Mode,
    Run,
    Section,
    Write,
)

_SPLICE_CACHE = 64 << 20  # bytes


class Pipeline(Section):
    """A whole pipeline file. URIs may hold passwords: print `mongo_uri.without_credentials` of them."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")]
    """Prefix of topics and connectors; letters, digits and `-`. Never changes."""
    mode: Mode = "exactly-once"
    """`exactly-once`: each change once, in transactions at the destination. `plain`: stock connectors, at least once.
    Never changes."""
    source: Cluster
    destination: Cluster
    collections: Collections
    kafka: Kafka
    connect: Connect
    capture: Capture = Capture()
    write: Write = Write()
    log: Log = Log()
    run: Run = Run()
    ddl: Ddl = Ddl(apply=False)

    @model_validator(mode="after")
    def _name_for_kubernetes(self) -> Self:
        if self.connect.owner == "strimzi" and not re.fullmatch(KUBERNETES_NAME, self.name):
            raise ValueError(
                f'[connect] owner = "strimzi" needs a name for resources of Kubernetes, which {self.name!r} is not: at'
                " most 50 lower-case letters, digits and -, a letter first, no - at the end"
            )
        return self

    @model_validator(mode="after")
    def _copy_and_mode(self) -> Self:
        if self.mode == "exactly-once" and self.capture.copy_method == "debezium":
            raise ValueError(
                '[capture] copy = "debezium" does not go with mode = "exactly-once": Debezium\'s own copy overlaps the'
                " stream, so changes would be applied to documents that already have them; leave copy out (Towpath"
                ' copies each document at a known time), or set mode = "plain"'
            )
        if self.mode == "plain" and self.capture.splice_cache:
            raise ValueError(
                '[capture] splice_cache does not go with mode = "plain", which applies changes at least once: a splice'
                " that is applied twice damages the array; leave it out"
            )
        if self.mode == "plain" and self.ddl.apply:
            raise ValueError(
                '[ddl] does not go with mode = "plain": only MongoSink makes schema changes in order with documents;'
                ' leave it out, or set mode = "exactly-once"'
            )
        if self.run.compact and not self.log.compact:
            raise ValueError(
                "[run] compact = true needs a compacted log, and [log] compact is false; set that to true, or leave"
                " this out: the default is the value of [log] compact"
            )
        if self.log.compact and self.mode == "plain" and self.capture.copy_method != "towpath":
            raise ValueError(
                "[log] compact = true needs re-read documents, which Debezium's own connector does not support;"
                ' set mode = "exactly-once", or [capture] copy = "towpath"'
            )
        return self

    @property
    def exactly_once(self) -> bool:
        return self.mode == "exactly-once"

    @property
    def copy_method(self) -> CopyMethod:
        """What makes the initial copy."""
        return self.capture.copy_method or ("towpath" if self.exactly_once else "debezium")

    @property
    def splice_cache(self) -> int:
        """The most bytes of what MongoSource remembers of arrays, to send their changes as splices; 0: no splices."""
        default = _SPLICE_CACHE if self.exactly_once else 0
        return default if self.capture.splice_cache is None else int(self.capture.splice_cache)

    @property
    def worker_bootstrap(self) -> str:
        """Kafka's address as the Connect workers see it."""
        return self.connect.bootstrap or self.kafka.bootstrap

    @property
    def secrets_file(self) -> Path:
        """The properties file, on the machines of the Connect workers, that holds both URIs."""
        folder = self.connect.secrets or platformdirs.user_state_path("towpath") / "secrets"
        return folder / f"{self.name}.properties"

    @property
    def runs_compact(self) -> bool:
        """Whether `run` does what `compact` does."""
        return self.log.compact if self.run.compact is None else self.run.compact

    @property
    def has_operator(self) -> bool:
        """Whether an operator owns the connectors: what Towpath changes in them does not last."""
        return self.connect.owner == "strimzi"

    @property
    def has_own_source(self) -> bool:
        """Whether MongoSource captures, which copies in ranges and re-reads on request; else stock Debezium does."""
        return self.exactly_once or self.copy_method == "towpath"

    def renamed(self, namespace: str) -> str:
        """The namespace at the destination."""
        return self.collections.rename.get(namespace, namespace)

    @cached_property
    def selection(self) -> Selection:
        """Every namespace of the pipeline."""
        return Selection(self.collections.include, self.collections.exclude, lasting=self.ddl.apply)

    @cached_property
    def captured_by_update(self) -> Selection:
        """The namespaces whose updates travel as updates."""
        return replace(self.selection, exclude=self.collections.exclude + self.capture.whole_documents)

    @cached_property
    def captured_whole(self) -> Selection | None:
        """The namespaces whose updates travel as whole documents, looked up at the source; None if there are none."""
        whole = self.capture.whole_documents
        return replace(self.selection, only=whole) if whole else None

    @property
    def source_connector(self) -> str:
        return f"{self.name}-source"

    @property
    def whole_source_connector(self) -> str:
        return f"{self.name}-source-whole"

    @property
    def source_connectors(self) -> tuple[str, ...]:
        return (self.source_connector, *((self.whole_source_connector,) if self.capture.whole_documents else ()))

    def source_connector_of(self, namespace: str) -> str:
        """The source connector that captures a namespace of the pipeline."""
        whole = self.captured_whole is not None and self.captured_whole.matches(namespace)
        return self.whole_source_connector if whole else self.source_connector

    @property
    def sink_connector(self) -> str:
        return f"{self.name}-sink"

    @property
    def connectors(self) -> tuple[str, ...]:
        return (*self.source_connectors, self.sink_connector)

    @property
    def database(self) -> str:
        """The sink's setting `database`: one that the pipeline writes to.

        It has no effect on what is written, but mongo-kafka checks the user's privileges there, not on the namespaces
        that are written.
        """
        database, _, _ = self.renamed(self.collections.include[0]).partition(".")
        return self.name if "*" in database else database

    @property
    def sink_group(self) -> str:
        """The sink's consumer group, as Connect names it."""
        return f"connect-{self.sink_connector}"

    @property
    def compaction_group(self) -> str:
        """The consumer group of `towpath compact`."""
        return f"{self.name}-compact"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.name}.dead-letters"

    @property
    def request_topic(self) -> str:
        """The topic of the re-read requests to MongoSource."""
        return f"{self.name}.requests"

    def is_change_topic(self, topic: str) -> bool:
        """Whether a topic holds the changes of a namespace of the pipeline."""
        return topic.startswith(f"{self.name}.") and self.selection.matches(namespace_of(self.name, topic))

    @property
    def heartbeat_topics(self) -> tuple[str, ...]:
        """Debezium's heartbeats: `__debezium-heartbeat.<topic.prefix of the connector>`."""
        return tuple(f"__debezium-heartbeat.{prefix}" for prefix in self.capture_prefixes)

    @property
    def capture_prefixes(self) -> tuple[str, ...]:
        """Debezium's `topic.prefix` of each source connector; its offsets are kept under it."""
        return (self.name, *((f"{self.name}-whole",) if self.capture.whole_documents else ()))
