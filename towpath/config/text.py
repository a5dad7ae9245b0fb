"""Counts, lists, durations, sizes and times as people read them, the same in every message, table and page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime


def counted(number: int, noun: str) -> str:
    """`1 document`, `6,101 documents`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_few(names: Sequence[str], most: int) -> str:
    """The first names, and the number of the others: `a, b, c and 4 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def duration(seconds: float) -> str:
    """`4 s`, `12 min`, `3.5 h`, `2 days`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def size(count: int) -> str:
    """Of bytes, in powers of 1,000: `512 bytes`, `1.5 GB`."""
    if count < 1_000:
        return counted(count, "byte")
    for unit, whole in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 999.95 * whole:
            return f"{count / whole:.1f} {unit}"
    return f"{count / 1e12:,.1f} TB"


def utc(seconds: float) -> str:
    """A time in seconds since the epoch: `2026-11-22 18:00:00 UTC`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
