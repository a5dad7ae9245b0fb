"""The embedded stack: two MongoDB replica sets, Kafka and Kafka Connect as local processes on 127.0.0.1."""

from towpath.errors import NoStack, StackError
from towpath.stack.lifecycle import down, options_of, status, up
from towpath.stack.parts import export_plugins
from towpath.stack.processes import Process
from towpath.stack.record import Stack, StackOptions

__all__ = [
    "NoStack",
    "Process",
    "Stack",
    "StackError",
    "StackOptions",
    "down",
    "export_plugins",
    "options_of",
    "status",
    "up",
]
