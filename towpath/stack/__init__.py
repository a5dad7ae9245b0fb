"""The embedded stack: two MongoDB replica sets, Kafka and Kafka Connect as local processes on 127.0.0.1."""

from towpath.stack.errors import (
    FolderUnusable,
    NoStack,
    NotReady,
    OptionsDiffer,
    PartUnavailable,
    PortInUse,
    ProcessDied,
    StackError,
    ToolMissing,
)
from towpath.stack.lifecycle import down, kill, options_of, restart, start, status, up
from towpath.stack.options import Stack, StackOptions
from towpath.stack.parts import export_plugins
from towpath.stack.processes import Process

__all__ = [
    "FolderUnusable",
    "NoStack",
    "NotReady",
    "OptionsDiffer",
    "PartUnavailable",
    "PortInUse",
    "Process",
    "ProcessDied",
    "Stack",
    "StackError",
    "StackOptions",
    "ToolMissing",
    "down",
    "export_plugins",
    "kill",
    "options_of",
    "restart",
    "start",
    "status",
    "up",
]
