"""Work beside the main thread. The end of the process waits for none of it, so Ctrl-C always ends a command."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def begin(call: Callable[[], T], name: str) -> Future[T]:
    """What `call` returns or raises; it runs in a thread of this name, under the time limits of the caller."""
    ended: Future[T] = Future()

    def run() -> None:
        try:
            ended.set_result(call())
        except BaseException as error:  # noqa: BLE001 - for the caller
            ended.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return ended
