"""`verify --last`, `--since` and `--follow`: what the log says is changed."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import click

from towpath.log.lag import pipeline_ends
from towpath.log.recent_documents import ids
from towpath.session import Opened, say
from towpath.status.verified import length
from towpath.verification import follow_state, full_verdict, verdict_file
from towpath.verification.follow_state import FollowState
from towpath.verification.follower import follow
from towpath.verification.full_verdict import EVERYTHING, Standing
from towpath.verification.metadata import Metadata
from towpath.verification.recent import RecentVerification
from towpath.verification.running_verdict import Running
from towpath.verification.words import Example
from verifier import Difference, Options, Passed

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Newest:
    """Which records: the last so many, or those of the last so much time; of namespaces that match `only`."""

    last: int | None
    since: timedelta | None
    only: Sequence[str]

    def verification(self, it: Opened, options: Options, passed: Passed | None) -> RecentVerification:
        touched = ids(it.pipeline, it.topics, self.last, self.since)
        return RecentVerification(it, touched, self.only, options, passed=passed)


@dataclass(frozen=True, slots=True)
class Asked:
    """What to do with what is found."""

    as_json: bool
    report: Path | None
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


def newest(last: int | None, since: timedelta | None, only: Sequence[str]) -> Newest | None:
    """None when neither is asked for. Raises `UsageError` when both are."""
    if last is not None and since is not None:
        raise click.UsageError("give one of --last and --since, not both")
    return None if last is None and since is None else Newest(last, since, only)


def duration(context: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    """The time in `90s`, `10m`, `2h` or `1d`."""
    if text is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no time; write a number with s, m, h or d, such as 10m")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where `verify --follow` begins, and whether the last one ended there, so that no full pass is needed."""

    state: FollowState
    goes_on: bool

    @classmethod
    def look(cls, it: Opened, asked: Asked, options: Options) -> Beginning:
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
            say(f"everything is compared, as this cannot go on where the last `verify --follow` ended: {why}")
            return cls(new, False)
        say(
            f"going on where the last `verify --follow` ended {length(new.at - left.at)} ago; to compare everything"
            f" besides, run: towpath verify {it.file}"
        )
        return cls(left, True)

    def known(self, pipeline: str) -> Path:
        """The verdict that tells what differs there."""
        return follow_state.path(pipeline) if self.goes_on else verdict_file.path(pipeline)


def go_on(
    it: Opened, begin: Beginning, only: Sequence[str], options: Options, passed: Passed | None, *, as_json: bool
) -> Running:
    """Follow until interrupted; print each difference as it settles, and at the end how things are."""
    renames = it.pipeline.renames

    def tell(found: Difference) -> None:
        if as_json:
            shown = verdict_file.as_json(found, renames.destination(found.namespace))
            click.echo(json.dumps(shown, ensure_ascii=False))
        else:
            example = Example.of(found)
            click.echo(f"{example.namespace} {example.id}: {example.kind}")

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service's stop is an interrupt
    say("following what changes, until interrupted; `towpath status` shows how that goes")
    ended = follow(it, begin.state, begin.known(it.pipeline.name), passed, tell, only, options)
    click.echo(json.dumps(ended.as_json()) if as_json else ended.words)
    return ended
