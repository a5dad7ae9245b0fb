"""Both directions of a cutover, the pipeline and its reverse pipeline, and the marker of the cutover."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import uuid4

import pymongo

from towpath.clients.mongo import write_block
from towpath.clients.mongo.replica_set import ReplicaSet, source_set
from towpath.config.loading import reverse_file_path
from towpath.cutover.reverse_pipeline import (
    checked_reverse_file,
    foreign_reverse_file,
    opened_reverse,
    reverse_file_text,
)
from towpath.errors import MongoError, Overtaken, Refused, TowpathError
from towpath.session import ERRORS, Session
from towpath.store import cutover as cutovers
from towpath.store import writers
from towpath.store.cutover import Cutover, Redirect, State

SWITCH_S = 10.0  # seconds for the write that switches, and again to find out whether it was done
_TAKE_S = 2.0  # short: writes wait during this, and the destination may be what does not answer


@dataclass(frozen=True, slots=True)
class Direction:
    """One way to make the other side primary: its states in the marker, and its sides."""

    under_way: State
    done: State
    old: Literal["source", "destination"]
    new: Literal["source", "destination"]
    before: State | None = None
    """In which it begins; None without a marker."""

    @property
    def returns(self) -> bool:
        return self.new == "source"


CUTOVER = Direction("cutting over", "destination primary", "source", "destination")
#: The source is lost.
TAKEOVER = Direction("taking over", "destination primary", "source", "destination")
FAIL_BACK = Direction("failing back", "source primary", "destination", "source", "destination primary")
#: After a takeover, the old source becomes the destination of the reverse pipeline.
RETURN = Direction(
    "returning the old source", "destination primary", "destination", "destination", "destination primary"
)
_DIRECTIONS = {each.under_way: each for each in (CUTOVER, TAKEOVER, FAIL_BACK, RETURN)} | {FAIL_BACK.done: FAIL_BACK}


class SwitchUnknown(TowpathError):
    """The marker may or may not say by now that the other side is primary: nothing can be undone."""


def announce(say: Callable[[str], None], words: str) -> None:
    """Say something without waiting until it is written: a reader that sleeps would hold an undo up."""
    threading.Thread(target=say, args=(words,), name="announcement", daemon=True).start()


@dataclass(slots=True)
class Sides:
    """`reverse` is None without a reverse pipeline. `marker` is a copy of the one stored at the destination.

    All that changes the stored marker raises `Overtaken` when another command has taken it over.
    """

    forward: Session
    reverse: Session | None
    marker: Cutover | None = None
    _tokens: list[str] = field(default_factory=list)
    """What this command has marked, or may have marked where the reply was lost, the marker with."""

    @property
    def direction(self) -> Direction:
        """Of what is under way."""
        assert self.marker is not None
        return _DIRECTIONS.get(self.marker.state, CUTOVER)

    @property
    def session(self) -> Session:
        """The pipeline from the old primary to the new one."""
        session = self.reverse if self.direction.returns else self.forward
        assert session is not None
        return session

    @property
    def opposite(self) -> Session | None:
        """The pipeline from the new primary to the old one; None in a cutover without a reverse pipeline."""
        return self.forward if self.direction.returns else self.reverse

    def renew(self) -> None:
        """Use new clients, before an undo of what a signal has interrupted."""
        for session in filter(None, (self.forward, self.reverse)):
            session.renew()

    def begin(self, step: str) -> None:
        """Record in the marker that a step begins."""
        assert self.marker is not None
        self.mark(self.marker.begin(step))

    def take(self, within: float | None = None) -> Cutover:
        """Take over the marker as it is stored now: any other command that runs this cutover ends at its next step.

        What this command has sent and the server has not done yet has no effect from then on. Call it before a side is
        opened for writes. `within` is in seconds.
        """
        assert self.marker is not None
        own = self._tokens or [self.marker.token]
        token = uuid4().hex
        self._tokens = [*own, token]
        with pymongo.timeout(within), self.forward.destination.connected() as client:
            self.marker = cutovers.take(client, self.forward.pipeline, own, token)
        return self.marker

    def retake(self) -> None:
        """As `take`, before an undo, which the source waits for: without an answer, go by what this command knows."""
        try:
            self.take(_TAKE_S)
        except Overtaken:
            raise
        except ERRORS:
            return

    def enter(self, state: State) -> None:
        """Begin a cutover, or a fail back. Without an answer, a new marker may be stored: see `withdraw`."""
        if self.marker is not None:
            # a takeover keeps what is left of an interrupted cutover, for its undo
            steps = self.marker.steps if state == TAKEOVER.under_way else ()
            self.mark(replace(self.marker, state=state, steps=steps))
            return
        marker = Cutover(state, (), time.time(), has_reverse_pipeline=self.reverse is not None)
        self._tokens = [marker.token]
        with self.forward.destination.connected() as client:
            cutovers.insert(client, self.forward.pipeline, marker)
        self.marker = marker

    def withdraw(self) -> None:
        """Remove the marker of `enter`, with which nothing has begun. One that stays does no harm."""
        with suppress(*ERRORS), pymongo.timeout(_TAKE_S):
            self.mark(None)

    def switch(self, marker: Cutover) -> None:
        """Store the marker that makes the other side primary, which cannot be undone.

        When this raises, it is not stored, and will not be; except for `SwitchUnknown`.
        """
        try:
            with pymongo.timeout(SWITCH_S):
                self.mark(marker)
        except Overtaken:
            raise
        except Exception as error:
            if self._stored(marker.state, error) != marker.state:
                raise

    def _stored(self, state: State, error: Exception) -> State:
        """The state that is stored, after a write without an answer. Raises `SwitchUnknown`."""
        try:
            return self.take(SWITCH_S).state
        except Overtaken:
            raise
        except ERRORS as still:
            side = "destination" if state == "destination primary" else "source"
            command = "takeover" if self.direction in (TAKEOVER, RETURN) else "cutover"
            of, that = f"the {side} is primary", "makes it primary"
            if self.direction is RETURN:
                of, that = "the old source has returned", "says so"
            stopped = "" if self.direction is RETURN else ", and the writes stay stopped"
            raise SwitchUnknown(
                f"it is unknown whether {of}: the destination did not answer the write that {that} ({error}), and does"
                f" not say what it has stored ({still}). Nothing is undone{stopped}",
                f"once the destination answers: towpath {command} {self.forward.file} --undo, which undoes it or says"
                " that it is complete",
            ) from still

    def leave(self, steps: Iterable[str], own: frozenset[str] = frozenset()) -> None:
        """Record which steps are still to be undone; if none are, leave the state that these steps began in.

        `own`: the steps of a takeover. Others are of the cutover that it found.
        """
        assert self.marker is not None
        if remaining := tuple(steps):
            is_over = self.direction is TAKEOVER and own.isdisjoint(remaining)
            self.mark(replace(self.marker, steps=remaining, state=CUTOVER.under_way if is_over else self.marker.state))
        elif self.direction.before is not None:
            self.mark(replace(self.marker, state=self.direction.before, steps=()))
        else:
            self.mark(None)

    def require_own(self) -> None:
        """Raise `Overtaken` when another command has taken the marker over; changes nothing."""
        with self.forward.destination.connected() as client:
            cutovers.require_own(client, self.forward.pipeline, self._tokens)

    def redirected(self, redirect: Redirect) -> None:
        """Record what is known of --switch-with, after the switch."""
        assert self.marker is not None
        with self.forward.destination.connected() as client:
            cutovers.redirected(client, self.forward.pipeline, self._tokens, redirect)
        self.marker = replace(self.marker, redirect=redirect)

    def mark(self, marker: Cutover | None) -> None:
        with self.forward.destination.connected() as client:
            if marker is None:
                cutovers.delete_own(client, self.forward.pipeline, self._tokens)
            else:
                marker = replace(marker, token=self._tokens[-1] if self._tokens else marker.token)
                cutovers.replace_own(client, self.forward.pipeline, self._tokens, marker)
        self.marker = marker


def read_sides(
    session: Session,
    stack: ExitStack,
    *,
    goes_forward: bool,
    undoes: bool,
    has_reverse_pipeline: bool,
    returns: bool = False,
) -> Sides:
    """Both directions as they are now. `stack` closes the session of the reverse pipeline.

    `returns`: an old source is to return, which begins with a new reverse pipeline.

    Raises `MongoError`: nothing can be undone without the marker.
    """
    try:
        with session.destination.connected() as client:
            marker = cutovers.read(client, session.pipeline)
            registered = writers.read_all(client).get(session.pipeline.name) if marker else None
    except MongoError as error:
        if undoes:
            raise type(error)(
                f"nothing was undone: the destination holds what to undo, and whether it is primary: {error}",
                "once it answers, run the same command again. Only if you know that the destination is not primary,"
                f" allow the writes to the source by hand: {write_block.MONGOSH_UNDO}",
            ) from error
        raise
    if registered is not None:
        _refuse_other_source(session, registered.source)
    reverse, is_returning = None, marker is not None and marker.state == RETURN.under_way
    if (marker.has_reverse_pipeline or is_returning or returns) if marker else has_reverse_pipeline and goes_forward:
        path = reverse_file_path(session.file)
        begins = (goes_forward and marker is None) or (returns and not is_returning)
        text = None if path.exists() and not begins else checked_reverse_file(session.file)  # None: as the file is
        if text is None and (why := foreign_reverse_file(session)):
            session.say(f"{why}; instead of it, the reverse pipeline of {session.file} is used")
            text = reverse_file_text(session.file)
        reverse = stack.enter_context(opened_reverse(session, text))
    return Sides(session, reverse, marker)


def _refuse_other_source(session: Session, mark: str) -> None:
    """Raise `Refused` when the marker is of another pipeline of this name. A source that is away cannot be asked."""
    with suppress(MongoError), session.source.briefly() as client:
        source = source_set(client)
        if not ReplicaSet.parse(mark).is_same(source):
            raise Refused(
                f"the cutover that this destination knows is of another pipeline {session.pipeline.name}, from {mark};"
                f" the source of {session.file} is {source}; nothing was changed",
                "see [source] uri and [destination] uri",
            )
