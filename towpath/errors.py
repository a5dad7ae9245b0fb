"""Errors of the command line itself.

TowpathError            root
└── BadPipelineFile     the pipeline file is missing, unreadable or says something that cannot be
"""


class TowpathError(Exception):
    """Root of this package's errors."""


class BadPipelineFile(TowpathError):
    """The pipeline file is missing, unreadable or says something that cannot be."""
