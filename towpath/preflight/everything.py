"""All looks at all places, in an order in which each can use what the earlier ones found out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from towpath.errors import TowpathError
from towpath.finding import Finding, refusal
from towpath.mongo.client import connected, destination_set, source_set
from towpath.preflight import capture, connect, deployment, destination, file, kafka, source
from towpath.preflight.cluster import Known
from towpath.session import Session


def everything(it: Session, path: Path, held: Collection[str] = ()) -> Iterator[Finding]:
    """Every finding about the pipeline in the file `path`. A server out of reach is a finding, and ends nothing.

    `held`: connectors that are to be made and not started.
    """
    known, failed, away = Known(), False, _out_of_reach(it)
    deployed = connect.SUBJECT not in away and connect.is_deployed(it.connect, it.pipeline)
    for place, look in (
        ("", file.check(it.pipeline, path)),
        (source.SIDE, source.check(it.pipeline, known, deployed=deployed)),
        (destination.SIDE, destination.check(it.pipeline, known, deployed=deployed)),
        (kafka.SUBJECT, kafka.check(it.pipeline, known, it.topics)),
        (connect.SUBJECT, connect.check(it.pipeline, known, it.connect)),
        ("", capture.check(it) if deployed else iter(())),
    ):
        for finding in [refusal(place, away[place])] if place in away else look:
            failed = failed or finding.level == "error"
            yield finding
    if not failed:
        yield from deployment.check(it, held)


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
