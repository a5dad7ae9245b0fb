"""`verify --last`, `--since` and `--follow`: what the log says is changed."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import click

from connectors.topics import Place
from towpath import verdicts
from towpath.follow import follow
from towpath.opened import Opened, say
from towpath.recent import ids
from towpath.running import Running
from towpath.verify_recent import RecentVerification
from towpath.verify_words import Example
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


def go_on(
    it: Opened,
    begin: Mapping[Place, int],
    only: Sequence[str],
    options: Options,
    passed: Passed | None,
    *,
    as_json: bool,
) -> Running:
    """Follow until interrupted; print each difference as it settles, and at the end how things are."""
    renames = it.pipeline.renames

    def tell(found: Difference) -> None:
        if as_json:
            shown = verdicts.as_json(found, renames.destination(found.namespace))
            click.echo(json.dumps(shown, ensure_ascii=False))
        else:
            example = Example.of(found)
            click.echo(f"{example.namespace} {example.id}: {example.kind}")

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service's stop is an interrupt
    say("following what changes, until interrupted; `towpath status` shows how that goes")
    ended = follow(
        it, begin, passed, tell, only, recheck=options.recheck, ignore_field_order=options.ignore_field_order
    )
    click.echo(json.dumps(ended.as_json()) if as_json else ended.words)
    return ended
