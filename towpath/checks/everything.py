"""All checks of `towpath check`, in order; and those that `towpath deploy` requires."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from towpath.checks import connect, destination, file, kafka, log, source
from towpath.config.finding import Finding, Precondition, error, ok, refusal, warning
from towpath.config.text import counted
from towpath.deploy import preconditions
from towpath.deploy.deployment import Deployment
from towpath.deploy.inventory import Inventory
from towpath.errors import Refused, TowpathError
from towpath.session import Session

#: (subject of the findings, preconditions) of each server.
_SERVERS = (
    (source.SIDE, source.PRECONDITIONS),
    (destination.SIDE, destination.PRECONDITIONS),
    (kafka.SUBJECT, kafka.PRECONDITIONS),
    (connect.SUBJECT, connect.PRECONDITIONS),
)
_DEPLOY = "deploy"


def everything(session: Session, path: Path, create_stopped: Collection[str] = ()) -> Iterator[Finding]:
    """Every finding about the pipeline in the file `path`. A server that cannot be read is a finding, no exception.

    `create_stopped`: names of the connectors that `deploy` would create but not start.
    """
    yield from findings(inventory(session, create_stopped), session, path)


def inventory(session: Session, create_stopped: Collection[str] = ()) -> Inventory:
    """The inventory of a pipeline, which knows the servers that cannot be read."""
    found = Inventory(session, create_stopped=create_stopped)
    found.unreachable = _unreachable(found)
    return found


def findings(inventory: Inventory, session: Session, path: Path) -> Iterator[Finding]:
    """As `everything`, of an inventory that is asked further afterwards."""
    yield from file.check(session.pipeline, path)
    failed = False
    for subject, rules in _SERVERS:
        failure = inventory.unreachable.get(subject)
        for finding in [refusal(subject, failure)] if failure else _checked(subject, rules, inventory):
            failed = failed or finding.level == "error"
            yield finding
    if connect.SUBJECT not in inventory.unreachable and inventory.is_deployed:
        yield from log.check(session)
    if not failed:
        yield from _deployment(inventory)


def _checked(subject: str, rules: Iterable[Precondition[Inventory]], inventory: Inventory) -> Iterator[Finding]:
    try:
        for rule in rules:
            yield from rule.check(inventory)
    except TowpathError as failure:
        yield refusal(subject, failure)


def _unreachable(inventory: Inventory) -> dict[str, TowpathError]:
    """The servers that do not answer, or refuse. All are queried in parallel, because each may take 10 s."""
    probes: dict[str, Callable[[], object]] = {
        source.SIDE: lambda: inventory.source.replica_set,
        destination.SIDE: lambda: inventory.destination.replica_set,
        kafka.SUBJECT: lambda: inventory.brokers,
        connect.SUBJECT: inventory.connect.version,
    }
    with ThreadPoolExecutor(len(probes)) as pool:
        failures = zip(probes, pool.map(_failure, probes.values()), strict=True)
        return {subject: failure for subject, failure in failures if failure is not None}


def _failure(probe: Callable[[], object]) -> TowpathError | None:
    try:
        probe()
    except TowpathError as failure:
        return failure
    return None


def _deployment(inventory: Inventory) -> Iterator[Finding]:
    """Plan a deployment, and change nothing."""
    refused = list(_checked(_DEPLOY, preconditions.OF_CHANGE, inventory))
    yield from refused
    if refused:
        return
    try:
        deployment = Deployment(inventory)
        changes, differences = deployment.changes(), deployment.differences()
    except TowpathError as failure:
        yield refusal(_DEPLOY, failure)
        return
    for difference in differences:
        report = warning if difference.is_missing else error
        yield report(_DEPLOY, difference.description, difference.advice)
    if differences and not changes:
        return
    if not changes:
        yield ok(_DEPLOY, "nothing to change: everything matches the file")
    else:
        yield ok(_DEPLOY, f"would make {counted(len(changes), 'change')}; `towpath deploy --dry-run` lists them")


def require_ready(inventory: Inventory) -> None:
    """Raise `Refused` with the first error that `check` would find at the servers."""
    rules = [rule for _, rules in _SERVERS for rule in rules if rule.required]
    errors = [finding for rule in rules for finding in rule.check(inventory) if finding.level == "error"]
    if errors:
        first = errors[0]
        more = f" (the first of {len(errors)} errors, which `towpath check` lists)" if len(errors) > 1 else ""
        raise Refused(f"{first.subject}: {first.finding}{more}", first.advice)
