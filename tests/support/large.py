"""Large documents that come, change and go, with the counter that `tests.support.order` wants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

from bson import Int64
from pymongo.errors import ConnectionFailure, OperationFailure

from tests.support.raw import Documents
from tests.support.workload.versions import VERSION


class Large:
    """Seeded operations on few documents of up to `most` bytes each, which random bytes keep from being compressed."""

    def __init__(self, seed: int, documents: Documents, most: int, number: int = 4) -> None:
        self.seed = seed
        self._documents, self._most, self._number = documents, most, number
        self._random, self._versions = Random(seed), count(1)

    def fill(self) -> None:
        for identity in range(self._number):
            self._put(identity)

    def steps(self) -> Iterator[None]:
        while True:
            with suppress(ConnectionFailure, OperationFailure):  # whether it happened, both sides will say the same
                self._step()
            yield

    def _step(self) -> None:
        identity = self._random.randrange(self._number)
        match self._random.randrange(4):
            case 0:
                self._put(identity)
            case 1:
                self._documents.delete_one({"_id": identity})
            case 2:
                change: dict[str, Any] = {
                    "$set": {VERSION: Int64(next(self._versions)), "small": self._random.random()}
                }
                self._documents.update_one({"_id": identity}, change)
            case _:
                more = self._random.randbytes(self._random.randrange(self._most // 20))
                change = {
                    "$set": {VERSION: Int64(next(self._versions))},
                    "$push": {"parts": {"$each": [more], "$slice": -2}},
                }
                self._documents.update_one({"_id": identity}, change)

    def _put(self, identity: int) -> None:
        size = int(self._most * (0.02 + 0.78 * self._random.random() ** 3))  # few are near the most: they cost seconds
        document = {"_id": identity, VERSION: Int64(next(self._versions)), "bytes": self._random.randbytes(size)}
        self._documents.replace_one({"_id": identity}, document, upsert=True)
