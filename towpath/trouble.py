"""The exceptions of everything that Towpath uses."""

from __future__ import annotations

from confluent_kafka import KafkaException
from pymongo.errors import PyMongoError

from towpath.errors import TowpathError
from towpath_verifier import VerifierError

#: What a step fails with.
ERRORS = (TowpathError, VerifierError, PyMongoError, OSError)
#: Errors of reading a pipeline's state, which may be over at the next attempt.
TROUBLE = (*ERRORS, KafkaException)
