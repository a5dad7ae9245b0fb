"""How long writes will stop in a cutover, estimated before it begins: from counts, and a measured way to the server."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from towpath.clients.mongo.client import Client

#: Seconds, the default of `--max-pause`.
LONGEST_S = 30.0
#: Seconds on two cores, from single runs of `scripts/bench cutover` and `collections`: the sink's stop and the start of
#: the capture of the reverse pipeline, at Connect; what is read of a partition of the log; a command that changes an
#: option or an index.
_CONNECT_S, _PARTITION_S, _COMMAND_S = 1.5, 0.001, 0.003
#: Of a conversion, alone and for each entry of the index. A rebuild, for each entry, is an estimate.
_CONVERSION_S, _CONVERTED_S, _REBUILT_S = 0.01, 4e-7, 2e-6
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
    partitions: int = 0
    """Of the log."""

    @property
    def seconds(self) -> float:
        """Of the pause, about."""
        commands = self.commands * (_COMMAND_S + self.round_trip)
        log = self.partitions * _PARTITION_S
        return round(_CONNECT_S + self.lag + log + commands + self.rebuilt_entries * _REBUILT_S, 1)

    @property
    def seconds_after(self) -> float:
        """Of the conversions after the switch, about."""
        if self.rebuilt_entries:
            return 0.0
        return round(self.unique_indexes * _CONVERSION_S + self.entries * _CONVERTED_S, 1)


def round_trip(client: Client) -> float:
    """Seconds for the shortest command, to the primary and back."""

    def one() -> float:
        began = time.monotonic()
        client.admin.command("ping")
        return time.monotonic() - began

    return median(one() for _ in range(_PINGS))
