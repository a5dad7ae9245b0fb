"""A drill of a takeover: what the destination would be if the source were lost now, made from the log elsewhere.

A replay applies the log up to the position of the capture to a scratch destination, which then gets the source's
schema, and is compared with the source as it was at that time. Nothing of the pipeline is changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from towpath.clients.mongo.client import ClusterTime
from towpath.config.events import Drilled
from towpath.config.text import utc
from towpath.cutover.takeover import not_applied, not_one_state, point, source_states
from towpath.deploy.schema import Listing, apply, plan, remembered
from towpath.history import replay
from towpath.history.plan import END_OF_SECOND, Options, find
from towpath.history.sink_run import Report
from towpath.log.field_rules import pair_of
from towpath.run.status import read_status
from towpath.session import Session
from towpath.store import cutover as cutovers
from towpath_verifier import Difference, Namespace, Recheck, Verification, brief, by_ids, chunks, id_key
from towpath_verifier import Options as Comparison

LABEL = "drill"


def drill(session: Session, options: Options, report: Report, confirm: replay.Confirm) -> Drilled:
    """Run the drill on the replay's destination in `options`. Raises `Refused` and what a replay raises."""
    session.require_deployed()
    cutovers.refuse(session)
    if (left := find(session.connect, session.pipeline, LABEL)) is not None:
        session.say("removing an interrupted drill")
        replay.remove(left, session, keep_letters=False)
    status, states = read_status(session), source_states(session)
    at = point(states)
    problems = [*not_one_state(states), *not_applied(session, states)]
    if remembered(session) is None:
        problems.append("the schema of the source is not stored, which `verify` does: a takeover could not restore it")
    session.say(f"the log has every change before {utc(at.seconds)} ({at})")
    until = _before(at)
    replayed = replay.replay(session, replace(options, label=LABEL, until=until), report, confirm)
    scratch = _scratch(session, options)
    began = time.monotonic()
    apply(scratch.destination, plan(scratch, final=True).steps)
    schema_seconds = time.monotonic() - began
    session.say(f"comparing with the source as it was at {until}")
    differences, unjudged, compared = _compare(scratch, until)
    return Drilled(
        cluster_time=str(at),
        recovery_seconds=status.lag.capture_seconds,
        behind_records=status.lag.records,
        records=replayed.records,
        apply_seconds=replayed.seconds,
        schema_seconds=round(schema_seconds, 3),
        documents=compared,
        differences=differences,
        not_judged=unjudged,
        problems=problems,
        whole=replayed.whole and not (problems or differences or unjudged),
    )


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
    uris = scratch.pipeline.source.uri, scratch.pipeline.destination.uri
    pairs = Listing.read(scratch).pairs()
    verification = Verification(*uris, pairs, Comparison(recheck=Recheck(first=0.0, tries=1)), say=scratch.say)
    found, differing, unjudged = sorted(verification, key=attrgetter("namespace")), 0, list[str]()
    for namespace, group in groupby(found, attrgetter("namespace")):
        try:
            differing += sum(_differing(scratch, namespace, list(group), Timestamp(until.seconds, until.ordinal)))
        except OperationFailure as failure:  # such as SnapshotTooOld: the source no longer has that time
            unjudged.append(f"{namespace}: the source does not show its documents as of {until}: {brief(failure)}")
    return differing, [*unjudged, *verification.verdict.errors], verification.verdict.compared
