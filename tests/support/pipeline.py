"""A pipeline under test: its file, its databases on both sides, and the real command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from tests.support import commands, oracle, raw, rest, schema
from tests.support.awaited import patient
from towpath.clients.connect.control import wait_stopped
from towpath.clients.connect.rest import Connect

#: The mode of a pipeline whose test does not say another.
DEFAULT_MODE = "exactly-once"

TOWPATH = Path(sys.executable).parent / "towpath"


def towpath(*arguments: str | Path, expect: int = 0, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Run the command line; fail with all it said unless it ends with the exit code that is expected."""
    start, words = time.monotonic(), [str(one) for one in arguments]
    done = commands.run(words, timeout)
    said = f"stdout:\n{done.stdout}\nstderr:\n{done.stderr}"
    line = f"towpath {' '.join(words)}"
    print(f"{line}: {time.monotonic() - start:.1f} s")
    assert done.returncode == expect, f"{line} ended with {done.returncode}, not {expect}\n{said}"
    assert "Traceback (most recent call last)" not in done.stderr, f"{line} fell over\n{said}"
    schema.refuse(words, done.stdout)
    return done


def pipeline_text(source: str, destination: str, *, name: str = "shop", more: str = "") -> str:
    """A pipeline file of these URIs, whose Kafka and Connect are not there; `more` are lines at its end."""
    return f"""
name = "{name}"
[source]
uri = "{source}"
[destination]
uri = "{destination}"
[collections]
include = ["shop.*"]
[kafka]
bootstrap = "127.0.0.1:1"
[connect]
url = "http://127.0.0.1:1"
{more}
"""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where both clusters, Kafka and Connect answer, and the folder that Connect may read secrets from."""

    source: str
    destination: str
    bootstrap: str
    connect: str
    secrets: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """What a test's pipeline file says beyond addresses. Names are collections of the test's own database."""

    mode: str = DEFAULT_MODE
    copy: str | None = None
    """[capture] copy; None leaves it to the mode."""
    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    whole_documents: Sequence[str] = ()
    partitions: int = 4
    collections: Mapping[str, Any] = field(default_factory=dict)
    """More of `[collections]`."""
    capture: Mapping[str, Any] = field(default_factory=dict)
    """More of `[capture]`."""
    write: Mapping[str, Any] = field(default_factory=dict)
    """`[write]`."""
    kafka: Mapping[str, Any] = field(default_factory=dict)
    """More of `[kafka]`."""
    connect: Mapping[str, Any] = field(default_factory=dict)
    """More of `[connect]`."""
    extra: str = ""
    """Lines of TOML at the end of the file."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline; `name` is also the name of its database on both sides."""

    name: str
    file: Path
    addresses: Addresses
    source_client: raw.Client
    destination_client: raw.Client
    settings: Settings = field(default_factory=Settings)

    def namespace(self, collection: str) -> str:
        return f"{self.name}.{collection}"

    def topic(self, collection: str) -> str:
        return f"{self.name}.{self.name}.{collection}"

    @property
    def sink_group(self) -> str:
        """The sink's consumer group."""
        return f"connect-{self.name}-sink"

    def source(self, collection: str) -> raw.Documents:
        return self.source_client[self.name][collection]

    def destination(self, collection: str) -> raw.Documents:
        return self.destination_client[self.name][self.settings.rename.get(collection, collection)]

    def write(self) -> Path:
        """Write the pipeline file."""
        settings, addresses = self.settings, self.addresses
        renames = {self.namespace(old): self.namespace(new) for old, new in settings.rename.items()}
        sections: dict[str, dict[str, Any]] = {
            "": {"name": self.name, "mode": settings.mode},
            "[source]": {"uri": addresses.source},
            "[destination]": {"uri": addresses.destination},
            "[collections]": {
                "include": self._all(settings.include),
                "exclude": self._all(settings.exclude),
                **settings.collections,
            },
            "[collections.rename]": {json.dumps(old): new for old, new in renames.items()},
            "[capture]": {
                "whole_documents": self._all(settings.whole_documents),
                **({} if settings.copy is None else {"copy": settings.copy}),
                **settings.capture,
            },
            "[write]": dict(settings.write),
            "[kafka]": {"bootstrap": addresses.bootstrap, "partitions": settings.partitions, **settings.kafka},
            "[connect]": {"url": addresses.connect, "secrets": str(addresses.secrets), **settings.connect},
        }
        lines = [
            line
            for header, values in sections.items()
            for line in (header, *(f"{key} = {json.dumps(value)}" for key, value in values.items()))
        ]
        self.file.write_text("\n".join([*lines, settings.extra, ""]))
        self.file.chmod(0o600)
        return self.file

    def _all(self, collections: Sequence[str]) -> list[str]:
        return [self.namespace(name) for name in collections]

    def create(self, *collections: str) -> None:
        """Make empty collections at the source, so that patterns match them."""
        for name in collections:
            self.source_client[self.name].create_collection(name)

    def deploy(self, *options: str) -> None:
        towpath("deploy", self.write(), *options)

    def wait(self, timeout: float = 120) -> None:
        """Everything written to the source so far is at the destination."""
        towpath("wait", self.file, "--timeout", str(patient(timeout)), timeout=patient(timeout) + 60)

    def status(self, expect: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(towpath("status", self.file, "--json", expect=expect).stdout)
        return found

    def leftovers(self) -> tuple[list[str], list[str]]:
        """Its connectors, and its topics: many tests end before there are any."""
        names = rest.get(f"{self.addresses.connect}/connectors", timeout=90).raise_for_status().json()
        topics = AdminClient({"bootstrap.servers": self.addresses.bootstrap}).list_topics(timeout=30).topics
        return [name for name in names if self.name in name], [name for name in topics if self.name in name]

    def remove(self) -> None:
        towpath("remove", self.file, "--topics", "--yes")

    def discard(self) -> None:
        """Remove all of it without the command, which first proves that it may: servers of a test may be gone."""
        connectors, topics = self.leftovers()
        with Connect(self.addresses.connect) as connect:
            for name in connectors:
                connect.stop(name)
            for (
                name
            ) in connectors:  # a task without its topics leaves a transaction open, which holds up others for 60 s
                wait_stopped(connect, name)
                connect.delete(name)
        if topics:
            kafka = AdminClient({"bootstrap.servers": self.addresses.bootstrap})
            for deleted in kafka.delete_topics(topics).values():
                deleted.result(30)
        if connectors or topics:
            ours = {"$or": [{"_id": self.name}, {"_id.pipeline": self.name}]}
            for name in self.destination_client["towpath"].list_collection_names():
                self.destination_client["towpath"][name].delete_many(ours)

    def assert_same(self, *collections: str, at_least: int, ignore_field_order: bool = False) -> None:
        """See `oracle.assert_same`; names are collections of the test's own database, renames are followed."""
        namespaces = {
            self.namespace(name): self.namespace(self.settings.rename.get(name, name)) for name in collections
        }
        oracle.assert_same(
            self.addresses.source,
            self.addresses.destination,
            namespaces,
            at_least=at_least,
            ignore_field_order=ignore_field_order,
        )
