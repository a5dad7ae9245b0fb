"""What can go wrong during a comparison.

VerifierError           root; its message says what was attempted, where, what went wrong, and often what to do
├── ServerLost          a server was unreachable for too long
├── Unsuitable          the chosen way of comparing does not work here
└── WorkerDied          a worker process ended unexpectedly
"""


class VerifierError(Exception):
    """Root of all errors; raised as such when a server refuses a command or the journal cannot be written."""


class ServerLost(VerifierError):
    """A server was unreachable for too long (`Options.lost_for`); a journal keeps the ranges that were finished."""


class Unsuitable(VerifierError):
    """`Options.quiet` does not work here: somebody writes, or the server cannot show writes (a standalone)."""


class WorkerDied(VerifierError):
    """A worker process ended unexpectedly: somebody killed it, or memory ran out."""
