"""Errors of the command line itself.

TowpathError            root
└── BadPipelineFile     the pipeline file is missing, unreadable or says something that cannot be
"""


class TowpathError(Exception):
    """Root of this package's errors. `advice` is what to do, where the one who raises it knows; its message is both."""

    def __init__(self, found: str, advice: str = "") -> None:
        super().__init__(f"{found}; {advice}" if advice else found)
        self.found, self.advice = found, advice


class BadPipelineFile(TowpathError):
    """The pipeline file is missing, unreadable or says something that cannot be."""
