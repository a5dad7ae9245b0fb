"""Which documents were touched lately, for `verify --last` and `verify --since`, and a cutover."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta

from towpath.kafka.topics import Place, Topics
from towpath.log import recent_keys
from towpath.log.recent_keys import Touched
from towpath.pipeline import Pipeline


def ids(pipeline: Pipeline, topics: Topics, last: int | None, since: timedelta | None) -> Iterator[tuple[str, bytes]]:
    """(Source namespace, BSON of `{_id: …}`) of each document that the newest records of the log are about.

    Exactly one of `last`, a number of records, and `since`, a time up to now, is given.
    """
    if last is not None:
        yield from _ids(recent_keys.last(pipeline, topics, last))
    elif since is not None:
        yield from _ids(recent_keys.since(pipeline, topics, int((time.time() - since.total_seconds()) * 1000)))
    else:
        raise ValueError("say how many records, or since when")


def after(pipeline: Pipeline, topics: Topics, positions: Mapping[Place, int]) -> Iterator[tuple[str, bytes]]:
    """As `ids`, of the records from these positions on."""
    yield from _ids(recent_keys.after(pipeline, topics, positions))


def _ids(found: Iterator[Touched]) -> Iterator[tuple[str, bytes]]:
    for touched in found:
        yield touched.namespace, touched.key
