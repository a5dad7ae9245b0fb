"""What must hold: findings, the rules that yield them, and the one runner of all tables of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Generic, Literal, TypeVar

from pymongo.errors import PyMongoError

from towpath.errors import Refused, TowpathError, fields
from towpath_verifier import VerifierError

Level = Literal["error", "warning", "ok"]
#: From the most severe to the least.
LEVELS: tuple[Level, ...] = ("error", "warning", "ok")
Facts = TypeVar("Facts")
Failure = TowpathError | VerifierError | PyMongoError
_FAILURES = (TowpathError, VerifierError, PyMongoError)
_SERVERS = ("source", "destination", "kafka", "connect")


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

    @property
    def refused(self) -> Refused:
        """As the error that stops a command. A server or a namespace is named where the words do not."""
        place, _, rest = self.subject.partition(" ")
        is_named = place not in _SERVERS or (rest or place) in self.finding
        return Refused(
            self.finding, self.advice, where=self.where or ("" if is_named else self.subject), code=self.code
        )


@dataclass(frozen=True, slots=True)
class Rule(Generic[Facts]):
    """One thing that must hold. `check` reads facts, changes nothing, and yields an error for each violation.

    It may also yield warnings and `ok` findings. What it needs is gathered by its facts, when it asks for it.
    """

    name: str
    """The subject of its findings, unless they name another; and of the finding that its facts cannot be gathered."""
    check: Callable[[Facts], Iterator[Finding]]
    required: bool = True
    """Whether its errors stop a command that changes something. Those of other rules are only reported."""
    applies: Callable[[Facts], bool] = lambda facts: True

    def findings(self, facts: Facts) -> Iterator[Finding]:
        return about(self.name, self.check(facts) if self.applies(facts) else ())


def rules(name: str, *checks: Callable[[Facts], Iterator[Finding]]) -> tuple[Rule[Facts], ...]:
    """Required rules that always apply."""
    return tuple(Rule(name, check) for check in checks)


def run(rules: Iterable[Rule[Facts]], facts: Facts) -> list[Finding]:
    """What the rules find, each finding once. A rule that cannot be checked does not hide what the others find.

    That it cannot is a finding, about the server that is known to be away, if this is its failure.
    """
    found: list[Finding] = []
    for rule in rules:
        try:
            found.extend(rule.findings(facts))
        except _FAILURES as failure:
            away: dict[str, TowpathError] = getattr(facts, "unreachable", {})
            subject = next((server for server, known in away.items() if known is failure), rule.name)
            found.append(refusal(subject, failure))
    return list(dict.fromkeys(found))


def require(rules: Iterable[Rule[Facts]], facts: Facts) -> list[Finding]:
    """What the required rules find. Raises `Refused` with all errors among it, and with what cannot be gathered.

    Where nothing else is wrong, the first error of what cannot be gathered is raised.
    """
    found: list[Finding] = []
    errors: dict[str, Failure] = {}  # by their words, in the order of the rules
    unknown: dict[str, Failure] = {}
    for rule in rules:
        try:
            for finding in rule.findings(facts) if rule.required else ():
                found.append(finding)
                if finding.level == "error":
                    errors.setdefault(str(finding.refused), finding.refused)
        except _FAILURES as failure:
            (errors if isinstance(failure, Refused) else unknown).setdefault(str(failure), failure)
    if errors and len(errors) + len(unknown) > 1:
        raise Refused("\n".join((*errors, *unknown)))
    for error in (*errors.values(), *unknown.values()):
        raise error
    return found


def about(subject: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, with this subject where they have none."""
    return (finding if finding.subject else replace(finding, subject=subject) for finding in findings)


def error(finding: str, advice: str, *, about: str = "", where: str = "", code: str = "") -> Finding:
    """`about`: the subject, if it is not the rule's."""
    return Finding("error", about, finding, advice, where, code)


def warning(finding: str, advice: str, *, about: str = "", where: str = "", code: str = "") -> Finding:
    return Finding("warning", about, finding, advice, where, code)


def ok(finding: str, *, about: str = "") -> Finding:
    return Finding("ok", about, finding)


def refusal(subject: str, cause: Failure) -> Finding:
    """The error finding for an exception."""
    parts = fields(cause)
    sentence = getattr(cause, "sentence", str(cause))
    return Finding("error", subject, sentence, parts["advice"], parts["where"], parts["code"])
