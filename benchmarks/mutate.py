"""`scripts/mutate`: break the code in many small ways, one at a time, and see which the tests do not notice.

Only the tests that start no server run: mutmut's on Python, PIT's on Java. A score is the share that was noticed of
those that a test reaches; what no test reaches is counted beside it. Run it where nothing else does: mutmut ends tests
that take too long by their process id, which another process may have by then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from towpath.stack import tools

_ROOT = Path(__file__).parents[1]
_COPY = _ROOT / "target" / "mutate"
_REPORT = _ROOT / "transforms" / "target" / "pit-reports" / "mutations.xml"
_PITEST = "org.pitest:pitest-maven:mutationCoverage"
#: Part → what mutmut, or PIT, changes for it.
PYTHON = {
    "cutover": "towpath.cutover.*",
    "log": "towpath.log.*",
    "verifier": "towpath_verifier.*",
}
JAVA = {name: f"io.towpath.{name}.*" for name in ("record", "fold", "source.progress", "source.reread", "sink")}
#: mutmut's exit codes of a mutant (`mutmut.stats`); those that are not here count as noticed, such as a time-out.
_SURVIVED, _UNREACHED, _NOT_RUN = 0, (5, 33), (None, 2)


@dataclass(frozen=True, slots=True)
class Score:
    """Of one part: how many mutants were noticed, which survived, and how many no test reached or time was left for."""

    noticed: int
    survivors: Sequence[str]
    unreached: int
    not_run: int

    @property
    def line(self) -> str:
        reached = self.noticed + len(self.survivors)
        share = f"{self.noticed / reached:.1%}" if reached else "nothing was run"
        left = f"; {self.not_run:,} were not run in time" if self.not_run else ""
        return f"{share} ({self.noticed:,} of {reached:,} noticed; no test reaches {self.unreached:,} more{left})"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("part", nargs="*", metavar="PART", help=f"{', '.join((*PYTHON, *JAVA))}; default: all")
    parser.add_argument("--minutes", type=float, default=30.0, help="the most for each part; default: 30")
    given = parser.parse_args()
    if unknown := [part for part in given.part if part not in PYTHON | JAVA]:
        parser.error(f"there is no part {', '.join(unknown)}")
    for part in given.part or [*PYTHON, *JAVA]:
        score = (_python if part in PYTHON else _java)(part, 60 * given.minutes)
        print(f"{part}: {score.line}", flush=True)
        for survivor in score.survivors:
            print(f"    {survivor}", flush=True)
    print(f"what a mutant of Python changes: cd {_COPY} && {_mutmut()} show NAME", file=sys.stderr)
    return 0


def _python(part: str, seconds: float) -> Score:
    shutil.rmtree(_COPY, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=_ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        if (_ROOT / name).is_file():
            place = _COPY / copied_as(name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(_ROOT / name, place)
    command = [_mutmut(), "run", "--max-children", str(os.cpu_count() or 1), PYTHON[part]]
    ended = _run(command, _COPY, _COPY / "mutmut.log", seconds)
    codes = dict(_codes(PYTHON[part].removesuffix("*")))
    if not codes or (ended and all(code in (*_UNREACHED, *_NOT_RUN) for code in codes.values())):
        raise SystemExit(f"mutmut ran nothing of {part}: see {_COPY / 'mutmut.log'}")
    return score(codes)


def copied_as(name: str) -> str:
    """Where a file of the checkout is in the copy: mutmut names a mutant by its path, a test by its module."""
    return name.removeprefix("verifier/") if name.startswith("verifier/towpath_verifier/") else name


def score(codes: dict[str, int | None]) -> Score:
    """From mutmut's exit code of each mutant."""
    survivors = sorted(name for name, code in codes.items() if code == _SURVIVED)
    unreached = sum(code in _UNREACHED for code in codes.values())
    not_run = sum(code in _NOT_RUN for code in codes.values())
    return Score(len(codes) - len(survivors) - unreached - not_run, survivors, unreached, not_run)


def _codes(prefix: str) -> Iterator[tuple[str, int | None]]:
    for file in (_COPY / "mutants").rglob("*.meta"):
        for name, code in json.loads(file.read_text())["exit_code_by_key"].items():
            if name.startswith(prefix):
                yield name, code


def _java(part: str, seconds: float) -> Score:
    _REPORT.unlink(missing_ok=True)
    log = _ROOT / "target" / f"pitest-{part}.log"
    log.parent.mkdir(exist_ok=True)
    maven = [*map(str, [tools.maven(), "-q", "-B", "-f", _ROOT / "transforms" / "pom.xml"]), "-P", "mutate"]
    threads = f"-Dthreads={os.cpu_count() or 1}"
    _run(
        [*maven, "test-compile", _PITEST, f"-DtargetClasses={JAVA[part]}", f"-DtargetTests={JAVA[part]}", threads],
        _ROOT,
        log,
        seconds,
    )
    if not _REPORT.exists():
        raise SystemExit(f"PIT made no report of {part} within {seconds / 60:g} minutes: see {log}, or raise --minutes")
    return pit_score(ElementTree.parse(_REPORT).getroot())


def pit_score(report: ElementTree.Element) -> Score:
    """From PIT's report."""
    survivors, unreached, noticed = list[str](), 0, 0
    for mutation in report.iter("mutation"):
        status = mutation.get("status")
        if status == "SURVIVED":
            where = f"{mutation.findtext('mutatedClass')}.{mutation.findtext('mutatedMethod')}"
            survivors.append(f"{where}:{mutation.findtext('lineNumber')}: {mutation.findtext('description')}")
        elif status == "NO_COVERAGE":
            unreached += 1
        else:
            noticed += 1
    return Score(noticed, survivors, unreached, 0)


def _run(command: Sequence[str], folder: Path, log: Path, seconds: float) -> bool:
    """Run it for at most so long, with all of its children; whether it ended before that."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, start_new_session=True)
        try:
            process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _mutmut() -> str:
    return str(Path(sys.executable).parent / "mutmut")


if __name__ == "__main__":
    sys.exit(main())
