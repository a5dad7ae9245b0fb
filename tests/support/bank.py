"""Transfers between accounts of several collections, each in one transaction, with an entry in a journal.

Whatever the accounts hold is what the entries say: so a half transaction shows, whichever half it is.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from random import Random
from typing import Any

from bson import Timestamp
from pymongo import MongoClient, ReadPreference
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import PyMongoError

BANKS, ACCOUNTS, BALANCE = ("north", "east", "south", "west"), 50, 1_000


def fill(database: Database[dict[str, Any]]) -> None:
    for bank in BANKS:
        database[bank].insert_many([{"_id": number, "balance": BALANCE} for number in range(ACCOUNTS)])
    database["journal"].create_index("number", unique=True)


class Bank:
    """Transfers, in a thread, until the server is gone or `with` ends."""

    def __init__(self, uri: str, name: str, seed: int) -> None:
        # no retry, so that what is acknowledged is known: a commit without an answer may be there or not
        self._client: MongoClient[dict[str, Any]] = MongoClient(uri, serverSelectionTimeoutMS=2_000, retryWrites=False)
        self._database, self._random = self._client[name], Random(seed)
        self.acknowledged: dict[int, Timestamp] = {}
        """The number of each transfer → a time that is not before its commit, and before that of the next one."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Bank:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join(60)
        self._client.close()

    def _run(self) -> None:
        with self._client.start_session() as session:
            for number in itertools.count():
                if self._ends.is_set():
                    return
                try:
                    self._transfer(session, number)
                except PyMongoError:
                    return  # the source is gone
                assert session.operation_time is not None
                self.acknowledged[number] = session.operation_time

    def _transfer(self, session: ClientSession, number: int) -> None:
        random = self._random
        payer, payee = random.sample(BANKS, 2)
        entry = {
            "number": number,
            "from": [payer, random.randrange(ACCOUNTS)],
            "to": [payee, random.randrange(ACCOUNTS)],
            "amount": random.randrange(1, 100),
        }
        with session.start_transaction():
            for (bank, account), amount in ((entry["from"], -entry["amount"]), (entry["to"], entry["amount"])):
                self._database[bank].update_one({"_id": account}, {"$inc": {"balance": amount}}, session=session)
            self._database["journal"].insert_one({**entry, "_id": number}, session=session)


def assert_whole(database: Database[dict[str, Any]], acknowledged: Mapping[int, Timestamp], until: Timestamp) -> int:
    """What the accounts hold is what the journal says, which has exactly the transfers before `until`; their number.

    One whose time is `until` may be there.
    """
    read = database.with_options(read_preference=ReadPreference.PRIMARY)
    entries = {entry["number"]: entry for entry in read["journal"].find()}
    balances = {(bank, number): BALANCE for bank in BANKS for number in range(ACCOUNTS)}
    for entry in entries.values():
        balances[tuple(entry["from"])] -= entry["amount"]
        balances[tuple(entry["to"])] += entry["amount"]
    held = {(bank, one["_id"]): one["balance"] for bank in BANKS for one in read[bank].find()}
    assert held == balances
    assert sum(held.values()) == len(BANKS) * ACCOUNTS * BALANCE
    missing = [number for number, time in acknowledged.items() if time < until and number not in entries]
    later = [number for number, time in acknowledged.items() if time > until and number in entries]
    assert not missing and not later, (missing, later, until)
    assert sorted(entries) == list(range(len(entries)))
    return len(entries)
