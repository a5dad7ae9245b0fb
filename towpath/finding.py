"""One thing that a check has found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from towpath.errors import TowpathError

Level = Literal["error", "warning", "ok"]
#: From what must be mended to what is as it should be.
LEVELS: tuple[Level, ...] = ("error", "warning", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found at `subject`, and what to do about it.

    error: deploying would fail, or records would be lost or out of order. warning: a trap. ok: what was looked at.
    """

    level: Level
    subject: str
    finding: str
    advice: str = ""
    where: str = ""
    """A setting, or the place of an error; `code`: as in `docs/errors.md`."""
    code: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def error(subject: str, finding: str, advice: str, *, where: str = "", code: str = "") -> Finding:
    return Finding("error", subject, finding, advice, where, code)


def warning(subject: str, finding: str, advice: str, *, where: str = "") -> Finding:
    return Finding("warning", subject, finding, advice, where)


def ok(subject: str, finding: str) -> Finding:
    return Finding("ok", subject, finding)


def refusal(subject: str, cause: TowpathError) -> Finding:
    """The error finding of what was raised."""
    advice = cause.advice or "deploy would stop with the same words"
    return error(subject, cause.sentence, advice, where=cause.where, code=cause.code)
