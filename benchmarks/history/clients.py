"""Clients that append numbers to lists, each in its thread, some of them in transactions over several collections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from random import Random
from typing import Any

from bson import Int64
from pymongo import WriteConcern
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import ConnectionFailure, OperationFailure

from tests.support import raw
from tests.support.workload.versions import VERSION
from tests.support.writer import Writer

#: The field that has the list.
LIST = "list"
#: The lists of the last collection keep their newest numbers: the log then has splices.
LISTS = ("lists", "more-lists", "capped-lists")
CAPPED, KEPT = LISTS[-1], 80
DOCUMENTS, FILLED = 8, 6
"""`_id`s of each collection, and how many of them there are at first."""
FILL = len(LISTS) * FILLED * KEPT
"""The numbers that are there at first."""
CLIENTS = 4
_PER_SECOND = 6.0  # of each client
_MAJORITY = WriteConcern("majority", wtimeout=30_000)
Append = tuple[Collection[dict[str, Any]], int, int]
"""A collection, an `_id`, the number."""


class Client:
    """Appends `first`, `first` + `CLIENTS`, …; `acknowledged` are the numbers that the server has acknowledged."""

    def __init__(self, seed: int, client: raw.Client, database: str, first: int) -> None:
        self.seed = seed
        self.acknowledged: set[int] = set()
        self._client, self._random, self._numbers = client, Random(seed), count(first, CLIENTS)
        self._collections = [client[database].get_collection(name, write_concern=_MAJORITY) for name in LISTS]

    def steps(self) -> Iterator[None]:
        while True:
            with suppress(ConnectionFailure, OperationFailure):  # whether it happened, both sides will say the same
                self._step()
            yield

    def _step(self) -> None:
        random = self._random
        appends = [self._draw() for _ in range(random.choice((1, 1, 2, 3, 4)))]
        if len(appends) == 1:
            self._append(appends[0], None)
        else:
            if random.random() < 0.5:  # two to one list: both records are in one partition of the log
                collection, identity, _ = appends[0]
                appends[1] = collection, identity, appends[1][2]
            with self._client.start_session() as session, session.start_transaction(write_concern=_MAJORITY):
                for append in appends:
                    self._append(append, session)
        self.acknowledged.update(number for _, _, number in appends)

    def _draw(self) -> Append:
        return self._random.choice(self._collections), self._random.randrange(DOCUMENTS), next(self._numbers)

    def _append(self, append: Append, session: ClientSession | None) -> None:
        """Beside the list, fields come and go, and a counter rises, as `tests.support.order` wants it."""
        collection, identity, number = append
        pushed = {"$each": [Int64(number)]} | ({"$slice": -KEPT} if collection.name == CAPPED else {})
        change: dict[str, Any] = {"$push": {LIST: pushed}, "$inc": {VERSION: 1}}
        change |= self._random.choice(({}, {"$set": {"last": number}}, {"$unset": {"last": ""}}))
        collection.update_one({"_id": identity}, change, upsert=True, session=session)


class Clients:
    """All of them. Most documents have a list before they begin, and the others come with their first number."""

    def __init__(self, seed: int, client: raw.Client, database: str) -> None:
        self._client, self._database = client, database
        self._first: set[int] = set()
        self._clients = [Client(seed + turn, client, database, FILL + turn) for turn in range(CLIENTS)]

    @property
    def acknowledged(self) -> set[int]:
        return self._first.union(*(client.acknowledged for client in self._clients))

    def fill(self) -> None:
        numbers = count()
        for name in LISTS:
            documents: list[dict[str, Any]] = [
                {"_id": identity, VERSION: 1, LIST: [Int64(next(numbers)) for _ in range(KEPT)]}
                for identity in range(FILLED)
            ]
            self._client[self._database][name].insert_many(documents)
            self._first |= {int(number) for document in documents for number in document[LIST]}

    @contextmanager
    def appending(self) -> Iterator[None]:
        with ExitStack() as writing:
            for client in self._clients:
                writing.enter_context(Writer(client, per_second=_PER_SECOND))
            yield
