"""What a replay or a rebuild would do: it checks what they check, in the same order, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from towpath.checks.rule import Finding, about, run
from towpath.clients.mongo.client import ClusterTime
from towpath.config.events import Replayable
from towpath.history import rebuild
from towpath.history.plan import Options, Plan, find
from towpath.history.preconditions import OF_BEGINNING, OF_COMMAND, OF_LOG, UNTIL, ReplayFacts
from towpath.history.replay import gather_log, other_options, too_early
from towpath.history.sink_run import Report, missing
from towpath.log.integrity import LogCheck
from towpath.session import Session


@dataclass(frozen=True, slots=True)
class Gathered:
    """What is known before anything is decided."""

    would: str
    """What the command would do, in words: a replay and its label, or a rebuild."""
    options: Options
    findings: Sequence[Finding]
    uncopied: bool = False
    existing: Plan | None = None
    """Of the replay or rebuild that the command would continue."""
    records: int = 0
    check: LogCheck | None = None
    """None if the log cannot be read, or is not one to replay."""
    counts: dict[str, int] = field(default_factory=dict)
    """Documents in the namespaces that would be written."""


def dry_run(session: Session, options: Options, report: Report) -> Replayable:
    """Check a replay, a rebuild, or only the log.

    Raises `TowpathError` if Kafka or Connect does not answer, and `Refused` for a pipeline that cannot be rebuilt.
    """
    session.topics.brokers()
    facts = ReplayFacts(session, options)
    return judged(_of_rebuild(facts, report) if facts.is_rebuild else _of_replay(facts, report))


def judged(found: Gathered) -> Replayable:
    """What was found as a whole: `accepted` if the command would begin, or continue."""
    options, check, is_new = found.options, found.check, found.existing is None
    earliest = check.earliest if check else None
    early = about(UNTIL, too_early(options.until, earliest)) if is_new else ()
    findings = [*found.findings, *early]
    errors = {finding.subject for finding in findings if finding.level == "error"}
    is_whole = check is not None and check.is_whole and not found.uncopied
    lacks_nothing = is_whole or options.force or not is_new
    return Replayable(
        would=found.would,
        accepted=lacks_nothing and not errors,
        continues=not is_new,
        whole=is_whole,
        until=_text(options.until),
        until_accepted=None if options.until is None else UNTIL not in errors and check is not None,
        earliest=_text(earliest),
        records=found.records,
        deletes=found.counts if options.empty or options.uri is None else {},
        uncopied=found.uncopied,
        missing=missing(None if check is None or check.is_whole else check),
        findings=[finding.as_json() for finding in findings],
    )


def _of_replay(facts: ReplayFacts, report: Report) -> Gathered:
    session, options = facts.session, facts.options
    if options.only_log:
        return _of_log(facts, Gathered("replay", options, run(OF_LOG, facts)), report)
    would = f"replay {facts.label}"
    existing = find(session.connect, session.pipeline, facts.label)
    if existing is None:
        findings = run((*OF_COMMAND, *OF_BEGINNING), facts)
        return _of_log(facts, Gathered(would, options, findings, counts=facts.counts), report)
    differing = [*run(OF_COMMAND, facts), *about("replay", other_options(facts, existing))]
    return _of_log(facts, Gathered(would, options, differing, existing=existing.plan), report)


def _of_rebuild(facts: ReplayFacts, report: Report) -> Gathered:
    existing = rebuild.require_able(facts)
    findings = [] if existing else run(OF_BEGINNING, facts)
    counts = {} if existing else facts.counts
    return _of_log(facts, Gathered("rebuild", facts.options, findings, existing=existing, counts=counts), report)


def _of_log(facts: ReplayFacts, found: Gathered, report: Report) -> Gathered:
    """The same, with what the log has, where there is one."""
    log = found.existing.log if found.existing else facts.log
    if not log or not facts.pipeline.exactly_once:
        return found
    check = gather_log(facts, log, facts.copied, report)
    records = sum(end - first for first, end in log.values())
    return replace(found, records=records, check=check, uncopied=facts.pipeline.copy_method == "none")


def _text(time: ClusterTime | None) -> str | None:
    return str(time) if time else None
