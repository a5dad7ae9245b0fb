"""Both directions of a cutover, the pipeline and its reverse pipeline, and the marker of the cutover."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from towpath.bookkeeping import cutover as cutovers
from towpath.bookkeeping.cutover import Cutover, State
from towpath.cutover.reverse_pipeline import checked_reverse_file, reverse_file_path
from towpath.cutover.writes import allow
from towpath.errors import MongoUnreachable, TowpathError
from towpath.mongo.client import connected
from towpath.session import Session, opened


@dataclass(slots=True)
class Sides:
    """`reverse` is None without a reverse pipeline. `marker` is a copy of the one stored at the destination."""

    forward: Session
    reverse: Session | None
    marker: Cutover | None = None

    @classmethod
    def read(cls, session: Session) -> Sides:
        """With the marker that the destination stores, and no reverse pipeline yet. Raises `MongoUnreachable`."""
        with connected(session.pipeline.destination_uri, "destination") as client:
            return cls(session, None, cutovers.read(client, session.pipeline))

    def begin(self, step: str) -> None:
        """Record in the marker that a step begins."""
        assert self.marker is not None
        self.mark(self.marker.begin(step))

    def take(self) -> None:
        """Take the cutover over: any other command that runs it ends at its next step."""
        assert self.marker is not None
        with connected(self.forward.pipeline.destination_uri, "destination") as client:
            self.marker = replace(self.marker, token=uuid4().hex)
            cutovers.take(client, self.forward.pipeline, self.marker)

    def enter(self, state: State) -> None:
        if self.marker is None:
            self.marker = Cutover(state, (), time.time(), has_back=self.reverse is not None)
            self.take()
        else:
            self.mark(replace(self.marker, state=state, steps=()))

    def leave(self, steps: Iterable[str]) -> None:
        """Record which steps are still to be undone; if none are, leave the state that these steps began in."""
        assert self.marker is not None
        if remaining := tuple(steps):
            self.mark(replace(self.marker, steps=remaining))
        elif self.marker.state == "to the destination":
            self.mark(None)
        else:
            self.enter("over")

    def mark(self, marker: Cutover | None) -> None:
        with connected(self.forward.pipeline.destination_uri, "destination") as client:
            if marker is None:
                cutovers.forget(client, self.forward.pipeline)
            else:
                cutovers.write(client, self.forward.pipeline, marker)
        self.marker = marker


@contextmanager
def opened_reverse(session: Session, *, is_there: bool) -> Iterator[Session]:
    """A session of the reverse pipeline: from its file when the file `is_there`, else from the text it would have."""
    path = reverse_file_path(session.file)
    text = None if is_there and path.exists() else checked_reverse_file(session.file)
    with opened(path, text, session.say) as reverse:
        yield reverse


def read_sides(session: Session, stack: ExitStack, *, goes_forward: bool, undoes: bool, has_back: bool) -> Sides:
    """Both directions as they are now.

    Raises `MongoUnreachable`; for an undo, it unblocks the source first and raises `TowpathError`.
    """
    try:
        sides = Sides.read(session)
    except MongoUnreachable as error:
        if undoes:
            allow(session.pipeline.source_uri, "source")
            raise TowpathError(
                f"writes to the source are allowed again; the destination records what else to undo: {error}."
                " Once it answers, the same command undoes the rest"
            ) from error
        raise
    if sides.marker.has_back if sides.marker else has_back and goes_forward:
        sides.reverse = stack.enter_context(
            opened_reverse(session, is_there=not goes_forward or sides.marker is not None)
        )
    return sides
