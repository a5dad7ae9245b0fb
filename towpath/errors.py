"""Errors of the command line itself.

TowpathError            root
└── BadPipelineFile     the pipeline file is missing, unreadable or says something that cannot be
"""

from __future__ import annotations

from confluent_kafka import KafkaException
from pymongo.errors import PyMongoError

from connectors.errors import ConnectorsError
from verifier import VerifierError


class TowpathError(Exception):
    """Root of this package's errors. `advice` is what to do, where the one who raises it knows; its message is both."""

    def __init__(self, found: str, advice: str = "") -> None:
        super().__init__(f"{found}; {advice}" if advice else found)
        self.found, self.advice = found, advice


#: What a step fails with.
ERRORS = (ConnectorsError, TowpathError, VerifierError, PyMongoError, OSError)
#: What may come of a look at a pipeline, and be over at the next one.
TROUBLE = (*ERRORS, KafkaException)


class BadPipelineFile(TowpathError):
    """The pipeline file is missing, unreadable or says something that cannot be."""
