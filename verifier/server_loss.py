"""Servers that are lost for a while: a read is tried again until they are back, or until patience is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tenacity
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError, WaitQueueTimeoutError

from verifier.errors import ServerLost, VerifierError

_T = TypeVar("_T")
#: Codes of a server that is going, coming, or no longer the primary (MongoDB, error_codes.yml).
_PASSING = frozenset({6, 7, 43, 89, 91, 133, 134, 175, 189, 237, 262, 9001, 10107, 11600, 11602, 13435, 13436})


def is_passing(error: BaseException) -> bool:
    """Whether the same read may succeed later."""
    if isinstance(error, OperationFailure) and not isinstance(error, ConnectionFailure):
        return error.code in _PASSING
    return isinstance(error, (ConnectionFailure, WaitQueueTimeoutError))


def patiently(
    what: str, patience: float, read: Callable[[], _T], say: Callable[[str], None] = lambda words: None
) -> _T:
    """What `read` returns, tried again for up to `patience` seconds while a server is lost.

    Raises `ServerLost` when it stays lost, `VerifierError` when the server refuses.
    """

    def told(state: tenacity.RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            say(f"cannot {what}: {brief(state.outcome.exception())}; trying again for {patience:g} s")

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_passing),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=5),
        stop=tenacity.stop_after_delay(patience),
        before_sleep=told,
        reraise=True,
    )
    try:
        return retrying(read)
    except PyMongoError as error:
        raise in_words(what, error) from error


def in_words(what: str, error: PyMongoError) -> VerifierError:
    """The error for people."""
    if is_passing(error):
        return ServerLost(f"cannot {what}: {brief(error)}")
    return VerifierError(f"cannot {what}: the server refused: {brief(error)}")


def brief(error: Any) -> str:
    """The first words of a driver's error."""
    details = getattr(error, "details", None) or {}
    return str(details.get("errmsg", error)).split(", full error")[0].split(", Timeout:")[0]
