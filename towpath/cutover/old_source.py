"""The old source returns after a takeover: what it has that was never captured, and how it follows the new primary.

The capture continues where the takeover has ended it, and the sink stays stopped: so the records behind the sink's
positions are what the old source has, and the new primary never got. `docs/design/takeover.md` says why that is all.
Then the reverse pipeline starts, and re-reads whatever differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter

from bson.timestamp import Timestamp

from towpath.checks import capture
from towpath.checks.rule import Finding, Rule, error, ok, run
from towpath.clients.kafka.consume import Window
from towpath.clients.mongo.client import Client, cluster_time
from towpath.clients.mongo.privileges import if_allowed, privileges
from towpath.clients.mongo.replica_set import source_set
from towpath.config.events import Uncaptured
from towpath.config.text import counted, first_few, utc
from towpath.cutover import reverse_pipeline
from towpath.cutover.gate import missing_privileges, red, reverse_can_be_created
from towpath.cutover.sides import Sides
from towpath.cutover.steps import PREPARE, PREPARE_REVERSE, RELAX, START_REVERSE, Step, Work, change_as_own
from towpath.cutover.takeover import resume_capture, stop_capture
from towpath.cutover.writes import allow, writes_through
from towpath.deploy.schema import Listing, plan_in_place
from towpath.errors import TowpathError
from towpath.history import resnapshot
from towpath.log import barrier
from towpath.log.changed_keys import ChangedDocument, ids_after
from towpath.log.field_rules import pair_of
from towpath.log.lag import pipeline_ends
from towpath.session import Session, unsaid
from towpath.store import state_files, verdict_file
from towpath.store.positions import positions
from towpath_verifier import Key, Options, Recheck, by_ids, chunks, extended_json, id_document, id_key

_SHOWN = 3
_BATCH = 100  # documents, of which both versions are in memory at once
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
    assert returned.sides.marker is not None
    at = cluster_time(returned.sides.marker.cluster_time)
    with returned.forward.source.briefly() as client:
        source_set(client)
        entries = client.local["oplog.rs"]
        wanted = {"ts": Timestamp(at.seconds, at.ordinal)}
        found = if_allowed(lambda: capture.despite_drops(lambda: list(entries.find(wanted, {"ts": 1}).limit(1))))
    if found is None:
        yield error(
            "it is not known whether it has all that was captured of it: the user may not read its oplog",
            'grant find on {db: "local", collection: "oplog.rs"}',
        )
    elif not found:
        yield error(
            f"its oplog does not have the entry of {utc(at.seconds)} ({at}), up to which it was captured: it no longer"
            " reaches back so far, or it is the oplog of another time line, such as that of a backup",
            _AGAIN,
        )
    else:
        yield ok(f"answers, and its oplog has the entry of {utc(at.seconds)} ({at}), up to which it was captured")


def _connectors(returned: Returned) -> Iterator[Finding]:
    """The pipeline is as the takeover has left it."""
    reverse_pipeline.refuse_unstopped(returned.forward.connect, returned.forward.pipeline.connectors)
    yield ok("stopped")


def _reverse(returned: Returned) -> Iterator[Finding]:
    good, found, advice = reverse_can_be_created(returned.reverse)
    yield ok(found) if good else error(found, advice)


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
    Rule("schema", _schema),
)


def gate(returned: Returned) -> list[Finding]:
    """What must hold before. A source that does not answer is asked once."""
    first = run([_ANSWERS], returned)
    return first if red(first) else [*first, *run(_GATE, returned)]


# the steps


def _capture_rest(work: Work) -> None:
    barrier.wait_captured(work.session, work.options.timeout, work.session.say)


def _write(work: Work) -> int:
    """Write both versions of each document that was changed, and never captured."""
    session = work.session
    with session.destination.connected() as client:
        applied = {place: position.offset for place, position in positions(client, session.pipeline).items()}
    work.log = _log(work)
    changed = ids_after(session.pipeline, session.topics, applied, work.log)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    place = state_files.folder(session.pipeline.name) / f"never-captured-{now}.jsonl"
    written = only_old = 0
    with state_files.writing(place) as file:
        for document in uncaptured(session, changed):
            file.write(document.line)
            written += 1
            only_old += document.is_missing_at_new_primary
    found = counted(written, "document")
    words = f"{found} of the old source {'was' if written == 1 else 'were'} never captured"
    if written:
        words += f", {only_old:,} of them not at the new primary; both versions are in {place}"
    else:
        place.unlink()
    session.say(words)
    work.overwritten.append(words)
    return written


def _log(work: Work) -> Window:
    """The log, with all that is in it at the call."""
    session = work.session
    ends = reverse_pipeline.written_ends(session, work.options.timeout)
    firsts = pipeline_ends(session.pipeline, session.topics)
    return {place: (firsts[place][0], end) for place, end in ends.items()}


def uncaptured(session: Session, changed: Iterator[ChangedDocument]) -> Iterator[Uncaptured]:
    """Of these documents those that are not the same at both sides."""
    old, new = session.source.client(), session.destination.client()
    for namespace, group in groupby(changed, attrgetter("namespace")):
        pair = pair_of(session.pipeline, namespace)
        for keys in _batches(change.key for change in group):
            before, now = _found(old, pair.source, keys), _found(new, pair.destination, keys)
            for key in keys:
                versions = before.get(id_key(key)), now.get(id_key(key))
                if versions[0] != versions[1]:
                    yield _event(namespace, pair.destination, *versions)


def _batches(keys: Iterator[bytes]) -> Iterator[list[bytes]]:
    for chunk in chunks(keys):
        yield from (chunk[start : start + _BATCH] for start in range(0, len(chunk), _BATCH))


def _found(client: Client, namespace: str, keys: list[bytes]) -> dict[Key, bytes]:
    database, name = namespace.split(".", 1)
    return dict(by_ids(client[database][name], keys))


def _event(namespace: str, destination: str, old: bytes | None, new: bytes | None) -> Uncaptured:
    key = id_document(old or new or b"")  # as a server has it: the log's key may be an equal number of another type
    (old_json, old_bson), (new_json, new_bson) = _shown(old), _shown(new)
    return Uncaptured(
        namespace=namespace,
        destination_namespace=destination,
        id=verdict_file.shown_id(key),
        id_bson=key.hex(),
        old_source=old_json,
        old_source_bson=old_bson,
        new_primary=new_json,
        new_primary_bson=new_bson,
    )


def _shown(document: bytes | None) -> tuple[object, str | None]:
    """A document as JSON, and where that cannot express it exactly, its BSON."""
    shown = None if document is None else verdict_file.shown_id(document)
    return shown, document.hex() if document is not None and shown is None else None


def _compare(work: Work) -> int:
    """How much differs: also what the new primary has changed since."""
    verdict = resnapshot.compare(work.reverse, (), None, Options(recheck=Recheck(first=0.0, tries=1)))
    listing = Listing.read(work.reverse)
    if alone := sorted(listing.destination.keys() - listing.source.keys()):
        raise TowpathError(
            f"these collections exist only at the old source: {first_few(alone, _SHOWN)}",
            "create them at the new primary, or drop them at the old source; then run the same command again",
        )
    written = verdict.total("missing") + verdict.total("different") + verdict.total("order")
    words = f"{counted(written, 'document')} of the old source would be written, {verdict.total('extra'):,} deleted"
    work.session.say(words)
    work.overwritten.append(words)
    return verdict.compared


def _ask(work: Work) -> None:
    where = work.session.source.address
    work.options.ask(f"{'; '.join(work.overwritten)}. Make the old source at {where} equal to the new primary?")


def _allow(work: Work) -> None:
    assert work.sides.marker is not None
    allow(work.session.source)
    work.sides.mark(replace(work.sides.marker, blocked=False))


def _is_blocked(work: Work) -> bool:
    """Whether an interrupted cutover has left it so, and not even Towpath may write."""
    assert work.sides.marker is not None
    return work.sides.marker.blocked and not writes_through(work.session.source)


def _relax(work: Work) -> int:
    return change_as_own(work, work.reverse, plan_in_place(work.reverse).steps)


def _refuse_writes(work: Work) -> None:
    """Nothing else has written to the old source since: it would not be in the file."""
    barrier.wait_captured(work.session, work.options.timeout, unsaid)
    seen = {place: end for place, (_, end) in work.log.items()}
    late = next(ids_after(work.session.pipeline, work.session.topics, seen, _log(work)), None)
    if late is not None:
        raise TowpathError(
            f"something writes to the old source: {late.namespace}, {extended_json(late.key) or late.key.hex()}",
            "end that, and run the same command again; deletes of a TTL index count as well",
        )


def _await_reverse(work: Work) -> None:
    assert work.begun is not None
    reverse_pipeline.wait_begun(work.reverse, work.begun, work.options.timeout)


def _make_equal(work: Work) -> None:
    if left := resnapshot.make_equal(work.reverse, (), work.options.timeout):
        shown = first_few([f"{one.namespace} {one.id_bson}: {one.reason}" for one in left], _SHOWN)
        raise TowpathError(f"the old source still differs: {shown}")


CAPTURE = "resuming the capture"

#: What was written to the old source stays there: the new primary has the same, and the file what it had before.
STEPS = (
    Step(
        CAPTURE,
        lambda work: resume_capture(work.session),
        undo=lambda sides: stop_capture(sides.session),
    ),
    Step("capturing what was never captured", _capture_rest),
    Step("writing what was never captured to a file", _write),
    Step("comparing the old source with the new primary", _compare),
    Step("asking before anything is overwritten", _ask),
    Step("allowing writes to the old source", _allow, when=_is_blocked),
    PREPARE_REVERSE,
    Step(RELAX, _relax, unit="commands"),
    Step("looking for late writes", _refuse_writes),
    START_REVERSE,
    Step("waiting for the reverse pipeline", _await_reverse),
    Step("making the old source equal", _make_equal),
)
#: The steps with an undo, in the order of the undo.
UNDO_ORDER = tuple({step.name: step for step in STEPS}[name] for name in (PREPARE, CAPTURE))
