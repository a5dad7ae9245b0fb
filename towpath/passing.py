"""Whether a pipeline has passed a moment of the source: everything written up to then is at the destination."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from towpath.barrier import uncaptured, unread
from towpath.cluster_time import ClusterTime
from towpath.errors import NoSuchConnector, TowpathError
from towpath.kafka.topics import Place
from towpath.log.lag import applied, gaps, peek, pipeline_ends
from towpath.log.source_offsets import SELECTION, read_state
from towpath.session import Session

_LATE = 10.0  # seconds behind after which it is told
_KEPT = 1_000  # moments of which the ends of the log are remembered


@dataclass(slots=True)
class Passing:
    """The barrier of `towpath wait` as a question: `passed(moment)` looks once and does not wait."""

    opened: Session
    done: Callable[[], dict[Place, int]]
    _ends: dict[ClusterTime, dict[Place, tuple[int, int]]] = field(default_factory=dict)
    _written: dict[ClusterTime, dict[Place, tuple[int, int]]] = field(default_factory=dict)
    """Ends with transactions that are not over; see `towpath.barrier`."""
    _told: bool = False
    _behind_since: float | None = None

    def __call__(self, moment: Timestamp) -> bool:
        try:
            return self._passed(moment)
        except (TowpathError, PyMongoError) as error:  # it may be back when the next document is due
            if not self._told:
                self.opened.say(f"cannot ask how far the pipeline is: {error}; differences wait until it answers")
            self._told = True
            return False

    def _passed(self, moment: Timestamp) -> bool:
        asked = ClusterTime(moment.time, moment.inc)
        ends = self._ends.get(asked)
        if ends is None:
            if not self._captured(asked):
                return False
            for kept in (self._ends, self._written):
                while len(kept) >= _KEPT:
                    del kept[next(iter(kept))]
            pipeline, topics = self.opened.pipeline, self.opened.topics
            written = self._written.setdefault(asked, pipeline_ends(pipeline, topics, stable=False))
            ends = pipeline_ends(pipeline, topics)
            if unread(written, ends):
                return False
            self._ends[asked] = ends
        left = gaps(ends, self.done())
        for place, found in peek(self.opened.topics, left, most=0).items():
            if not found.records:  # control records only
                del left[place]
        return not left

    def _captured(self, moment: ClusterTime) -> bool:
        pipeline, connect = self.opened.pipeline, self.opened.connect
        for name in pipeline.source_connectors:
            config = (connect.config(name) or {}) if pipeline.has_own_source else {}
            words = uncaptured(name, read_state(connect, name), moment, config.get(SELECTION))
            if words:
                self._say_late(words)
                return False
        self._behind_since = None
        return True

    def _say_late(self, words: str) -> None:
        """Tell once what capture is at, when it has been behind for a while."""
        self._behind_since = self._behind_since or time.monotonic()
        if not self._told and time.monotonic() - self._behind_since > _LATE:
            self.opened.say(f"differences wait for the pipeline: {words}")
            self._told = True


@contextlib.contextmanager
def passing(opened: Session, *, silent: bool = False) -> Iterator[Passing]:
    """The question for a deployed pipeline. Raises `TowpathError` where nobody answers."""
    with applied(opened.pipeline, opened.topics) as done:
        yield Passing(opened, done, _told=silent)


@contextlib.contextmanager
def asking(opened: Session) -> Iterator[Passing | None]:
    """As `passing`; None for a pipeline that is not deployed."""
    try:
        opened.require_deployed()
    except NoSuchConnector:
        opened.say(f"{opened.pipeline.name} is not deployed: a difference is told when it stays through all tries")
        yield None
        return
    except TowpathError as error:
        raise TowpathError(
            f"{error}; the verifier asks how far the pipeline is; to go by the tries alone, pass --alone"
        ) from error
    with passing(opened) as passed:
        yield passed
