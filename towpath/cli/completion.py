"""`towpath completion`"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PROGRAM, _VARIABLE = "towpath", "_TOWPATH_COMPLETE"  # the variable is click's: _PROGRAM_COMPLETE


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes verbs, options and files of `towpath`.

    \b
    bash:  towpath completion bash > ~/.local/share/bash-completion/completions/towpath
    zsh:   towpath completion zsh > "${fpath[1]}/_towpath"
    fish:  towpath completion fish > ~/.config/fish/completions/towpath.fish

    Exit codes: 0 printed; 2 the shell is not one of these.
    """
    script = get_completion_class(shell)
    assert script is not None, f"click has no completion for {shell}"
    click.echo(script(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())
