"""A rebuild: a pipeline's own destination is emptied, and its sink applies the log from the beginning.

Its plan is written to the destination first and deleted last, so that a rebuild can continue after a kill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pymongo.client_session import ClientSession

from towpath.checks import target
from towpath.checks.change import refuse_loop_on_resuming
from towpath.checks.rule import require
from towpath.clients.connect.control import statuses, stop
from towpath.clients.connect.rest import code_of
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import Client
from towpath.config.events import Replayed
from towpath.config.pipeline import Pipeline
from towpath.config.text import first_few
from towpath.errors import Overtaken, Refused, TowpathError
from towpath.history.emptying import Marker, empty
from towpath.history.plan import Log, Options, Plan, change_topics, chosen
from towpath.history.preconditions import OF_COMMAND, ReplayFacts
from towpath.history.replay import Confirm, begin, check_again, check_log
from towpath.history.sink_run import Report, SinkRun
from towpath.log import bounds
from towpath.log.bounds import Code, still_in_log
from towpath.log.definitions import DDL_REPLAY
from towpath.log.integrity import LogCheck
from towpath.log.lag import measure
from towpath.session import Session
from towpath.store import cutover, positions, schema_changes, verdict
from towpath.store.positions import OFFSETS, REBUILDS, collection_of, id_range

_TIMES = 3  # that it empties, while something applies the log


def running(client: Client, pipeline: Pipeline) -> Plan | None:
    """The rebuild that is running or was interrupted; None if there is none."""
    document = collection_of(client, REBUILDS).find_one({"_id": pipeline.name})
    try:
        return None if document is None else Plan.from_json(document)
    except (KeyError, TypeError, ValueError) as error:
        raise TowpathError(
            f"the unfinished rebuild of {pipeline.name} that the destination remembers cannot be understood: {error!r}",
            f"delete its document in towpath.{REBUILDS} there, and rebuild again",
        ) from error


def refuse_emptying(session: Session) -> None:
    """Raise `Refused` while a rebuild empties the destination: what a sink wrote then would be deleted again."""
    if not session.pipeline.exactly_once:
        return
    with session.destination.connected() as client:
        plan = running(client, session.pipeline)
    if plan is not None and plan.phase == "emptying":
        raise Refused(
            f"a rebuild of {session.pipeline.name} empties the destination, or was interrupted while it did, so the"
            " sink must stay stopped",
            "the same `towpath replay PIPELINE --rebuild` continues it, and starts the sink",
        )


def refuse_unfinished(session: Session) -> None:
    """Raise `Refused` while a rebuild of the destination is not finished: it is no copy yet."""
    if not session.pipeline.exactly_once:
        return
    with session.destination.connected() as client:
        plan = running(client, session.pipeline)
    if plan is not None:
        raise _unfinished(session)


def refuse_unapplied(session: Session) -> None:
    """Raise `Refused` while a rebuild has not applied its log. One that has, and was only not ended, does not count."""
    found = read_progress(session)
    if found is not None and (found[0].phase == "emptying" or found[1] < found[0].offsets):
        raise _unfinished(session)


def _unfinished(session: Session) -> Refused:
    return Refused(
        f"{session.pipeline.name} is being rebuilt, and its sink has to apply the log from its beginning",
        "the same `towpath replay PIPELINE --rebuild` ends that first",
    )


def rebuild(session: Session, options: Options, report: Report, confirm: Confirm) -> Replayed:
    """Run a rebuild to its end, or continue an interrupted one. Raises `Refused` for what is not supported."""
    facts, marker = ReplayFacts(session, options), Marker(session.destination, session.pipeline.name)
    if existing := require_able(facts):
        plan, check = _resume(facts, existing, marker, report)
    else:
        plan, check = begin(facts, report, confirm)
        _note_breaks(session, check)
        _begin(session, plan, marker)
    if plan.phase == "emptying":
        plan = _empty(session, plan, marker)
    _start(session, marker)
    run = SinkRun(facts, plan, check)
    run.wait_until_applied(report)
    check_again(run, report, applied={})  # the sink also reads what comes after it
    run.check = _with_accepted(session, plan, run.check)
    marker.require()
    _set_replay(session, None)
    with session.destination.connected() as client:
        verdict.begin_history(client, session.pipeline, "a rebuild ended")  # of before are those of a part
    marker.delete()
    _end_replay(session)  # a command that was overtaken may have set it again
    return run.verdict()


def require_able(facts: ReplayFacts) -> Plan | None:
    """Raise `Refused` where the pipeline cannot be rebuilt, or another rebuild has begun; that one if it continues."""
    session = facts.session
    require(OF_COMMAND, facts)
    session.require_deployed()
    target.require_own(session)
    cutover.refuse(session)
    refuse_loop_on_resuming(session)
    with session.destination.connected() as client:
        existing = running(client, session.pipeline)
    if existing and not existing.matches(facts.options):
        raise Refused(
            f"a rebuild of {session.pipeline.name} with {existing.words} has started and is not finished",
            "give the same options to continue it",
        )
    return existing


def _begin(session: Session, plan: Plan, marker: Marker) -> None:
    """Store the marker. Raises `Refused` when the log has changed since it was asked, or a cutover has begun.

    See `docs/design/log.md`.
    """
    if change := _change(plan, _log_now(session, plan)):
        raise _begin_again(change)
    marker.insert(plan.as_json())
    try:
        cutover.refuse(session)
    except Refused:
        marker.delete()
        raise


def _resume(facts: ReplayFacts, existing: Plan, marker: Marker, report: Report) -> tuple[Plan, LogCheck | None]:
    """Take the rebuild over, as it is stored by then."""
    session = facts.session
    session.say("continuing the rebuild that was started before")
    stored = marker.take(existing.began)
    plan = Plan.from_json(stored)
    cutover.refuse(session)
    if plan.phase == "emptying":
        plan = _with_log(facts, plan, marker, has_removed=bool(stored.get("changes")))
    elif facts.options.force:
        plan = _without_lost(session, plan, marker)
    return plan, check_log(facts, plan.log, report, force=True) if plan.forced else None


def _with_log(facts: ReplayFacts, plan: Plan, marker: Marker, *, has_removed: bool) -> Plan:
    """The plan, for the log as it is now. Raises `Refused` if that has changed, unless it is forced.

    If nothing was removed yet, the rebuild ends, and another one has to begin.
    """
    session, log = facts.session, _log_now(facts.session, plan)
    change = _change(plan, log)
    if not change:
        return plan
    if not has_removed:
        marker.require()
        marker.delete()
        _end_replay(session)
        raise _begin_again(change)
    if not (plan.forced or facts.options.force):
        raise Refused(
            f"{change}, and a part of what is to be rebuilt is removed already",
            "with --force, it rebuilds what can be rebuilt, new topics included, and lists the rest",
        )
    return _take(session, plan, marker, log, _lost(plan, log))


def _without_lost(session: Session, plan: Plan, marker: Marker) -> Plan:
    """The plan of a rebuild that applies the log, without what is gone by now: it would wait for that forever."""
    now = _log_now(session, plan)
    lost = {place: code for place, code in _lost(plan, now).items() if code != "TWP-LOG-GAP"}
    left = {place: now[place] for place in lost if place in now}
    kept = {place: bounds for place, bounds in plan.log.items() if place not in lost}
    return _take(session, plan, marker, kept | left, lost) if lost else plan


def _take(session: Session, plan: Plan, marker: Marker, log: Log, lost: Mapping[Place, Code]) -> Plan:
    """The plan with this log, stored. What is lost is noted: no position shows it any more."""
    codes = {place: code for place, code in lost.items() if code != "TWP-LOG-GAP"}
    with session.destination.connected() as client:
        positions.note_breaks(client, session.pipeline, codes, datetime.now(UTC))
    plan = replace(plan, log={**dict.fromkeys(lost, (0, 0)), **log}, forced=True)
    marker.change(lambda *_: None, {"forced": True, "log": plan.as_json()["log"]})
    return plan


def _log_now(session: Session, plan: Plan) -> Log:
    topics = session.topics
    return topics.ends(change_topics(session.pipeline, plan.only, topics.all()))


def _change(plan: Plan, now: Log) -> str:
    """What the log has lost since the plan was made, or which topics are new; empty if it still has the plan's part."""
    lost = sorted(f"{topic}, partition {number}" for topic, number in _lost(plan, now))
    new = sorted({topic for topic, _ in now.keys() - plan.log.keys()})
    parts = [f"records are gone ({first_few(lost, 3)})"] if lost else []
    parts += [f"there is more of it ({first_few(new, 3)})"] if new else []
    return f"the log has changed since the rebuild was planned: {' and '.join(parts)}" if parts else ""


def _lost(plan: Plan, now: Log) -> dict[Place, Code]:
    """Where the log has lost records since the plan was made, and how.

    In one that is forced, retention may delete more of a beginning that was gone: it never waits for a rebuild.
    """
    lost, late = dict[Place, Code](), plan.late if plan.forced else {}
    for place, (first, end) in plan.log.items():
        if (found := now.get(place)) is None:
            lost[place] = "TWP-LOG-TOPIC"
        elif found[1] < end:
            lost[place] = "TWP-LOG-END"
        elif found[0] > first and place not in late:
            lost[place] = "TWP-LOG-GAP"
    return lost


def _begin_again(change: str) -> Refused:
    return Refused(
        f"{change}; nothing was removed, and this rebuild has ended",
        "run the command again, which begins another one; `towpath resume` starts a sink that it has stopped",
    )


def _start(session: Session, marker: Marker) -> None:
    """Start the sink. Raises `Overtaken` or `Refused` when another command has ended the rebuild, perhaps long ago.

    A cutover may follow that end at once: if it is done when the sink has started, the sink is stopped again.
    """
    connect, sink = session.connect, session.pipeline.sink_connector
    marker.require()
    cutover.refuse(session)
    connect.resume(sink)
    found = cutover.known(session)
    if found is not None and found.state == "destination primary":
        stop(connect, sink)
        cutover.refuse(session)
    if any(connector.failures for connector in statuses(connect, [sink])):
        connect.restart(sink, only_failed=True)


def _note_breaks(session: Session, check: LogCheck | None) -> None:
    """Store which topics were truncated or recreated: only the positions tell, which a rebuild deletes."""
    codes = {place: code_of(why) for place, why in check.cut_short.items()} if check else {}
    if codes:
        with session.destination.connected() as client:
            positions.note_breaks(client, session.pipeline, codes, datetime.now(UTC))


def _with_accepted(session: Session, plan: Plan, check: LogCheck | None) -> LogCheck | None:
    """What the log lacks, with the breaks that were accepted while it was applied, which its offsets need not show."""
    with session.destination.connected() as client:
        found = {place: why for place, why in bounds.accepted(client, session.pipeline).items() if place in plan.log}
    base = check or LogCheck(plan.offsets, (), (), None)
    return replace(base, cut_short={**found, **base.cut_short}) if found else check


def _empty(session: Session, plan: Plan, marker: Marker) -> Plan:
    """Stop the sink, delete the positions of the topics, empty their namespaces; in this order.

    A task that Connect has lost track of, with an open transaction, then finds no position, and aborts. If one stores a
    position again, all is done again. Raises `Overtaken` when another command continues the rebuild.
    """
    pipeline = session.pipeline
    for _ in range(_TIMES):
        _remove(session, plan, marker)
        with session.destination.connected() as client:
            written = [topic for topic, _ in positions.positions(client, pipeline) if topic in plan.topics]
        if not written:
            return _emptied(session, plan, marker)
        session.say(f"a sink has written during this: there are positions of {first_few(written, 3)} again")
    raise TowpathError(
        f"something applies the log of {pipeline.name} to the destination, although {pipeline.sink_connector} was"
        " stopped: perhaps a worker that has lost contact with Kafka Connect",
        "end that worker, and run the same command again",
    )


def _remove(session: Session, plan: Plan, marker: Marker) -> None:
    """Verdicts of before, and of verifications that began while documents were removed, do not count."""
    pipeline = session.pipeline
    session.say(f"stopping {pipeline.sink_connector}")
    marker.require()
    stop(session.connect, pipeline.sink_connector)
    with session.destination.connected() as client:
        verdict.begin_history(client, pipeline, "a rebuild began")
        changes_schema = pipeline.ddl.apply or schema_changes.exist(client, pipeline)
    if changes_schema:  # before the stored changes are removed, which show it
        _begin_replay(session, plan, marker)
    marker.change(partial(_forget, pipeline, plan))
    empty(session, marker, plan.log)


def _emptied(session: Session, plan: Plan, marker: Marker) -> Plan:
    """From here on, the sink may write."""
    pipeline, now = session.pipeline, datetime.now(UTC)
    with session.destination.connected() as client:
        verdict.begin_history(client, pipeline, "a rebuild had emptied the destination")
    late = dict[Place, int]()  # the sink stops where the beginning is gone, unless it is forced
    if plan.forced:
        now_in_log = _log_now(session, plan)
        late = {place: max(first, now_in_log.get(place, (first,))[0]) for place, first in plan.late.items()}
    plan = replace(plan, phase="applying")
    marker.change(
        lambda client, transaction: positions.skip_to(client, pipeline, late, now, transaction), {"phase": plan.phase}
    )
    return plan


def _forget(pipeline: Pipeline, plan: Plan, client: Client, transaction: ClientSession) -> None:
    """Delete the positions of the topics, and their schema changes."""
    of_topics = id_range(pipeline, "topic") | {"_id.topic": {"$in": plan.topics}}
    collection_of(client, OFFSETS).delete_many(of_topics, session=transaction)
    schema_changes.forget(client, pipeline, plan.topics if plan.only else None, transaction)


def _begin_replay(session: Session, plan: Plan, marker: Marker) -> None:
    """Have the sink make schema changes as a replay does, until the rebuild ends.

    Raises `Overtaken` when another command has taken the rebuild over. If that has ended it, nothing stays set.
    """
    pipeline = session.pipeline
    marker.require()
    _set_replay(session, chosen(pipeline, plan.only).topic_regex(pipeline.name) if plan.only else "true")
    try:
        marker.require()
    except Overtaken:
        _end_replay(session)
        raise


def _end_replay(session: Session) -> None:
    """Undo `_begin_replay`, unless a rebuild is not finished, which needs it and ends it."""
    with session.destination.connected() as client:
        is_over = running(client, session.pipeline) is None
    if is_over:
        _set_replay(session, None)


def _set_replay(session: Session, value: str | None) -> None:
    """Have the sink make schema changes as a replay does, of all topics or those that match, or no longer."""
    connect, name = session.connect, session.pipeline.sink_connector
    config = connect.config(name) or {}
    if config.get(DDL_REPLAY) != value:
        rest = {key: text for key, text in config.items() if key != DDL_REPLAY}
        connect.put(name, rest | ({DDL_REPLAY: value} if value else {}))


def read_progress(session: Session) -> tuple[Plan, int] | None:
    """The rebuild that is running, and how many records it has applied.

    Raises `MongoUnreachable` when the destination, which stores it, does not answer.
    """
    pipeline, topics = session.pipeline, session.topics
    if not pipeline.exactly_once:
        return None
    with session.destination.briefly() as client:
        plan = running(client, pipeline)
        if plan is None:
            return None
        offsets = {place: position.offset for place, position in positions.positions(client, pipeline).items()}
    if plan.phase == "emptying":
        return plan, 0
    return plan, plan.offsets - measure(topics, still_in_log(plan.log, topics), offsets).records
