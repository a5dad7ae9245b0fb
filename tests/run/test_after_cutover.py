"""What `run`, `status`, page, metrics and `/readyz` say of a pipeline and of its reverse pipeline, around a cutover."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checks.test_check_judgements import PIPELINE
from tests.monitor.test_pages import text
from tests.run.test_screens import shown, status
from tests.run.test_unreadable import NoTopics
from tests.support.sessions import FakeCluster, session_of
from towpath.checks.rule import Finding
from towpath.cli import run as run_command
from towpath.cli.run import _await_deployed
from towpath.cli.status import exit_code
from towpath.clients.connect.rest import Connector, Task
from towpath.config.events import TimedEvent
from towpath.cutover import gate
from towpath.cutover.steps import CutoverOptions
from towpath.deploy.schema_changes import SchemaChanges
from towpath.errors import NoSuchConnector, TowpathError
from towpath.log.source_offsets import SourceState
from towpath.monitor.metrics import PIPELINE_STATES
from towpath.monitor.server import _Server
from towpath.run import status as gather
from towpath.run import supervisor as supervising
from towpath.run.children import Events
from towpath.run.report import Lag, Report
from towpath.run.status import left_stopped, state_of
from towpath.run.supervisor import Supervisor, described
from towpath.session import Session
from towpath.store import cutover as cutovers
from towpath.store import writers
from towpath.store.cutover import Cutover
from towpath.verify.verdict import Verification

SHOP = PIPELINE.changed(name="shop", mode="exactly-once")
BACK = SHOP.changed(name="shop-back")
SWITCHED = Cutover("destination primary", (), 1.0, switched_at=1_767_323_045.0)
ALONE = Cutover("destination primary", (), 1.0, has_reverse_pipeline=False)
LOST = Cutover("destination primary", (), 1.0, has_reverse_pipeline=False, is_takeover=True)
OPEN = Cutover("cutting over", ("blocking writes",), 1.0)
FAILING_BACK, RETURNED = Cutover("failing back", (), 1.0), Cutover("source primary", (), 1.0)


def connector(name: str, state: str) -> Connector:
    tasks = () if state in ("STOPPED", "MISSING") else (Task(0, state, "w"),)
    return Connector(name, "RUNNING" if state == "FAILED" else state, "w", tasks)


def both(source: str, sink: str) -> tuple[Connector, ...]:
    return connector("shop-source", source), connector("shop-sink", sink)


@pytest.mark.parametrize(
    ("cutover", "source", "sink", "state"),
    [
        (None, "RUNNING", "RUNNING", "running"),
        (None, "RUNNING", "STOPPED", "stopped"),
        (OPEN, "RUNNING", "STOPPED", "stopped"),
        (FAILING_BACK, "RUNNING", "STOPPED", "stopped"),
        (RETURNED, "RUNNING", "RUNNING", "running"),
        (SWITCHED, "RUNNING", "STOPPED", "destination primary"),
        (SWITCHED, "FAILED", "STOPPED", "failed"),
        (SWITCHED, "PAUSED", "STOPPED", "paused"),
        (SWITCHED, "STOPPED", "STOPPED", "stopped"),
        (SWITCHED, "MISSING", "STOPPED", "missing"),
        (SWITCHED, "UNASSIGNED", "STOPPED", "starting"),
        (SWITCHED, "RUNNING", "MISSING", "missing"),
        (SWITCHED, "RUNNING", "PAUSED", "paused"),
        (SWITCHED, "RUNNING", "RUNNING", "failed"),
        (LOST, "STOPPED", "STOPPED", "destination primary"),
        (LOST, "RUNNING", "STOPPED", "failed"),
    ],
)
def test_what_a_cutover_has_stopped_is_a_state_and_all_else_is_as_before(
    cutover: Cutover | None, source: str, sink: str, state: str
) -> None:
    assert state_of(both(source, sink), left_stopped(SHOP, cutover)) == state


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """The status of a pipeline whose servers say this."""

    def read(cutover: Cutover | None, connectors: tuple[Connector, ...], missing: str = "") -> Report:
        sink = gather._Sink({}, cutover=cutover, changes=SchemaChanges())
        monkeypatch.setattr(gather, "statuses", lambda *_: connectors)
        monkeypatch.setattr(gather._Gathering, "read_sink", lambda self: sink)
        monkeypatch.setattr(gather._Gathering, "sources", lambda self: {"shop-source": SourceState(None)})
        monkeypatch.setattr(gather._Gathering, "configs", lambda self: {})
        monkeypatch.setattr(gather._Gathering, "copies", lambda *_: ())
        monkeypatch.setattr(gather.bounds, "confirmed", lambda *_: ())
        monkeypatch.setattr(gather.dead_letters, "summarize", lambda *_: None)
        connect = SimpleNamespace(url="http://connect", config=lambda name: None if name == missing else {})
        return gather.read_status(session_of(SHOP, connect, NoTopics(), Path("shop.toml")))

    return read


def test_a_sink_that_runs_although_the_destination_is_primary_is_an_error(read: Callable[..., Report]) -> None:
    well = read(SWITCHED, both("RUNNING", "STOPPED"))
    assert (well.state, well.errors) == ("destination primary", ())
    for sink in ("RUNNING", "PAUSED"):
        (error,) = read(SWITCHED, both("RUNNING", sink)).errors
        assert error.what == f"shop-sink is {sink}, and must stay stopped: the destination is primary"
        assert error.advice.startswith("`towpath resume shop.toml` stops it")
    assert read(SWITCHED, both("RUNNING", "MISSING")).errors == (), "which the state says"
    (error,) = read(LOST, both("RUNNING", "STOPPED")).errors
    assert error.advice == "curl -X PUT http://connect/connectors/shop-source/stop"


def cut_over(**more: Any) -> Report:
    return status(**{"state": "destination primary", "cutover": SWITCHED, "file": "a/shop.toml"} | more)


PRIMARY = "the destination has been primary since 2026-01-02 03:04:05 UTC"


def test_after_a_cutover_the_reverse_pipeline_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"{PRIMARY}; `towpath cutover --back` fails back; watch a/shop-back.toml"
    assert described(cut_over()) == f"destination primary; cutover: {words}"
    said = " ".join(shown(capsys, state="destination primary", cutover=SWITCHED, file="a/shop.toml").split())
    assert f"shop: destination primary (plain) cutover {words}" in said
    assert "takeover" not in said and "would be lost" not in said
    assert "watch" not in described(cut_over(cutover=ALONE)) + described(cut_over(cutover=LOST))
    assert exit_code(cut_over()) == 1, "it does not run"


@pytest.mark.parametrize("missing", ["shop-back-source", "shop-back-sink"])
def test_a_reverse_pipeline_that_was_removed_is_no_way_back(read: Callable[..., Report], missing: str) -> None:
    found = read(SWITCHED, both("RUNNING", "STOPPED"), missing)
    deploy = "its reverse pipeline is not deployed: to be able to fail back, run towpath deploy shop-back.toml"
    assert described(found) == f"destination primary; cutover: {PRIMARY}; {deploy}"
    fields: dict[str, Any] = {"state": found.state, "cutover": SWITCHED, "raw": found.raw}
    head = text("head", **fields)
    assert "To be able to fail back: towpath deploy shop-back.toml" in head and "Watch" not in head
    assert "towpath cutover" not in text("cutover", **fields)
    away = cut_over(cutover=None, changes=None).after(found)
    assert deploy.rpartition(" ")[0] in described(away), "while the destination does not answer"
    for cutover in (ALONE, LOST, FAILING_BACK, RETURNED):
        assert "shop-back.toml" not in described(read(cutover, both("RUNNING", "STOPPED"), missing))


def test_the_page_names_it_and_nothing_is_red() -> None:
    fields: dict[str, Any] = {"state": "destination primary", "cutover": SWITCHED, "file": "a/shop.toml"}
    head = text("head", **fields)
    assert "The destination has been primary since 2026-01-02 03:04:05 UTC . Watch the reverse pipeline:" in head
    assert "towpath status a/shop-back.toml" in head and "resume" not in head
    assert "--back --dry-run" in text("cutover", **fields) and "--back" not in text("cutover")
    assert gate.known(session_of(SHOP), CutoverOptions(), cut_over(), Verification()) == []
    known: list[Finding] = gate.known(session_of(SHOP), CutoverOptions(), status(), Verification())
    assert "connectors" in {finding.subject for finding in known}


def test_the_screen_of_run_is_red_only_for_what_is_wrong() -> None:
    for state, style in (("running", ""), ("destination primary", ""), ("stopped", "red"), ("failed", "red")):
        supervisor = SimpleNamespace(
            session=session_of(SHOP),
            since=time.monotonic(),
            status=cut_over(state=state),
            unreachable="",
            restarts={},
            remedies={},
        )
        assert next(run_command.rows(supervisor))[2] == style  # type: ignore[arg-type]


def test_the_state_is_one_of_those_of_the_metrics() -> None:
    assert cut_over().state in PIPELINE_STATES


@pytest.mark.parametrize(
    ("state", "lag", "is_ready"),
    [
        ("running", Lag(0, 1.0, 1.0), True),
        ("running", Lag(0, 1.0, 90.0), False),
        ("destination primary", Lag(9, 1.0, 90_000.0), True),
        ("destination primary", Lag(9, 90.0, 90_000.0), False),
        ("destination primary", Lag(9, None, 90_000.0), False),
        ("paused", Lag(0, 1.0, 1.0), False),
        ("failed", Lag(0, 1.0, 1.0), False),
    ],
)
def test_a_pipeline_is_ready_after_a_cutover_while_its_capture_keeps_up(state: str, lag: Lag, is_ready: bool) -> None:
    found = SimpleNamespace(report=cut_over(state=state, lag=lag, at=time.time()))
    assert _Server._is_ready(SimpleNamespace(ready_lag=60), found) is is_ready  # type: ignore[arg-type]


def test_a_capture_that_is_paused_after_a_cutover_can_be_resumed() -> None:
    paused = cut_over(state="paused")
    assert described(paused).startswith(f"paused on request; to continue: towpath resume; cutover: {PRIMARY}")
    assert "towpath resume a/shop.toml" in text("head", state="paused", cutover=SWITCHED, file="a/shop.toml")
    assert "resume" not in described(cut_over(state="paused", cutover=LOST))


@pytest.mark.parametrize(
    ("cutover", "state", "able"),
    [
        (None, "running", ("compact", "verify")),
        (SWITCHED, "destination primary", ("compact",)),
        (LOST, "destination primary", ()),
        (None, "paused", ()),
    ],
)
def test_after_a_cutover_the_log_is_compacted_on_and_not_verified(
    monkeypatch: pytest.MonkeyPatch, cutover: Cutover | None, state: str, able: tuple[str, ...]
) -> None:
    """The capture continues it, and without `compact` the log's cleaner would remove what it needs."""
    supervisor, asked = Supervisor(session_of(SHOP), Events(lambda event: None), lambda *_: []), list[Any]()
    found = cut_over(cutover=cutover, state=state)
    monkeypatch.setattr(supervising, "read_status", lambda session: found)
    monkeypatch.setattr(Supervisor, "_end_transactions", lambda self: None)
    monkeypatch.setattr(Supervisor, "_report_status", lambda self, status: None)
    monkeypatch.setattr(Supervisor, "_check_warnings", lambda self: None)
    monkeypatch.setattr(Supervisor, "_repair", lambda self: None)
    monkeypatch.setattr(supervising.Services, "turn", lambda self, now, able: asked.append(able))
    supervisor.turn()
    assert asked == [able]


# the reverse pipeline


class Markers:
    """What the source of the reverse pipeline knows: the destination of the pipeline."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.marker: Cutover | None = None
        self.registered: dict[str, Any] = {"shop": SimpleNamespace(removed=False)}
        patch.setattr(cutovers, "_read", self._read)
        patch.setattr(writers, "read_all", lambda client: self.registered)

    def _read(self, client: object, name: str) -> Cutover | None:
        assert (client, name) in (("source", "shop"), ("destination", "shop-back"), ("destination", "shop"))
        return self.marker if (client, name) == ("source", "shop") else None


@pytest.fixture
def markers(monkeypatch: pytest.MonkeyPatch) -> Markers:
    return Markers(monkeypatch)


def back() -> Session:
    return session_of(BACK, file=Path("shop-back.toml"))


def test_a_reverse_pipeline_that_a_fail_back_has_stopped_says_so(markers: Markers) -> None:
    markers.marker = FAILING_BACK
    words = cutovers.why_idle(back())
    assert words.startswith("the reverse pipeline of shop, which is needed after its cutover; shop: under way")
    markers.marker = RETURNED
    assert "shop: the source is primary again; `towpath cutover --back` completes" in cutovers.why_idle(back())
    markers.marker = LOST
    assert "shop: the destination took over" in cutovers.why_idle(back())
    markers.marker = None
    next_one = "the reverse pipeline of shop, whose source is primary: the next cutover of shop creates it"
    assert cutovers.why_idle(back()) == next_one


def test_a_reverse_pipeline_that_should_run_and_an_ordinary_one_do_not(markers: Markers) -> None:
    markers.marker = SWITCHED
    assert cutovers.why_idle(back()) == "", "it should replicate"
    markers.marker = None
    for registered in ({}, {"shop": SimpleNamespace(removed=True)}):  # it was made an ordinary pipeline
        markers.registered = registered
        assert cutovers.why_idle(back()) == ""
    markers.marker = FAILING_BACK
    assert cutovers.why_idle(session_of(SHOP)) == ""


@pytest.mark.parametrize("state", ["stopped", "paused", "missing"])
def test_nothing_advises_to_start_what_a_fail_back_has_stopped(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    idle = "the reverse pipeline of shop, which …"
    found = status(state=state, idle=idle)
    assert described(found) == f"{state}; cutover: {idle}"
    assert idle in shown(capsys, state=state, idle=idle)
    head = text("head", state=state, raw=found.raw)
    assert f"It is {idle}." in head and "resume" not in head and "towpath deploy" not in head


def test_run_of_a_reverse_pipeline_that_is_removed_does_not_advise_to_deploy_it(
    markers: Markers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise NoSuchConnector("there is no connector shop-back-source.")

    monkeypatch.setattr(Session, "require_deployed", missing)
    told = list[TimedEvent]()
    for marker, advised in ((None, False), (SWITCHED, True)):
        markers.marker = marker
        with pytest.raises(TowpathError) as error:
            _await_deployed(back(), Events(told.append), lambda: None, deploys=False)
        assert ("towpath deploy" in str(error.value)) is advised
        assert ("whose source is primary" in str(error.value)) is not advised


@pytest.mark.parametrize(
    ("registered", "copy", "words"),
    [
        ({}, "none", "shop-back is not deployed, and makes no initial copy"),
        ({"shop-back": SimpleNamespace(removed=True)}, "none", "shop-back is not deployed, and makes no initial copy"),
        ({"shop-back": SimpleNamespace(removed=False)}, "none", ""),
        ({}, "towpath", ""),
    ],
)
def test_a_reverse_pipeline_that_is_not_deployed_is_no_copy(
    markers: Markers, registered: dict[str, Any], copy: str, words: str
) -> None:
    """Its destination may be the primary: no command is to make it equal to a source with a relaxed schema."""
    markers.registered = registered
    pipeline = BACK.changed(capture={"copy_method": copy})
    destination = FakeCluster("destination", side="destination")
    assert cutovers.no_copy(session_of(pipeline, destination=destination)) == words


def test_after_a_cutover_the_destination_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    for marker, words in ((None, ""), (SWITCHED, "the cutover of shop is under way or done"), (RETURNED, "")):
        monkeypatch.setattr(cutovers, "_read", lambda client, name, marker=marker: marker)
        assert cutovers.no_copy(session_of(SHOP)) == words
