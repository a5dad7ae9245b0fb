"""Programs that must be installed (Java 17 or newer, Maven, pip); versions of all parts (`versions/pom.xml`)."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from towpath.stack.errors import PartUnavailable, ToolMissing

_JAVA_AT_LEAST = 17
_INSTALL_JAVA = "install a JDK 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jdk-headless)"
_LAST_LINES = 15
_NOISE = re.compile(
    r"\x1b\[[\d;]*m|^\[ERROR] (-> )?(\[Help.*|To see the full.*|Re-run Maven.*|For more info.*|)$", re.M
)


def java() -> Path:
    """The Java launcher of JAVA_HOME if set, else the one on PATH. Raises `ToolMissing`."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if program is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise ToolMissing(f"no java {where}; {_INSTALL_JAVA}")
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    number = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if answer.returncode != 0 or number is None:
        raise ToolMissing(f"{program} -version prints no version: {answer.stderr.strip()[:200]}; {_INSTALL_JAVA}")
    if int(number[1]) < _JAVA_AT_LEAST:
        raise ToolMissing(f"{program} is Java {number[1]}; Kafka Connect needs {_JAVA_AT_LEAST}: {_INSTALL_JAVA}")
    return Path(program)


def maven() -> str:
    """The `mvn` on PATH. Raises `ToolMissing`."""
    if program := shutil.which("mvn"):
        return program
    raise ToolMissing(
        "no mvn on PATH",
        "install Maven (Debian, Ubuntu: apt-get install maven), or unpack the archives of a release and give their"
        " folders to `towpath stack up`: towpath-mongodb-VERSION.zip with --plugins,"
        " towpath-kafka-VERSION.zip with --kafka",
    )


def pip() -> list[str]:
    """The command that runs pip. Raises `ToolMissing`."""
    if importlib.util.find_spec("pip") is None:
        raise ToolMissing(f"{sys.executable} has no pip; run {sys.executable} -m ensurepip, or make the venv again")
    return [sys.executable, "-P", "-m", "pip"]  # -P: no modules from the current folder


def run(attempt: str, command: Sequence[str | Path], advice: Callable[[str], str] = lambda output: "") -> str:
    """Run a command to its end and return its output.

    Raises `PartUnavailable` when it fails, with the attempt, the command, its last lines, and the advice.
    """
    words = [str(word) for word in command]
    answer = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if answer.returncode != 0:
        lines = [line for line in _NOISE.sub("", answer.stdout).splitlines() if line.strip()]
        last = "\n".join(f"  {line}" for line in lines[-_LAST_LINES:])
        hint = advice(answer.stdout)
        raise PartUnavailable(
            f"cannot {attempt}: `{' '.join(words)}` ended with {answer.returncode}{'; ' + hint if hint else ''}\n{last}"
        )
    return answer.stdout


VERSIONS_POM = Path(__file__).parent / "versions" / "pom.xml"
_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"
_PROPERTY = re.compile(r"\$\{([\w.-]+)}")


def properties(pom: Path) -> Mapping[str, str]:
    """The properties of a Maven POM, name → text. Raises `PartUnavailable` when the file cannot be read as one."""
    try:
        items = ElementTree.parse(pom).getroot().find(f"{_NAMESPACE}properties")
    except (OSError, ElementTree.ParseError) as error:
        raise PartUnavailable(f"cannot read the versions of the stack's parts from {pom}: {error}") from error
    if items is None:
        raise PartUnavailable(f"{pom} names no versions: it has no <properties>")
    return {item.tag.removeprefix(_NAMESPACE): (item.text or "").strip() for item in items if isinstance(item.tag, str)}


@cache
def versions() -> Mapping[str, str]:
    """The pinned versions, such as `kafka.version` → `4.3.1`."""
    return properties(VERSIONS_POM)


def version(name: str) -> str:
    """One pinned version. Raises `PartUnavailable` when `versions/pom.xml` does not name it."""
    try:
        return versions()[name]
    except KeyError:
        raise PartUnavailable(f"{VERSIONS_POM} does not name <{name}>") from None


def resolved(text: str) -> str:
    """The text with every `${property}` of `versions/pom.xml` replaced; other `${…}` stay."""
    return _PROPERTY.sub(lambda match: versions().get(match[1], match[0]), text)
