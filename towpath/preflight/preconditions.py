"""What has to hold before a pipeline is deployed: rules of `towpath check` by which `towpath deploy` refuses.

Not those that a deployment refuses by itself (`towpath.deploy.preconditions`, `towpath.deploy.inventory`), what it
mends (settings of topics), what Kafka Connect finds when it is given a connector, and what is about a pipeline that
runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from towpath.deploy.inventory import Servers
from towpath.errors import Refused, TopicError
from towpath.finding import Finding
from towpath.mongo.client import connected
from towpath.mongo.privileges import privileges
from towpath.namespaces import topic_of
from towpath.preflight import connect, destination, kafka, source, target
from towpath.preflight.cluster import seen
from towpath.session import Session


def refuse(it: Session, servers: Servers) -> None:
    """Raise `Refused` with the first error that `check` would find; `servers` is what both clusters hold."""
    errors = [finding for finding in _findings(it, servers) if finding.level == "error"]
    if errors:
        first = errors[0]
        more = f" (the first of {len(errors)} errors, which `towpath check` lists)" if len(errors) > 1 else ""
        raise Refused(f"{first.subject}: {first.finding}{more}", first.advice)


def _findings(it: Session, servers: Servers) -> Iterator[Finding]:
    yield from _source(it, servers)
    yield from _destination(it, servers)
    yield from _kafka(it, servers)
    yield from connect.same_kafka(it.topics.cluster(), it.connect)


def _source(it: Session, servers: Servers) -> Iterator[Finding]:
    with connected(it.pipeline.source_uri, source.SIDE) as client:
        yield from source.rules(client, it.pipeline, seen(client, servers.source))
        yield from source.privileged(client, it.pipeline)
        if not connect.is_deployed(it.connect, it.pipeline):
            yield from source.limits(client, it.pipeline, servers.namespaces)


def _destination(it: Session, servers: Servers) -> Iterator[Finding]:
    targets = sorted({it.pipeline.renames.destination(name) for name in servers.namespaces})
    with connected(it.pipeline.destination_uri, destination.SIDE) as client:
        mine = privileges(client)
        yield from destination.rules(client, it.pipeline, seen(client, servers.destination), mine, targets)
        if destination.is_seen(mine, targets):
            for collection in destination.there(client, targets):
                yield from target.rules(collection, it.pipeline)


def _kafka(it: Session, servers: Servers) -> Iterator[Finding]:
    brokers, existing = it.topics.brokers(), it.topics.all()
    for number in brokers:
        try:
            settings = it.topics.broker_settings(number)
        except TopicError:
            continue  # the user may not see them, and needs not to deploy
        yield from kafka.broker(number, settings, len(brokers), it.pipeline)
    if any(topic_of(it.pipeline.name, name) not in existing for name in servers.namespaces):
        yield from kafka.would_create(it.pipeline, it.topics)
