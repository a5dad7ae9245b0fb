"""What must hold before a cutover or a fail back: a table of rules, each green or red, which change nothing.

`GATE` is about the replication. `PRECONDITIONS` are about the pause: what can fail early must not fail while writes
wait.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from towpath.checks.destination import missing_privileges_named
from towpath.checks.facts import Facts
from towpath.checks.plan import Pause, round_trip
from towpath.checks.rule import Finding, Rule, error, ok, run, warning
from towpath.clients.connect.control import statuses
from towpath.clients.mongo import write_block
from towpath.clients.mongo.client import Client, Cluster, ClusterTime
from towpath.clients.mongo.privileges import Privileges, privileges
from towpath.clients.mongo.replica_set import destination_set, source_set
from towpath.config.text import counted, duration, first_few, utc
from towpath.cutover import reverse_pipeline
from towpath.cutover.steps import CutoverOptions
from towpath.cutover.watches import watch
from towpath.cutover.writes import ANSWER, command_problem, stdin_problem
from towpath.deploy import conversions, deployment, schema, unreplicated
from towpath.deploy.schema import Listing, Plan, Step, compared, plan_in_place, planned
from towpath.deploy.schema_changes import UNREAD
from towpath.errors import Refused, TowpathError
from towpath.history import rebuild
from towpath.log import bounds
from towpath.log.lag import pipeline_ends
from towpath.log.source_offsets import read_state
from towpath.run.dead_letters import DeadLetterRetries
from towpath.run.report import Report
from towpath.run.status import read_status
from towpath.session import Session
from towpath.store import credentials
from towpath.verify.verdict import VerdictContext, Verification
from towpath_verifier import Schemas, cluster_time, concurrently

#: The lines that need nothing but the status and the verdict.
_KNOWN = ("operator", "connectors", "copy", "lag", "re-read requests", "verified")
#: What to do about a collection that only the source limits.
_CAPPED = "leave it out with [collections] exclude, and move it in the same outage: docs/how-to/cutover.md says how"
#: State of a connector → the command that brings it back to how a cutover left it.
_REMEDIES = {"MISSING": "deploy", "PAUSED": "resume", "STOPPED": "resume"}
_SHOWN = 3  # findings in one line; the rest is only counted
_WAY_BACK = "docs/how-to/fail-back.md#if-the-capture-of-the-old-source-is-lost"
_LOST = {"TWP-HISTORY-LOST", "TWP-OTHER-HISTORY"}  # the capture cannot continue
#: Command → the privilege action that it needs, where their names differ.
_ACTIONS = {"createIndexes": "createIndex", "dropIndexes": "dropIndex"}


@dataclass(frozen=True)
class Readiness:
    """What the rules read. `reverse` is the reverse pipeline, if any; `returns` is True for a fail back."""

    forward: Session
    reverse: Session | None
    options: CutoverOptions
    report: Path | None = None
    returns: bool = False
    answers: bool = True
    """Whether someone may have to confirm on standard input that the writes have stopped."""
    captured_since: ClusterTime | None = None
    """In a fail back, by when the capture of the reverse pipeline had begun at the switch; None if not known."""
    _privileges: dict[str, Privileges | None] = field(default_factory=dict)

    @property
    def session(self) -> Session:
        """The pipeline whose source is the cluster where the writes stop."""
        return self.reverse if self.returns and self.reverse is not None else self.forward

    @cached_property
    def status(self) -> Report | str:
        """The status of that pipeline, or why it cannot be read."""
        try:
            return read_status(self.session)
        except (TowpathError, PyMongoError) as error:
            return str(error)

    @cached_property
    def gap(self) -> str:
        """In a fail back, why the logs do not name all documents that changed since the switch; empty if they do."""
        if self.captured_since is None:
            return ""
        if (age := time.time() - self.captured_since.seconds) > self.complete_s:
            return f"the switch was {duration(age)} ago, and the logs name all changes for {duration(self.complete_s)}"
        if lost := self._lost:
            return f"a log has lost records since the switch: {lost}"
        if self.context.origin is None:
            return self.context.unknown
        if history := self.context.origin.history:
            return f"the source may lack changes since {history}"
        connect, names = self.session.connect, self.session.pipeline.source_connectors
        starts = {name: read_state(connect, name).start for name in names}
        late = {name: start for name, start in starts.items() if start is None or start > self.captured_since}
        words = (f"{name} captures {f'since {utc(at.seconds)}' if at else 'nothing yet'}" for name, at in late.items())
        return f"{'; '.join(words)}, not since the switch" if late else ""

    @property
    def _lost(self) -> str:
        """What shows in a fail back that records since the switch are gone, whatever the files say of retention."""
        ends = pipeline_ends(self.session.pipeline, self.session.topics)  # a reverse pipeline begins with empty topics
        lost = [
            f"{topic}, partition {number}, begins at offset {first:,}"
            for (topic, number), (first, _) in ends.items()
            if first > 0
        ]
        lost += [gap.description for gap in bounds.suspected(self.forward)]
        return first_few(sorted(lost), _SHOWN)

    @property
    def complete_s(self) -> float:
        """In a fail back, for how many seconds both logs name every document that has changed; else infinite."""
        logs = (self.forward.pipeline.log, self.session.pipeline.log) if self.returns else ()
        return min((log.complete_s for log in logs), default=math.inf)

    @cached_property
    def listing(self) -> Listing:
        return Listing.read(self.session)

    @cached_property
    def schemas(self) -> Schemas:
        """Raises `Refused` when neither side has a collection."""
        return schema.schemas(self.session, self.listing.pairs(views=True))

    @cached_property
    def restore(self) -> Plan:
        """What the new primary lacks of the old one's schema, by now."""
        with missing_privileges_named(self.session):
            try:
                both = self.schemas
            except Refused:
                return Plan()
        return planned(both, final=True)

    @cached_property
    def relax(self) -> Plan:
        """What the pipeline from the new primary to the old one needs there; nothing where there is none."""
        opposite = self.forward if self.returns else self.reverse
        if opposite is None:
            return Plan()
        with missing_privileges_named(opposite):
            return plan_in_place(opposite)

    @cached_property
    def context(self) -> VerdictContext:
        return VerdictContext.read(self.session, listing=self.listing)

    @cached_property
    def verdict(self) -> Verification:
        return Verification.of(self.session.pipeline.name, self.context)

    def privileges(self, cluster: Cluster) -> Privileges | None:
        """Those of the user at a cluster; None without access control."""
        if cluster.uri not in self._privileges:
            with cluster.connected() as client:
                self._privileges[cluster.uri] = privileges(client)
        return self._privileges[cluster.uri]

    @property
    def known_status(self) -> Report:
        assert isinstance(self.status, Report)
        return self.status


#: Whether all is well, what was found, and what to do if it is not.
Result = tuple[bool, str, str]


def _line(
    name: str, find: Callable[[Readiness], Result], applies: Callable[[Readiness], bool] = lambda readiness: True
) -> Rule[Readiness]:
    """A rule that yields one finding, green or red. Where `applies` is False, the line is left out."""

    def check(readiness: Readiness) -> Iterator[Finding]:
        good, found, advice = find(readiness)
        yield ok(found) if good else error(found, advice)

    return Rule(name, check, applies=applies)


def known(session: Session, options: CutoverOptions, status: Report | str, verdict: Verification) -> list[Finding]:
    """The lines of the gate about what has been read already; none once a cutover has begun."""
    if isinstance(status, Report) and status.cutover is not None:
        return []
    readiness = Readiness(session, None, options)
    readiness.__dict__.update(status=status, verdict=verdict)
    return run([rule for rule in GATE if rule.name in _KNOWN], readiness)


def red(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "error"]


def _operator(readiness: Readiness) -> Result:
    deployment.refuse_change(readiness.session.pipeline, "a cutover")
    return True, "none", ""


def _connectors(readiness: Readiness) -> Result:
    status, file = readiness.status, readiness.session.file
    if isinstance(status, str):
        return False, status, f"towpath status {file}"
    reasons = [f"{connector.name}: {reason}" for connector in status.connectors for reason in connector.reasons]
    reasons += [error.message for error in status.errors]
    good = status.state == "running" and not reasons
    return good, "; ".join([status.state, *reasons[:_SHOWN]]), f"towpath status {file}; towpath restart {file}"


def _copy(readiness: Readiness) -> Result:
    copy = readiness.known_status.copy
    assert copy is not None
    copied = sum(collection.done for collection in copy.collections)
    words = "done" if copy.done else f"{copied:,} of {counted(len(copy.collections), 'collection')}"
    return copy.done, words, f"towpath status {readiness.session.file} --watch"


def _lag(readiness: Readiness) -> Result:
    lag, limit = readiness.known_status.lag, readiness.options.max_lag
    records, seconds = lag.records, lag.seconds
    if records is None or seconds is None:
        return False, f"unknown (limit {limit:g} s)", f"towpath status {readiness.session.file}"
    words = f"{seconds:.1f} s, {counted(records, 'record')}"
    return seconds <= limit, f"{words} (limit {limit:g} s)", "wait until it is less, or allow more: --max-lag"


def _rebuild(readiness: Readiness) -> Result:
    rebuild.refuse_unfinished(readiness.session)
    return True, "none", ""


def _requests(readiness: Readiness) -> Result:
    waiting = sum(requests.requests for requests in readiness.known_status.requests_waiting or ())
    words = f"{counted(waiting, 'request')} waiting" if waiting else "nothing"
    return not waiting, words, "a repair or compaction is under way: wait until it is done"


def _dead_letters(readiness: Readiness) -> Result:
    refused = refused_documents(readiness.session)
    return not refused, refused or "nothing", f"towpath repair {readiness.session.file} --dead-letters"


def refused_documents(session: Session) -> str:
    """The documents in the dead letters that still differ, in words; empty if there are none."""
    retries = DeadLetterRetries(session)
    for _ in retries.read(time.monotonic()):
        pass
    return f"{retries.words} that the destination refused" if retries.remaining else ""


def _ddl(readiness: Readiness) -> Result:
    logged, advice = readiness.known_status.raw.changes, f"towpath ddl {readiness.session.file}"
    if logged is None:
        return False, UNREAD, advice
    changes = unreplicated.unresolved(readiness.session, readiness.known_status.raw.ddl, remember=False)
    shown = [shown.line(readiness.session.file) for shown in logged.open]
    shown += [change.line for change in changes]
    words = "; ".join(shown[:_SHOWN]) or "no DDL that the other side has not followed"
    return not shown, words, advice


def verified(readiness: Readiness) -> Result:
    file, limit = readiness.session.file, min(readiness.options.max_age, readiness.complete_s)
    verdict = readiness.verdict
    if (full := verdict.full) is None:
        return False, verdict.doubt or "never: no verdict on everything is known", f"towpath verify {file}"
    age = full.age + verdict.ahead
    good = verdict.proven_since is not None and age <= limit
    since = f"; {counted(verdict.left, 'difference')} found since" if verdict.left else ""
    since += f"; {verdict.found_words}" if verdict.found_words else ""
    since += f"; {counted(verdict.unresolved, 'document')} not judged since" if verdict.unresolved else ""
    since += f"; not compared, because created since: {verdict.created_names}" if verdict.created else ""
    since += f"; {verdict.ahead_words}" if full.age <= limit < age else ""
    advice = f"towpath {'repair' if verdict.left else 'status' if verdict.unresolved else 'verify'} {file}"
    advice += ", or allow more: --verified-within" if limit < age <= readiness.complete_s else ""
    if full.seconds > readiness.complete_s:  # any verdict would be too old at its end
        both = f"{readiness.forward.file} and {file}"
        advice = f"set a longer [log] retention in {both}, and deploy both; then {advice}"
    return good, f"{full.line}{since} (limit {duration(limit)})", advice


def _verified(readiness: Readiness) -> Result:
    good, found, advice = verified(readiness)
    return good, "; ".join(filter(None, (readiness.gap, found))), advice


def _metadata(readiness: Readiness) -> Result:
    if capped := readiness.restore.capped:
        return False, f"{capped} would become capped, which copies it and cannot be undone", _CAPPED
    both = compared(readiness.schemas)
    words = "; ".join(f"{difference.pair.source}: {difference.what}" for difference in both.differences[:_SHOWN])
    more = len(both.differences) - _SHOWN
    words += f"; and {more} more" if more > 0 else ""
    same = f"the same, {len(both.deferred)} deferred until the cutover"
    file = readiness.session.file
    left = conversions.pending(readiness.forward) if readiness.returns else ()
    if expiring := [one.description for one in left if one.expires]:  # else the fail back would restore none either
        return False, "; ".join(expiring[:_SHOWN]), f"towpath prepare {readiness.forward.file}"
    if both.differences and left:
        # left by the cutover; `prepare` of the reverse pipeline would propose that the source's indexes lose uniqueness
        file, words = readiness.forward.file, "; ".join([*(one.description for one in left[:_SHOWN]), words])
    return not both.differences, words or same, f"towpath prepare {file}"


def _write_block(readiness: Readiness) -> Result:
    granted = readiness.privileges(readiness.session.source)
    with readiness.session.source.connected() as client:
        problem = write_block.problem(client, granted)
    return not problem, problem or "the user may block writes", "or leave --block-writes out"


def _reverse_pipeline(readiness: Readiness) -> Result:
    assert readiness.reverse is not None
    good, found, advice = reverse_can_be_created(readiness.forward, readiness.reverse)
    return good, found, f"{advice}; or --no-reverse-pipeline"


def reverse_can_be_created(forward: Session, reverse: Session) -> Result:
    reverse_pipeline.refuse_existing(reverse)
    printed = f"towpath topics {forward.file} --reverse"
    facts = Facts(reverse, create_stopped=reverse.pipeline.source_connectors, topics_command=printed)
    errors = red(deployment.findings(facts))
    words = "; ".join(f"{one.subject} of {reverse.pipeline.name}: {one.finding}" for one in errors[:_SHOWN])
    advice = "; ".join(one.advice for one in errors[:_SHOWN])
    if not errors and (unwritable := _unwritable(forward, reverse, facts)):
        found, advice = unwritable
        return False, found, advice
    return not errors, words or f"can be created ({reverse.file.name})", advice


def _unwritable(forward: Session, reverse: Session, facts: Facts) -> tuple[str, str] | None:
    """Which file of the reverse pipeline a cutover would have to write, and may not; and what to do."""
    if not reverse.file.exists() and not os.access(reverse.file.absolute().parent, os.W_OK):
        return f"{reverse.file} cannot be written", f"copy {forward.file} to a folder where you may write, and use that"
    secrets = reverse.pipeline.secrets_file
    folder = next(place for place in secrets.absolute().parents if place.exists())
    if not os.access(folder, os.W_OK) and credentials.differs(secrets, facts.secrets):
        printed = f"towpath manifests {forward.file} --reverse --credentials -"
        return f"{secrets} cannot be written", f"put it there, as `{printed}` prints it, or let this user write there"
    return None


def _commands(readiness: Readiness) -> Result:
    """The commands that stop and redirect the writers can run."""
    options = readiness.options
    commands = {"--stop-with": options.stop_with, "--switch-with": options.switch_with}
    problems = [
        f"{option}: {why}" for option, command in commands.items() if command and (why := command_problem(command))
    ]
    if problems:
        return False, "; ".join(problems), "correct it; nothing runs before all checks are green"
    is_manual = options.stop_with is None and not options.blocks
    if is_manual and readiness.answers and (why := stdin_problem()):
        return False, f"no one could confirm that the writes have stopped: {why}", ANSWER
    return True, "you are asked to stop the writers" if is_manual else "can be run", ""


def own_writes(readiness: Readiness) -> Result:
    """Towpath can write in the pause, to a cluster that blocks writes by then."""
    session, blocked = readiness.forward, list[str]()
    with session.source.connected() as client:
        source = source_set(client)
    with session.destination.connected() as client:
        same = source.is_same(destination_set(client, transactions=True))
    for side, cluster, needs in (
        ("source", session.source, readiness.returns and same),
        ("destination", session.destination, readiness.returns or same),
    ):
        if needs and not write_block.writes_through(granted := readiness.privileges(cluster)):
            why = (
                f"{granted.user} misses {write_block.BYPASS} there" if granted else "no user may without access control"
            )
            blocked.append(f"while writes to the {side} are blocked, Towpath has to write there, and {why}")
    words = "; ".join(blocked) or "Towpath can write while the writes of applications are blocked"
    advice = "leave --block-writes out and stop the writers with --stop-with or by hand, or grant that action"
    return not blocked, words, advice


def late_writes(readiness: Readiness) -> Result:
    """Late writes would be seen."""
    session = readiness.session
    with (
        session.source.connected() as client,
        watch(client, session.pipeline, start_at_operation_time=cluster_time(client) or Timestamp(1, 1)),
    ):
        return True, "are seen, also in new collections", ""


def _index_builds(readiness: Readiness) -> Result:
    """A server refuses changes of a collection while an index of it is built."""
    both = readiness.schemas
    found = [
        f"{index} of {namespace} at the {side}"
        for side, descriptions in (("source", both.source), ("destination", both.destination))
        for namespace, description in descriptions.items()
        for index in description.building
    ]
    words = "; ".join(found[:_SHOWN]) or "none"
    return not found, words, "wait until they are built"


def schemas(readiness: Readiness) -> Result:
    """The users may change the schemas of both sides, as far as the changes are known by now."""
    old, new = readiness.session.source, readiness.session.destination
    changes = (new, readiness.restore.steps), (old, readiness.relax.steps)
    missing = [
        each for side, steps in changes for each in missing_privileges(readiness.privileges(side), side.side, steps)
    ]
    words = "; ".join(missing[:_SHOWN]) or "the users may change the schemas"
    return not missing, words, "grant the role dbAdmin on the databases, or the actions named (docs/reference/roles.md)"


def missing_privileges(granted: Privileges | None, side: str, steps: Iterable[Step]) -> Iterable[str]:
    """The privilege actions that this side's user misses for these steps, each once."""
    if granted is None:
        return ()
    return dict.fromkeys(
        f"{granted.user} misses {action} on {step.namespace} at the {side}"
        for step in steps
        for action in granted.missing([_action(step)], step.namespace)
    )


def _action(step: Step) -> str:
    command = next(iter(step.command.body))
    if command == "create":  # insert is enough to create a collection that is neither capped nor a view
        return "insert" if {"capped", "viewOn"}.isdisjoint(step.command.body) else "createCollection"
    return _ACTIONS.get(command, command)


def _pause(readiness: Readiness) -> Iterator[Finding]:
    """The estimate of the pause fits into its limit. A warning only: it is an estimate."""
    options, pause = readiness.options, _estimate(readiness)
    limit = options.max_pause
    indexes = f"indexes with {pause.entries:,} entries ({pause.unique_indexes:,})"
    words, advice = f"about {pause.seconds:.1f} s (limit {limit:g} s)", "allow more: --max-pause"
    if pause.rebuilt_entries:
        words += f"; in it, {indexes} are rebuilt, as MongoDB before 6.0 has to; after it with --rebuild-later"
        advice += ", or rebuild after the switch: --rebuild-later"
    elif pause.unique_indexes:
        words += f"; after it, {indexes} become unique, about {duration(pause.seconds_after)}"
        words += ", and accept duplicates until then" if any(step.builds for step in readiness.restore.steps) else ""
    status = readiness.status if isinstance(readiness.status, Report) else None
    lag = (
        "without the lag, which is unknown" if status is None or status.lag.seconds is None else "with the present lag"
    )
    rate = status and status.records_per_second
    load = f"; now {rate:,.0f} records/s" if rate is not None else ""
    words += f"; {lag}, without the stop of the writers and the verification of their last changes{load}"
    yield ok(words) if pause.seconds <= limit else warning(words, advice)


def _estimate(readiness: Readiness) -> Pause:
    restore, later = readiness.restore, readiness.options.rebuilds_later
    slow: dict[str, int] = {}
    for step in restore.steps:
        if step.takes_time:
            slow[step.namespace] = slow.get(step.namespace, 0) + (len(step.builds) or 1)
    rebuilds = any(step.builds for step in restore.steps)
    with readiness.session.destination.connected() as client:
        documents = concurrently(partial(_documents, client), list(slow))
        way = round_trip(client)
    entries = sum(documents[namespace] * indexes for namespace, indexes in slow.items())
    quick = sum(step.is_quick and not step.expires for step in restore.steps)
    quick += sum(step.is_quick for step in readiness.relax.steps)
    status = readiness.status if isinstance(readiness.status, Report) else None
    lag, partitions = (status.lag.seconds, len(status.raw.ends)) if status else (None, 0)
    rebuilt = entries if rebuilds and not later else 0
    return Pause(sum(slow.values()), entries, quick, rebuilt, way, lag or 0.0, partitions)


def _documents(client: Client, namespace: str) -> int:
    database, name = namespace.split(".", 1)
    return client[database][name].estimated_document_count()


def _capture(readiness: Readiness) -> Result:
    """The pipeline captures what the reverse pipeline wrote, before its sink skips that."""
    session = readiness.forward
    stopped = [c for c in statuses(session.connect, session.pipeline.source_connectors) if not c.running]
    words = "; ".join(": ".join([f"{c.name} is {c.state}", *c.reasons]) for c in stopped)
    if any(failure.code in _LOST for connector in stopped for failure in connector.failures):
        return False, words, f"the way back without it: {_WAY_BACK}"
    command = next((_REMEDIES[c.state] for c in stopped if c.state in _REMEDIES), "restart")
    return not stopped, words or "of the source is running", f"towpath {command} {session.file}"


def _sink(readiness: Readiness) -> Result:
    session = readiness.forward
    [sink] = statuses(session.connect, [session.pipeline.sink_connector])
    if sink.state != "STOPPED":
        advice = f"towpath {_REMEDIES.get(sink.state, 'resume')} {session.file}, which leaves it stopped"
        return False, f"{sink.name} is {sink.state}, not STOPPED", advice
    reverse_pipeline.refuse_unmovable(session)
    return True, "stopped, and can be moved to the end of the log", ""


def _report_file(readiness: Readiness) -> Result:
    assert readiness.report is not None
    exists = readiness.report.exists()
    path = readiness.report if exists else readiness.report.absolute().parent
    good = os.access(path, os.W_OK) and (exists or path.is_dir())
    return good, str(readiness.report) if good else f"{readiness.report} cannot be written", "name another: --report"


def _has_status(readiness: Readiness) -> bool:
    return isinstance(readiness.status, Report)


def _returns(readiness: Readiness) -> bool:
    return readiness.returns


def _goes(readiness: Readiness) -> bool:
    return not readiness.returns and readiness.reverse is not None


def _blocks(readiness: Readiness) -> bool:
    return readiness.options.blocks


GATE = (
    _line("operator", _operator, lambda readiness: readiness.session.pipeline.has_operator),
    _line("connectors", _connectors),
    _line("copy", _copy, _has_status),
    _line("lag", _lag, _has_status),
    _line("rebuild", _rebuild),
    _line("re-read requests", _requests, _has_status),
    _line("dead letters", _dead_letters, _has_status),
    _line("schema changes", _ddl, _has_status),
    # a fail back itself verifies what the reverse pipeline has captured
    _line("verified", _verified, lambda readiness: not readiness.returns or bool(readiness.gap)),
    _line("metadata", _metadata),
    _line("write block", _write_block, _blocks),
    _line("reverse pipeline", _reverse_pipeline, _goes),
)
PRECONDITIONS = (
    _line("commands", _commands),
    _line("own writes", own_writes, _blocks),
    _line("late writes", late_writes),
    _line("index builds", _index_builds),
    _line("schema privileges", schemas),
    Rule("pause", _pause),
    _line("capture", _capture, _returns),
    _line("sink", _sink, _returns),
    _line("report", _report_file, lambda readiness: readiness.report is not None),
)
