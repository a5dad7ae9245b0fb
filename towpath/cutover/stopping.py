"""How the writes to a cluster end: its writers are asked, by a command or in words, and the server may refuse them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from connectors.clusters import connected
from connectors.secrets import without_credentials
from towpath import write_block
from towpath.cutover.telling import Telling
from towpath.errors import TowpathError

_HOOK_S = 600  # seconds that a command of the user's may take


@dataclass(frozen=True, slots=True)
class Stopping:
    """`uri` and `side` are of the cluster; `command` is the user's; `blocks` has the server refuse writes."""

    uri: str
    side: str
    command: str | None
    blocks: bool

    @property
    def asks(self) -> bool:
        """Whether somebody has to say that the writes have ended."""
        return self.command is None and not self.blocks

    def stop(self, telling: Telling) -> None:
        """Return when nobody writes any more, as far as can be told. Raises `TowpathError`."""
        where = f"the {self.side} ({without_credentials(self.uri)})"
        if self.command is not None:
            with telling.step("stopping the writers"):
                hook(self.command)
        elif self.asks:
            telling.tell("stop writes", f"Stop all writes to {where} now, then press Enter; Ctrl-C leaves all as it is")
            if not sys.stdin.readline():
                raise TowpathError(
                    "nobody said that the writes are stopped: standard input has ended; answer with Enter, or use"
                    " --stop-with or --block-writes"
                )
        if self.blocks:
            with telling.step(f"blocking writes to {where}"), connected(self.uri, self.side) as client:
                write_block.block(client)
            if self.command is None:
                telling.tell("stop writes", f"writes to {where} are refused from now on")


def hook(command: str) -> None:
    """Run a command of the user's; what it prints goes to standard error. Raises `TowpathError` when it fails."""
    try:
        done = subprocess.run(
            command, shell=True, timeout=_HOOK_S, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TowpathError(f"{command!r} did not end within {_HOOK_S} s") from error
    if done.returncode:
        raise TowpathError(f"{command!r} ended with exit status {done.returncode}")


def allow(uri: str, side: str) -> None:
    """Let writes through again. Raises `TowpathError` with what does so by hand."""
    with connected(uri, side) as client:
        write_block.unblock(client)


def writes_through(uri: str, side: str) -> bool:
    """Whether this user's writes are taken while those of applications are refused."""
    with connected(uri, side) as client:
        return write_block.writes_through(client)
