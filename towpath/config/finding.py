"""Findings: what a check found at one place, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Generic, Literal, TypeVar

from towpath.errors import Refused, TowpathError

Level = Literal["error", "warning", "ok"]
#: From the most severe to the least.
LEVELS: tuple[Level, ...] = ("error", "warning", "ok")
Inventory = TypeVar("Inventory")


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found at `subject`, and what to do about it.

    error: deploying would fail, or records would be lost or out of order. warning: a trap. ok: a check that passed.
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


@dataclass(frozen=True, slots=True)
class Precondition(Generic[Inventory]):
    """A rule. `check` reads an inventory, changes nothing, and yields an error for each violation.

    It may also yield warnings and `ok` findings. `required`: its errors stop a command that changes something; the
    errors of other preconditions are only reported.
    """

    check: Callable[[Inventory], Iterator[Finding]]
    required: bool = True


Preconditions = Sequence[Precondition[Inventory]]


def required(*checks: Callable[[Inventory], Iterator[Finding]]) -> Preconditions[Inventory]:
    return [Precondition(check) for check in checks]


def require(preconditions: Preconditions[Inventory], inventory: Inventory) -> list[Finding]:
    """What the required preconditions find. Raises `Refused` with all errors among it.

    A precondition that cannot be checked, because of what another one found, does not hide that.
    """
    findings: list[Finding] = []
    try:
        for precondition in preconditions:
            findings.extend(precondition.check(inventory) if precondition.required else ())
    except TowpathError:
        if not any(finding.level == "error" for finding in findings):
            raise
    errors = [
        Refused(finding.finding, finding.advice, where=finding.where, code=finding.code)
        for finding in dict.fromkeys(findings)
        if finding.level == "error"
    ]
    if errors:
        raise errors[0] if len(errors) == 1 else Refused("\n".join(map(str, errors)))
    return findings


def error(subject: str, finding: str, advice: str, *, where: str = "", code: str = "") -> Finding:
    return Finding("error", subject, finding, advice, where, code)


def warning(subject: str, finding: str, advice: str, *, where: str = "", code: str = "") -> Finding:
    return Finding("warning", subject, finding, advice, where, code)


def ok(subject: str, finding: str) -> Finding:
    return Finding("ok", subject, finding)


def refusal(subject: str, cause: TowpathError) -> Finding:
    """The error finding for an exception."""
    advice = cause.advice or "deploy would stop with the same message"
    return error(subject, cause.sentence, advice, where=cause.where, code=cause.code)
