"""What `verify` is asked for, and where `verify --follow` begins."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from towpath.log.lag import pipeline_ends
from towpath.log.recent_documents import ids
from towpath.session import Session
from towpath.text import duration
from towpath.verification import follow_state, full_verdict, verdict_file
from towpath.verification.follow_state import FollowState
from towpath.verification.full_verdict import EVERYTHING, Standing
from towpath.verification.metadata import Metadata
from towpath.verification.recent import RecentVerification
from verifier import Options, Passed


@dataclass(frozen=True, slots=True)
class Newest:
    """Which records: the last so many, or those of the last so much time; of namespaces that match `only`."""

    last: int | None
    since: timedelta | None
    only: Sequence[str]

    def verification(self, it: Session, options: Options, passed: Passed | None) -> RecentVerification:
        touched = ids(it.pipeline, it.topics, self.last, self.since)
        return RecentVerification(it, touched, self.only, options, passed=passed)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be verified, and how."""

    alone: bool
    """Without asking Connect and Kafka how far the pipeline is."""
    newest: Newest | None = None
    """Only what the newest records of the log are about."""
    metadata: Metadata | None = None
    """What differs besides documents; None when that is not compared."""
    only: Sequence[str] = ()
    """Patterns of the namespaces that are compared; empty for all."""
    done: Sequence[str] = ()
    """What was done to the source's collections as such, and was behind the pipeline, before anything was compared."""

    id: str = field(default_factory=lambda: uuid4().hex)
    """Of the verdict."""

    @property
    def of(self) -> str:
        """What the verdict is on."""
        part = "the newest records" if self.newest else EVERYTHING
        return f"{part} of {', '.join(self.only)}" if self.only else part


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where `verify --follow` begins, and whether the last one ended there, so that no full pass is needed."""

    state: FollowState
    goes_on: bool

    @classmethod
    def look(cls, it: Session, asked: Asked, options: Options) -> Beginning:
        """Says why the last one's end is no beginning. Raises `TowpathError` when Kafka does not answer."""
        log = pipeline_ends(it.pipeline, it.topics)
        standing = Standing.look(it)
        known = None if standing.origin is None else standing.origin.as_json()
        ends = {place: end for place, (_, end) in log.items()}
        new = FollowState(asked.id, asked.of, options.ignore_field_order, True, known, time.time(), ends, ())
        left = None if asked.newest else follow_state.read(it.pipeline.name)
        if left is None:
            return cls(new, False)
        why = left.refuses(new, it.pipeline, {place: first for place, (first, _) in log.items()})
        if not why and asked.of == EVERYTHING:
            full, doubt = standing.believed(full_verdict.read(it.pipeline.name))
            why = "" if full else doubt or "no verdict on everything counts any more"
        if why:
            it.say(f"everything is compared, as this cannot go on where the last `verify --follow` ended: {why}")
            return cls(new, False)
        it.say(
            f"going on where the last `verify --follow` ended {duration(new.at - left.at)} ago; to compare"
            f" everything besides, run: towpath verify {it.file}"
        )
        return cls(left, True)

    def known(self, pipeline: str) -> Path:
        """The verdict that tells what differs there."""
        return follow_state.path(pipeline) if self.goes_on else verdict_file.path(pipeline)
