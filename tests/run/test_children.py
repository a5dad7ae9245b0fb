"""What children of `towpath run` print, whole, cut off, without end or not at all, ends nothing but themselves."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NoReturn, cast

import bson
import platformdirs
import pytest
from confluent_kafka import KafkaError, KafkaException
from pymongo.errors import PyMongoError

from tests.run.test_supervising import FILE
from tests.support.awaited import until
from towpath.cli import launcher, run
from towpath.config.events import Pass, TimedEvent
from towpath.errors import TowpathError
from towpath.log import dead_letters
from towpath.log.dead_letters import DeadLetter
from towpath.log.source_offsets import Requests, SourceState
from towpath.run import children, services
from towpath.run import dead_letters as dead_letter_retries
from towpath.run import supervisor as supervising
from towpath.run.children import Child, Events, Line
from towpath.run.dead_letters import DeadLetterRetries, Refusal
from towpath.run.restarts import HangingTransactions, Pulse
from towpath.run.services import Service, Services
from towpath.run.supervisor import Supervisor
from towpath.session import opened
from towpath_verifier import ServerLost, id_key

PASS = Pass(
    at=0.0,
    records=7,
    asked=2,
    arrived=1,
    unreadable=0,
    dirty=0,
    oldest_seconds=None,
    partitions=1,
    switched_on=(),
    ready=(),
    seconds=0.1,
)
IN_THE_MIDST = """
import pathlib, sys, time
sys.stdout.write('{{"at": 0, "rec')
sys.stdout.flush()
pathlib.Path({written!r}).touch()
time.sleep(300)
"""
SILENT = "import time; time.sleep(300)"
DEAF = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(1, flush=True); time.sleep(300)"


def child(program: str, command: str = "compact") -> Child:
    return Child.start(command, [sys.executable, "-c", program])


def printing(*lines: str) -> str:
    return f"for line in {lines!r}: print(line)"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(platformdirs, "user_state_path", lambda name: tmp_path)
    path = tmp_path / "shop.toml"
    path.write_text(FILE.replace("replicaSet=a", "serverSelectionTimeoutMS=200"))
    path.chmod(0o600)
    return path


def told_of(file: Path, command: Literal["compact", "verify"], program: str) -> tuple[list[TimedEvent], Service]:
    """All that a service whose child is this program tells, until that has ended."""
    told: list[TimedEvent] = []
    with opened(file) as it:
        service = Service(command, (), child(program, command))
        supervised = Services(it, Events(told.append), [service], launcher)
        until("end of the child", lambda: supervised.turn(time.monotonic(), ()) or service.child is None)
    return told, service


@pytest.mark.parametrize("command", ["compact", "verify"])
@pytest.mark.parametrize(
    "line",
    [
        '{"at": 0, "rec',
        "null",
        "[1]",
        "not JSON",
        "[" * 100_000,
        '{"id_bson": 5, "at": []}',
        '{"event": []}',
        '{"event": "pass"}',
    ],
)
def test_a_line_that_is_no_record_is_told_as_text(file: Path, command: str, line: str) -> None:
    told, _ = told_of(file, command, printing(line))
    words = [event.words or "" for event in told if event.event == "problem"]
    assert words == [f"{command} printed an unreadable line: {Line('out', line).shown}"]
    assert len(words[0]) < 500
    assert str(told[-1].words).startswith(f"{command} ended: ")


def test_what_comes_after_such_a_line_is_taken_in(file: Path) -> None:
    _, service = told_of(file, "compact", printing("{", PASS.line))
    assert service.last_report == "at 00:00:00 UTC: read 7 records; requested 2 documents, 1 arrived"


def test_a_child_that_is_killed_in_the_midst_of_a_line(file: Path, tmp_path: Path) -> None:
    told: list[TimedEvent] = []
    written = tmp_path / "written"
    with opened(file) as it:
        service = Service("compact", (), child(IN_THE_MIDST.format(written=str(written))))
        supervised = Services(it, Events(told.append), [service], launcher)
        assert service.child is not None
        supervised.turn(time.monotonic(), ())
        until("half a line", written.exists)
        service.child.process.send_signal(signal.SIGKILL)
        until("its end", lambda: supervised.turn(time.monotonic(), ()) or service.child is None)
    assert [event.words for event in told] == [
        'compact printed an unreadable line: {"at": 0, "rec',
        "compact ended: it exited with -9 and printed no error; restarted in 5 s",
    ]


def test_a_line_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_LONGEST_LINE", 1000)
    found = child("import sys; sys.stdout.write('x' * 50_000_000 + '\\n' + 'after\\nlast')")
    until("its end", lambda: found.exit_code is not None)
    assert [line.text for line in found.lines()] == ["x" * 1000, "after", "last"]


def test_one_that_prints_without_end_is_heard_a_part_at_a_time() -> None:
    found = child("while True: print('again')")
    until("a full queue", lambda: found._lines.full())
    assert 0 < sum(1 for _ in found.lines()) <= children._QUEUE_SIZE
    children.end([found], 20)
    assert found.exit_code is not None


def test_all_lines_of_one_that_has_ended_are_heard() -> None:
    found = child("for number in range(5000): print(number)")
    heard = [line.text for line in found.lines()]
    until("its end", lambda: heard.extend(line.text for line in found.lines()) or found.exit_code is not None)
    heard += [line.text for line in found.lines()]
    assert heard == [str(number) for number in range(5000)]


def test_one_that_does_not_end_is_killed() -> None:
    found = child(DEAF)
    until("its word", lambda: list(found.lines()))
    children.end([found], 0.2)
    assert found.exit_code == -signal.SIGKILL


def test_a_compaction_that_hangs_is_killed_and_given_longer(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_LIFE_CHECK", 0.0)
    told: list[TimedEvent] = []
    with opened(file) as it:
        hangs = "import time; print('{}', flush=True); time.sleep(0.5); print('{}', flush=True); time.sleep(300)"
        service = Service("compact", (), child(hangs), pulse=Pulse(0.5))
        supervised = Services(it, Events(told.append), [service], launcher)
        until("its end", lambda: supervised.turn(time.monotonic(), ()) or service.child is None)
    assert "compact ended: it gave no sign of life for 0 s and was killed" in str(told[-1].words)
    assert service.pulse.longest == 1.0


def test_a_sign_of_life_is_waited_for_once_there_was_one() -> None:
    pulse = Pulse(longest=10)
    assert not any(pulse.hangs(None, now) for now in (0.0, 100.0))
    assert not any(pulse.hangs("before", now) for now in (101.0, 500.0)), "of another life"
    assert not any(pulse.hangs(1, now) for now in (501.0, 511.0))
    assert pulse.hangs(1, 511.1)
    assert not pulse.hangs(2, 600.0)
    assert pulse.hangs(2, 610.1)


def test_a_repair_that_hangs_or_prints_no_json_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(file) as it:
        aside = DeadLetterRetries(it)
        aside._running = child("import time; print('what?', flush=True); time.sleep(300)", "repair"), []
        words = until("its words", lambda: list(aside.turn(time.monotonic(), launcher)))
        assert words == ["repair printed an unreadable line: what?"]
        monkeypatch.setattr(dead_letter_retries, "_HANG_SECONDS", 0.0)
        until("its end", lambda: list(aside.turn(time.monotonic(), launcher)) or not aside.children)


def test_a_deployment_that_says_nothing_is_given_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_SILENCE", 0.5)
    monkeypatch.setattr(run, "launcher", lambda name, arguments: [sys.executable, "-c", SILENT])
    with (
        opened(file) as it,
        pytest.raises(TowpathError, match="not deployed: it printed nothing for 0 s and was killed"),
    ):
        run._deploy(it, Events(lambda event: None), lambda: None)


def test_one_that_cannot_be_waited_for_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that hangs in the kernel."""
    monkeypatch.setattr(children, "_LAST_LINES_TIMEOUT", 0.1)
    found = child(SILENT)
    monkeypatch.setattr(found.process, "kill", lambda: None)
    monkeypatch.setattr(found.process, "send_signal", lambda number: None)
    try:
        children.end([found], 0.1)
    finally:
        os.kill(found.process.pid, signal.SIGKILL)
        found.process.wait(30)


@pytest.mark.parametrize("error", [OSError("no more processes"), KafkaException(KafkaError(1)), PyMongoError("lost")])
def test_whatever_a_step_meets_is_told_and_the_next_one_is_made(
    file: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    told: list[TimedEvent] = []

    def fails(*_: object) -> NoReturn:
        raise error

    with opened(file) as it:
        events = Events(told.append)
        supervisor = Supervisor(it, events, launcher)
        monkeypatch.setattr(supervising, "read_status", fails)
        monkeypatch.setattr(HangingTransactions, "turn", fails)
        monkeypatch.setattr(Services, "turn", lambda self, now, able: fails())
        supervisor.turn()
        assert [(event.event, str(event.words).partition(";")[0]) for event in told] == [
            ("problem", str(error)),
            ("unreachable", str(error)),
            ("problem", str(error)),
        ]
        assert supervisor.verdict().exit == 2


def test_dead_letters_while_a_side_is_away_are_not_forgotten(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = bson.encode({"_id": 5})
    letter = DeadLetter(("shop.shop.orders", 0, 7), "shop.orders", "121", "refused", None, key, None, at=3)
    monkeypatch.setattr(dead_letters, "end", lambda *_: 4)
    monkeypatch.setattr(dead_letters, "letters", lambda *_, follow, start: [letter] if start <= letter.at else [])
    with opened(file) as it:
        aside = DeadLetterRetries(it)
        with pytest.raises(ServerLost, match=r"cannot read documents of shop\.orders"):
            list(aside.read(0.0))  # for no server is there
        monkeypatch.setattr(
            DeadLetterRetries, "_differing", lambda self, refusals: {one.target.key for one in refusals}
        )
        words = list(aside.read(0.0))
    assert words == ["the destination refused 1 document of shop.orders: refused (121); retried in 5 s"]
    assert aside.remaining == 1


def test_dead_letters_of_a_dropped_collection_wait_for_a_person(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their repair would delete the documents, which the destination alone has."""
    key = bson.encode({"_id": 5})
    letter = DeadLetter(("shop.shop.orders", 0, 7), "shop.orders", "121", "refused", None, key, None, at=3)
    monkeypatch.setattr(dead_letters, "end", lambda *_: 4)
    monkeypatch.setattr(dead_letters, "letters", lambda *_, follow, start: [letter] if start <= letter.at else [])
    monkeypatch.setattr(DeadLetterRetries, "_differing", lambda self, refusals: {one.target.key for one in refusals})
    gone, repair = {"shop.orders"}, child("pass", "repair")
    monkeypatch.setattr(dead_letter_retries.unreplicated, "gone", lambda session, names: gone & set(names))
    started = list[list[str]]()
    monkeypatch.setattr(children.Child, "start", lambda name, command, ids: started.append([*command]) or repair)
    with opened(file) as it:
        aside = DeadLetterRetries(it)
        list(aside.read(0.0))
        [words] = aside.turn(6.0, launcher)
        assert words.startswith("not repaired: 1 document of shop.orders, which the source has dropped or renamed")
        assert (aside.children, aside.remaining) == ([], 1)
        assert list(aside.turn(7.0, launcher)) == [], "the next try is later"
        gone.clear()
        list(aside.turn(100.0, launcher))
        assert len(aside.children) == 1
        assert "--yes" in started[0], "its standard input has the ids, and answers no question"


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_collection_that_is_dropped_while_its_first_dead_letter_is_repaired_is_left_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    keys = [bson.encode({"_id": n}) for n in (5, 6)]
    refused = [
        DeadLetter(("shop.shop.orders", 0, n), "shop.orders", "121", "refused", None, key, None, at=n)
        for n, key in enumerate(keys)
    ]
    monkeypatch.setattr(dead_letters, "end", lambda *_: len(refused))
    monkeypatch.setattr(dead_letters, "letters", lambda *_, follow, start: refused[start:])
    monkeypatch.setattr(DeadLetterRetries, "_differing", lambda self, refusals: {one.target.key for one in refusals})
    monkeypatch.setattr(dead_letter_retries.unreplicated, "gone", lambda session, names: names if is_gone else [])
    done, started = SimpleNamespace(exit_code=0, lines=list, started=0.0), list[str]()
    monkeypatch.setattr(children.Child, "start", lambda name, command, ids: started.append(ids) or done)
    with opened(file) as it:
        aside = DeadLetterRetries(it)
        list(aside.read(0.0))
        aside._running = cast(Any, (done, list(aside._refusals.values())[:1]))
        aside._results = cast(Any, [SimpleNamespace(result="repaired", id_bson=keys[0].hex())])
        [words] = aside.turn(6.0, launcher)
    assert words.startswith("repaired 1 document of shop.orders") and aside.remaining == 1
    assert bool(started) is not is_gone


def test_dead_letters_of_a_dropped_collection_that_are_the_same_by_now_are_forgotten(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The destination refused documents that it never had: no repair would delete anything there."""
    keys = [bson.encode({"_id": n}) for n in (5, 6)]
    refused = [
        DeadLetter(("shop.shop.orders", 0, n), "shop.orders", "121", "refused", None, key, None, at=n)
        for n, key in enumerate(keys)
    ]
    differing = set(map(id_key, keys))
    monkeypatch.setattr(dead_letters, "end", lambda *_: len(refused))
    monkeypatch.setattr(dead_letters, "letters", lambda *_, follow, start: refused[start:])
    monkeypatch.setattr(
        DeadLetterRetries,
        "_differing",
        lambda self, refusals: {one.target.key for one in refusals if one.target.key[1] in differing},
    )
    monkeypatch.setattr(dead_letter_retries.unreplicated, "gone", lambda session, names: set(names))
    with opened(file) as it:
        aside = DeadLetterRetries(it)
        list(aside.read(0.0))
        differing.remove(id_key(keys[0]))
        [words] = aside.turn(6.0, launcher)
        assert words.startswith("not repaired: 1 document of shop.orders") and aside.remaining == 1
        differing.clear()
        assert [*aside.turn(7.0, launcher), *aside.turn(100.0, launcher)] == [] and aside.remaining == 0


def test_dead_letters_beyond_those_that_are_remembered_are_not_forgotten(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten documents are refused, of which two are the same by now, with room for five."""
    keys = [bson.encode({"_id": n}) for n in range(10)]
    refused = [
        DeadLetter(("shop.shop.orders", 0, n), "shop.orders", "121", "refused", None, keys[n % 10], None, at=n)
        for n in range(20)
    ]
    same = {id_key(keys[0]), id_key(keys[7])}
    monkeypatch.setattr(dead_letter_retries, "_MAX_KNOWN", 5)
    monkeypatch.setattr(dead_letters, "end", lambda *_: len(refused))
    monkeypatch.setattr(dead_letters, "letters", lambda *_, follow, start: refused[start:])
    monkeypatch.setattr(
        DeadLetterRetries,
        "_differing",
        lambda self, refusals: {one.target.key for one in refusals if one.target.key[1] not in same},
    )
    with opened(file) as it:
        aside = DeadLetterRetries(it)
        list(aside.read(0.0))
        assert (aside.words, {id[1] for id in aside._refusals}) == ("5 documents or more", {*map(id_key, keys[1:6])})
        same |= {id_key(keys[n]) for n in (1, 2, 3, 4)}
        for n in (1, 2, 3, 4):  # repaired
            del aside._refusals["shop.orders", id_key(keys[n])]
        list(aside.read(0.0))
        assert (aside.words, aside.has_more) == ("4 documents", False)
        assert {id[1] for id in aside._refusals} == {id_key(keys[n]) for n in (5, 6, 8, 9)}


def test_what_another_repair_has_fixed_is_forgotten_when_its_requests_are_answered(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents are read only then, and for as long as the sink may take, but never while it repairs."""
    keys = [bson.encode({"_id": n}) for n in range(3)]
    refused = [
        DeadLetter(("shop.shop.orders", 0, n), "shop.orders", "121", "refused", None, keys[n], None, at=n)
        for n in range(3)
    ]
    same, reads = set[object](), list[int]()

    def differing(self: DeadLetterRetries, refusals: Iterable[Refusal]) -> set[Any]:
        found = {one.target.key for one in refusals}
        reads.append(len(found))
        return {key for key in found if key[1] not in same}

    monkeypatch.setattr(dead_letters, "end", lambda *_: len(refused))
    monkeypatch.setattr(dead_letters, "letters", lambda *_, follow, start: refused[start:])
    monkeypatch.setattr(DeadLetterRetries, "_differing", differing)
    status, told = SimpleNamespace(raw=SimpleNamespace(sources={"shop-source": SourceState(None)})), list[TimedEvent]()
    now = [1000.0]
    for module in (supervising, dead_letter_retries):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with opened(file) as it:
        supervisor = Supervisor(it, Events(told.append), launcher, status=status)
        aside = supervisor.dead_letters

        def after(seconds: float) -> int:
            now[0] += seconds
            reads.clear()
            supervisor._repair()
            return len(reads)

        assert (after(0), aside.remaining) == (1, 3), "once, when it has found them"
        for one in aside._pauses.values():
            one.due = 1e9  # no retry for a long time
        assert (after(100), aside.remaining) == (0, 3)
        status.raw.sources = {"shop-source": SourceState(None, requests=Requests(5))}
        assert (after(0.25), aside.remaining) == (1, 3), "it is not applied yet"
        same |= {id_key(keys[0]), id_key(keys[2])}
        assert (after(1), aside.remaining) == (0, 3)
        aside._running = SimpleNamespace(exit_code=None, lines=list, started=now[0]), []
        assert (after(5), aside.remaining) == (0, 3)
        aside._running = None
        assert (after(1), aside.remaining) == (1, 1)
        assert told[-1].words == "the same by now: 2 documents of shop.orders that the destination had refused"
        assert (after(6), after(30), aside.remaining) == (1, 0, 1)


def test_a_command_takes_no_module_of_the_folder_that_it_is_called_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('a script of someone else')")
    monkeypatch.chdir(tmp_path)
    child = Child.start("--version", launcher("--version", ()))
    assert (child.process.wait(60), [line.text.split()[-1] for line in child.lines()]) == (
        0,
        [version("towpath")],
    )
