"""The steps of a cutover and of a fail back: one table, in order, for both directions.

`towpath.cutover.machine` runs it. Before a step with an undo begins, the marker at the destination names it; until the
switch, every step that the marker names can be undone, also after a kill, and as often as it takes.

Capture never stops, so that the log stays whole. The sink stops only once it has applied everything. The reverse
pipeline captures what the destination takes from then on. So no TTL is restored before the switch: what it deletes
would be deleted at the old primary as well, where after a kill an application may have extended its date. In a fail
back, the log of the pipeline also holds what the reverse pipeline wrote to the source. The destination has all of that,
which is verified: the sink skips it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

import pymongo

from towpath.checks import target
from towpath.checks.facts import Facts
from towpath.checks.plan import LONGEST_S
from towpath.checks.rule import require
from towpath.clients.connect.control import wait_running, wait_stopped
from towpath.clients.kafka.consume import Window
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo import write_block
from towpath.clients.mongo.client import ClusterTime
from towpath.clients.mongo.replica_set import operation_time
from towpath.config.events import CutoverNote, TimedEvent
from towpath.config.text import duration
from towpath.cutover import reverse_pipeline
from towpath.cutover.overwritings import Overwritings
from towpath.cutover.pause import Pause
from towpath.cutover.sides import Sides, announce
from towpath.cutover.watches import LateWrites, SchemaWatches
from towpath.cutover.writes import ANSWER, allow, hook, writes_through
from towpath.deploy import conversions, deployment, schema
from towpath.deploy.schema import Listing, Plan, apply, as_text, of_text, plan, plan_in_place, without_enforcement
from towpath.errors import MongoUnreachable, NoSuchConnector, TowpathError
from towpath.log import barrier, bounds, changed_keys
from towpath.session import Session, unsaid
from towpath.store.positions import fence, positions
from towpath.verify.recent import DocumentsDiffer, IncrementalVerification, require_same
from towpath.verify.verdict import EVERYTHING
from towpath_verifier import Options, Verification

_SHORT_S, _ROUNDS = 2.0, 5  # the pause begins once a comparison takes no longer than this, or after so many
_BATCH = 100  # commands to change a schema, between two checks of whose the marker is
_CLOCKS_S = 3600.0  # by which the clocks of brokers and of a machine that verifies may differ
_LATE_S = 0.2  # after the limit of the pause, so that an error names it
_BLOCK_S, _REPORT_S = 33.0, 3.0  # seconds for open transactions to end, and of those to find out whose they are


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverOptions:
    """The options of the command line."""

    max_lag: float = 10.0
    """In seconds, with which a cutover may begin."""
    max_age: float = 24 * 3600.0
    """Of the last full verification, in seconds."""
    newest: int = 500_000
    """Records of the log that are verified before the pause."""
    quiet: bool = False
    """Whether all documents are compared in the pause, by dbHash."""
    blocks: bool = False
    stop_with: str | None = None
    switch_with: str | None = None
    timeout: float = 120.0
    """In seconds, for a step that waits."""
    max_pause: float = LONGEST_S
    """Longest pause in the writes, in seconds."""
    source_is_lost: bool = False
    """In a takeover: the user says so, although something may still answer."""
    accepts: bool = False
    """In a takeover: the user accepts what the destination will lack."""
    ask: Callable[[str], object] = lambda question: None
    """Asks the user before documents of an old source are overwritten. Raises `Refused` without consent."""
    rebuilds_later: bool = False
    """Whether indexes that a server before MongoDB 6.0 has to rebuild are rebuilt after the switch."""


@dataclass(slots=True)
class Work:
    """What the steps of one switch share. `contexts` ends what a step leaves open."""

    sides: Sides
    options: CutoverOptions
    report: Callable[[TimedEvent], None]
    contexts: ExitStack
    pause: Pause
    changes: IncrementalVerification
    proven_since: float | None = None
    """In a fail back: see `Verification.proven_since`."""
    schemas: SchemaWatches = field(init=False)
    restore: Plan = field(default_factory=Plan)
    """What the new primary lacks of the old one's schema."""
    relax: Plan = field(default_factory=Plan)
    """What the pipeline from the new primary to the old one needs there."""
    log: Window = field(default_factory=dict)
    """What the sink had applied at the last look, if the log has lost nothing: partition → (first offset, end)."""
    log_before: Window = field(default_factory=dict)
    """The same at the look before, when the log had lost nothing."""
    overwritings: Overwritings | None = None
    """What the return of an old source overwrites there, and `question`: in words, before it begins."""
    question: str = ""
    begun: ClusterTime | None = None
    """The new primary's time before the capture of the reverse pipeline was started."""
    captured_since: ClusterTime | None = None
    """The new primary's time by which that capture had begun."""
    last_write: ClusterTime | None = None
    echoes: IncrementalVerification | None = None
    """In a fail back, of what the source has captured since the cutover, and the pipeline's sink has not applied."""
    late_writes: LateWrites | None = None

    def __post_init__(self) -> None:
        self.schemas = SchemaWatches(self.session, self.pause.end)

    @property
    def session(self) -> Session:
        """The pipeline from the old primary to the new one."""
        return self.sides.session

    @property
    def reverse(self) -> Session:
        assert self.sides.reverse is not None
        return self.sides.reverse


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `do` returns what it counted, in `unit`; `undo` takes it back, and may run again.

    What `do` raises ends the cutover, which is undone. From "stopping the writers" on, writers wait for it.
    """

    name: str
    """As in the events and in the marker."""
    do: Callable[[Work], int | None]
    undo: Callable[[Sides], object] | None = None
    when: Callable[[Work], bool] = lambda work: True
    needs: Callable[[Work], object] = lambda work: None
    """Raises where it must not begin, before the marker names it."""
    unit: str = "documents"


def _cuts_over(work: Work) -> bool:
    return not work.sides.direction.returns


def _fails_back(work: Work) -> bool:
    return work.sides.direction.returns


def _makes_reverse(work: Work) -> bool:
    return _cuts_over(work) and work.sides.reverse is not None


def _relaxes_old(work: Work) -> bool:
    """Whether the pipeline to the old primary can write there now; the gate has seen to that of a fail back."""
    if _fails_back(work):
        return True
    return _makes_reverse(work) and (not work.options.blocks or writes_through(work.session.source))


def _await_applied(work: Work) -> None:
    """Before the pause. The gate has accepted a backlog of `max_lag`."""
    work.log = barrier.wait(work.session, max(work.options.timeout, work.options.max_lag), work.session.say)


def _verify_newest(work: Work) -> int:
    _await_applied(work)  # before that, both sides may be equal because the sink lags
    return work.changes.verify_newest(work.options.newest, work.log)


def _verify_until_short(work: Work) -> int:
    compared = 0
    for _ in range(_ROUNDS):
        _await_applied(work)
        compared += work.changes.verify_new(work.log)
        if work.changes.duration_s < _SHORT_S:
            break
    _await_applied(work)  # for a short pause
    return compared


def proven(logged: Session, since: float | None) -> dict[Place, int]:
    """The positions in a log up to which a verification that began then (seconds since the epoch) has compared all."""
    return {} if since is None else changed_keys.positions_at(logged.pipeline, logged.topics, since - _CLOCKS_S)


def _verify_captured(work: Work) -> int:
    forward = work.sides.forward
    barrier.wait_captured(forward, work.options.timeout, forward.say)
    return _verify_echoes(work)


def _verify_echoes(work: Work) -> int:
    """All that the source has captured since the cutover should be what the reverse pipeline wrote.

    Compared are the sides of the reverse pipeline, so that what something else has written at the source differs.
    """
    forward = work.sides.forward
    if work.echoes is None:
        with forward.destination.connected() as client:
            applied = {place: position.offset for place, position in positions(client, forward.pipeline).items()}
        applied |= {gap.place: 0 for gap in bounds.suspected(forward)}  # a topic that was made again, for example
        known = proven(forward, work.proven_since)
        start = {place: max(offset, known.get(place, 0)) for place, offset in applied.items()}
        work.echoes = IncrementalVerification(work.reverse, forward, start)
    try:
        return work.echoes.verify_new()
    except DocumentsDiffer as error:
        raise DocumentsDiffer(
            f"the source has changes that did not come from the reverse pipeline, and would be lost: {error.what}",
            "end what writes to the source, and save what it wrote (docs/how-to/fail-back.md says how); only then"
            f" {error.advice}, which gives the source the destination's documents",
        ) from error


def _read_schemas(work: Work) -> None:
    """Also opens every connection that the pause needs. From here on, a change of a schema ends the cutover."""
    work.contexts.enter_context(work.pause.enforced())
    work.schemas.begin(work.contexts)
    with work.session.source.connected() as client:
        now = operation_time(client)
    _plan_schemas(work)
    if _cuts_over(work) and (both := work.restore.both) is not None:
        schema.remember_for_cutover(work.session, both.source, now)


def _plan_schemas(work: Work) -> None:
    """Plan all changes of the schemas, and store how to undo them: later, no side says how the other one was.

    Raises `TowpathError` where more has changed since the gate than a pause can restore.
    """
    work.restore = plan(work.session, final=True)
    changed = "; ".join(f"{one.pair.source}: {one.what}" for one in work.restore.unexplained)
    if changed or work.restore.capped:
        raise TowpathError(
            f"the schemas have changed since they were checked: {changed or f'{work.restore.capped} became capped'};"
            " begin again"
        )
    undo = {ENFORCE: as_text(without_enforcement(step) for step in work.restore.steps if step.enforces)}
    if work.sides.opposite is not None:
        work.relax = plan_in_place(work.sides.opposite)
        undo[RELAX] = as_text(work.relax.undo)
    assert work.sides.marker is not None
    later = conversions.conversions(step for step in work.restore.steps if _is_later(work, step))
    work.sides.mark(replace(work.sides.marker, undo=undo, later=later))


def _is_later(work: Work, step: schema.Step) -> bool:
    """Whether it comes after the switch: see `towpath.deploy.conversions`."""
    return conversions.is_later(step) or (work.options.rebuilds_later and not step.is_quick)


def _where(work: Work) -> str:
    return f"the {work.sides.direction.old} ({work.session.source.address})"


def _stop_writers(work: Work) -> None:
    """The pause begins when the writers are asked to stop, by the command or by a person."""
    work.pause.begin()
    if work.options.stop_with is not None:
        hook(work.options.stop_with)
        return
    words = (
        f"Stop all writes to {_where(work)} now, then press Enter; Ctrl-C leaves all as it is, and so does the end of"
        f" --max-pause, {duration(work.pause.limit)} from now"
    )
    work.report(CutoverNote(event="stop writes", words=words))
    if not sys.stdin.readline():
        raise TowpathError(f"no confirmation that the writes have stopped: standard input has ended; {ANSWER}")


def _block_writes(work: Work) -> None:
    if work.options.stop_with is None:
        work.pause.begin()
    with work.session.source.connected() as client:
        write_block.block(client, patience=work.pause.remaining(_BLOCK_S) - _REPORT_S)
    if work.options.stop_with is None:
        work.report(CutoverNote(event="stop writes", words=f"writes to {_where(work)} are blocked from now on"))


def _apply_rest(work: Work) -> None:
    late_writes = LateWrites(work.session.source, work.session.pipeline, work.sides.direction.old, work.pause.end)
    work.late_writes = work.contexts.enter_context(late_writes)
    with work.session.source.connected() as client:
        work.last_write = operation_time(client)
    limit = work.pause.remaining(work.options.timeout)
    work.log_before, work.log = work.log, barrier.wait_applied(work.session, limit, unsaid, before=work.log)


def _verify_rest(work: Work) -> int:
    bounds.refuse(work.session, work.log, work.log_before)
    return work.changes.verify_new(work.log)


def _await_late_writes(work: Work) -> None:
    assert work.late_writes is not None
    work.late_writes.catch_up()


def _stop_sink(work: Work) -> None:
    work.session.connect.stop(work.session.pipeline.sink_connector)


def resume_existing(session: Session, names: Iterable[str]) -> None:
    """Undo a stop. One that was removed since has nothing to resume, and must not keep the rest from its undo."""
    for name in names:
        try:
            session.connect.resume(name)
        except NoSuchConnector:
            announce(session.say, f"there is no {name} to resume: `towpath deploy {session.file}` creates it")


def _fence_sink(work: Work) -> None:
    """From here on, no task writes that was started before: one on a worker that Connect has lost may still run.

    All is applied. So it would write what is captured after the switch, over newer documents.
    """
    with pymongo.timeout(work.pause.remaining(work.options.timeout)), work.session.destination.connected() as client:
        fence(client, work.session.pipeline)


def _resume_sink(sides: Sides) -> None:
    resume_existing(sides.session, [sides.session.pipeline.sink_connector])


def _compare_all(work: Work) -> int:
    with pymongo.timeout(work.pause.remaining(work.pause.limit)):
        pipeline, everything = work.session.pipeline, Listing.read(work.session).pairs()
        quiet = Verification(pipeline.source.uri, pipeline.destination.uri, everything, Options(quiet=True))
        return require_same(work.session, quiet, EVERYTHING)


def _start_reverse(work: Work) -> None:
    work.begun = reverse_pipeline.begin(work.reverse, work.session.pipeline)


def _await_reverse(work: Work) -> None:
    assert work.begun is not None
    limit = work.pause.remaining(work.options.timeout)
    work.captured_since = reverse_pipeline.wait_begun(work.reverse, work.begun, limit)


def _skip_echoes(work: Work) -> int:
    forward = work.sides.forward
    barrier.wait_captured(forward, work.pause.remaining(work.options.timeout), unsaid)
    ends = reverse_pipeline.written_ends(forward, work.pause.remaining(work.options.timeout))
    verified = _verify_echoes(work)
    reverse_pipeline.skip_to_end(forward, ends)
    return verified


def _enforce(work: Work) -> int:
    """Refuse duplicates at the new primary, which needs no capture, while Connect starts the reverse pipeline's."""
    if not work.schemas.unchanged:
        _plan_schemas(work)
    return _change_schema(work, work.session, [step for step in work.restore.steps if step.enforces])


def _restore(work: Work) -> int:
    """Restore the schema of the new primary, but for what comes before and after."""
    steps = [step for step in work.restore.steps if not (step.enforces or _is_later(work, step))]
    return _change_schema(work, work.session, steps)


def _relax(work: Work) -> int:
    assert work.sides.opposite is not None
    return _change_schema(work, work.sides.opposite, work.relax.steps)


def _change_schema(work: Work, session: Session, steps: Sequence[schema.Step]) -> int:
    """Run these steps at the destination, as long as no other command undoes them at the same time.

    The server ends them with the pause: an undo must not run beside them.
    """
    return change_as_own(work, session, steps, lambda: work.pause.remaining(work.pause.limit) + _LATE_S)


def change_as_own(
    work: Work, session: Session, steps: Sequence[schema.Step], within: Callable[[], float | None] = lambda: None
) -> int:
    """Run these steps at the destination in batches, each in `within` seconds, while the marker is this command's."""
    for start in range(0, len(steps), _BATCH):
        work.sides.require_own()
        change_schema(session, steps[start : start + _BATCH], within=within())
    return len(steps)


def _relax_again(sides: Sides) -> None:
    """Undo `_restore`. The source's schema, in a fail back, is its own and not that of a copy."""
    if sides.direction.returns:
        relax_existing_schema(sides.session)
    else:
        relax_schema(sides.session)


def release(sides: Sides) -> None:
    """Undo `_enforce`. It does not ask what is enforced: a command may still wait for a lock, and this waits behind it.

    Nor does it ask the other side: when this is repeated, that may be relaxed.
    """
    undo_schema(sides.session, stored_undo(sides, ENFORCE))


def restore_old(sides: Sides) -> None:
    """As it was: what the other side has by now may be relaxed already, when this is repeated."""
    assert sides.opposite is not None
    undo_schema(sides.opposite, stored_undo(sides, RELAX))


def stored_undo(sides: Sides, step: str) -> tuple[schema.Step, ...]:
    """The commands that undo a step. Raises `TowpathError` where the marker lost them: nothing else knows them."""
    assert sides.marker is not None
    if (text := sides.marker.undo.get(step)) is None:
        raise TowpathError(
            f"the marker of the cutover does not say how to undo {step!r}",
            f"compare options and indexes at both sides, and correct them; then delete the document of"
            f" {sides.forward.pipeline.name} in towpath.cutovers at the destination",
        )
    return of_text(text)


def remove_reverse(sides: Sides) -> None:
    """Raises `Refused` for what the deployed reverse pipeline does not write; its file may have changed since."""
    assert sides.reverse is not None
    facts = Facts(sides.reverse)
    with suppress(MongoUnreachable):  # what needs it comes last, and raises it again
        require(target.OF_REMOVAL, target.gather(facts, with_source=False))
    deployment.remove(sides.reverse, log=True, say=unsaid, facts=facts)


PREPARE, BLOCK, STOP_SINK = "preparing the reverse pipeline", "blocking writes", "stopping the sink"
FENCE_SINK = "fencing the sink"
ENFORCE, RESTORE = "refusing duplicates at the new primary", "restoring the schema of the new primary"
RELAX = "relaxing the schema of the old primary"

PREPARE_REVERSE = Step(
    PREPARE,
    lambda work: reverse_pipeline.make_ready(work.reverse, work.options.timeout),
    undo=remove_reverse,
    when=_makes_reverse,
    needs=lambda work: reverse_pipeline.refuse_existing(work.reverse),  # the undo would remove it
)
START_REVERSE = Step("starting the reverse pipeline", _start_reverse, when=_makes_reverse)
#: Once all is applied.
SINK_STOPS = (
    Step(STOP_SINK, _stop_sink, undo=_resume_sink),
    Step(
        "waiting until the sink has stopped",
        lambda work: wait_stopped(work.session.connect, work.session.pipeline.sink_connector),
    ),
)
STEPS = (
    Step(
        "verifying the newest records",
        _verify_newest,
        when=_cuts_over,
    ),
    PREPARE_REVERSE,
    Step("verifying newer records", _verify_until_short),  # in a fail back, all since the cutover
    Step("verifying what the source has captured", _verify_captured, when=_fails_back),
    Step("reading the schemas of both sides", _read_schemas),
    Step(
        "stopping the writers",
        _stop_writers,
        when=lambda work: work.options.stop_with is not None or not work.options.blocks,
    ),
    Step(
        BLOCK,
        _block_writes,
        undo=lambda sides: allow(sides.session.source),
        when=lambda work: work.options.blocks,
    ),
    Step("applying the rest of the log", _apply_rest),
    *SINK_STOPS,
    Step(FENCE_SINK, _fence_sink),
    START_REVERSE,  # Connect takes a second for it
    Step("verifying the rest of the log", _verify_rest),
    Step("comparing all documents", _compare_all, when=lambda work: work.options.quiet),
    Step("moving the sink to the end of the log", _skip_echoes, when=_fails_back),
    Step(ENFORCE, _enforce, undo=release, unit="commands"),
    Step("waiting for the reverse pipeline", _await_reverse, when=_makes_reverse),
    Step(RESTORE, _restore, undo=_relax_again, unit="commands"),
    Step(
        RELAX,
        _relax,
        undo=restore_old,
        when=_relaxes_old,
        unit="commands",
    ),
    Step("checking for late writes", _await_late_writes),
)
#: The steps with an undo, in the order of the undo: writes are allowed first, and the reverse pipeline is gone before
#: the sink resumes, or changes would circulate. Each undo needs all before it.
UNDO_ORDER = tuple(
    {step.name: step for step in STEPS}[name] for name in (BLOCK, RELAX, RESTORE, ENFORCE, PREPARE, STOP_SINK)
)


def _apply_backlog(work: Work) -> int:
    commands = relax_existing_schema(work.reverse)
    barrier.wait(work.reverse, work.options.timeout, work.sides.forward.say)
    return commands


def _resume_pipeline(work: Work) -> None:
    forward = work.sides.forward
    forward.connect.resume(forward.pipeline.sink_connector)
    wait_running(forward.connect, forward.pipeline.connectors, work.options.timeout)


#: Before a fail back, where the source has blocked the reverse pipeline's writes.
APPLY_BACKLOG = Step("applying the backlog of the reverse pipeline", _apply_backlog, unit="commands")
#: Once a fail back has made the source primary: they are not undone, and can be repeated.
FINISH = (
    Step("relaxing the schema of the destination", lambda work: relax_schema(work.sides.forward), unit="commands"),
    Step("removing the reverse pipeline", lambda work: remove_reverse(work.sides)),
    Step("resuming the pipeline", _resume_pipeline),
)
#: After the switch: they are not undone, and can be repeated.
RESTORE_TTL, CONVERT = "restoring the TTL of the new primary", "converting indexes to unique"


def relax_existing_schema(session: Session) -> int:
    """Relax what would delete or reject documents at a destination with a different schema; the number of commands."""
    return change_schema(session, plan_in_place(session).steps)


def relax_schema(session: Session) -> int:
    """Give the destination a relaxed schema, which accepts all replicated changes; return the number of commands.

    Drops come first: while an index is built, also one that an interrupt has left, other changes are refused.
    """
    steps = plan(session, overwrite=True).steps
    return change_schema(session, sorted(steps, key=lambda step: not step.drops))


def change_schema(session: Session, steps: Sequence[schema.Step], *, within: float | None = None) -> int:
    """Run these steps at the destination, in `within` seconds; return their number."""
    apply(session.destination, steps, within=within)
    return len(steps)


def undo_schema(session: Session, steps: Sequence[schema.Step]) -> None:
    """Run stored steps at the destination. What is gone since needs none."""
    with session.destination.connected() as client:
        schema.at_once(client, steps, may_be_gone=True)
