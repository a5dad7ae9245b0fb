"""One verification: both sides compared, each difference handed on as it is proven, and the verdict kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from uuid import uuid4

from towpath import events, state_files
from towpath.barrier import asking
from towpath.errors import TowpathError
from towpath.events import Event, as_line
from towpath.log.changed_keys import ids
from towpath.log.lag import pipeline_ends
from towpath.mongo.client import connected
from towpath.namespaces import Selection
from towpath.session import Session
from towpath.text import duration
from towpath.verification import follow_state, full_verdict, scope, verdict_file
from towpath.verification.follow_state import FollowState
from towpath.verification.full_verdict import EVERYTHING, Standing
from towpath.verification.scope import Metadata
from towpath.verification.verdict_file import Examples, Found, figures
from verifier import Difference, Namespace, Options, Pair, Passed, Progress, Tally, Verdict, Verification, VerifierError
from verifier.proof import Same, Unsettled
from verifier.reads import Client, chunks, patiently
from verifier.settlement import Settling

_EXAMPLES = 50  # differences that are kept in full


def run(
    session: Session,
    compared: Sequence[Pair],
    options: Options,
    asked: Asked,
    tell: Callable[[Progress], None],
    each: Callable[[Event], None],
) -> Found:
    """Compare, and keep the verdict; what was found.

    `tell` is given progress, `each` every difference as it is proven, then the verdict. Raises `TowpathError` when it
    cannot be finished.
    """
    examples, place = Examples(_EXAMPLES), verdict_file.path(session.pipeline.name)
    now, unknown = scope.look(session)  # first: what is made anew while it runs is not what the verdict is of
    with (
        nullcontext() if asked.alone else asking(session) as passed,
        state_files.writing(place, verdict_file.turn(place)) as file,
    ):

        def keep(found: Event) -> None:
            file.write(found.line)
            each(found)

        verification = _verification(session, list(compared), options, asked, passed, tell)
        found = Found(verification.verdict, examples.found, asked.metadata)
        for proven in differences(session, verification, examples, resumable=options.journal is not None):
            keep(proven)
        for definition in asked.definitions:
            keep(definition)
        last = events.Verdict(**figures(found), of=asked.of, ddl=asked.done, only=asked.only, id=asked.id)
        whole = last.as_json() | {"origin": now and now.as_json()}
        file.write(as_line(whole))
    if asked.of == full_verdict.EVERYTHING:
        full_verdict.keep_and_say(session, whole, unknown)
    each(last)
    return found


def _verification(
    session: Session,
    compared: list[Pair],
    options: Options,
    asked: Asked,
    passed: Passed | None,
    tell: Callable[[Progress], None],
) -> Verification | RecentVerification:
    if asked.newest:
        return asked.newest.verification(session, options, passed)
    uris = session.pipeline.source_uri, session.pipeline.destination_uri
    return Verification(*uris, compared, options, passed=passed, tell=tell, say=session.say)


def differences(
    session: Session, verification: Verification | RecentVerification, examples: Examples, *, resumable: bool
) -> Iterator[events.Difference]:
    """Each difference of documents as it is proven."""
    hint = "`towpath verify --resume` goes on where this ended" if resumable else ""
    try:
        for found in verification:
            examples.add(found)
            yield verdict_file.difference(found, session.pipeline.renames.destination(found.namespace))
    except VerifierError as error:
        advice = "; ".join(filter(None, (error.advice, hint)))
        raise TowpathError(error.sentence, advice, where=error.where) from error
    except KeyboardInterrupt:
        session.say("; ".join(filter(None, ("interrupted", hint))))
        raise


@dataclass(frozen=True, slots=True)
class Newest:
    """Which records: the last so many, or those of the last so much time; of namespaces that match `only`."""

    last: int | None
    since: timedelta | None
    only: Sequence[str]

    def verification(self, session: Session, options: Options, passed: Passed | None) -> RecentVerification:
        touched = ids(session.pipeline, session.topics, self.last, self.since)
        return RecentVerification(session, touched, self.only, options, passed=passed)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be verified, and how."""

    alone: bool
    """Without asking Connect and Kafka how far the pipeline is."""
    newest: Newest | None = None
    """Only what the newest records of the log are about."""
    metadata: Metadata | None = None
    """What differs besides documents; None when that is not compared."""
    only: Sequence[str] = ()
    """Patterns of the namespaces that are compared; empty for all."""
    done: Sequence[str] = ()
    """What was done to the source's collections as such, and was behind the pipeline, before anything was compared."""

    id: str = field(default_factory=lambda: uuid4().hex)
    """Of the verdict."""

    @property
    def definitions(self) -> Iterator[events.Definition]:
        """Options, views and indexes that differ."""
        for one in self.metadata.differences if self.metadata else ():
            yield events.Definition(**one.as_json())

    @property
    def of(self) -> str:
        """What the verdict is on."""
        part = "the newest records" if self.newest else EVERYTHING
        return f"{part} of {', '.join(self.only)}" if self.only else part


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where `verify --follow` begins, and whether the last one ended there, so that no full pass is needed."""

    state: FollowState
    goes_on: bool

    @classmethod
    def look(cls, session: Session, asked: Asked, options: Options) -> Beginning:
        """Says why the last one's end is no beginning. Raises `TowpathError` when Kafka does not answer."""
        log = pipeline_ends(session.pipeline, session.topics)
        standing = Standing.look(session)
        known = None if standing.origin is None else standing.origin.as_json()
        ends = {place: end for place, (_, end) in log.items()}
        new = FollowState(asked.id, asked.of, options.ignore_field_order, True, known, time.time(), ends, ())
        left = None if asked.newest else follow_state.read(session.pipeline.name)
        if left is None:
            return cls(new, False)
        why = left.refuses(new, session.pipeline, {place: first for place, (first, _) in log.items()})
        if not why and asked.of == EVERYTHING:
            full, doubt = standing.believed(full_verdict.read(session.pipeline.name))
            why = "" if full else doubt or "no verdict on everything counts any more"
        if why:
            session.say(f"everything is compared, as this cannot go on where the last `verify --follow` ended: {why}")
            return cls(new, False)
        session.say(
            f"going on where the last `verify --follow` ended {duration(new.at - left.at)} ago; to compare"
            f" everything besides, run: towpath verify {session.file}"
        )
        return cls(left, True)

    def known(self, pipeline: str) -> Path:
        """The verdict that tells what differs there."""
        return follow_state.path(pipeline) if self.goes_on else verdict_file.path(pipeline)


_HELD = 50_000  # documents that wait to be looked at again, at most


class RecentVerification:
    """One run: iterate over it for the differences as they settle, then see `verdict`, as of a `Verification`."""

    def __init__(
        self,
        session: Session,
        touched: Iterable[tuple[Namespace, bytes]],
        only: Sequence[str],
        options: Options,
        *,
        passed: Passed | None = None,
    ) -> None:
        """`touched` are the source's namespaces and `{_id: …}` in BSON (see `towpath.log.changed_keys`), those of a
        namespace together; `only` holds patterns of namespaces; empty takes all in."""
        self.verdict = Verdict([])
        self._it, self._touched = session, touched
        self._selection = Selection(session.pipeline.include, session.pipeline.exclude, tuple(only))
        self._options, self._passed = options, passed
        self._tallies: dict[Namespace, Tally] = {}

    def __iter__(self) -> Iterator[Difference]:
        began = time.monotonic()
        pipeline = self._it.pipeline
        try:
            with (
                connected(pipeline.source_uri, "source") as source,
                connected(pipeline.destination_uri, "destination") as destination,
            ):
                yield from self._run(self._settling(source, destination))
        finally:
            self.verdict.seconds = time.monotonic() - began

    def _settling(self, source: Client, destination: Client) -> Settling:
        how = self._options
        return Settling(
            source, destination, how.recheck, self._passed, how.ignore_field_order, how.lost_for, say=self._it.say
        )

    def _run(self, settling: Settling) -> Iterator[Difference]:
        for namespace, group in groupby(self._touched, lambda one: one[0]):
            if not self._selection.matches(namespace):
                continue
            tally = self._tally(namespace)
            for chunk in chunks(key for _, key in group):

                def differing(pair: Pair = tally.pair, chunk: list[bytes] = chunk) -> list[bytes]:
                    return settling.differing(pair, chunk)

                unlike = patiently(f"read documents of {namespace}", settling.lost_for, differing, self._it.say)
                tally.documents += len(chunk)
                if unlike:
                    settling.add(tally.pair, unlike)
                yield from self._settled(settling, down_to=_HELD)
        yield from self._settled(settling, down_to=0)

    def _settled(self, settling: Settling, down_to: int) -> Iterator[Difference]:
        while len(settling) > down_to:
            time.sleep(settling.pause() or 0)
            for _, outcome in settling.step():
                tally = self._tally(outcome.namespace)
                if isinstance(outcome, Unsettled):
                    tally.unsettled += 1
                    tally.notes.append(f"{outcome.id.hex()} could not be judged: {outcome.why}")
                elif not isinstance(outcome, Same):
                    tally.kinds[outcome.kind] += 1
                    yield outcome

    def _tally(self, namespace: Namespace) -> Tally:
        if namespace not in self._tallies:
            tally = Tally(Pair(namespace, self._it.pipeline.renames.destination(namespace)))
            self._tallies[namespace] = tally
            self.verdict.tallies.append(tally)
        return self._tallies[namespace]
