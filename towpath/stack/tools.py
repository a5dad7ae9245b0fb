"""Programs that must be installed (Java 17 or newer, Maven, pip); versions of all parts (`versions/pom.xml`)."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from xml.etree import ElementTree

from towpath import files
from towpath.errors import StackError

file_errors = partial(files.file_errors, kind=StackError)
VERSIONS_POM = Path(__file__).parent / "versions" / "pom.xml"
_JAVA_AT_LEAST = 17
_INSTALL_JAVA = "install a JDK 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jdk-headless)"
_LAST_LINES = 15
_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"
_NOISE = re.compile(
    r"\x1b\[[\d;]*m|^\[ERROR] (-> )?(\[Help.*|To see the full.*|Re-run Maven.*|For more info.*|)$", re.M
)


@cache
def versions() -> Mapping[str, str]:
    """The pinned versions, such as `kafka.version` → `4.3.1`."""
    items = ElementTree.parse(VERSIONS_POM).getroot().iterfind(f"{_NAMESPACE}properties/*")
    return {item.tag.removeprefix(_NAMESPACE): (item.text or "").strip() for item in items}


def version(name: str) -> str:
    """One pinned version."""
    return versions()[name]


def java() -> Path:
    """The Java launcher of JAVA_HOME if set, else the one on PATH. Raises `StackError`."""
    return _java()[0]


def chosen_java(at_least: int) -> Path | None:
    """The Java of JAVA_HOME, whichever that is; without it the one on PATH, if there is one of this version or newer.

    Raises `StackError` where JAVA_HOME has none that runs Kafka Connect.
    """
    if os.environ.get("JAVA_HOME"):
        return java()
    try:
        program, number = _java()
    except StackError:
        return None
    return program if number >= at_least else None


def _java() -> tuple[Path, int]:
    """As `java`, and its version."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if program is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise StackError(f"no java {where}", _INSTALL_JAVA)
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    number = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if answer.returncode != 0 or number is None:
        raise StackError(f"{program} -version prints no version: {answer.stderr.strip()[:200]}", _INSTALL_JAVA)
    if int(number[1]) < _JAVA_AT_LEAST:
        raise StackError(f"{program} is Java {number[1]}; Kafka Connect needs {_JAVA_AT_LEAST}", _INSTALL_JAVA)
    return Path(program), int(number[1])


def maven() -> str:
    """The `mvn` on PATH. Raises `StackError`."""
    if program := shutil.which("mvn"):
        return program
    raise StackError(
        "no mvn on PATH",
        "install Maven (Debian, Ubuntu: apt-get install maven), or unpack the archives of a release and give their"
        " folders to `towpath stack up`: towpath-mongodb-VERSION.zip with --plugins,"
        " towpath-kafka-VERSION.zip with --kafka",
    )


def pip() -> list[str]:
    """The command that runs pip. Raises `StackError`."""
    if importlib.util.find_spec("pip") is None:
        raise StackError(
            f"{sys.executable} has no pip", f"run {sys.executable} -m ensurepip, or create the environment again"
        )
    return [sys.executable, "-P", "-m", "pip"]  # -P: no modules from the current folder


def prometheus() -> str:
    """The `prometheus` on PATH. Raises `StackError`."""
    if program := shutil.which("prometheus"):
        return program
    raise StackError(
        "no prometheus on PATH",
        "install it (Debian, Ubuntu: apt-get install prometheus; its own service is not needed:"
        " systemctl disable --now prometheus prometheus-node-exporter)",
    )


def run(attempt: str, command: Sequence[str | Path], advice: Callable[[str], str] = lambda output: "") -> str:
    """Run a command to its end and return its output.

    Raises `StackError` when it fails, with the attempt, the command, its last lines, and the advice.
    """
    words = [str(word) for word in command]
    answer = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if answer.returncode != 0:
        lines = [line for line in _NOISE.sub("", answer.stdout).splitlines() if line.strip()]
        last = "\n".join(f"  {line}" for line in lines[-_LAST_LINES:])
        hint = advice(answer.stdout)
        raise StackError(
            f"cannot {attempt}: `{' '.join(words)}` ended with {answer.returncode}{'; ' + hint if hint else ''}\n{last}"
        )
    return answer.stdout
