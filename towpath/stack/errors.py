"""The errors of the embedded stack, all directly below `StackError`."""

from __future__ import annotations

from towpath.errors import TowpathError


class StackError(TowpathError):
    """Root of this package's errors, below `towpath.errors.TowpathError`."""


class ToolMissing(StackError):
    """Java, Maven or Python's pip is not installed, or too old."""


class PartUnavailable(StackError):
    """A part (server, jars, plugins) could not be fetched, built or verified."""


class PortInUse(StackError):
    """Another process uses a port that the stack needs."""


class ProcessDied(StackError):
    """A process ended while something waited for it; the message ends with its last log lines."""


class NotReady(StackError):
    """A process runs but did not become ready in time."""


class NoStack(StackError):
    """The folder holds no stack."""


class OptionsDiffer(StackError):
    """The folder holds a stack that was started with other options."""


class FolderUnusable(StackError):
    """The folder cannot be created or written, or its disk is full."""
