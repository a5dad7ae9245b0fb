"""The command line: `towpath VERB …`. Exit 0: same or done; 1: different, or not running; 2: trouble."""

from __future__ import annotations

import errno
import sys

import click

from connectors.errors import ConnectorsError, NotYet
from stack import StackError
from towpath.check import check
from towpath.compact import compact
from towpath.cutover.command import cutover
from towpath.ddl import ddl
from towpath.demo import demo
from towpath.deploy import deploy
from towpath.errors import TowpathError
from towpath.init import init
from towpath.pause import pause, resume
from towpath.prepare import prepare
from towpath.remove import remove
from towpath.repair import repair
from towpath.replay import replay
from towpath.resnapshot import resnapshot
from towpath.restart import restart
from towpath.run import run
from towpath.stack import stack
from towpath.status import status
from towpath.tail import tail
from towpath.verify import verify
from towpath.wait import wait
from verifier import VerifierError

DIFFERENT, TROUBLE = 1, 2


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="towpath")
def towpath() -> None:
    """Replicate MongoDB collections from one cluster to another through Kafka, continuously.

    Every verb but `stack` and `init` takes a pipeline file. Exit status: 0 done, running or same; 1 not running,
    not yet or different; 2 trouble (the message says what to do).
    """


for verb in (
    demo,
    stack,
    init,
    check,
    prepare,
    deploy,
    status,
    wait,
    verify,
    tail,
    repair,
    ddl,
    compact,
    run,
    replay,
    resnapshot,
    cutover,
    pause,
    resume,
    restart,
    remove,
):
    towpath.add_command(verb)


def _unraisable(found: sys.UnraisableHookArgs) -> None:
    """Say nothing of a connection pool that an interrupt left half made: the driver cannot close what is not there."""
    if found.exc_type is not AttributeError or getattr(found.object, "__qualname__", "") != "Pool.__del__":
        sys.__unraisablehook__(found)


def main() -> None:
    """Run the command line; the only place that turns errors into words and an exit status."""
    sys.unraisablehook = _unraisable
    try:
        ended = towpath(standalone_mode=False)  # click hands out the status of an Exit, and None otherwise
        sys.exit(ended if isinstance(ended, int) else 0)
    except click.Abort:
        click.echo("stopped", err=True)
        sys.exit(TROUBLE)
    except click.ClickException as error:
        error.show()
        sys.exit(TROUBLE)
    except NotYet as error:
        click.echo(f"towpath: {error}", err=True)
        sys.exit(DIFFERENT)
    except (ConnectorsError, StackError, TowpathError, VerifierError) as error:
        click.echo(f"towpath: {error}", err=True)
        sys.exit(TROUBLE)
    except BrokenPipeError:
        sys.stderr.close()  # what reads our output has gone, as with `| head`
        sys.exit(TROUBLE)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        click.echo(f"towpath: cannot write the output: {error.strerror}; make room there", err=True)
        sys.exit(TROUBLE)


if __name__ == "__main__":
    main()
