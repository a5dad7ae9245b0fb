"""All checks in one order, each using what the earlier ones found; and those by which `towpath deploy` refuses.

Not among the latter: what a deployment refuses by itself (`towpath.deploy`), what it mends (settings of topics), what
Kafka Connect finds when it is given a connector, and what is about a pipeline that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from towpath.deploy.deployment import Deployment
from towpath.deploy.inventory import Servers, look
from towpath.errors import Refused, TopicError, TowpathError
from towpath.finding import Finding, ok, refusal
from towpath.mongo.client import connected, destination_set, source_set
from towpath.mongo.privileges import privileges
from towpath.namespaces import topic_of
from towpath.preflight import connect, destination, file, kafka, log, source
from towpath.preflight.cluster import Known, seen
from towpath.session import Session
from towpath.text import counted


def everything(it: Session, path: Path, held: Collection[str] = ()) -> Iterator[Finding]:
    """Every finding about the pipeline in the file `path`. A server out of reach is a finding, and ends nothing.

    `held`: connectors that are to be made and not started.
    """
    known, failed, away = Known(), False, _out_of_reach(it)
    deployed = connect.SUBJECT not in away and connect.is_deployed(it.connect, it.pipeline)
    for place, findings in (
        ("", file.check(it.pipeline, path)),
        (source.SIDE, source.check(it.pipeline, known, deployed=deployed)),
        (destination.SIDE, destination.check(it.pipeline, known, deployed=deployed)),
        (kafka.SUBJECT, kafka.check(it.pipeline, known, it.topics)),
        (connect.SUBJECT, connect.check(it.pipeline, known, it.connect)),
        ("", log.check(it) if deployed else iter(())),
    ):
        for finding in [refusal(place, away[place])] if place in away else findings:
            failed = failed or finding.level == "error"
            yield finding
    if not failed:
        yield from check(it, held)


def _out_of_reach(it: Session) -> dict[str, TowpathError]:
    """Which servers do not answer, asked side by side: each is waited for for 10 s."""

    def asks_source() -> None:
        with connected(it.pipeline.source_uri, source.SIDE) as client:
            source_set(client)

    def asks_destination() -> None:
        with connected(it.pipeline.destination_uri, destination.SIDE) as client:
            destination_set(client, transactions=it.pipeline.exactly_once)

    asks: dict[str, Callable[[], object]] = {
        source.SIDE: asks_source,
        destination.SIDE: asks_destination,
        kafka.SUBJECT: it.topics.brokers,
        connect.SUBJECT: it.connect.version,
    }
    with ThreadPoolExecutor(len(asks)) as pool:
        asked = {place: pool.submit(_failure, ask) for place, ask in asks.items()}
        found = {place: answer.result() for place, answer in asked.items()}
    return {place: failure for place, failure in found.items() if failure is not None}


def _failure(ask: Callable[[], object]) -> TowpathError | None:
    try:
        ask()
    except TowpathError as failure:
        return failure
    return None


_SUBJECT = "deploy"


def check(it: Session, held: Collection[str] = ()) -> Iterator[Finding]:
    """Plan a deployment, and change nothing."""
    try:
        changes = Deployment(it.pipeline, look(it.pipeline), it.connect, it.topics, held).plan()
    except TowpathError as failure:
        yield refusal(_SUBJECT, failure)
        return
    if not changes:
        yield ok(_SUBJECT, "nothing to change: everything matches the file")
    else:
        yield ok(_SUBJECT, f"would make {counted(len(changes), 'change')}; `towpath deploy --dry-run` lists them")


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
                yield from destination.target_rules(collection, it.pipeline)


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
