"""Every rule of the gate: green when all is well, and red, alone and with what to do, for each of its reasons."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pymongo.errors import OperationFailure

from tests.run.test_screens import status
from tests.support.cutover_world import OPTIONS, pipeline_of
from tests.support.sessions import session_of
from towpath.checks import facts
from towpath.checks.rule import Finding, run
from towpath.clients.connect.rest import Connector, Task
from towpath.clients.mongo.client import ClusterTime
from towpath.clients.mongo.privileges import Privileges
from towpath.clients.mongo.replica_set import Collection, ReplicaSet
from towpath.cutover import gate
from towpath.cutover.gate import GATE, PRECONDITIONS, Readiness, red
from towpath.deploy.schema import Listing, Metadata, Plan, Step
from towpath.deploy.schema_changes import SchemaChanges
from towpath.errors import MongoError, MongoUnreachable, Refused
from towpath.log.bounds import Break
from towpath.log.source_offsets import SourceState
from towpath.run.report import Copied, Copy, Lag, Problem, Waiting
from towpath.session import Session
from towpath.store.cutover import Conversion
from towpath.verify.verdict import Verdict, Verification
from towpath_verifier import Command, Described, Schemas

RUNNING = Connector("shop-source", "RUNNING", "w", (Task(0, "RUNNING", "w", ""),))
STOPPED = Connector("shop-sink", "STOPPED", "w", ())
FAILED = Connector("shop-source", "FAILED", "w", (Task(0, "FAILED", "w", "java.lang.Exception: boom"),), "boom")
#: May do nothing.
STRANGER = Privileges("me@admin", ())
#: May change schemas.
OWNER = Privileges("me@admin", ({"resource": {"db": "", "collection": ""}, "actions": ["collMod"]},))
ORDERS = Collection("shop.orders", "collection", {}, "01")
SWITCH = ClusterTime(1_800_000_000, 3)
BUILT = Described("collection", {}, {"n": {"key": {"n": 1}, "building": True}})


def verdict(**changed: Any) -> Verdict:
    at = (datetime.now(UTC) - timedelta(seconds=changed.pop("age", 1))).isoformat()
    same = {"id": "1", "at": at, "since": at, "verdict": "same", "clean": True, "compared": 7, "of": "everything"}
    counts = dict.fromkeys(("missing", "extra", "different", "order", "metadata", "seconds"), 0)
    return Verdict.read(same | counts | changed)


def refused(documents: int) -> Any:
    return SimpleNamespace(read=lambda now: (), remaining=documents, words=f"{documents} documents")


@dataclass
class Case:
    """What the rules look at; by default all is well."""

    folder: Path
    patch: pytest.MonkeyPatch
    options: Any = field(default_factory=lambda: replace(OPTIONS, stop_with="true"))
    returns: bool = False
    report: Path | None = None
    status: Any = field(default_factory=lambda: status())
    verdict: Verification = field(default_factory=lambda: Verification(verdict(), verdict()))
    more: str = ""
    """Of the pipeline file."""
    capture: Connector = RUNNING
    sink: Connector = STOPPED
    start: ClusterTime | None = SWITCH
    """Where the capture of the reverse pipeline began."""
    switch: ClusterTime = SWITCH
    """By when it had begun, as the marker says."""
    first: int = 0
    """Where the log of the reverse pipeline begins."""
    breaks: tuple[Break, ...] = ()
    """Of the pipeline's log, after what its sink had applied at the switch."""
    history: str | None = ""
    """Of the documents that the reverse pipeline writes; None if it is not known."""

    def fake(self, name: str, value: Any, of: Any = gate) -> None:
        self.patch.setattr(of, name, value)

    def well(self) -> None:
        self.report = self.folder / "report.html"
        self.fake("DeadLetterRetries", lambda session: refused(0))
        self.fake("unresolved", lambda *_, **__: (), gate.unreplicated)
        self.fake("read", lambda session: Listing(session.pipeline, {"shop.orders": ORDERS}, {}), Listing)
        self.fake("schemas", lambda session, pairs: Schemas((), {}, {}, (6, 0)), gate.schema)
        self.fake("compared", lambda _: Metadata((), ()))
        self.fake("pending", lambda session: (), gate.conversions)
        self.fake("problem", lambda client, granted: "", gate.write_block)
        self.fake("writes_through", lambda granted: True, gate.write_block)
        self.fake("findings", lambda facts: [Finding("warning", "kafka", "one broker")], gate.deployment)
        self.fake("refuse_existing", lambda reverse: None, gate.reverse_pipeline)
        self.fake("refuse_unmovable", lambda session: None, gate.reverse_pipeline)
        self.fake("running", lambda client, pipeline: None, gate.rebuild)
        self.fake("source_set", lambda client: ReplicaSet("rs", ("a:1",)))
        self.fake("destination_set", lambda client, transactions: ReplicaSet("rs", ("a:1",)))
        self.fake("privileges", lambda client: None)
        self.fake("watch", lambda *_, **__: nullcontext())
        self.fake("cluster_time", lambda client: None)
        for name in ("planned", "plan_in_place"):
            self.fake(name, lambda *_, **__: Plan(collections=(step("shop.orders", "collMod"),)))
        self.fake("round_trip", lambda client: 0.001)
        self.fake("_documents", lambda client, namespace: 1_000_000)
        self.fake("pipeline_ends", lambda pipeline, topics: {("shop-back.shop.orders", 0): (self.first, 9)})
        self.fake("suspected", lambda session: self.breaks, gate.bounds)
        self.fake("read_state", lambda connect, name: SourceState(None, start=self.start))
        self.fake("statuses", lambda connect, names: [self.sink if "shop-sink" in names else self.capture])

    def session(self, name: str) -> Session:
        pipeline = pipeline_of(self.folder, name, more=self.more)
        return session_of(pipeline, file=self.folder / f"{name}.toml")

    def checks(self) -> list[Any]:
        readiness = Readiness(
            self.session("shop"), self.session("shop-back"), self.options, self.report, self.returns, True, self.switch
        )
        origin = None if self.history is None else SimpleNamespace(history=self.history)
        context = SimpleNamespace(origin=origin, unknown="Kafka does not answer")
        readiness.__dict__.update(status=self.status, verdict=self.verdict, context=context)
        return run((*GATE, *PRECONDITIONS), readiness)


def step(namespace: str, command: str) -> Step:
    return Step(namespace, cast(Any, SimpleNamespace(body={command: "orders"}, text="")))


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def change(**fields: Any) -> Callable[[Case], None]:
    def apply(case: Case) -> None:
        for name, value in fields.items():
            setattr(case, name, value)

    return apply


def verified(age: int) -> Callable[[Case], None]:
    """So many seconds before the test, not before its file was read."""
    return lambda case: setattr(case, "verdict", Verification(verdict(age=age), verdict(age=age)))


def fake(name: str, value: Any, of: Any = gate, **fields: Any) -> Callable[[Case], None]:
    def apply(case: Case) -> None:
        case.fake(name, value, of)
        change(**fields)(case)

    return apply


def options(**changed: Any) -> Callable[[Case], None]:
    return lambda case: setattr(case, "options", replace(case.options, **changed))


def no_one(case: Case) -> None:
    case.options = replace(case.options, stop_with=None, blocks=False)
    case.patch.setattr(sys, "stdin", Path("/dev/null").open(encoding="utf-8"))  # noqa: SIM115


def stranger(case: Case) -> None:
    """Without --block-writes, the rights to change schemas are all that is missing."""
    case.fake("privileges", lambda client: STRANGER)


def no_bypass(side: str, **fields: Any) -> Callable[[Case], None]:
    def apply(case: Case) -> None:
        case.fake("privileges", lambda client: None if client == side else OWNER)
        case.fake("writes_through", lambda granted: granted is not None, gate.write_block)
        change(**fields)(case)

    return apply


def in_folder(case: Case) -> None:
    case.report = case.folder / "nowhere" / "report.html"


def read_only(folder: str) -> Callable[[Case], None]:
    """As a ConfigMap or a Secret of Kubernetes is mounted."""

    def apply(case: Case) -> None:
        place = case.folder / folder
        place.mkdir(exist_ok=True)
        case.fake("access", lambda path, mode: path != place, os)
        case.fake("secrets", property(lambda facts: "another"), facts.Facts)
        case.more = f'secrets = "{case.folder / "secrets"}"'
        case.report = None

    return apply


DIFFERENT = SimpleNamespace(pair=SimpleNamespace(source="shop.orders"), what="the index more is missing")
#: Rule → what makes it red, and a part of what was found.
RED: list[tuple[str, Callable[[Case], None], str]] = [
    ("operator", change(more='owner = "strimzi"'), "Strimzi's operator, which owns them"),
    ("connectors", change(status="cannot reach Kafka Connect"), "cannot reach Kafka Connect"),
    ("connectors", change(status=status(state="paused")), "paused"),
    ("connectors", change(status=status(state="failed", connectors=(FAILED,))), "failed; shop-source: boom"),
    ("connectors", change(status=status(errors=(Problem("no destination"),))), "running; no destination"),
    ("copy", change(status=status(copy=Copy(False, (Copied("a.b", 1, 2, 0, 0, 1, 0),), ()))), "1 collection"),
    ("lag", change(status=status(lag=Lag(9, 0.0, 10.5))), "10.5 s, 9 records (limit 10 s)"),
    ("lag", change(status=status(lag=Lag(0, 11.0, 0.0))), "(limit 10 s)"),
    ("lag", change(status=status(lag=Lag())), "unknown"),
    ("rebuild", fake("running", lambda *of: "a plan", gate.rebuild), "shop is being rebuilt"),
    (
        "re-read requests",
        change(status=status(requests_waiting=(Waiting("shop-source", 4, ""),))),
        "4 requests waiting",
    ),
    (
        "dead letters",
        fake("DeadLetterRetries", lambda session: refused(2)),
        "2 documents that the destination refused",
    ),
    ("schema changes", change(status=status(changes=None)), "schema changes in the log are unknown"),
    (
        "schema changes",
        change(status=status(changes=SchemaChanges((cast(Any, SimpleNamespace(line=lambda file: "drop waits")),)))),
        "drop waits",
    ),
    (
        "schema changes",
        fake("unresolved", lambda *_, **__: (SimpleNamespace(line="renamed at the source"),), gate.unreplicated),
        "renamed at the source",
    ),
    ("verified", change(verdict=Verification()), "never"),
    ("verified", change(verdict=Verification(doubt="it was rebuilt since")), "it was rebuilt since"),
    ("verified", verified(age=7200), "2.0 h ago (limit 10 s)"),
    ("verified", verified(age=-7200), "in the future"),
    (
        "verified",
        lambda case: setattr(case, "verdict", Verification(verdict(age=0), verdict(age=0), lag=93_600.0)),
        "; the destination was 26.0 h behind when it began (limit 10 s)",
    ),
    (
        "verified",
        lambda case: setattr(case, "verdict", Verification(verdict(age=0), verdict(age=0), lag=5.0, clock=600.0)),
        "; the destination was 5 s behind when it began; the clock of its machine was 10 min ahead",
    ),
    ("verified", change(verdict=Verification(verdict(clean=False), verdict(clean=False))), "same: 7 documents"),
    (
        "verified",
        change(verdict=Verification(verdict(verdict="different"), verdict(verdict="different"))),
        "different: 7 documents",
    ),
    ("verified", change(verdict=Verification(verdict(id="2", missing=3), verdict())), "3 differences found since"),
    (
        "verified",
        change(start=ClusterTime(1_800_000_000, 4), returns=True, verdict=Verification()),
        "shop-back-source captures since 2027-01-15 08:00:00 UTC, not since the switch; never",
    ),
    ("verified", change(start=None, returns=True, verdict=Verification()), "shop-back-source captures nothing yet"),
    (
        "verified",
        change(history="2027-01-16, when collections were excluded", returns=True, verdict=Verification()),
        "the source may lack changes since 2027-01-16, when collections were excluded; never",
    ),
    ("verified", change(history=None, returns=True, verdict=Verification()), "Kafka does not answer; never"),
    ("metadata", fake("compared", lambda _: Metadata([DIFFERENT] * 5, ())), "the index more is missing; and 2 more"),
    ("metadata", fake("compared", raising(MongoUnreachable("the source is away"))), "the source is away"),
    (
        "metadata",
        fake("planned", lambda *_, **__: Plan(collections=(step("shop.ring", "convertToCapped"),))),
        "shop.ring would become capped, which copies it and cannot be undone",
    ),
    ("write block", fake("problem", lambda *_: "it is MongoDB 5.0", gate.write_block), "it is MongoDB 5.0"),
    (
        "reverse pipeline",
        fake(
            "findings", lambda facts: [Finding("error", "source", "may not insert", "grant readWrite")], gate.deployment
        ),
        "source of shop-back: may not insert",
    ),
    (
        "reverse pipeline",
        fake("refuse_existing", raising(Refused("there is one already", "remove it")), gate.reverse_pipeline),
        "there is one already",
    ),
    ("reverse pipeline", read_only(""), "shop-back.toml cannot be written"),
    ("reverse pipeline", read_only("secrets"), "shop-back.properties cannot be written"),
    ("commands", options(stop_with="/nowhere/stop"), "--stop-with: /nowhere/stop does not exist"),
    ("commands", options(switch_with="if true"), "--switch-with: 'if true' is not a valid command"),
    ("commands", no_one, "no one could confirm that the writes have stopped: standard input is /dev/null"),
    ("own writes", no_bypass("destination"), "Towpath has to write there, and no user may without access control"),
    ("own writes", no_bypass("source", returns=True), "while writes to the source are blocked"),
    ("late writes", fake("watch", raising(OperationFailure("not authorized", 13))), "not authorized"),
    (
        "index builds",
        fake("schemas", lambda session, pairs: Schemas((), {}, {"shop.orders": BUILT}, (6, 0)), gate.schema),
        "n of shop.orders at the destination",
    ),
    ("schema privileges", stranger, "me@admin misses collMod on shop.orders at the destination"),
    ("pause", fake("round_trip", raising(MongoUnreachable("no answer"))), "no answer"),
    (
        "capture",
        change(capture=FAILED, returns=True),
        "shop-source is FAILED: boom",
    ),
    ("capture", change(capture=replace(RUNNING, state="PAUSED"), returns=True), "shop-source is PAUSED"),
    ("sink", change(sink=replace(STOPPED, state="PAUSED"), returns=True), "shop-sink is PAUSED, not STOPPED"),
    (
        "sink",
        fake("refuse_unmovable", raising(Refused("shop-sink is RUNNING")), gate.reverse_pipeline, returns=True),
        "shop-sink is RUNNING",
    ),
    ("report", in_folder, "report.html cannot be written"),
]


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    case = Case(tmp_path, monkeypatch)
    case.well()
    return case


def test_the_table_has_every_rule() -> None:
    assert {name for name, _, _ in RED} == {rule.name for rule in (*GATE, *PRECONDITIONS)}


@pytest.mark.parametrize("returns", [False, True])
def test_all_is_green_when_all_is_well(case: Case, returns: bool) -> None:
    case.returns = returns
    checks = case.checks()
    assert red(checks) == []
    only = {"capture", "sink"} if returns else {"verified", "reverse pipeline"}
    absent = {"verified", "reverse pipeline"} if returns else {"capture", "sink"}
    names = {check.subject for check in checks}
    assert only <= names and not absent & names and all(check.finding for check in checks)


def test_a_reverse_pipeline_that_began_again_since_the_switch_fails_back_once_all_is_verified(case: Case) -> None:
    case.returns, case.start = True, ClusterTime(1_800_000_001, 0)
    (line,) = (check for check in case.checks() if check.subject == "verified")
    assert line.level == "ok" and "not since the switch; same: 7 documents" in line.finding


def test_what_the_reverse_pipeline_has_left_out_for_a_while_fails_back_once_all_is_verified(case: Case) -> None:
    """Its verdict of before does not count: see `towpath.store.verdict.begin_history`."""
    case.returns, case.history = True, "2027-01-16, when collections were included or excluded without a copy"
    (line,) = (check for check in case.checks() if check.subject == "verified")
    assert line.level == "ok" and "without a copy; same: 7 documents" in line.finding


@pytest.mark.parametrize(
    ("log", "days", "age", "is_needed", "is_green"),
    [
        ('retention = "3d"', 2, 0, False, True),
        ('retention = "3d"', 4, 7000, True, True),
        ('retention = "1h"', 4, 7000, True, False),
        ("compact = true", 7, 0, False, True),
        ("compact = true", 9, 7000, True, True),
        ('retention = "forever"', 900, 0, False, True),
    ],
)
def test_a_fail_back_needs_a_verdict_for_what_the_logs_no_longer_name(
    case: Case, log: str, days: float, age: int, is_needed: bool, is_green: bool
) -> None:
    """What something else wrote to the source since the switch is found in the log, or by a verification."""
    case.returns, case.more = True, f"[log]\n{log}"
    case.options = replace(case.options, max_age=7200)
    case.start = case.switch = ClusterTime(int(time.time() - days * 86400), 0)
    case.verdict = Verification(verdict(age=age), verdict(age=age))
    lines = [line for line in case.checks() if line.subject == "verified"]
    assert (bool(lines), not red(lines)) == (is_needed, is_green)
    assert all("the logs name all changes for" in line.finding for line in lines)
    assert all(line.advice == f"towpath verify {case.folder / 'shop-back.toml'}" for line in red(lines))


def test_where_a_verification_takes_longer_than_the_logs_are_kept_a_fail_back_says_what_helps(case: Case) -> None:
    """Each verdict would be too old at its end."""
    case.returns, case.more = True, '[log]\nretention = "1h"'
    case.start = case.switch = ClusterTime(int(time.time() - 4 * 86400), 0)
    case.verdict = Verification(verdict(age=4000), verdict(age=4000, seconds=3700.0))
    (line,) = red(case.checks())
    files = " and ".join(str(case.folder / name) for name in ("shop.toml", "shop-back.toml"))
    assert line.subject == "verified" and line.advice.startswith(f"set a longer [log] retention in {files}, and deploy")


LOST = Break("TWP-LOG-GAP", "shop.shop.orders", 0, 5, 7, 9, None)


@pytest.mark.parametrize(
    ("first", "breaks", "words"),
    [
        (7, (), "shop-back.shop.orders, partition 0, begins at offset 7"),
        (0, (LOST,), "TWP-LOG-GAP: shop.shop.orders, partition 0"),
    ],
)
@pytest.mark.parametrize("is_verified", [True, False])
def test_a_fail_back_needs_a_verdict_for_what_a_log_has_lost_whatever_its_settings_say(
    case: Case, first: int, breaks: tuple[Break, ...], words: str, is_verified: bool
) -> None:
    """The topics may have other settings, such as retention.bytes, or had others since the switch."""
    case.returns, case.first, case.breaks = True, first, breaks
    if not is_verified:
        case.verdict = Verification()
    (line,) = (check for check in case.checks() if check.subject == "verified")
    assert words in line.finding and (line.level == "ok") is is_verified


@pytest.mark.parametrize(("name", "breaks", "found"), RED, ids=[f"{name}: {found}" for name, _, found in RED])
def test_each_rule_is_red(case: Case, name: str, breaks: Callable[[Case], None], found: str) -> None:
    breaks(case)
    failed = red(case.checks())
    assert [check.subject for check in failed] == [name], failed
    assert found in failed[0].finding


def test_a_source_that_is_another_replica_set_does_not_block_the_pipeline_s_marker(case: Case) -> None:
    """In a fail back Towpath writes to a blocked source only where both sides are one replica set."""
    no_bypass("source", returns=True)(case)
    assert [line.subject for line in red(case.checks())] == ["own writes"]
    case.fake("destination_set", lambda client, **_: ReplicaSet.parse("other/destination:27017"))
    assert red(case.checks()) == []


def test_what_the_cutover_has_left_is_named_and_not_made_the_source_s(case: Case) -> None:
    """Before MongoDB 6.0: not unique at the primary yet, while the old source's index is."""
    left = Conversion("shop.orders", ("more",), enforced=False)
    case.fake("compared", lambda _: Metadata([DIFFERENT], ()))
    case.fake("pending", lambda session: [left] if session.pipeline.name == "shop" else [], gate.conversions)
    case.returns = True
    (line,) = red(case.checks())
    assert line.finding == "the index more of shop.orders is not rebuilt yet; shop.orders: the index more is missing"
    assert line.advice == f"towpath prepare {case.folder / 'shop.toml'}"


def test_no_fail_back_begins_while_a_ttl_is_not_restored(case: Case) -> None:
    """The schemas are the same: neither side has one."""
    left = Conversion("shop.orders", ("n",), enforced=False, expires=True)
    case.fake("pending", lambda session: [left] if session.pipeline.name == "shop" else [], gate.conversions)
    assert red(case.checks()) == []
    case.returns = True
    (line,) = red(case.checks())
    assert (line.subject, line.finding) == ("metadata", left.description)
    assert line.advice == f"towpath prepare {case.folder / 'shop.toml'}"


RESTORE_TTL = [
    Step("shop.orders", Command("shop", {"collMod": "orders", "index": {"name": "n", "expireAfterSeconds": 60}}))
]
CONVERT = [Step("shop.orders", Command("shop", {"collMod": "orders", "index": {"name": "n", "unique": True}}))]
REBUILD = [
    Step("shop.orders", Command("shop", {"dropIndexes": "orders", "index": "n"})),
    Step("shop.orders", Command("shop", {"createIndexes": "orders", "indexes": [{"name": "n"}, {"name": "m"}]})),
]


@pytest.mark.parametrize(
    ("steps", "changed", "level", "found"),
    [
        ([], {}, "ok", "about 2.5 s (limit 9 s)"),
        (RESTORE_TTL * 10_000, {}, "ok", "about 2.5 s (limit 9 s)"),
        (CONVERT * 3, {}, "ok", "after it, indexes with 3,000,000 entries (3) become unique, about 1 s"),
        (REBUILD, {"max_pause": 5}, "warning", "in it, indexes with 2,000,000 entries (2) are rebuilt"),
        (REBUILD, {"max_pause": 60}, "ok", "after it with --rebuild-later"),
        (REBUILD, {"rebuilds_later": True}, "ok", "(2) become unique, about 1 s, and accept duplicates until then"),
        ([step("shop.orders", "collMod")] * 10_000, {}, "warning", "about 42.5 s"),
    ],
)
def test_the_pause_is_estimated(case: Case, steps: list[Step], changed: dict[str, Any], level: str, found: str) -> None:
    options(**changed)(case)
    change(status=status(lag=Lag(0, 1.0, 0.0)))(case)
    case.fake("planned", lambda *_, **__: Plan(collections=tuple(steps)))
    case.fake("plan_in_place", lambda *_, **__: Plan())
    (line,) = [line for line in case.checks() if line.subject == "pause"]
    assert line.level == level and found in line.finding and (level == "ok" or "--max-pause" in line.advice), line


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (
            status(lag=Lag(0, 1.0, 0.0), records_per_second=1234.4),
            "; with the present lag, .* now 1,234 records/s$",
        ),
        (status(lag=Lag(), records_per_second=0.0), "; without the lag, which is unknown, .* now 0 records/s$"),
        ("cannot reach Kafka Connect", "; without the lag, which is unknown, without the stop .* last changes$"),
    ],
)
def test_the_estimate_of_the_pause_says_what_it_includes(case: Case, known: Any, found: str) -> None:
    change(status=known)(case)
    (line,) = [line for line in case.checks() if line.subject == "pause"]
    assert re.search(found, line.finding), line.finding


@pytest.mark.parametrize(("returns", "side"), [(False, "source"), (True, "destination")])
def test_the_old_primary_needs_privileges_too(case: Case, returns: bool, side: str) -> None:
    """There TTL and validators are stopped, in a fail back as well."""
    forward, back = case.session("shop"), case.session("shop-back")
    back = replace(back, source=forward.destination, destination=forward.source)
    case.fake("privileges", lambda client: STRANGER if client == side else None)
    readiness = Readiness(forward, back, case.options, returns=returns)
    found = gate.schemas(readiness)
    assert found[:2] == (False, f"me@admin misses collMod on shop.orders at the {side}")


@pytest.mark.parametrize(("returns", "side"), [(False, "destination"), (True, "source")])
def test_a_privilege_that_the_other_direction_lacks_is_named(case: Case, returns: bool, side: str) -> None:
    """Its plan lists all collections of the new primary, which a user without the grants for a fail back may not."""
    forward, back = case.session("shop"), case.session("shop-back")
    back = replace(back, source=forward.destination, destination=forward.source)
    case.fake("plan_in_place", raising(MongoError("not authorized on towpath", "grant it the missing role")))
    case.fake("privileges", lambda client: STRANGER if client == side else None, facts)
    readiness = Readiness(forward, back, case.options, returns=returns)
    readiness.__dict__.update(status=case.status)
    lines = run([rule for rule in PRECONDITIONS if rule.name in ("schema privileges", "pause")], readiness)
    assert {line.level for line in lines} == {"error"} and len(lines) == 2
    for line in lines:
        assert line.finding.startswith(f"at the {side}, the user me@admin may not find, changeStream, listCollections")
        assert 'grantRolesToUser("me", [{role: "readAnyDatabase", db: "admin"}])' in line.advice


def test_topics_of_the_reverse_pipeline_that_someone_else_creates_are_printed_by_the_pipeline_s_file(
    case: Case,
) -> None:
    """Its own file does not exist yet."""
    missing = partial(Finding, "error", "kafka", "5 topics missing")
    case.fake("findings", lambda asked: [missing(asked.topics_command)], gate.deployment)
    (line,) = red(case.checks())
    assert (line.subject, line.finding) == ("reverse pipeline", "kafka of shop-back: 5 topics missing")
    assert line.advice == f"towpath topics {case.folder / 'shop.toml'} --reverse; or --no-reverse-pipeline"


def test_rules_that_do_not_apply_are_left_out(case: Case) -> None:
    case.options = replace(case.options, blocks=False)
    case.report = None
    names = {check.subject for check in case.checks()}
    assert not {"operator", "write block", "own writes", "report"} & names
    case.status = "cannot reach Kafka Connect"
    assert not {"copy", "lag", "re-read requests", "dead letters", "schema changes"} & {
        check.subject for check in case.checks()
    }
