"""The history check of one pipeline, from before it is deployed."""

from __future__ import annotations

from benchmarks.history import collected
from benchmarks.history.check import History, Seen, Time, whole
from benchmarks.history.clients import Clients
from tests.support import raw
from tests.support.pipeline import Pipeline


class Lists:
    """The lists, with what they hold at first. `watched` reads the destination from entry to exit of a `with`."""

    def __init__(self, seed: int, pipeline: Pipeline, source: raw.Client, destination: raw.Client) -> None:
        self._pipeline, self._source, self._destination = pipeline, source, destination
        self._since = collected.now(source)
        self._points: list[Time] = []
        self.clients = Clients(seed, source, pipeline.name)
        self.clients.fill()
        self.watched = collected.AtDestination(destination, pipeline.name)

    def point(self) -> bool:
        """Make the destination the source as of one time, for a moment; whether that was possible."""
        time = collected.point(self._pipeline, self._destination)
        self._points += [] if time is None else [time]
        return time is not None

    def seen(self, *, is_compacted: bool, at_least: int) -> Seen:
        """Decide, once everything is applied. A compacted log is not read, as it lacks updates."""
        history = History(
            acknowledged=self.clients.acknowledged,
            source=list(collected.at_source(self._source, self._pipeline.name, self._since)),
            log=None if is_compacted else list(collected.in_log(self._pipeline)),
            destination=self.watched.states,
            points=self._points,
        )
        return whole(history, at_least=at_least)
