"""`towpath completion`: the script that it prints completes commands, options and files in a real shell."""

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


#: Shell -> a script that prints what completes the words.
SCRIPTS = {
    "bash": """
source <(towpath completion bash)
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_towpath_completion towpath
printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "zsh": r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= ; autoload -U compinit && compinit -D -u && source <(towpath completion zsh); print REA''DY"
zpty -r shell line '*READY*'
zpty -w -n shell $'{words}\t'
zpty -r shell line '*{offered}*'
print -r -- {offered}
""",
    "fish": """
towpath completion fish | source
complete -C '{words}'
""",
}


@pytest.mark.parametrize("shell", SCRIPTS)
@pytest.mark.parametrize(("words", "offered"), [("towpath ver", "verify"), ("towpath verify --scr", "--screen")])
def test_a_shell_completes(shell: str, words: str, offered: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = SCRIPTS[shell].format(words=words, offered=offered)
    environment = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}
    command = [shell, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [offered]
