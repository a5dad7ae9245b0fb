"""What can go wrong during a comparison.

VerifierError           root, with the fields `what`, `where`, `advice` and `code`
├── ServerLost          a server was unreachable for too long
├── Unsuitable          the chosen way of comparing does not work here
└── WorkerDied          a worker process ended unexpectedly
"""


class VerifierError(Exception):
    """Root of all errors; raised as such when a server refuses a command or the journal cannot be written.

    `what` went wrong; `where`: a namespace, side or file; `advice`: what to do; `code`: the name of the server's error
    code. Unknown fields are empty. The message is `where: what; advice`, without `where` if `what` contains it.
    """

    def __init__(self, what: str, advice: str = "", *, where: str = "", code: str = "") -> None:
        self.what, self.where, self.advice, self.code = what, where, advice, code
        super().__init__(f"{self.sentence}; {advice}" if advice else self.sentence)

    @property
    def sentence(self) -> str:
        """The message without the advice."""
        return f"{self.where}: {self.what}" if self.where and self.where not in self.what else self.what


class ServerLost(VerifierError):
    """A server was unreachable for too long (`Options.lost_for`); a journal keeps the ranges that were finished."""


class Unsuitable(VerifierError):
    """`Options.quiet` does not work here: there are writes, or the server cannot show them (a standalone)."""


class WorkerDied(VerifierError):
    """A worker process ended unexpectedly: somebody killed it, or memory ran out."""
