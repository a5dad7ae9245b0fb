"""Both directions of a cutover, the pipeline and its reverse pipeline, and the marker of the cutover."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
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


def read_sides(session: Session, stack: ExitStack, *, goes_forward: bool, undoes: bool, has_back: bool) -> Sides:
    """Both directions as they are now. `stack` closes the session of the reverse pipeline.

    Raises `MongoUnreachable`; for an undo, it unblocks the source first and raises `TowpathError`.
    """
    try:
        with connected(session.pipeline.destination_uri, "destination") as client:
            marker = cutovers.read(client, session.pipeline)
    except MongoUnreachable as error:
        if undoes:
            allow(session.pipeline.source_uri, "source")
            raise TowpathError(
                f"writes to the source are allowed again; the destination records what else to undo: {error}."
                " Once it answers, the same command undoes the rest"
            ) from error
        raise
    reverse = None
    if marker.has_back if marker else has_back and goes_forward:
        path = reverse_file_path(session.file)
        is_deployed = path.exists() and not (goes_forward and marker is None)
        text = None if is_deployed else checked_reverse_file(session.file)  # None: as the file is
        reverse = stack.enter_context(opened(path, text, session.say))
    return Sides(session, reverse, marker)
