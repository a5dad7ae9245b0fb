"""The old source returns after a takeover: what it has that was never captured, and how it follows the new primary.

The capture continues where the takeover has ended it, and the sink stays stopped: so the records behind the sink's
positions are what the old source has, and the new primary never got. `docs/design/takeover.md` says why that is all.
Then the reverse pipeline starts, and re-reads whatever differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bson.timestamp import Timestamp

from towpath.checks import capture, target
from towpath.checks.rule import Finding, Rule, error, ok, run
from towpath.clients.connect.control import statuses
from towpath.clients.mongo.privileges import if_allowed, privileges
from towpath.clients.mongo.replica_set import source_set
from towpath.config.events import Reread
from towpath.config.text import counted, first_few, utc
from towpath.cutover import reverse_pipeline
from towpath.cutover.gate import missing_privileges, red, reverse_can_be_created
from towpath.cutover.overwritings import Overwritings
from towpath.cutover.sides import Sides
from towpath.cutover.steps import (
    PREPARE,
    PREPARE_REVERSE,
    RELAX,
    START_REVERSE,
    Step,
    Work,
    change_as_own,
    remove_reverse,
    restore_old,
)
from towpath.cutover.takeover import point, resume_capture, source_states, stop_capture
from towpath.cutover.writes import allow, writes_through
from towpath.deploy.schema import Listing, as_text, plan_in_place
from towpath.errors import MongoUnreachable, TowpathError
from towpath.history import resnapshot
from towpath.log import barrier, bounds
from towpath.log.changed_keys import ids_after
from towpath.log.lag import pipeline_ends
from towpath.session import Session
from towpath.store import state_files
from towpath.store.positions import positions
from towpath_verifier import Options, Recheck, Verdict, id_key

_SHOWN, _ROUNDS = 3, 5
_AT_ONCE = Options(recheck=Recheck(first=0.0, tries=1))  # while nothing replicates to the old source
_AGAIN = "docs/how-to/takeover.md says what can be done then"


@dataclass(frozen=True)
class Returned:
    """What the rules read."""

    sides: Sides

    @property
    def forward(self) -> Session:
        return self.sides.forward

    @property
    def reverse(self) -> Session:
        assert self.sides.reverse is not None
        return self.sides.reverse


def _source(returned: Returned) -> Iterator[Finding]:
    """The old source answers, and has all that the log has of it."""
    at = point(source_states(returned.forward))
    with returned.forward.source.briefly() as client:
        source_set(client)
        entries = client.local["oplog.rs"]
        wanted = {"ts": Timestamp(at.seconds, at.ordinal)}
        found = if_allowed(lambda: capture.despite_drops(lambda: list(entries.find(wanted, {"ts": 1}).limit(1))))
    entry = f"the entry of {utc(at.seconds)} ({at}), up to which it was captured"
    if found is None:
        yield error(
            "it is not known whether it has all that was captured of it: the user may not read its oplog",
            'grant find on {db: "local", collection: "oplog.rs"}',
        )
    elif not found:
        yield error(
            f"its oplog does not have {entry}: it no longer reaches back so far, or it is the oplog of another time"
            " line, such as that of a backup",
            _AGAIN,
        )
    else:
        yield ok(f"answers, and its oplog has {entry}")


def _connectors(returned: Returned) -> Iterator[Finding]:
    """The pipeline is as the takeover has left it."""
    forward = returned.forward
    for each in statuses(forward.connect, forward.pipeline.connectors):
        if each.state != "STOPPED":
            url = f"{forward.connect.url}/connectors/{each.name}/stop"
            yield error(f"{each.name} is {each.state}, not STOPPED, as the takeover has left it", f"curl -X PUT {url}")
            return
    reverse_pipeline.refuse_unstopped(forward.connect, forward.pipeline.connectors)
    yield ok("stopped")


def _reverse(returned: Returned) -> Iterator[Finding]:
    good, found, advice = reverse_can_be_created(returned.forward, returned.reverse)
    yield ok(found) if good else error(found, advice)


def _collections(returned: Returned) -> Iterator[Finding]:
    """Each has a topic, through which its documents are re-read."""
    listing = Listing.read(returned.reverse)
    alone = sorted(
        name for name, entry in listing.destination.items() if name not in listing.source and entry.kind != "view"
    )
    if alone:
        yield error(
            f"exist only at the old source: {first_few(alone, _SHOWN)}",
            "create them at the new primary (createCollection); their documents go to the file, and are deleted",
        )
    else:
        yield ok("all exist at the new primary")


def _schema(returned: Returned) -> Iterator[Finding]:
    """The user may change the schema of the old source."""
    with returned.forward.source.connected() as client:
        granted = privileges(client)
    steps = plan_in_place(returned.reverse).steps
    missing = list(missing_privileges(granted, "source", steps))
    advice = "grant the role dbAdmin on the databases"
    yield error(first_few(missing, _SHOWN), advice) if missing else ok(f"{counted(len(steps), 'command')} to relax it")


_ANSWERS: Rule[Returned] = Rule("source", _source)
_GATE: tuple[Rule[Returned], ...] = (
    Rule("connectors", _connectors),
    Rule("reverse pipeline", _reverse),
    Rule("collections", _collections),
    Rule("schema", _schema),
)


def gate(returned: Returned) -> list[Finding]:
    """What must hold before. A source that does not answer is asked once.

    Raises `Refused` unless the file names the clusters and collections of the deployed pipeline, as at the takeover:
    what only one of them names would not come back, or not be in the file of what is overwritten.
    """
    first = run([_ANSWERS], returned)
    if red(first):
        return first
    target.require_own(returned.forward)
    return [*first, *run(_GATE, returned)]


# the steps


def _capture_rest(work: Work) -> None:
    barrier.wait_captured(work.session, work.options.timeout, work.session.say)


def _read_log(work: Work) -> int:
    """Read which documents the old source has changed since."""
    session = work.session
    with session.destination.connected() as client:
        applied = {place: position.offset for place, position in positions(client, session.pipeline).items()}
    ends = reverse_pipeline.written_ends(session, work.options.timeout)
    firsts = pipeline_ends(session.pipeline, session.topics)
    log = {place: (firsts[place][0], end) for place, end in ends.items()}
    bounds.refuse(session, log)
    changed = ids_after(session.pipeline, session.topics, applied, log)
    keys = frozenset((session.pipeline.renamed(one.namespace), id_key(one.key)) for one in changed)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
    place = state_files.folder(session.pipeline.name) / f"old-source-{now}.jsonl"
    work.overwritings = Overwritings(place, keys)
    work.contexts.callback(work.overwritings.close)
    return len(keys)


def _compare(work: Work) -> int:
    """Write to the file all that the old source is to lose."""
    assert work.overwritings is not None
    verdict = resnapshot.compare(work.reverse, (), None, _AT_ONCE, work.overwritings.add)
    work.overwritings.store()
    _require_judged(verdict)
    written = verdict.total("missing") + verdict.total("different") + verdict.total("order")
    never, place = work.overwritings.kinds["never captured"], work.overwritings.place
    words = (
        f"{counted(written, 'document')} of the old source would be written, and {verdict.total('extra'):,} deleted;"
        f" {never:,} of all were never captured"
    )
    work.question = f"{words}; both versions are in {place}" if work.overwritings.kinds.total() else words
    work.session.say(work.question)
    return verdict.compared


def _require_judged(verdict: Verdict) -> None:
    if verdict.errors:
        raise TowpathError(f"not all documents could be compared: {first_few(verdict.errors, _SHOWN)}")


def _ask(work: Work) -> None:
    work.options.ask(f"{work.question}. Make the old source at {work.session.source.address} equal to the new primary?")


def _allow(work: Work) -> None:
    assert work.sides.marker is not None
    allow(work.session.source)
    work.sides.mark(replace(work.sides.marker, blocked=False))


def _is_blocked(work: Work) -> bool:
    """Whether an interrupted cutover has left it so, and not even Towpath may write."""
    assert work.sides.marker is not None
    return work.sides.marker.blocked and not writes_through(work.session.source)


def _plan_relaxing(work: Work) -> None:
    """Store how to undo it: later, the old source does not say how it was."""
    work.relax = plan_in_place(work.reverse)
    assert work.sides.marker is not None
    work.sides.mark(replace(work.sides.marker, undo={RELAX: as_text(work.relax.undo)}))


def _relax(work: Work) -> int:
    return change_as_own(work, work.reverse, work.relax.steps)


def _await_reverse(work: Work) -> None:
    assert work.begun is not None
    work.captured_since = reverse_pipeline.wait_begun(work.reverse, work.begun, work.options.timeout)


def _make_equal(work: Work) -> None:
    """Compare and re-read until nothing differs. What is overwritten is in the file before."""
    saved = work.overwritings
    assert saved is not None

    def compare() -> Verdict:
        with barrier.asking(work.reverse) as passed:
            verdict = resnapshot.compare(work.reverse, (), passed, Options(), saved.add)
        saved.store()
        _require_judged(verdict)
        return verdict

    left = list[Reread]()
    for _ in range(_ROUNDS):
        if compare().clean:
            return
        left = resnapshot.reread(work.reverse, (), work.options.timeout)
    if not compare().clean:
        shown = first_few([f"{one.namespace} {one.id_bson}: {one.reason}" for one in left], _SHOWN)
        raise TowpathError(f"the old source still differs: {shown or 'something else writes to it'}")


def _forgiving(undo: Callable[[Sides], object]) -> Callable[[Sides], object]:
    """The undo, for which the old source need not answer: it may be lost again."""

    def forgiving(sides: Sides) -> None:
        try:
            undo(sides)
        except MongoUnreachable as failure:
            sides.forward.say(f"{failure}; what is to be undone there stays as it is")

    return forgiving


CAPTURE = "resuming the capture"

#: What was written to the old source stays there: the new primary has the same, and the file what it had before.
STEPS = (
    Step(
        CAPTURE,
        lambda work: resume_capture(work.session),
        undo=lambda sides: stop_capture(sides.session),
    ),
    Step("capturing what was never captured", _capture_rest),
    Step("reading what was never captured", _read_log),
    Step("comparing the old source with the new primary", _compare),
    Step("asking before anything is overwritten", _ask),
    Step("allowing writes to the old source", _allow, when=_is_blocked),
    replace(PREPARE_REVERSE, undo=_forgiving(remove_reverse)),
    Step("planning the schema of the old source", _plan_relaxing),
    Step(RELAX, _relax, undo=_forgiving(restore_old), unit="commands"),
    START_REVERSE,
    Step("waiting for the reverse pipeline", _await_reverse),
    Step("making the old source equal", _make_equal),
)
#: The steps with an undo, in the order of the undo.
UNDO_ORDER = tuple({step.name: step for step in STEPS}[name] for name in (PREPARE, RELAX, CAPTURE))
