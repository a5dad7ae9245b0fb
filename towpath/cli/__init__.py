"""The command line: `towpath COMMAND …`. Exit 0: same or done; 1: different, or not running; 2: error.

Its output may fail: the disk of a log is full, or the program that reads is gone. A command that changes something,
watches or judges continues and ends with the exit code of what it did. A command whose only result is its output ends
at the failure.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

import click
from click.shell_completion import CompletionItem, get_completion_class

from towpath.signals import Interrupts, handle

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

DIFFERENT, ERROR = 1, 2
#: What a full disk answers.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

#: Command → its module and its help in one line, in the order of `--help`.
_COMMANDS = {
    "demo": ("towpath.cli.demo", "Try Towpath: start a stack, replicate two databases, compare."),
    "stack": ("towpath.cli.stack", "Run MongoDB, Kafka and Connect on this machine for tests."),
    "init": ("towpath.cli.init", "Write a commented pipeline file."),
    "check": ("towpath.cli.check", "Check the pipeline file and all servers that it names."),
    "plan": ("towpath.cli.check", "Estimate time and disk, find what stops a pipeline."),
    "rules": ("towpath.cli.rules", "Show what rules let leave the source, before you deploy."),
    "prepare": ("towpath.cli.deploy", "Create collections, views and indexes at the destination."),
    "manifests": ("towpath.cli.manifests", "Print resources of Kubernetes, for Strimzi."),
    "topics": ("towpath.cli.topics", "Print the topics that someone else has to create."),
    "deploy": ("towpath.cli.deploy", "Create or update topics and connectors."),
    "status": ("towpath.cli.status", "Show connectors, copy, lag, rate and dead letters."),
    "wait": ("towpath.cli.wait", "Wait until everything written so far is at the destination."),
    "verify": ("towpath.cli.verify", "Compare both sides byte for byte while they change."),
    "repair": ("towpath.cli.repair", "Re-read documents that differ, through the log."),
    "run": ("towpath.cli.run", "Supervise a pipeline: restart, verify, repair, compact."),
    "monitor": ("towpath.cli.monitor", "Serve the page, API and metrics of pipelines."),
    "tail": ("towpath.cli.tail", "Print records of a change topic as Extended JSON."),
    "ddl": ("towpath.cli.ddl", "Show schema changes that are not at the destination."),
    "compact": ("towpath.cli.compact", "Prepare the log for compaction by Kafka's log cleaner."),
    "replay": ("towpath.cli.replay", "Rebuild a destination from the log."),
    "resnapshot": ("towpath.cli.resnapshot", "Re-read all documents after changes left the oplog."),
    "cutover": ("towpath.cli.cutover", "Make the destination primary, or fail back to the source."),
    "takeover": ("towpath.cli.takeover", "Make the destination primary when the source is lost."),
    "pause": ("towpath.cli.control", "Pause all connectors."),
    "resume": ("towpath.cli.control", "Resume paused connectors."),
    "restart": ("towpath.cli.control", "Restart failed connectors and tasks."),
    "remove": ("towpath.cli.control", "Remove the connectors and, with --topics, the log."),
    "doctor": ("towpath.cli.check", "Collect what a bug report needs, without secrets."),
    "completion": ("towpath.cli", "Print a script that completes commands in a shell."),
}
#: The commands whose only result is their output.
_PRINTING = frozenset({"check", "plan", "manifests", "rules", "topics", "status", "tail", "completion"})


class Unwritten(Exception):  # no OSError: click and rich end the process with 1 at a broken pipe
    """The command ends, because its output is all that it has to give."""


class Output(io.FileIO):
    """A file descriptor whose writes never fail, unless `is_required`: then they raise `Unwritten`."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.failure: OSError | None = None
        """Why something was not written."""
        self.is_required = False

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            while (written := super().write(data)) is None:  # another program has made the terminal non-blocking
                select.select([], [self], [])
            return written
        except OSError as error:
            self.failure = error
            if self.is_required:
                raise Unwritten from error
            return memoryview(data).nbytes

    @property
    def complaint(self) -> str:
        """A message about output that is missing; empty if none is, or if its reader has ended, as with `| head`."""
        if self.failure is None or self.failure.errno == errno.EPIPE:
            return ""
        advice = "; make room there" if self.failure.errno in _NO_ROOM else ""
        return f"towpath: cannot write the output: {self.failure.strerror}{advice}"


@contextmanager
def standard_streams() -> Iterator[Output | None]:
    """Replace `sys.stdout`, for which it returns what is written to, and `sys.stderr`; None if the former is closed.

    A character that their encoding lacks is written as an escape.
    """
    before = sys.stdout, sys.stderr
    output, errors = _output(sys.stdout), _output(sys.stderr)
    try:
        if output is not None:
            sys.stdout = _text(output, sys.stdout)
        if errors is not None:
            sys.stderr = _text(errors, sys.stderr)
        yield output
    finally:
        sys.stdout, sys.stderr = before


def _output(stream: TextIO | None) -> Output | None:
    try:
        return None if stream is None else Output(stream.fileno())
    except (OSError, ValueError):  # closed, or no file
        return None


def _text(output: Output, like: TextIO) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=like.encoding,
        errors="backslashreplace" if like.errors == "strict" else like.errors,
        line_buffering=output.isatty() or like is sys.stderr,
    )


class _Commands(click.Group):
    """A group that imports a command only when it is called, so that `--help`, `--version` and completion are fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(_COMMANDS[cmd_name][0]), cmd_name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Before `--help` and `--version` print, which they do here."""
        is_help = not args or args[0] not in _COMMANDS or not {"-h", "--help"}.isdisjoint(args)
        if isinstance(ctx.obj, Output) and (is_help or args[0] in _PRINTING):
            ctx.obj.is_required = True
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        named = ((name, line) for name, (_, line) in _COMMANDS.items() if name.startswith(incomplete))
        commands = [CompletionItem(name, help=line) for name, line in named]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, description) for name, (_, description) in _COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="towpath")
def towpath() -> None:
    """Replicate MongoDB collections from one cluster to another through Kafka, continuously.

    Every command except `demo`, `stack` and `completion` takes the path of a pipeline file; `init` writes that file.

    Exit codes: 0 done, running or same; 1 not running, not yet or different; 2 error (the message says what to do).
    Output that cannot be written changes none of them, but for `check`, `plan`, `manifests`, `status`, `tail` and
    `verify --follow`, which then end with 2.
    """


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options and files of `towpath`.

    \b
    bash:  towpath completion bash > ~/.local/share/bash-completion/completions/towpath
    zsh:   towpath completion zsh > "${fpath[1]}/_towpath"
    fish:  towpath completion fish > ~/.config/fish/completions/towpath.fish

    Exit codes: 0 printed; 2 the shell is not one of these.
    """
    script = get_completion_class(shell)
    assert script is not None, f"click has no completion for {shell}"
    # the variable is click's: _PROGRAM_COMPLETE
    click.echo(script(context.find_root().command, {}, "towpath", "_TOWPATH_COMPLETE").source())


def _expected() -> tuple[type[Exception], ...]:
    """The errors whose messages say what to do. Imported only after an error, since the import is slow."""
    from towpath.errors import TowpathError
    from towpath_verifier import VerifierError

    return TowpathError, VerifierError


def _unraisable(error: sys.UnraisableHookArgs) -> None:
    """Ignore the error of a connection pool whose construction was interrupted: `Pool.__del__` misses attributes."""
    if error.exc_type is not AttributeError or getattr(error.object, "__qualname__", "") != "Pool.__del__":
        sys.__unraisablehook__(error)


def launcher(name: str, arguments: Sequence[str]) -> list[str]:
    """The program and arguments that run a command of Towpath in a separate process."""
    # -P: do not import modules from the user's working directory
    return [sys.executable, "-P", "-m", "towpath.cli", name, *arguments]


def main() -> None:
    """Run the command line, and end the process at once.

    All is closed then; a usual exit would wait half a second for the driver's monitors, which sleep.
    """
    sys.unraisablehook = _unraisable
    os._exit(exit_code())


def exit_code() -> int:
    """Run the command line. Only this turns errors into messages and an exit code."""
    signals = Interrupts()
    handle(signals)
    with standard_streams() as output:
        try:
            status = _run(output)
        except Unwritten:
            status = ERROR
        except (click.Abort, KeyboardInterrupt, SystemError) as error:
            if isinstance(error, SystemError) and not signals.came:  # Kafka's client turns the one into the other
                raise
            click.echo("stopped", err=True)
            status = ERROR
        if output is not None and output.complaint:
            click.echo(output.complaint, err=True)
        return status


def _run(output: Output | None) -> int:
    try:
        status = towpath(standalone_mode=False, obj=output)  # click returns the status of an Exit, and otherwise None
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.ClickException as error:
        error.show()
        return ERROR
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        click.echo(f"towpath: {error}; make room there", err=True)
        return ERROR
    except _expected() as error:
        from towpath.errors import NotWhole, NotYet

        click.echo(f"towpath: {error}", err=True)
        return DIFFERENT if isinstance(error, NotYet | NotWhole) else ERROR
