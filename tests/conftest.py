"""What tests on the embedded stack share: one stack a session, one pipeline a test, a seed that can be given."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from hypothesis import settings
from pymongo import MongoClient

from tests.support import control, health, raw, skips
from tests.support.clock import Clock
from tests.support.complaints import complaints
from tests.support.guard import guarded
from tests.support.pipeline import Addresses, Pipeline, Settings
from towpath import stack as embedded
from towpath.stack import processes

MakePipeline = Callable[[Settings], Pipeline]
#: Servers look for expired documents every second; what is set later counts after the minute that they sleep.
_OFTEN = {"ttlMonitorSleepSecs": "1"}
STACK = pytest.StashKey[embedded.Stack]()
_BEFORE = pytest.StashKey[health.Before]()
_FAILED = pytest.StashKey[bool]()

# A shell's `&` has SIGINT ignored, and nohup SIGHUP; whatever tests start and interrupt would inherit that.
for ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL)

# A JVM of a test lives for a minute or two: what its second compiler would save, it does not earn back.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# Processes of pytest start their servers at the same time, so each chooses ports from a separate part.
_part, _parts = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")), 8
processes.PORTS = processes.PORTS[_part % _parts :: _parts]

# Hypothesis makes few examples and always the same ones; with HYPOTHESIS_PROFILE=nightly, many random ones. A failure
# shows the example, and a line to repeat it (`@reproduce_failure`, or `--hypothesis-seed` for random ones).
settings.register_profile("fast", derandomize=True, max_examples=60, deadline=None, database=None, print_blob=True)
settings.register_profile("nightly", max_examples=2_000, deadline=None, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session", autouse=True)
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that tests have started outlives the run, even if that is killed."""
    with guarded(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What commands keep on this machine does not outlive the run."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="also run what is left to the night, in full sizes")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The few serial tests are chosen without importing the files of all others, which takes ten seconds."""
    if config.getoption("markexpr") != "serial" or not collection_path.name.startswith("test_"):
        return None
    return (collection_path.is_file() and "mark.serial" not in collection_path.read_text(encoding="utf-8")) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Each process of pytest imports a part of the files first, so that in a fresh checkout not each compiles all."""
    tests, workers = Path(__file__).parent, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        for file in sorted(tests.glob("*/**/test_*.py"))[_part::workers]:
            with suppress(Exception):  # pytest imports it again, and reports what is wrong with it
                import_module(".".join(file.relative_to(tests.parent).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--nightly"):
        left_out = [item for item in items if item.get_closest_marker("nightly")]
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left_out)
    # Long files first and short ones last, so that at the end no process waits long for another.
    items.sort(key=_turn)


@pytest.fixture(scope="session")
def nightly(pytestconfig: pytest.Config) -> bool:
    """Whether a test is to run in its full size."""
    return bool(pytestconfig.getoption("--nightly"))


#: Files that take more than twenty seconds, the longest first.
_LONG = (
    *("capture/test_java.py", "deploy/test_trust.py", "servers/test_pairs.py", "prometheus/test_prometheus.py"),
    *("splices/test_splices.py", "sink/test_exactly_once.py", "capture/test_modes.py", "cli/test_wheel.py"),
    *("capture/test_natural_order.py", "history/test_resnapshot.py", "manifests/test_operator.py"),
    *("capture/test_copy_tasks.py", "capture/test_types.py", "deploy/test_schema_changes.py", "sink/test_log_gap.py"),
    *("capture/test_changes.py", "history/test_replay.py", "deploy/test_preconditions.py", "cli/test_messages.py"),
    *("history/test_compaction.py", "deploy/test_deploy.py", "cutover/test_cutover.py", "stack/test_stack.py"),
    *("capture/test_requirements.py", "verify/test_verdicts.py", "clients/test_worker_unwell.py", "run/test_run.py"),
    *("verify/test_repair.py", "verify/test_verify_lost_server.py", "capture/test_oversized.py"),
    *("cutover/test_takeover.py", "capture/test_rules.py", "capture/test_collections.py", "capture/test_rounds.py"),
)


def _turn(item: pytest.Item) -> int:
    name = "/".join(item.path.parts[-2:])
    if name in _LONG:
        return _LONG.index(name)
    return len(_LONG) + (item.get_closest_marker("servers") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows with a failure what broker and workers have complained of last: their logs go with the stack."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    stack = item.config.stash.get(STACK, None)
    if report.failed and stack is not None:
        for name, words in complaints(stack):
            report.sections.append((f"the last that {name} complains of", words))
    if item.config.getoption("--nightly"):
        skips.refuse(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """A test finds the stack alive, whatever the one before has done to it."""
    stack = item.config.stash.get(STACK, None)
    if stack is not None and (dead := stack.processes.keys() - health.running(stack.directory)):
        health.repair(stack.directory, dead)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    item.stash[_BEFORE] = health.Before.of(item)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """What a failed test has broken is whole again before its fixtures end; what they could not end is ended then."""
    before = item.stash.get(_BEFORE, None) or health.Before.of(item)
    failed, broken = item.stash.get(_FAILED, False), None
    try:
        if failed:
            before.restore()
    except BaseException as error:  # noqa: BLE001  # raised once the fixtures have ended, which even a timeout must let
        broken = error
    try:
        return (yield)
    except BaseException:
        failed = True
        raise
    finally:
        if broken is not None:
            raise broken
        if failed:
            before.clear()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[embedded.Stack]:
    """Two replica sets, Kafka and a Connect worker; down at the end, however the session ends."""
    directory = tmp_path_factory.mktemp("stack")
    try:
        pytestconfig.stash[STACK] = embedded.up(embedded.StackOptions(directory=directory, mongod=_OFTEN), _say)
        yield pytestconfig.stash[STACK]
    finally:
        control.end(directory)


def _say(words: str) -> None:
    print(words, file=sys.stderr)


@pytest.fixture(scope="session")
def clock(stack: embedded.Stack) -> Iterator[Clock]:
    """Advances the source's time five times a second, as it does at a source that is in use."""
    with Clock(stack.source) as running:
        yield running


@pytest.fixture
def quiet_source(clock: Clock) -> Iterator[None]:
    """Nothing but the server's own entry once a second advances the source's time during the test."""
    with clock.stopped():
        yield


@pytest.fixture(scope="session")
def addresses(stack: embedded.Stack, clock: Clock) -> Addresses:
    return Addresses(
        stack.source, stack.destination, stack.bootstrap, stack.connect, stack.directory.resolve() / "secrets"
    )


@pytest.fixture(scope="session")
def source_client(addresses: Addresses) -> Iterator[raw.Client]:
    with MongoClient[dict[str, Any]](addresses.source) as client:
        yield client


@pytest.fixture(scope="session")
def destination_client(addresses: Addresses) -> Iterator[raw.Client]:
    with MongoClient[dict[str, Any]](addresses.destination) as client:
        yield client


@contextmanager
def making(
    addresses: Addresses, source: raw.Client, destination: raw.Client, folder: Path, owner: str
) -> Iterator[MakePipeline]:
    """Makes one pipeline, with separate databases and a separate name; removes all of it at the end."""
    made: list[Pipeline] = []

    def make(settings: Settings) -> Pipeline:
        assert not made, f"one pipeline a {owner}"
        name = f"t{secrets.token_hex(4)}"
        made.append(Pipeline(name, folder / f"{name}.toml", addresses, source, destination, settings))
        return made[0]

    yield make
    for pipeline in made:
        try:
            if pipeline.file.exists():
                pipeline.discard()
        finally:
            source.drop_database(pipeline.name)
            destination.drop_database(pipeline.name)


@pytest.fixture
def make_pipeline(
    addresses: Addresses, source_client: raw.Client, destination_client: raw.Client, tmp_path: Path
) -> Iterator[MakePipeline]:
    """Makes the test's pipeline."""
    with making(addresses, source_client, destination_client, tmp_path, "test") as make:
        yield make


@pytest.fixture(scope="module")
def make_shared_pipeline(
    addresses: Addresses,
    source_client: raw.Client,
    destination_client: raw.Client,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MakePipeline]:
    """Makes a pipeline for all tests of a file, each with its own collections or only reading."""
    with making(addresses, source_client, destination_client, tmp_path_factory.mktemp("shared"), "file") as make:
        yield make


@pytest.fixture
def pipeline(make_pipeline: MakePipeline) -> Pipeline:
    """A pipeline of all collections of its database, not deployed yet."""
    return make_pipeline(Settings())


@pytest.fixture
def seed() -> int:
    """TOWPATH_TEST_SEED from the environment, or a random one; shown when the test fails."""
    chosen = int(os.environ.get("TOWPATH_TEST_SEED", SystemRandom().randrange(2**31)))
    print(f"to repeat: TOWPATH_TEST_SEED={chosen}")
    return chosen
