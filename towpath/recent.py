"""Which documents were touched lately, for `verify --last` and `verify --since`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

from connectors import recent
from connectors.spec import Pipeline
from connectors.topics import Topics


def ids(pipeline: Pipeline, topics: Topics, last: int | None, since: timedelta | None) -> Iterator[tuple[str, bytes]]:
    """(Source namespace, BSON of `{_id: …}`) of each document that the newest records of the log are about.

    Exactly one of `last`, a number of records, and `since`, a time up to now, is given.
    """
    if last is not None:
        found = recent.last(pipeline, topics, last)
    elif since is not None:
        found = recent.since(pipeline, topics, int((time.time() - since.total_seconds()) * 1000))
    else:
        raise ValueError("say how many records, or since when")
    for touched in found:
        yield touched.namespace, touched.key
