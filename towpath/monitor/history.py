"""The last hour of a pipeline's figures, in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SECONDS = 3600
_MOST = 3600  # samples: one a second

#: The columns of a sample. Times are seconds since the epoch, rates are records a second.
COLUMNS = ("at", "capture_lag_seconds", "apply_lag_seconds", "log_rate", "sink_rate", "lag_records")
Sample = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class History:
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_MOST))

    def add(self, report: Mapping[str, Any]) -> Sample:
        """Add the sample of a report. While the state is unknown, all but the time is null: a gap."""
        if report["state"] == "unknown":
            sample: Sample = (round(time.time(), 1), None, None, None, None, None)
        else:
            lag = report["lag"]
            sample = (
                round(report["at"], 1),
                lag["capture_seconds"],
                lag["apply_seconds"],
                report["records_per_second"],
                report["sink_records_per_second"],
                lag["records"],
            )
        self.samples.append(sample)
        while self.samples[0][0] < sample[0] - SECONDS:  # type: ignore[operator]
            self.samples.popleft()
        return sample

    def as_json(self) -> dict[str, Any]:
        return {"columns": list(COLUMNS), "samples": [list(sample) for sample in self.samples]}
