"""What can go wrong while two sides are compared.

VerifierError           root; its message says what was attempted, where, what was found, what to do
├── ServerLost          a server did not come back in time; what was read so far is kept
├── Unsuitable          what was asked for cannot be compared in that way
└── WorkerDied          a worker process ended without a word
"""


class VerifierError(Exception):
    """Root of all errors of this package."""


class ServerLost(VerifierError):
    """A server did not come back in time; what was read so far is kept."""


class Unsuitable(VerifierError):
    """What was asked for cannot be compared in that way."""


class WorkerDied(VerifierError):
    """A worker process ended without a word."""
