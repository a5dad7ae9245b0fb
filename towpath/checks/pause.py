"""How long writes will stop in a cutover, estimated before it begins: from counts, and a measured way to the server."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from towpath.clients.mongo.client import Client

#: Seconds, the default of `--max-pause`.
LONGEST_S = 30.0
#: Seconds on two cores, from single runs of `scripts/bench cutover`: the sink's stop and the start of the capture of
#: the reverse pipeline, at Connect; a command that changes an option or an index, acknowledged by a majority; a
#: conversion, for each entry of an index. The last, a rebuild for each entry, is an estimate.
_CONNECT_S, _COMMAND_S, _CONVERTED_S, _REBUILT_S = 1.5, 0.001, 4e-7, 2e-6
_PINGS = 5


@dataclass(frozen=True, slots=True)
class Pause:
    """What a cutover does to indexes, and how long that takes; entries are counted once for each index."""

    unique_indexes: int
    entries: int
    """Of these indexes."""
    commands: int
    """That the pause runs to change indexes, TTL and validators."""
    rebuilt_entries: int
    """Of the indexes that are rebuilt in the pause, before MongoDB 6.0."""
    round_trip: float
    """To the server that gets the schema, in seconds."""
    lag: float = 0.0
    """In seconds."""

    @property
    def seconds(self) -> float:
        """Of the pause, about."""
        commands = self.commands * (_COMMAND_S + self.round_trip)
        return round(_CONNECT_S + self.lag + commands + self.rebuilt_entries * _REBUILT_S, 1)

    @property
    def seconds_after(self) -> float:
        """Of the conversions after the switch, about."""
        return round((self.entries - self.rebuilt_entries) * _CONVERTED_S, 1)


def round_trip(client: Client) -> float:
    """Seconds for the shortest command, to the primary and back."""

    def one() -> float:
        began = time.monotonic()
        client.admin.command("ping")
        return time.monotonic() - began

    return median(one() for _ in range(_PINGS))
