"""The pause of a cutover, and the comparisons before it and in it.

Nothing in the pause waits longer than its limit or goes on after a late write. The first comparison takes the newest
records of the log; each further one takes what came since the one before it began, so that the last, in the pause,
has little left.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from towpath import state_files
from towpath.barrier import asking
from towpath.cutover.events import Telling
from towpath.cutover.sides import Sides
from towpath.cutover.writes import Stopping
from towpath.errors import Overtaken, TowpathError
from towpath.events import as_line
from towpath.kafka.topics import Place
from towpath.log import changed_keys
from towpath.log.lag import pipeline_ends
from towpath.session import ERRORS, Session
from towpath.verification import verdict_file
from towpath.verification.run import RecentVerification
from towpath.verification.scope import of_now, pairs
from towpath.verification.verdict_file import Found, figures
from verifier import Difference, Namespace, Options, Verdict, Verification

_AGAIN_S = 1.0  # to the next ring, should something have swallowed one
_GRACE_S = 0.5  # in which a wait that knows the limit says itself what it has seen last
_SOON_S = 0.001


class _Over(BaseException):
    """Ends whatever the pause is at, as Ctrl-C does: nothing takes it for a failure of its own and tries again."""


@dataclass(slots=True)
class Pause:
    """`limit` is in seconds, from the moment on at which writes may have ended."""

    limit: float
    telling: Telling
    _began: float = 0.0
    _why: str = ""
    _armed: bool = False

    def end_writes(self, sides: Sides, stopping: Stopping) -> None:
        """Writes may end at any moment of this; where people stop them by hand, when they say so."""
        if stopping.asks:
            stopping.ask(self.telling)
            self._begin()
            return
        if stopping.blocks:
            sides.begin("block")
        self._begin()
        stopping.stop(self.telling, self.left)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def left(self, most: float) -> float:
        """Seconds that a wait may take which would take `most` otherwise."""
        return max(0.0, min(most, self.limit - self.seconds))

    def end(self, why: str) -> None:
        """End it now, from any thread."""
        self._why = self._why or why
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, _SOON_S, _AGAIN_S)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, in the main thread, whatever waits ends when the pause does; then raises `Red` with the reason."""
        signal.signal(signal.SIGALRM, self._ring)  # for good: a ring that comes late must not end the process
        try:
            try:
                self._armed = True
                yield
            finally:
                self._armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Overtaken:
            raise
        except (_Over, SystemError, *ERRORS) as error:  # SystemError: what Kafka's client makes of an interrupt
            if self._why or (self._began and not self.left(self.limit)):
                raise Red(self._why or self._limit_words(error)) from error
            raise

    def _begin(self) -> None:
        self._began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, self.limit + _GRACE_S, _AGAIN_S)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise _Over

    def _limit_words(self, error: BaseException) -> str:
        seen = f" ({error})" if isinstance(error, ERRORS) else ""
        return (
            f"the pause in writes has reached its limit of {self.limit:g} s while {self.telling.doing}{seen}; see to"
            " what holds it up, or allow more: --max-pause"
        )


class Red(TowpathError):
    """Something does not hold that must: the cutover is taken back."""


@dataclass(slots=True)
class Checked:
    it: Session
    looked_s: float = 0.0
    """How long the last look took."""
    _from: Mapping[Place, int] = field(default_factory=dict)

    def newest(self, records: int) -> int:
        """Compare what the newest so many records are about; how many documents those are. Raises `Red`."""
        return self._look(changed_keys.ids(self.it.pipeline, self.it.topics, records, None))

    def since(self) -> int:
        """What came since the last look began; of the whole log if there was none. Raises `Red`."""
        return self._look(changed_keys.ids_after(self.it.pipeline, self.it.topics, self._from))

    def _look(self, touched: Iterable[tuple[Namespace, bytes]]) -> int:
        began = time.monotonic()
        ends = {place: end for place, (_, end) in pipeline_ends(self.it.pipeline, self.it.topics).items()}
        compared = _compare(self.it, touched)
        self._from, self.looked_s = ends, time.monotonic() - began
        return compared


def _compare(session: Session, touched: Iterable[tuple[Namespace, bytes]]) -> int:
    with asking(session) as passed:
        verification = RecentVerification(session, touched, (), Options(), passed=passed)
        found = list(verification)
    _refuse(session, found, verification.verdict, "the newest records", f"repair {session.file}")
    return verification.verdict.compared


def compare_quiet(session: Session) -> int:
    """Compare everything by the servers' hashes, while nobody writes; how many documents. Raises `Red`."""
    verification = Verification(
        session.pipeline.source_uri, session.pipeline.destination_uri, pairs(session.pipeline, ()), Options(quiet=True)
    )
    found = list(verification)
    _refuse(session, found, verification.verdict, "everything", f"repair {session.file}")
    return verification.verdict.compared


def _refuse(session: Session, found: list[Difference], verdict: Verdict, of: str, advice: str) -> None:
    """What differs is kept as the last verdict, which `repair` mends."""
    if found:
        destination = session.pipeline.renames.destination
        place = verdict_file.path(session.pipeline.name)
        with state_files.writing(place, verdict_file.turn(place)) as file:
            for one in found:
                file.write(verdict_file.difference(one, destination(one.namespace)).line)
            file.write(as_line(figures(Found(verdict)) | {"of": of, "ddl": [], "only": []} | of_now(session)))
        shown = verdict_file.shown_id(found[0].id)
        raise Red(f"{len(found):,} documents differ, such as {found[0].namespace} {shown}; run towpath {advice}")
    if verdict.trouble:
        raise Red(f"there is no verdict: {'; '.join(verdict.trouble)}; run towpath verify {session.file}")
