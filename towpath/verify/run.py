"""One verification: compare both sides, report each difference as it is proven, store the verdict."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

from towpath.clients.kafka.consume import Window
from towpath.clients.kafka.topics import Place
from towpath.config import events
from towpath.config.events import Event, as_line
from towpath.config.pipeline import Pipeline
from towpath.config.text import duration
from towpath.deploy.schema import Listing, Metadata
from towpath.errors import NotYet, Refused, TowpathError
from towpath.log.barrier import asking, wait_drained
from towpath.log.changed_keys import ChangedDocument, ids
from towpath.log.lag import applied, gaps, measure, pipeline_ends
from towpath.session import Session
from towpath.store import verdict as stored
from towpath.store import verdict_file
from towpath.store.verdict import Before
from towpath.store.verdict_file import FollowState
from towpath.verify import verdict as verdicts
from towpath.verify.recent import RecentVerification
from towpath.verify.result import Example, VerificationResult, as_event
from towpath.verify.verdict import EVERYTHING, Origin, VerdictContext
from towpath_verifier import (
    Difference,
    Journal,
    Options,
    Pair,
    Progress,
    Verification,
    VerifierError,
    with_retries,
)

_EXAMPLES = 50  # differences shown in full


def run(
    session: Session,
    compared: Sequence[Pair],
    options: Options,
    request: VerifyRequest,
    report_progress: Callable[[Progress], None],
    report: Callable[[Event], None],
) -> VerificationResult:
    """Compare, and store the verdict.

    `report` receives every difference as it is proven, then the verdict. Raises
    `TowpathError` when the comparison cannot finish.
    """
    examples, has_found = list[Example](), False
    # first: collections recreated during the run are not what the verdict is about
    now, unknown = verdicts.try_origin(session, listing=request.listing)
    before, lag = verdicts.before(session), 0.0
    if now and request.of == EVERYTHING and not request.alone:
        try:
            lag = _lag(session)
        except TowpathError as error:
            now, unknown = None, str(error)
    if options.journal:
        if options.resume:
            now, before, lag = resumed(Journal(options.journal), now, unknown, before, lag)
        origin = now and {"origin": now.as_json(), "before": asdict(before)} | ({"lag": lag} if lag else {})
        options = replace(options, origin=origin)
    with (
        nullcontext() if request.alone else asking(session, ends=True) as passed,
        verdict_file.writing(session.pipeline.name) as file,
    ):
        verification: Verification | RecentVerification
        if request.is_recent:
            changed = _recent(session, request, options if passed else None)
            verification = RecentVerification(session, changed, request.only, options, passed=passed)
        else:
            uris = session.pipeline.source.uri, session.pipeline.destination.uri
            verification = Verification(*uris, compared, options, passed=passed, tell=report_progress, say=session.say)
        result = VerificationResult(verification.verdict, examples, request.metadata)
        document_events = differences(session, verification, examples, resumable=options.journal is not None)
        for event in itertools.chain[Event](document_events, request.definitions):
            if not has_found and isinstance(event, events.Difference):
                has_found = True
                verdicts.note_found(session, request.id)  # at once: a run that is killed has also proven it
            file.write(event.line)
            report(event)
        if has_found:
            verdicts.note_found(session, request.id)  # the last of them
        if now is not None:
            _refuse_other_history(session, now, options.lost_for)
        last = as_event(result, request.of, request.ddl, request.only, request.id)
        whole = last.as_json() | {"origin": now and now.as_json()}
        file.write(as_line(whole))
    if request.of == EVERYTHING:
        verdicts.store(session, whole, unknown, before, lag)
    report(last)
    return result


def _lag(session: Session) -> float:
    """How many seconds ago the source had the oldest change that the sink has not applied: it is not compared yet."""
    with applied(session) as done:
        positions = done()
    return measure(session.topics, pipeline_ends(session.pipeline, session.topics), positions).seconds


def _recent(session: Session, request: VerifyRequest, options: Options | None) -> Iterator[ChangedDocument]:
    """The documents of the newest records that the log has now.

    With `options`, once the sink has applied them: before that, both sides may be equal because it lags.
    """
    since = None if request.since is None else time.time() - request.since.total_seconds()
    if options is None:
        ends: Window = pipeline_ends(session.pipeline, session.topics)
    else:
        try:
            ends = wait_drained(session, options.recheck.patience, session.say)
        except NotYet as error:
            raise TowpathError(f"there is no verdict: {error}") from error
    return ids(session.pipeline, session.topics, request.last, since, ends)


def resumed(
    journal: Journal, now: Origin | None, unknown: str, before: Before, lag: float
) -> tuple[Origin | None, Before, float]:
    """Origin, what was stored when it began, and the lag then, of the run to resume; those given if there is none.

    Raises `Refused` when its ranges no longer count.
    """
    about = journal.about()
    if about is None:
        return now, before, lag
    known = about.get("origin") or {}
    if "before" not in known:  # without an origin, the verdict does not count for a cutover
        return None, Before(), lag
    before, lag, began = Before(**known["before"]), known.get("lag", 0.0), Origin.from_json(known["origin"])
    if began == now or began is None:
        return began, before, lag
    doubt = f"cannot check what it belongs to: {unknown}" if now is None else began.doubt(now)
    if doubt:
        raise Refused(f"cannot resume the run in {journal.path}: {doubt}; run `towpath verify` without --resume")
    return began, before, lag


def _refuse_other_history(session: Session, began: Origin, lost_for: float) -> None:
    """Raise `TowpathError` when the comparison was overtaken by what voids verdicts."""
    with session.destination.connected() as client:
        read = partial(stored.history, client, session.pipeline)
        try:
            history = with_retries("read towpath.verdicts at the destination", lost_for, read)
        except VerifierError as error:
            raise TowpathError(error.sentence, error.advice, where=error.where) from error
    if doubt := began.history_doubt(history):
        raise TowpathError(f"there is no verdict: {doubt}, during the comparison; run `towpath verify` again")


def differences(
    session: Session, verification: Iterable[Difference], examples: list[Example], *, resumable: bool
) -> Iterator[events.Difference]:
    """The differences of documents, each as it is proven; the first ones are also added to `examples`."""
    hint = "`towpath verify --resume` continues from here" if resumable else ""
    try:
        for difference in verification:
            if len(examples) < _EXAMPLES:
                examples.append(Example.of(difference))
            yield verdict_file.difference(difference, session.pipeline.renamed(difference.namespace))
    except VerifierError as error:
        advice = "; ".join(filter(None, (error.advice, hint)))
        raise TowpathError(error.sentence, advice, where=error.where) from error
    except TowpathError:  # such as a connector's failure
        if hint:
            session.say(hint)
        raise
    except KeyboardInterrupt:
        session.say("; ".join(filter(None, ("interrupted", hint))))
        raise


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to verify, and how."""

    alone: bool
    """Compare without asking Connect and Kafka for the pipeline's progress."""
    last: int | None = None
    """Compare only the documents of so many newest records; None for all."""
    since: timedelta | None = None
    """Compare only the documents of the records of this time; None for all."""
    metadata: Metadata | None = None
    """Differences of options, views and indexes; None when they are not compared."""
    only: Sequence[str] = ()
    """Patterns of the namespaces that are compared; empty for all."""
    ddl: Sequence[str] = ()
    """Unreplicated DDL at the source, as it was before the comparison."""
    listing: Listing | None = None
    """The collections on both sides, if they are known already."""

    id: str = field(default_factory=lambda: uuid4().hex)
    """The id of the verdict."""

    @property
    def is_recent(self) -> bool:
        """Whether only the documents of the newest records are compared."""
        return bool(self.last or self.since)

    @property
    def definitions(self) -> Iterator[events.Definition]:
        """The events of options, views and indexes that differ."""
        for difference in self.metadata.differences if self.metadata else ():
            yield events.Definition(**difference.as_json())

    @property
    def of(self) -> str:
        """What the verdict covers, in words."""
        part = "the newest records" if self.is_recent else EVERYTHING
        return f"{part} of {', '.join(self.only)}" if self.only else part


def reason_to_restart(last: FollowState, now: FollowState, pipeline: Pipeline, firsts: Mapping[Place, int]) -> str:
    """Why a run that starts as `now` cannot continue `last`; empty if it can. `firsts`: the log's first offsets."""
    before, after = Origin.from_json(last.origin), Origin.from_json(now.origin)
    if before is None or after is None:
        return "the deployment that it belongs to is not known"
    if doubt := before.doubt(after):
        return doubt
    if (last.of, last.ignore_field_order) != (now.of, now.ignore_field_order):
        return "it compared other namespaces, or in another way"
    if not last.whole:
        return "the comparison that it continued gave no verdict on some of the documents"
    for place, offset in sorted(last.places.items()):
        if firsts.get(place, 0) > offset:
            return (
                f"the log no longer reaches back to where it ended: {place[0]}, partition {place[1]} begins at"
                f" {firsts[place]:,}, and {offset:,} is next"
            )
    log = pipeline.log
    if log.compact and (now.at - last.at) * 1000 > log.delete_retention:
        return "it ended longer ago than the log keeps deletes ([log] delete_retention)"
    return ""


def follow_start(session: Session, request: VerifyRequest, options: Options, log: Window) -> FollowState:
    """Where `verify --follow` starts: after the verdict of this request, or where the last one ended.

    The second needs no full comparison. Prints why that cannot be. `log`: as it was before the request's collections
    were listed. Raises `TowpathError` when the sink's positions cannot be read.
    """
    places = {place: end for place, (_, end) in log.items()}
    if not request.alone:  # what is not applied is not compared by the full pass either
        with applied(session) as done:
            places |= {place: start for place, (start, _) in gaps(log, done()).items()}
    context = VerdictContext.read(session, listing=request.listing)
    origin = None if context.origin is None else context.origin.as_json()
    new = FollowState(request.id, request.of, options.ignore_field_order, True, origin, time.time(), places, ())
    last = None if request.is_recent else verdict_file.read_followed(session.pipeline.name)
    if last is None:
        return new
    reason = reason_to_restart(last, new, session.pipeline, {place: first for place, (first, _) in log.items()})
    if not reason and request.of == EVERYTHING:
        full, doubt = context.newest_full(verdict_file.read_full(session.pipeline.name))
        reason = "" if full else doubt or "no verdict on everything counts any more"
    if reason:
        session.say(f"comparing everything, because the last `verify --follow` cannot be continued: {reason}")
        return new
    session.say(
        f"continuing the `verify --follow` that ended {duration(new.at - last.at)} ago; to compare everything as well,"
        f" run: towpath verify {session.file}"
    )
    return last
