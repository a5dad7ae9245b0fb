"""Another version of Towpath, taken from git: its tool, which builds the plugin from its own sources."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

from towpath.stack import Stack, StackOptions, status

ROOT = Path(__file__).parents[2]


class NoRevision(Exception):
    """This clone does not hold the revision."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """The tool of a folder that holds all sources; `state` is where it keeps what is to outlive a command."""

    folder: Path
    state: Path

    def __call__(self, *words: str | Path, expect: int = 0) -> str:
        """Run `towpath`; what it prints. Fails unless it ends with the expected exit code."""
        command: list[str | Path] = [sys.executable, "-c", "from towpath.cli import main; main()", *words]
        return self._run(f"towpath {' '.join(map(str, words))}", command, expect)

    def _run(self, words: str, command: Sequence[str | Path], expect: int = 0) -> str:
        packages = os.pathsep.join(map(str, (self.folder, self.folder / "verifier")))
        own = os.environ | {"PYTHONPATH": packages, "XDG_STATE_HOME": str(self.state)}
        done = subprocess.run(
            command, cwd=self.folder, env=own, capture_output=True, text=True, timeout=300, check=False
        )
        ended = f"{self.folder.name}: {words} ended with {done.returncode}"
        assert done.returncode == expect, f"{ended}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start_stack(self, options: StackOptions) -> Stack:
        """Start a stack whose processes have this version's settings; today's `towpath.stack.down` stops it."""
        given = {name: value for name, value in asdict(options).items() if value}  # it may not know what is off
        words = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
        code = (
            "import json, sys; from pathlib import Path; from towpath import stack; words = json.loads(sys.argv[1]);"
            ' places = {name: Path(words[name]) for name in ("directory", "plugins") if name in words};'
            " stack.up(stack.StackOptions(**(words | places)))"
        )
        self._run("stack.up", [sys.executable, "-c", code, json.dumps(words)])
        return status(options.directory)


def checkout(revision: str, folder: Path, state: Path) -> Checkout:
    """Unpack a revision of this repository into a new folder. Raises `NoRevision`."""
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        raise NoRevision(f"this clone does not hold {revision}: {packed.stderr.decode().strip()}")
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return Checkout(folder, state)
