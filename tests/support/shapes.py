"""The stacks that are broken. Their timeouts are short enough to see elections and rebalances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from towpath.stack import StackOptions

ShapeName = Literal["one", "three", "proxied"]


@dataclass(frozen=True, slots=True)
class Shape:
    """How many nodes each replica set has, and how many brokers and workers there are.

    A broker that is alone keeps its session (9 s) while it sleeps: fenced, it may lose the ends of transactions
    (KAFKA-20734), as it may once in a while when it is killed.
    """

    name: ShapeName
    nodes: int
    others: int
    proxied: bool = False

    def options(self, directory: Path, broker: Mapping[str, str]) -> StackOptions:
        quick = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"} if self.others > 1 else {}
        return StackOptions(
            directory=directory,
            source_nodes=self.nodes,
            destination_nodes=self.nodes,
            kafka_brokers=self.others,
            connect_workers=self.others,
            kafka_heap_mb=448,
            connect_heap_mb=768,
            mongod_cache_gb=0.25,
            oplog_mb=2048,
            broker={**quick, **broker},
            mongod={"enableTestCommands": "1"},
        )


SHAPES: dict[ShapeName, Shape] = {
    "one": Shape("one", 3, 1),
    "three": Shape("three", 1, 3),
    "proxied": Shape("proxied", 1, 1, proxied=True),
}
