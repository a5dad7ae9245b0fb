"""A drill of a takeover: what the destination would be if the source were lost now, made from the log elsewhere.

A replay applies the log up to the position of the capture to a scratch destination, which then gets the source's
schema, and is compared with the source as it was at that time. Nothing of the pipeline is changed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from towpath.checks.rule import run
from towpath.clients.mongo.client import ClusterTime
from towpath.config.events import Drilled
from towpath.config.text import utc
from towpath.cutover.gate import red
from towpath.cutover.steps import CutoverOptions
from towpath.cutover.takeover import GATE, LOST, Loss
from towpath.deploy.schema import Listing, Step, apply, planned, remembered
from towpath.errors import TowpathError
from towpath.history import replay
from towpath.history.plan import DRILL, END_OF_SECOND, Options, find
from towpath.history.sink_run import Report
from towpath.log.field_rules import pair_of
from towpath.session import Session
from towpath.store import cutover as cutovers
from towpath_verifier import (
    Difference,
    Namespace,
    Recheck,
    Schemas,
    Verification,
    brief,
    by_ids,
    chunks,
    described,
    feature_version,
    id_key,
)
from towpath_verifier import Options as Comparison

_BATCH = 1_000  # documents that differ from the present ones, before they are compared with the past ones


def drill(session: Session, options: Options, report: Report, confirm: replay.Confirm) -> Drilled:
    """Run the drill on the replay's destination in `options`. Raises `Refused` and what a replay raises."""
    session.require_deployed()
    cutovers.refuse(session)
    if (left := find(session.connect, session.pipeline, DRILL)) is not None:
        session.say("removing an interrupted drill")
        replay.remove(left, session, keep_letters=False)
    loss = Loss(session, CutoverOptions())
    at = loss.point
    problems = [f"{one.subject}: {one.finding}" for one in red(run([each for each in GATE if each not in LOST], loss))]
    session.say(f"the log has every change before {utc(at.seconds)} ({at})")
    until = _before(at)
    try:
        replayed = replay.replay(session, replace(options, label=DRILL, until=until), report, confirm)
    except TowpathError as error:
        if (left := find(session.connect, session.pipeline, DRILL)) is None:
            raise
        replay.remove(left, session, keep_letters=False)
        advice = "run the drill again, with --empty"
        raise TowpathError(error.what, advice, where=error.where, code=error.code) from error
    scratch = _scratch(session, options)
    session.say(f"comparing with the source as it was at {until}")
    differences, unjudged, compared = _compare(scratch, until)
    began = time.monotonic()
    apply(scratch.destination, _schema(session, scratch))  # last: TTL indexes delete at once
    return Drilled(
        cluster_time=str(at),
        recovery_seconds=loss.status.lag.capture_seconds,
        recovery_changes=loss.status.lag.capture_changes,
        behind_records=loss.status.lag.records,
        records=replayed.records,
        apply_seconds=replayed.seconds,
        schema_seconds=round(time.monotonic() - began, 3),
        documents=compared,
        differences=differences,
        not_judged=unjudged,
        problems=problems,
        whole=replayed.whole and not (problems or differences or unjudged),
    )


def _schema(session: Session, scratch: Session) -> list[Step]:
    """What the scratch destination lacks of the source's schema, as it is stored for a takeover."""
    if (known := remembered(session)) is None:
        return []
    both = known[0]
    with scratch.destination.connected() as client:
        theirs = described(client, [pair.destination for pair in both.pairs])
        version = feature_version(client)
    lacking = planned(Schemas(both.pairs, both.source, theirs, version), final=True)
    return [step for step in lacking.steps if not step.caps]


def _before(at: ClusterTime) -> ClusterTime:
    """The last cluster time before this one."""
    return replace(at, ordinal=at.ordinal - 1) if at.ordinal else ClusterTime(at.seconds - 1, END_OF_SECOND)


def _scratch(session: Session, options: Options) -> Session:
    """The pipeline as if it wrote to the scratch destination."""
    assert options.uri is not None
    pipeline = session.pipeline.changed(destination={"uri": options.uri})
    return replace(session, pipeline=pipeline, destination=session.replay_destination(options.uri))


def _differing(scratch: Session, namespace: Namespace, found: list[Difference], at: Timestamp) -> Iterator[int]:
    """In portions, how many of these documents differ from those that the source had at this cluster time."""
    pair, (database, name) = pair_of(scratch.pipeline, namespace), namespace.split(".", 1)
    documents, scratched = scratch.source.client()[database][name], {id_key(one.id): one.destination for one in found}
    for ids in chunks(one.id for one in found):
        past = {key: pair.left(document) for key, document in by_ids(documents, ids, at, pair.only)}
        yield sum(past.get(id_key(id)) != scratched[id_key(id)] for id in ids)


def _compare(scratch: Session, until: ClusterTime) -> tuple[int, list[str], int]:
    """How many documents differ from those of the source at that time, why some were not judged, and how many all are.

    Those that differ from the present ones are compared with the past ones.
    """
    at, uris = Timestamp(until.seconds, until.ordinal), (scratch.pipeline.source.uri, scratch.pipeline.destination.uri)
    pairs = Listing.read(scratch).pairs()
    verification = Verification(*uris, pairs, Comparison(recheck=Recheck(first=0.0, tries=1)), say=scratch.say)
    found, differing, unjudged = defaultdict[Namespace, list[Difference]](list), 0, dict[str, None]()

    def judge(namespace: Namespace) -> int:
        try:
            return sum(_differing(scratch, namespace, found.pop(namespace), at))
        except OperationFailure as failure:  # such as SnapshotTooOld: the source no longer has that time
            unjudged[f"{namespace}: the source does not show its documents as of {until}: {brief(failure)}"] = None
            return 0

    for difference in verification:
        found[difference.namespace].append(difference)
        if len(found[difference.namespace]) >= _BATCH:
            differing += judge(difference.namespace)
    differing += sum(judge(namespace) for namespace in list(found))
    return differing, [*unjudged, *verification.verdict.errors], verification.verdict.compared
