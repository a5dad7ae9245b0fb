"""Kafka's tools and its connectors for files, of the stack's version: no stack has them."""

from __future__ import annotations

from pathlib import Path

from towpath.stack import parts, tools

_MAVEN = ("--quiet", "--batch-mode", "--strict-checksums")


def jars() -> Path:
    """A folder with both jars, in the cache of the stack's parts. The stack has the jars that they need."""
    kafka = tools.version("kafka.version")
    return parts.part("kafka-tools", kafka, f"fetching the tools of Kafka {kafka}", _fetch, print)


def _fetch(place: Path) -> None:
    kafka, plugin = tools.version("kafka.version"), tools.version("maven-dependency-plugin.version")
    goal = f"org.apache.maven.plugins:maven-dependency-plugin:{plugin}:copy"
    for name in ("kafka-tools", "connect-file"):
        artifact = (f"-Dartifact=org.apache.kafka:{name}:{kafka}", f"-DoutputDirectory={place}")
        tools.run(f"fetch {name}", [tools.maven(), *_MAVEN, goal, *artifact])
