"""The pause of a cutover, and the verification before it and in it.

Nothing in the pause waits longer than its limit or continues after a late write. The first comparison covers the newest
records of the log; each further one covers the records since the previous one began, so that the last, in the pause,
has little to do.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from towpath.clients.kafka.topics import Place
from towpath.config.events import as_line
from towpath.deploy.schema import pairs
from towpath.errors import Overtaken, TowpathError
from towpath.log import changed_keys
from towpath.log.barrier import asking
from towpath.log.lag import pipeline_ends
from towpath.session import ERRORS, Session
from towpath.store import state_files, verdict_file
from towpath.store.positions import positions
from towpath.verify.origin import current_fields
from towpath.verify.recent import RecentVerification
from towpath.verify.result import VerificationResult, figures
from towpath_verifier import Namespace, Options, Verification

_REPEAT_S = 1.0  # to the next alarm, in case a library has swallowed one
_GRACE_S = 0.5  # in which a wait that knows the limit can end by itself and report what it saw last
_SOON_S = 0.001


class _PauseEnded(BaseException):
    """Ends whatever runs in the pause, as Ctrl-C does: no code mistakes it for a failure of its own and retries."""


@dataclass(slots=True)
class Pause:
    """`limit` is in seconds, counted from when the writes may have ended."""

    limit: float
    step: Callable[[], str]
    """The name of what it is at."""
    _began: float = 0.0
    _reason: str = ""
    _armed: bool = False

    def begin(self) -> None:
        """The writes may end from now on."""
        self._began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, self.limit + _GRACE_S, _REPEAT_S)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def remaining(self, most: float) -> float:
        """Seconds that a wait of at most `most` seconds may take."""
        return max(0.0, min(most, self.limit - self.seconds))

    def end(self, reason: str) -> None:
        """End the pause now; can be called from any thread. The first reason counts."""
        self._reason = self._reason or reason
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, _SOON_S, _REPEAT_S)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Interrupt the body, in the main thread, when the pause ends; then raise `CheckFailed` with the reason."""
        signal.signal(signal.SIGALRM, self._on_alarm)  # never reset: a late alarm must not end the process
        try:
            try:
                self._armed = True
                yield
            finally:
                self._disarm()
        except Overtaken:
            raise
        except (_PauseEnded, SystemError, *ERRORS) as error:  # SystemError: what Kafka's client raises when interrupted
            if self._reason or (self._began and not self.remaining(self.limit)):
                raise CheckFailed(self._reason or self._limit_message(error)) from error
            raise
        finally:
            self._disarm()  # an alarm may have interrupted the first

    def _disarm(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise _PauseEnded

    def _limit_message(self, error: BaseException) -> str:
        detail = f" ({error})" if isinstance(error, ERRORS) else ""
        return (
            f"the pause in writes has reached its limit of {self.limit:g} s while {self.step()}{detail};"
            " find out what delays it, or allow more: --max-pause"
        )


class CheckFailed(TowpathError):
    """A check in the cutover failed: the cutover is undone."""


class DocumentsDiffer(CheckFailed):
    """Both sides differ; the differences are stored as the last verdict."""


@dataclass(slots=True)
class IncrementalVerification:
    """Each comparison covers the documents that the log names since the previous comparison began.

    Both methods return the number of documents compared, and raise `CheckFailed` when documents differ.
    """

    session: Session
    duration_s: float = 0.0
    """How long the last comparison took."""
    _start: Mapping[Place, int] = field(default_factory=dict)

    def verify_newest(self, records: int) -> int:
        """Compare the documents of the newest `records` records."""
        return self._compare(changed_keys.ids(self.session.pipeline, self.session.topics, records, None))

    def verify_new(self) -> int:
        """Compare the documents of the records since the last comparison began; of the whole log if it is the first."""
        return self._compare(changed_keys.ids_after(self.session.pipeline, self.session.topics, self._start))

    def _compare(self, changed: Iterable[tuple[Namespace, bytes]]) -> int:
        session, begin = self.session, time.monotonic()
        ends = _ends(session)
        compared = _compare_changed(session, changed)
        self._start, self.duration_s = ends, time.monotonic() - begin
        return compared


@dataclass(slots=True)
class EchoVerification:
    """As `IncrementalVerification`, of what the old source has captured since a cutover: its sink has not applied it.

    All of it should be what the reverse pipeline wrote. Compared are the sides of the reverse pipeline, so that a
    document that something else has written at the old source differs.
    """

    forward: Session
    reverse: Session
    _start: Mapping[Place, int] | None = None

    def verify_new(self) -> int:
        """Compare the documents of the records since the last comparison began; at first from the sink's positions."""
        forward, ends = self.forward, _ends(self.forward)
        start = self._start if self._start is not None else self._applied()
        new = changed_keys.ids_after(forward.pipeline, forward.topics, start)
        try:
            compared = _compare_changed(self.reverse, ((forward.pipeline.renamed(name), key) for name, key in new))
        except DocumentsDiffer as error:
            raise DocumentsDiffer(
                f"the source has changes that did not come from the reverse pipeline, and would be lost: {error.what}",
                f"end what writes to the source; {error.advice}, which gives the source the destination's documents",
            ) from error
        self._start = ends
        return compared

    def _applied(self) -> dict[Place, int]:
        pipeline = self.forward.pipeline
        with self.forward.destination.connected() as client:
            return {place: position.offset for place, position in positions(client, pipeline).items()}


def _ends(session: Session) -> dict[Place, int]:
    return {place: end for place, (_, end) in pipeline_ends(session.pipeline, session.topics).items()}


def _compare_changed(session: Session, changed: Iterable[tuple[Namespace, bytes]]) -> int:
    with asking(session) as passed:
        verification = RecentVerification(session, changed, (), Options(), passed=passed)
        return _compare(session, verification, "the newest records")


def compare_quiet(session: Session) -> int:
    """Compare everything by dbHash, while nothing writes; return the number of documents. Raises `CheckFailed`."""
    source, destination = session.pipeline.source.uri, session.pipeline.destination.uri
    everything = pairs(session, ())
    return _compare(session, Verification(source, destination, everything, Options(quiet=True)), "everything")


def _compare(session: Session, verification: RecentVerification | Verification, of: str) -> int:
    """The number of documents compared. Differences are stored as the last verdict, which `repair` reads.

    They go to the file as they are found: a document may have 16 MB, and many may differ.
    """
    differences, verdict = iter(verification), verification.verdict
    if first := next(differences, None):
        destination = session.pipeline.renamed
        place = verdict_file.path(session.pipeline.name)
        example = f"{first.namespace} {verdict_file.shown_id(first.id)}"
        with state_files.writing(place, verdict_file.locked(place)) as file:
            while first:
                file.write(verdict_file.difference(first, destination(first.namespace)).line)
                first = next(differences, None)
            end = figures(VerificationResult(verdict)) | {"of": of, "ddl": [], "only": []} | current_fields(session)
            file.write(as_line(end))
        raise DocumentsDiffer(
            f"{verdict.differences:,} documents differ, such as {example}", f"run towpath repair {session.file}"
        )
    if verdict.trouble:
        raise CheckFailed(f"there is no verdict: {'; '.join(verdict.trouble)}; run towpath verify {session.file}")
    return verdict.compared
