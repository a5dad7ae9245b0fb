"""`towpath init` on a terminal asks for what no option gives; elsewhere it asks nothing."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.pipeline import TOWPATH, Addresses
from tests.support.servers import free_port
from towpath.cli import towpath
from towpath.cli.init import uri_fault
from towpath.config.loading import read

Run = Callable[..., Result]
#: An answer that no question rejects, but the pipeline file does.
UNPRINTABLE = "k\u200b:9092"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls `init` in an empty folder, as on a terminal with these lines, or elsewhere."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, lines: list[str] | None = None) -> Result:
        monkeypatch.setattr("towpath.cli.init.on_terminal", lambda: lines is not None)
        return CliRunner().invoke(towpath, ["init", *arguments], input="\n".join([*(lines or []), ""]))

    return run


def test_elsewhere_it_asks_nothing(run: Run) -> None:
    assert "Missing option '--include'" in run("shop.toml").output
    done = run("shop.toml", "--include", "shop.*")
    assert done.exit_code == 0
    following = "towpath check shop.toml, towpath plan shop.toml, towpath deploy shop.toml"
    assert done.output == f"wrote shop.toml; next: {following}\n"
    assert read(Path("shop.toml")).source.uri == "mongodb://source.example:27017/?replicaSet=rs0"


def test_yes_asks_nothing_on_a_terminal_either(run: Run) -> None:
    assert run("shop.toml", "--include", "shop.*", "--yes", lines=[]).exit_code == 0
    assert read(Path("shop.toml")).kafka.bootstrap == "127.0.0.1:9092"


def test_every_value_can_be_an_option(run: Run) -> None:
    Path("secret").mkdir()
    for name in ("secret/one.uri", "two.uri"):
        Path(name).write_text(f"mongodb://u:p@{name[-7:-4]}/\n", encoding="utf-8")
        Path(name).chmod(0o600)
    servers = ("--bootstrap", "k1:9092,k2:9092", "--connect", "https://c:8083")
    given = ("--include", "a.b", "--include", "c.*", "--exclude", "c.d", *servers)
    files = ("--source-file", "secret/one.uri", "--destination-file", "two.uri")
    assert run("shop.toml", *given, *files, lines=["n"]).exit_code == 0
    found, text = read(Path("shop.toml")), Path("shop.toml").read_text(encoding="utf-8")
    assert (found.collections.include, found.collections.exclude) == (("a.b", "c.*"), ("c.d",))
    assert (found.source.uri, found.destination.uri) == ("mongodb://u:p@one/", "mongodb://u:p@two/")
    assert (found.kafka.bootstrap, found.connect.url) == ("k1:9092,k2:9092", "https://c:8083")
    assert 'uri_file = "two.uri"' in text
    assert f'uri_file = "{Path.cwd() / "secret/one.uri"}"' in text


def test_a_password_that_an_option_gives_is_spoken_of(run: Run) -> None:
    done = run("shop.toml", "--include", "a.b", "--source", "mongodb://u:hush@h/?replicaSet=r")
    assert done.exit_code == 0
    assert "--source-file FILE" in done.output
    assert "hush" not in done.output
    assert read(Path("shop.toml")).source.uri == "mongodb://u:hush@h/?replicaSet=r"


def test_a_side_is_given_once(run: Run) -> None:
    done = run("shop.toml", "--include", "a.b", "--source", "mongodb://h/", "--source-file", "x")
    assert (done.exit_code, Path("shop.toml").exists()) == (2, False)
    assert "give one of --source and --source-file" in done.output


def test_it_asks_for_what_is_not_given(run: Run) -> None:
    lines = ["n", "mongodb://one/?replicaSet=r", "mongodb://two/?replicaSet=r", "shop.*, crm.people", "shop.tmp_*"]
    done = run("shop.toml", "--connect", "http://w:1", lines=[*lines, "k:9092"])
    assert done.exit_code == 0, done.output
    found = read(Path("shop.toml"))
    assert (found.source.uri, found.destination.uri) == (lines[1], lines[2])
    assert (found.collections.include, found.collections.exclude) == (("shop.*", "crm.people"), ("shop.tmp_*",))
    assert (found.kafka.bootstrap, found.connect.url) == ("k:9092", "http://w:1")
    assert "Connect URL" not in done.output


def test_enter_takes_the_example(run: Run) -> None:
    done = run("shop.toml", "--include", "shop.*", lines=["n", "", "", "", ""])  # `y` would try Kafka and Connect
    assert done.exit_code == 0, done.output
    asked = Path("shop.toml").read_text(encoding="utf-8")
    run("shop.toml", "--include", "shop.*", "--force")
    assert Path("shop.toml").read_text(encoding="utf-8") == asked


def test_what_is_not_valid_is_asked_again(run: Run) -> None:
    lines = ["n", "db1:27017", "mongodb:///", "mongodb://one/", "", "shop", "", "shop.*", "nonsense", ""]
    lines += ["kafka", "k:9092", "http://u:p@c:8083", "c:8083", "http://[::1", "http://c:80830", "http://c:8083"]
    done = run("shop.toml", lines=lines)
    assert done.exit_code == 0, done.output
    for words in (
        "it must begin with mongodb://",
        "it names no host",
        "'shop' is not a namespace",
        "'nonsense' is not a namespace",
        "write host:port",
        "leave the user out",
        "write the URL of a worker",
    ):
        assert f"  {words}" in done.output
    assert done.output.count("write the URL of a worker") == 3
    assert read(Path("shop.toml")).connect.url == "http://c:8083"


def test_a_password_goes_into_a_file_of_its_own(run: Run) -> None:
    uri = "mongodb://towpath:hush@one/?replicaSet=r"
    lines = ["n", uri, "y", uri.replace("one", "two"), "n", "shop.*", "", "", ""]
    done = run("shop.toml", lines=lines)
    assert done.exit_code == 0, done.output
    own = Path("shop-source.uri")
    assert (own.read_text(encoding="utf-8"), own.stat().st_mode & 0o777) == (f"{uri}\n", 0o600)
    assert Path("shop.toml").read_text(encoding="utf-8").count("hush") == 1
    assert (read(Path("shop.toml")).source.uri, read(Path("shop.toml")).destination.uri) == (uri, lines[3])
    assert "holds the password of the destination" in done.output


def test_nothing_is_left_when_the_file_cannot_be_written(run: Run) -> None:
    lines = ["n", "mongodb://towpath:hush@one/?replicaSet=r", "y", "", "shop.*", "", UNPRINTABLE, ""]
    done = run("shop.toml", lines=lines)
    assert "no pipeline file was written" in str(done.exception)
    assert list(Path.cwd().iterdir()) == []


def test_an_option_that_is_not_valid_is_named_before_any_question(run: Run) -> None:
    for wrong in (["--name", "not a name"], ["--connect", "c:8083"], ["--source-file", "nowhere.uri"]):
        done = run("shop.toml", *wrong, lines=[])
        assert "no pipeline file was written" in str(done.exception)
        assert done.output == ""


def test_a_file_with_a_uri_that_exists_is_overwritten_only_if_that_is_wanted(run: Run) -> None:
    uri, own = "mongodb://towpath:hush@one/?replicaSet=r", Path("shop-source.uri")
    own.write_text("mine", encoding="utf-8")
    lines = ["n", uri, "", "", "shop.*", "", "", ""]
    assert run("shop.toml", lines=lines).exit_code == 0
    assert (own.read_text(encoding="utf-8"), read(Path("shop.toml")).source.uri) == ("mine", uri)
    Path("shop.toml").unlink()
    assert run("shop.toml", lines=[*lines[:2], "y", *lines[3:6], UNPRINTABLE, ""]).exit_code != 0
    assert [one.name for one in Path.cwd().iterdir()] == [own.name]
    assert own.read_text(encoding="utf-8") == "mine"
    assert run("shop.toml", lines=[*lines[:2], "y", *lines[3:]]).exit_code == 0
    assert own.read_text(encoding="utf-8") == f"{uri}\n"


def test_a_missing_folder_is_named_before_any_question(run: Run) -> None:
    done = run("no/shop.toml", lines=[])
    assert "there is no folder no" in str(done.exception)
    assert done.output == ""


def test_a_file_that_exists_is_refused_before_any_question(run: Run) -> None:
    Path("shop.toml").write_text("mine", encoding="utf-8")
    done = run("shop.toml", lines=[])
    assert "exists already; pass --force" in str(done.exception)
    assert done.output == ""


@pytest.mark.parametrize(
    ("uri", "fault"),
    [
        ("mongodb://h", ""),
        ("mongodb+srv://h.example/?x=y", ""),
        ("http://h", "begin"),
        ("mongodb://u:p@/", "no host"),
        ("mongodb://[h", "not a URI"),
    ],
)
def test_faults_of_a_uri(uri: str, fault: str) -> None:
    assert fault in uri_fault(uri)
    assert bool(fault) == bool(uri_fault(uri))


class Terminal:
    """A command on a separate terminal."""

    def __init__(self, *arguments: str | Path) -> None:
        self._master, terminal = pty.openpty()
        self._process = subprocess.Popen(
            [TOWPATH, *arguments], stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
        )
        os.close(terminal)
        self.shown = ""

    def answer(self, question: str, line: str) -> None:
        """Wait for a question after the last one, and answer it."""
        self._read(lambda: question in self.shown.rsplit("\x00")[-1])
        self.shown += "\x00"
        os.write(self._master, f"{line}\n".encode())

    def interrupt(self, question: str) -> None:
        """Press Ctrl-C at a question, again if need be: Python misses one that comes just before it waits for a key."""
        self._read(lambda: question in self.shown)
        for _ in range(30):
            os.killpg(self._process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=2)
                return

    def end(self) -> int:
        self._read(lambda: False)
        return self._process.wait(timeout=20)

    def _read(self, is_enough: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not is_enough():
            assert select.select([self._master], [], [], max(until - time.monotonic(), 0))[0], self.shown
            try:
                self.shown += os.read(self._master, 4096).decode()
            except OSError:  # the command has ended
                return


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    terminal = Terminal("init", tmp_path / "shop.toml")
    terminal.answer("Test each connection", "n")
    terminal.answer("source URI", "mongodb://towpath:hush@one/?replicaSet=r")
    terminal.answer("Write the URI to", "y")
    terminal.interrupt("destination URI")
    assert terminal.end() == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.servers
def test_on_a_real_terminal_it_tests_each_server(addresses: Addresses, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    unused = f"127.0.0.1:{free_port()}"
    terminal = Terminal("init", file)
    terminal.answer("Test each connection", "")
    terminal.answer("source URI", f"mongodb://{unused}/?serverSelectionTimeoutMS=300")
    terminal.answer("Enter it again?", "y")
    terminal.answer("source URI", addresses.source)
    terminal.answer("destination URI", addresses.destination)
    terminal.answer("namespaces", "shop.*")
    terminal.answer("leave out", "")
    terminal.answer("Kafka brokers", addresses.bootstrap)
    terminal.answer("Connect URL", f"http://{unused}")
    terminal.answer("Enter it again?", "n")
    assert terminal.end() == 0, terminal.shown
    assert "ok: replica set source, 1 member, MongoDB 6." in terminal.shown
    assert "ok: 1 broker, cluster" in terminal.shown
    found = read(file)
    assert (found.source.uri, found.destination.uri) == (addresses.source, addresses.destination)
    assert (found.kafka.bootstrap, found.connect.url) == (addresses.bootstrap, f"http://{unused}")
