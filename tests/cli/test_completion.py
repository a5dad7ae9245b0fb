"""`towpath completion`: the script that it prints completes verbs, options and files in a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from towpath.cli import towpath

PROGRAMS = Path(sys.executable).parent


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script_for_towpath(shell: str) -> None:
    done = CliRunner().invoke(towpath, ["completion", shell])
    assert done.exit_code == 0
    assert "_TOWPATH_COMPLETE" in done.output


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [("ver", ["verify"]), ("verify --scr", ["--screen"])],
)
def test_bash_completes(words: str, offered: list[str]) -> None:
    typed = ["towpath", *words.split()]
    script = f"""
source <(towpath completion bash)
COMP_WORDS=({" ".join(typed)}) COMP_CWORD={len(typed) - 1}
_towpath_completion towpath
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == offered
