"""Faults. Each lasts from entry to exit of its `with`, and is repaired at the exit, as far as that is necessary."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from pymongo.errors import AutoReconnect

from tests.support.awaited import until
from tests.support.shapes import ShapeName
from tests.support.site import Site
from towpath.stack.record import DESTINATION, SOURCE

Broken = AbstractContextManager[Callable[[], None]]
"""Gives what waits, with the fault there, for what it was to bring about."""
_PAST_SESSION_S = 7.0  # a worker's session ends after 6 s, that of a broker of three after 3


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    shape: ShapeName
    """Of the stack that has what breaks."""
    broken: Callable[[Site, Random, str], Broken]
    """Of a site, for a pipeline of that name."""
    hits: str
    """What it hits: worker, broker, source or destination."""


@contextmanager
def _worker_killed(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
    name = _worker(site, random, pipeline)
    site.kill(name)
    try:
        yield partial(_moved, site, name, pipeline) if len(site.workers) > 1 else _nothing
    finally:
        site.start(name)


@contextmanager
def _stopped(site: Site, name: str, wait: Callable[[], None]) -> Iterator[Callable[[], None]]:
    site.kill(name, signal.SIGSTOP)
    try:
        yield wait
    finally:
        site.kill(name, signal.SIGCONT)


@contextmanager
def _worker_stopped(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
    name = _worker(site, random, pipeline)
    wait = partial(_moved, site, name, pipeline) if len(site.workers) > 1 else _past_session
    with _stopped(site, name, wait) as broken:
        yield broken


@contextmanager
def _broker_killed(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
    name = random.choice(site.brokers)
    site.kill(name)
    try:
        yield partial(time.sleep, random.uniform(0, 5))
    finally:
        site.start(name)


@contextmanager
def _broker_stopped(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
    with _stopped(site, random.choice(site.brokers), _past_session) as broken:
        yield broken


@contextmanager
def _leaders_moved(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
    """Each partition of the pipeline's topics has the broker after its leader first among its replicas, to lead it."""
    admin = KafkaAdminClient(bootstrap_servers=site.addresses.bootstrap.split(","))
    try:
        topics = [name for name in admin.list_topics() if name.startswith(f"{pipeline}.")]
        before = _partitions(admin, topics)
        admin.alter_partition_reassignments({place: _led_by_the_next(it) for place, it in before.items()})
        places: dict[str, list[int]] = defaultdict(list)
        for place in before:
            places[place.topic].append(place.partition)

        def moved() -> Iterator[bool]:
            admin.elect_leaders(0, places, raise_errors=False)
            now = _partitions(admin, topics)
            return (now[place]["leader_id"] != before[place]["leader_id"] for place in before)

        until("another leader", lambda: any(moved()), 30, 0.1)

        def all_moved() -> None:
            until("other leaders", lambda: all(moved()), 30, 0.1)

        yield all_moved
    finally:
        admin.close()


def _led_by_the_next(partition: dict[str, Any]) -> list[int]:
    replicas: list[int] = partition["replica_nodes"]
    after = replicas.index(partition["leader_id"]) + 1
    return replicas[after:] + replicas[:after]


def _partitions(admin: KafkaAdminClient, topics: Sequence[str]) -> dict[TopicPartition, dict[str, Any]]:
    found = admin.describe_topics(topics)
    return {TopicPartition(topic["name"], it["partition_index"]): it for topic in found for it in topic["partitions"]}


def _primary_killed(side: str) -> Callable[[Site, Random, str], Broken]:
    @contextmanager
    def broken(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
        name = site.primary(side)
        site.kill(name)
        try:
            yield partial(_elected, site, side, name)
        finally:
            site.start(name)

    return broken


def _primary_stopped(side: str) -> Callable[[Site, Random, str], Broken]:
    @contextmanager
    def broken(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
        name = site.primary(side)
        with _stopped(site, name, partial(_elected, site, side, name)) as wait:
            yield wait

    return broken


def _primary_steps_down(side: str) -> Callable[[Site, Random, str], Broken]:
    @contextmanager
    def broken(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
        name = site.primary(side)
        with site.direct(name) as client, suppress(AutoReconnect):
            client.admin.command("replSetStepDown", 10, secondaryCatchUpPeriodSecs=5, force=True)
        yield partial(_elected, site, side, name)

    return broken


def _secondary_killed(side: str) -> Callable[[Site, Random, str], Broken]:
    @contextmanager
    def broken(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
        name = _secondary(site, side, random)
        site.kill(name)
        try:
            yield partial(time.sleep, random.uniform(0, 3))
        finally:
            site.start(name)

    return broken


def _secondary_stopped(side: str) -> Callable[[Site, Random, str], Broken]:
    @contextmanager
    def broken(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
        name = _secondary(site, side, random)
        with _stopped(site, name, partial(time.sleep, random.uniform(1, 5))) as wait:
            yield wait

    return broken


def _secondary(site: Site, side: str, random: Random) -> str:
    primary = site.primary(side)
    return random.choice([name for name in site.nodes(side) if name != primary])


def _connections_refused(proxy: str) -> Callable[[Site, Random, str], Broken]:
    @contextmanager
    def broken(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
        with site.proxies[proxy].refusing() as open_before:
            assert open_before, f"nothing is connected to {proxy}"
            yield partial(time.sleep, random.uniform(0, 8))

    return broken


def _connections_held(proxy: str) -> Callable[[Site, Random, str], Broken]:
    @contextmanager
    def broken(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
        with site.proxies[proxy].holding():
            yield partial(time.sleep, random.uniform(2, 12))
        if random.random() < 0.5:
            site.proxies[proxy].cut()

    return broken


def _connections_slow(proxy: str) -> Callable[[Site, Random, str], Broken]:
    @contextmanager
    def broken(site: Site, random: Random, pipeline: str) -> Iterator[Callable[[], None]]:
        with site.proxies[proxy].slow(random.uniform(0.02, 0.3), random.randrange(100_000, 2_000_000)):
            yield partial(time.sleep, random.uniform(3, 8))

    return broken


def _worker(site: Site, random: Random, pipeline: str) -> str:
    """A worker that has something of the pipeline, or any."""
    ports = [it["worker_id"] for kind in ("source", "sink") for it in site.tasks(f"{pipeline}-{kind}")]
    busy = [name for name in site.workers if any(it.endswith(f":{site.port(name)}") for it in ports)]
    return random.choice(sorted(busy) or site.workers)


def _moved(site: Site, name: str, pipeline: str) -> None:
    """All tasks run on other workers."""
    port = site.port(name)

    def there() -> bool:
        tasks = [site.tasks(f"{pipeline}-{kind}", without=name) for kind in ("source", "sink")]
        return all(tasks) and all(
            it["state"] == "RUNNING" and not it["worker_id"].endswith(f":{port}") for of in tasks for it in of
        )

    until(f"rebalance without {name}", there, 90, 0.5)


def _elected(site: Site, side: str, without: str) -> None:
    """There is another primary; at the source, the others have what it wrote: a change stream tells nothing before."""
    name = site.primary(side, without)
    if side == SOURCE:
        until(f"majority behind {name}", lambda: _is_followed(site.hello(name)), 60, 0.05)


def _is_followed(primary: dict[str, Any]) -> bool:
    written = primary.get("lastWrite", {"opTime": {"t": 0}, "majorityOpTime": {"t": -1}})
    return bool(written["opTime"]["t"] == written["majorityOpTime"]["t"])


def _past_session() -> None:
    time.sleep(_PAST_SESSION_S)


def _nothing() -> None:
    """There is nothing to wait for."""


def _faults() -> Iterator[Fault]:
    few: tuple[tuple[ShapeName, str], ...] = (("one", ""), ("three", "-of-three"))
    for shape, of in few:
        yield Fault(f"worker{of}-kill", shape, _worker_killed, "worker")
        yield Fault(f"worker{of}-stop", shape, _worker_stopped, "worker")
        yield Fault(f"broker{of}-kill", shape, _broker_killed, "broker")
        yield Fault(f"broker{of}-stop", shape, _broker_stopped, "broker")
    yield Fault("leader-move", "three", _leaders_moved, "broker")
    for side in (SOURCE, DESTINATION):
        yield Fault(f"{side}-primary-kill", "one", _primary_killed(side), side)
        yield Fault(f"{side}-primary-stop", "one", _primary_stopped(side), side)
        yield Fault(f"{side}-step-down", "one", _primary_steps_down(side), side)
        yield Fault(f"{side}-secondary-kill", "one", _secondary_killed(side), side)
        yield Fault(f"{side}-secondary-stop", "one", _secondary_stopped(side), side)
    for part, hits in ((f"{SOURCE}-0", SOURCE), (f"{DESTINATION}-0", DESTINATION), ("kafka", "broker")):
        name = part.removesuffix("-0")
        yield Fault(f"{name}-cut", "proxied", _connections_refused(part), hits)
        yield Fault(f"{name}-hang", "proxied", _connections_held(part), hits)
        yield Fault(f"{name}-slow", "proxied", _connections_slow(part), hits)


FAULTS: dict[str, Fault] = {fault.name: fault for fault in _faults()}
