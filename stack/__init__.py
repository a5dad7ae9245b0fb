"""The embedded stack: two MongoDB replica sets, Kafka and Kafka Connect as local processes on 127.0.0.1."""

from stack.errors import (
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
from stack.lifecycle import down, options_of, status, up
from stack.options import Stack, StackOptions
from stack.parts import export_plugins
from stack.processes import Process
from stack.single import add_worker, kill, restart, start

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
    "add_worker",
    "down",
    "export_plugins",
    "kill",
    "options_of",
    "restart",
    "start",
    "status",
    "up",
]
