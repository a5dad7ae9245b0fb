"""A pipeline that is cut over, and its way back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from towpath.bookkeeping import cutover as cutovers
from towpath.bookkeeping.cutover import Cutover, State
from towpath.cutover.reverse_pipeline import back_path, other_refused
from towpath.cutover.writes import allow
from towpath.errors import MongoUnreachable, TowpathError
from towpath.mongo.client import connected
from towpath.session import Session, opened


@dataclass(slots=True)
class Sides:
    """`back` is None where no way back is wanted. `marker` is as it is at the destination."""

    it: Session
    back: Session | None
    marker: Cutover | None = None

    @classmethod
    def of(cls, session: Session, back: Session | None) -> Sides:
        """With the marker that is there. Raises `MongoUnreachable`."""
        with connected(session.pipeline.destination_uri, "destination") as client:
            return cls(session, back, cutovers.read(client, session.pipeline))

    def begin(self, step: str) -> None:
        """Write down that a step begins."""
        assert self.marker is not None
        self.mark(self.marker.begin(step))

    def take(self) -> None:
        """Have whatever command is at it besides this one end at its next step."""
        assert self.marker is not None
        with connected(self.it.pipeline.destination_uri, "destination") as client:
            self.marker = replace(self.marker, token=uuid4().hex)
            cutovers.take(client, self.it.pipeline, self.marker)

    def enter(self, state: State) -> None:
        if self.marker is None:
            self.marker = Cutover(state, (), time.time(), has_back=self.back is not None)
            self.take()
        else:
            self.mark(replace(self.marker, state=state, steps=()))

    def leave(self, steps: Iterable[str]) -> None:
        """Write down which steps are left to be undone; with none all is as before."""
        assert self.marker is not None
        left = tuple(steps)
        if left:
            self.mark(replace(self.marker, steps=left))
        elif self.marker.state == "to the destination":
            self.mark(None)
        else:
            self.enter("over")

    def mark(self, marker: Cutover | None) -> None:
        with connected(self.it.pipeline.destination_uri, "destination") as client:
            if marker is None:
                cutovers.forget(client, self.it.pipeline)
            else:
                cutovers.write(client, self.it.pipeline, marker)
        self.marker = marker


@contextmanager
def with_back(session: Session, *, is_there: bool) -> Iterator[Session]:
    """The way back. A pipeline file that `is_there` already counts as it is; it is not written yet where it is not."""
    place = back_path(session.file)
    counts = is_there and place.exists()
    with opened(place, None if counts else other_refused(session.file), session.say) as back:
        yield back


def looked_at(session: Session, stack: ExitStack, *, goes_forward: bool, undoes: bool, has_back: bool) -> Sides:
    """Both sides as they are now. Raises `MongoUnreachable`; before an undo the source takes writes even then."""
    try:
        sides = Sides.of(session, None)
    except MongoUnreachable as error:
        if undoes:
            allow(session.pipeline.source_uri, "source")
            raise TowpathError(
                f"writes to the source are allowed; what else was begun is noted at the destination: {error}."
                " Once it answers, the same command takes the rest back"
            ) from error
        raise
    if sides.marker.has_back if sides.marker else has_back and goes_forward:
        sides.back = stack.enter_context(with_back(session, is_there=not goes_forward or sides.marker is not None))
    return sides
