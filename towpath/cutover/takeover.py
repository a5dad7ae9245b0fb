"""A takeover: the destination becomes primary because the source is lost. What must hold before, and its steps.

The log holds every change before the position of the source connector, with transactions whole. So once nothing writes
to the log any more, and the sink has applied all of it, the destination is the source as of that time: no partition is
behind another, and no transaction is half applied. `docs/design/takeover.md` has the proof.

Until the switch every step can be undone, also after a kill.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property

from pymongo.errors import ConnectionFailure

from towpath.checks.rule import Finding, Rule, error, ok, warning
from towpath.clients.connect.control import statuses, wait_stopped
from towpath.clients.connect.rest import Connector
from towpath.clients.mongo.client import Client, ClusterTime, cluster_time
from towpath.clients.mongo.privileges import privileges
from towpath.config.text import counted, first_few, utc
from towpath.cutover.gate import missing_privileges, refused_documents
from towpath.cutover.sides import Sides
from towpath.cutover.steps import (
    ENFORCE,
    FENCE_SINK,
    RESTORE,
    SINK_STOPS,
    STOP_SINK,
    CutoverOptions,
    Step,
    Work,
    change_as_own,
    change_schema,
    release,
    resume_existing,
    stored_undo,
)
from towpath.deploy import conversions, schema
from towpath.deploy.schema import (
    Plan,
    as_text,
    compared,
    relaxing,
    remembered,
    restoring,
    without_enforcement,
)
from towpath.errors import MongoError, MongoUnreachable, Refused, TowpathError
from towpath.history import rebuild
from towpath.log import barrier, bounds, reread_requests
from towpath.log.source_offsets import SourceState, read_state
from towpath.run.report import Report
from towpath.run.restarts import end_transactions
from towpath.run.status import read_status
from towpath.session import Session, unsaid
from towpath.store import verdict as verdicts
from towpath.store.positions import fence
from towpath.threads import begin
from towpath.verify.verdict import Verdict, found_words
from towpath_verifier import Schemas

#: Longer than a source that answers Connect is without a new time: an idle server notes one every ten seconds.
_SILENCE_S = 15.0
_POLL_S = 0.5
_STARTS_S = 10.0  # in which a task starts that can reach the source
#: How the driver calls members that are no primary.
_MEMBERS = ("RSSecondary", "RSArbiter", "RSOther")
_ANSWER_S, _LOST_ANSWER_S = 5.0, 1.0  # in which the source may answer; the second if the user says that it is lost
_SHOWN, _LONGEST = 3, 160
_ACCEPT = "--accept takes over nevertheless"


@dataclass(frozen=True)
class Loss:
    """What the rules read."""

    session: Session
    options: CutoverOptions

    @cached_property
    def asked(self) -> Future[Report]:
        """The status, for which all servers are asked; it waits for a source that does not answer."""
        return begin(lambda: read_status(self.session), "status")

    @property
    def status(self) -> Report:
        """Raises `TowpathError` when Kafka or Connect does not answer."""
        return self.asked.result()

    @cached_property
    def states(self) -> Mapping[str, SourceState]:
        return source_states(self.session)

    @cached_property
    def schema(self) -> tuple[Schemas, ClusterTime] | None:
        return remembered(self.session)

    @property
    def point(self) -> ClusterTime:
        """The cluster time before which the log has every change."""
        return point(self.states)


def source_states(session: Session) -> dict[str, SourceState]:
    return {name: read_state(session.connect, name) for name in session.pipeline.source_connectors}


def point(states: Mapping[str, SourceState]) -> ClusterTime:
    """The cluster time before which the log has every change. Raises `Refused` before the copy is complete."""
    times = list[ClusterTime]()
    for name, state in states.items():
        if state.is_initial or state.copying or state.position is None or state.position.snapshot_running:
            raise Refused(f"{name} has not completed its copy: the log does not hold all documents")
        times.append(state.position.time)
    return min(times)


def _source(loss: Loss) -> Iterator[Finding]:
    """No member answers. One without a primary may still reach others, which have one or elect one."""
    if loss.options.source_is_lost:
        loss.session.source.longest_selection = _LOST_ANSWER_S
    assert loss.asked  # at the same time
    advice = (
        "`towpath cutover` moves without loss, once it has a primary; if you know that it is lost, --source-is-lost"
        " takes over nevertheless: what is written there from now on is lost"
    )
    others = list[str]()
    try:
        with loss.session.source.connected(timeout=_ANSWER_S, answer=_ANSWER_S) as client:
            try:
                client.admin.command("ping")
            except ConnectionFailure:
                others = _others(client)
                raise
        words = f"the source answers at {loss.session.source.address}"
    except MongoUnreachable as failure:
        if not others:
            yield ok(f"does not answer: {str(failure).partition(';')[0][:_LONGEST]}")
            return
        words = (
            f"no primary of the source answers, but other members do ({first_few(others, _SHOWN)}): it may have a"
            " primary that this machine does not reach, or elect one"
        )
    except MongoError as failure:
        words = f"something answers there, and refuses this user or client: {failure}"
    yield warning(words, "stop what writes there") if loss.options.source_is_lost else error(words, advice)


def _others(client: Client) -> list[str]:
    """The members other than a primary that have answered this client, which has just looked for a primary."""
    members = client.topology_description.server_descriptions().items()
    return [f"{host}:{port}" for (host, port), member in members if member.server_type_name in _MEMBERS]


def _capture(loss: Loss) -> Iterator[Finding]:
    """Connect listens to the source, and hears nothing either: it might be away from this machine only."""
    at, file = loss.point, loss.session.file
    if not loss.options.source_is_lost:
        deaf = _deaf(loss.session, _STARTS_S)
        end = time.monotonic() + _SILENCE_S
        while not deaf and time.monotonic() < end:
            time.sleep(_POLL_S)
            if positions_of(source_states(loss.session)) != positions_of(loss.states):
                yield error(
                    "the source answers Connect's workers, whose position moves: it is only out of reach of this"
                    " machine",
                    "run the command where the source can be reached, or `towpath cutover` there; if what the workers"
                    " reach is to be given up, --source-is-lost",
                )
                return
            deaf = _deaf(loss.session)
        if deaf:
            yield error(
                f"{deaf}; so it is not known whether the workers reach the source",
                f"towpath resume {file}, or towpath restart {file}; or --source-is-lost, if you know that it is lost",
            )
            return
    yield ok(f"the log has every change before {utc(at.seconds)} ({at})")


def _deaf(session: Session, within: float = 0.0) -> str:
    """Which source connectors do not listen to the source, in words; empty if all do, `within` so many seconds.

    The position of one that does not run stands still, whether the source lives or not.
    """
    end = time.monotonic() + within
    while True:
        found = [one for one in statuses(session.connect, session.pipeline.source_connectors) if not one.running]
        if not found or time.monotonic() >= end:
            break
        time.sleep(_POLL_S)
    return "; ".join(": ".join([f"{one.name} is {one.state}, with {_tasks(one)}", *one.reasons]) for one in found)


def _tasks(connector: Connector) -> str:
    return ", ".join(f"task {task.id} {task.state}" for task in connector.tasks) or "no task"


def positions_of(states: Mapping[str, SourceState]) -> dict[str, ClusterTime | None]:
    return {name: state.position.time if state.position else None for name, state in states.items()}


def _consistent(loss: Loss) -> Iterator[Finding]:
    """What the log holds is one state of the source."""
    yield from _accepted(loss, not_one_state(loss.states), "one state of the source")


def not_one_state(states: Mapping[str, SourceState]) -> list[str]:
    """Why the log does not hold one state of the source; empty if it does."""
    problems = []
    for name, state in states.items():
        assert state.position is not None
        if state.lost or state.gap:
            problems.append(f"{name} has lost a part of the source's changes, and documents are not re-read yet")
        if state.open:
            problems.append(f"the log ends inside a transaction of {state.open}, which was larger than 64 MB")
        if state.copied and not state.position.has_passed(state.copied):
            problems.append(f"copied documents are as of up to {state.copied}, and {name} has not captured so far")
        if state.changed:
            problems.append(f"changes of {counted(sum(state.changed.values()), 'document')} were not read in time")
        if state.schema and any(refill.end is None for refill in state.schema.refills):
            problems.append("a collection that was renamed or replaced is not read to its end")
    times = {state.position.time for state in states.values() if state.position}
    if len(times) > 1:
        shown = ", ".join(map(str, sorted(times)))
        problems.append(f"the source connectors have captured up to different times: {shown}")
    return problems


def _applied(loss: Loss) -> Iterator[Finding]:
    """The destination gets all that the log has."""
    report = loss.status
    breaks = bounds.confirmed(loss.session) if report.log_breaks is None else report.log_breaks
    if breaks:
        shown_breaks = first_few([one.description for one in breaks], _SHOWN)
        yield error(
            f"the log has lost records that were not applied: {shown_breaks}",
            f"towpath restart {loss.session.file} --accept-log-gap",
        )
    if report.raw.changes and report.raw.changes.stuck:
        held = first_few([one.line(loss.session.file) for one in report.raw.changes.stuck], _SHOWN)
        yield error(
            f"schema changes are held or refused: {held}", f"towpath ddl {loss.session.file} --apply, or --skip"
        )
    yield from _accepted(loss, not_applied(loss.session, loss.states), "everything can be applied")


def not_applied(session: Session, states: Mapping[str, SourceState]) -> list[str]:
    """What of the log is not at the destination; empty if nothing."""
    pipeline, problems = session.pipeline, list[str]()
    if refused := refused_documents(session):
        problems.append(refused)
    end = reread_requests.end(pipeline, session.topics) if pipeline.has_own_source else 0
    for name, state in states.items():
        answered = state.requests.next if state.requests else 0
        if reread_requests.waiting(pipeline, session.topics, name, answered, end) is not None:
            problems.append(f"requests to re-read documents can no longer be answered by {name}")
    return problems


def _accepted(loss: Loss, problems: list[str], otherwise: str) -> Iterator[Finding]:
    if not problems:
        yield ok(otherwise)
    for words in problems:
        yield warning(words, "") if loss.options.accepts else error(words, _ACCEPT)


def _sink(loss: Loss) -> Iterator[Finding]:
    """The sink runs."""
    with loss.session.destination.connected() as client:
        if rebuild.running(client, loss.session.pipeline) is not None:
            yield error("the destination is being rebuilt", "`towpath replay --rebuild` ends that first")
    [sink] = statuses(loss.session.connect, [loss.session.pipeline.sink_connector])
    advice = f"towpath restart {loss.session.file}"
    lag = loss.status.lag
    words = "running" if lag.records is None else f"running, {counted(lag.records, 'record')} behind the log"
    yield ok(words) if sink.running else error("; ".join([f"is {sink.state}", *sink.reasons]), advice)


def _verified(loss: Loss) -> Iterator[Finding]:
    with loss.session.destination.connected() as client:
        last, found = verdicts.read(client, loss.session.pipeline)
    if last is None:
        yield warning("never, and without the source it cannot be any more", "")
        return
    verdict = Verdict.read(last)
    words = f"{verdict.line}; {found_words(found)}" if found else verdict.line
    yield ok(words) if verdict.clean and not found else warning(words, "")


def _schema(loss: Loss) -> Iterator[Finding]:
    """The source's schema is known, and can be restored."""
    if loss.schema is None:
        words = (
            "that of the source is not known, which `deploy` and `verify` store: indexes stay without unique and TTL"
        )
        yield from _accepted(loss, [words], "")
        return
    both, at = loss.schema
    steps = restoring(both)
    with loss.session.destination.connected() as client:
        granted = privileges(client)
    if missing := list(missing_privileges(granted, "destination", steps)):
        yield error(first_few(missing, _SHOWN), "grant the role dbAdmin on the databases")
    problems = []
    if since := list(_changed_since(loss, at)):
        problems.append(f"known as of {utc(at.seconds)}; changed since: {first_few(since, _SHOWN)}")
    metadata = compared(both)
    capped = (one for one in metadata.deferred if any("convertToCapped" in command.body for command in one.commands))
    if differing := [f"{one.pair.source}: {one.what}" for one in (*metadata.differences, *capped)]:
        problems.append(f"these differ, and stay as they are: {first_few(differing, _SHOWN)}")
    yield from _accepted(loss, problems, f"as of {utc(at.seconds)}, {counted(len(steps), 'command')} to restore it")


def _changed_since(loss: Loss, at: ClusterTime) -> Iterator[str]:
    """What has changed of the source's schema, as the capture has seen it."""
    for change in loss.status.raw.ddl:
        if change.time > at:
            yield f"{change.kind} {change.namespace}"
    logged = loss.status.raw.changes
    for shown in (*logged.open, *logged.latest) if logged else ():
        if cluster_time(shown.change.time) > at:
            yield shown.description
    for name, state in loss.states.items():
        if state.ddl and state.ddl.dropped and any(change.time > at for change in state.ddl.events[:1]):
            yield f"more than {name} has kept"
        if state.ddl and state.ddl.error:
            yield f"what {name} could not see ({state.ddl.error})"


#: Whether the source is lost.
LOST: tuple[Rule[Loss], ...] = (Rule("source", _source), Rule("capture", _capture))
GATE: tuple[Rule[Loss], ...] = (
    *LOST,
    Rule("consistent", _consistent),
    Rule("sink", _sink),
    Rule("applied", _applied),
    Rule("verified", _verified),
    Rule("schema", _schema),
)


# the steps


def stop_reverse(reverse: Session) -> None:
    """Stop what there is of the reverse pipeline of a cutover, which would circulate changes."""
    for name in reverse.pipeline.connectors:
        if reverse.connect.config(name) is not None:
            reverse.connect.stop(name)
            wait_stopped(reverse.connect, name)


def stop_capture(session: Session) -> None:
    for name in session.pipeline.source_connectors:
        session.connect.stop(name)
    for name in session.pipeline.source_connectors:
        wait_stopped(session.connect, name)


def resume_capture(session: Session) -> None:
    for name in session.pipeline.source_connectors:
        session.connect.resume(name)


def _fence_capture(work: Work) -> None:
    """From here on, the position of the source connectors is final."""
    from towpath.clients.kafka import hanging_transactions  # here, because it costs 0.15 s of CPU

    session = work.session
    hanging_transactions.fence(session.topics, session.pipeline.source_connectors, work.options.timeout)
    for message in end_transactions(session, list(session.topics.open_transactions())):
        session.say(message)
    states = source_states(session)
    work.last_write = point(states)
    if not work.options.accepts and (problems := not_one_state(states)):
        raise TowpathError(f"the log does not hold one state of the source: {'; '.join(problems)}", _ACCEPT)


def _drain(work: Work) -> None:
    work.log = barrier.wait_drained(work.session, work.options.timeout, work.session.say)


def _fence_sink(work: Work) -> None:
    """What a task still had under way is written before this, or never; so the positions are read again."""
    session = work.session
    with session.destination.connected() as client:
        fence(client, session.pipeline)
    barrier.wait_drained(session, work.options.timeout, unsaid)
    if not work.options.accepts and (problems := not_applied(session, source_states(session))):
        raise TowpathError(f"not all of the log is at the destination: {'; '.join(problems)}", _ACCEPT)


def _plan_schema(work: Work) -> None:
    """Plan all changes of the schema, and store how to undo them.

    An interrupted cutover may still be in the marker, with the only record of what it has relaxed at the source.
    """
    assert work.sides.marker is not None
    known = remembered(work.session)
    work.restore = Plan(indexes=restoring(known[0]) if known else ())
    undo = {
        **work.sides.marker.undo,
        ENFORCE: as_text(without_enforcement(step) for step in work.restore.steps if step.enforces),
        RESTORE: as_text(_restored(work)),
    }
    later = conversions.conversions(step for step in work.restore.steps if conversions.is_later(step))
    work.sides.mark(replace(work.sides.marker, undo=undo, later=later))


def _restored(work: Work) -> list[schema.Step]:
    return [step for step in work.restore.steps if not (step.enforces or conversions.is_later(step))]


def _enforce(work: Work) -> int:
    return change_as_own(work, work.session, [step for step in work.restore.steps if step.enforces])


def _restore(work: Work) -> int:
    return change_as_own(work, work.session, _restored(work))


def _relax_again(sides: Sides) -> None:
    assert sides.marker is not None
    if (known := remembered(sides.session)) is not None:
        # a cutover has restored all collections, and stored none
        restored = {step.namespace for step in stored_undo(sides, RESTORE)} if RESTORE in sides.marker.undo else None
        steps = relaxing(known[0], restored)
        change_schema(sides.session, sorted(steps, key=lambda step: not step.drops))


def _resume_capture(sides: Sides) -> None:
    resume_existing(sides.session, sides.session.pipeline.source_connectors)


STOP_CAPTURE = "stopping the capture"

STEPS = (
    Step(STOP_CAPTURE, lambda work: stop_capture(work.session), undo=_resume_capture),
    Step("fencing the capture", _fence_capture),
    Step("applying the rest of the log", _drain),
    *SINK_STOPS,
    Step(FENCE_SINK, _fence_sink),
    Step("planning the schema of the new primary", _plan_schema),
    Step(ENFORCE, _enforce, undo=release, unit="commands"),
    Step(RESTORE, _restore, undo=_relax_again, unit="commands"),
)
#: The steps with an undo, in the order of the undo.
UNDO_ORDER = tuple({step.name: step for step in STEPS}[name] for name in (RESTORE, ENFORCE, STOP_SINK, STOP_CAPTURE))
#: What of a cutover is undone when its source is lost: the rest needs the source.
UNDO_OF_CUTOVER = UNDO_ORDER[:-1]
OWN = frozenset(step.name for step in UNDO_ORDER)
