"""What can go wrong with the embedded stack.

StackError                  root, below `towpath.errors.TowpathError`
├── ToolMissing             Java, Maven, Python's pip or a new enough version of one of them is not installed
├── PartUnavailable         a part (server, jars, plugins) could not be fetched, built or verified
├── PortInUse               a port that the stack needs is taken by another process
├── ProcessDied             a process ended while it was being waited for; the message ends with its last log lines
├── NotReady                a process runs but did not become ready in time
├── NoStack                 the folder holds no stack
├── OptionsDiffer           the folder holds a stack that was started with other options
└── FolderUnusable          the folder cannot be created or written, or its disk is full
"""

from __future__ import annotations

from towpath.errors import TowpathError


class StackError(TowpathError):
    """Root of this package's errors."""


class ToolMissing(StackError):
    """A program that the stack needs is not installed, or too old."""


class PartUnavailable(StackError):
    """A part could not be fetched, built or verified."""


class PortInUse(StackError):
    """A port that the stack needs is taken by another process."""


class ProcessDied(StackError):
    """A process ended while it was being waited for."""


class NotReady(StackError):
    """A process runs but did not become ready in time."""


class NoStack(StackError):
    """The folder holds no stack."""


class OptionsDiffer(StackError):
    """The folder holds a stack that was started with other options."""


class FolderUnusable(StackError):
    """The folder of the stack cannot be created or written, or its disk is full."""
