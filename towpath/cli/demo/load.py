"""Input of the demo, shaped like two real stores: mail, and readings of devices in one document an hour."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

from bson import Int64, ObjectId
from pymongo import MongoClient
from pymongo.collection import Collection

NAMESPACES = ("mail.messages", "telemetry.hours")
DEVICES = 50
_WORDS = (
    *("canal", "lock", "barge", "towpath", "bridge", "wharf", "keeper", "rope"),
    *("horse", "boat", "water", "level", "gate", "miles", "load", "coal"),
)
_START = datetime(2026, 1, 1, tzinfo=UTC)

Store = MongoClient[dict[str, Any]]
Documents = Collection[dict[str, Any]]


def message(chance: random.Random) -> dict[str, Any]:
    """A mail of about 1 KB."""
    return {
        "_id": ObjectId(),
        "from": f"{chance.choice(_WORDS)}@example.org",
        "to": [f"{chance.choice(_WORDS)}@example.net" for _ in range(chance.randint(1, 3))],
        "subject": " ".join(chance.choices(_WORDS, k=6)),
        "received": _START + timedelta(seconds=chance.randrange(10**7)),
        "size": Int64(chance.randrange(10**6)),
        "folder": "inbox",
        "labels": [],
        "seen": False,
        "body": " ".join(chance.choices(_WORDS, k=140)),
    }


def reading(chance: random.Random, second: int) -> dict[str, Any]:
    """One reading, about 100 bytes of BSON."""
    return {
        "t": _START + timedelta(seconds=second),
        "temperature": chance.uniform(-20, 40),
        "humidity": chance.uniform(0, 1),
        "level_mm": chance.randrange(4000),
        "flow": chance.uniform(0, 9),
        "ok": True,
    }


def hour(chance: random.Random, device: int, number: int, readings: int) -> dict[str, Any]:
    """The document of one device and hour."""
    seconds = range(number * 3600, number * 3600 + readings)
    return {
        "_id": f"device-{device:02}:{number:04}",
        "device": device,
        "readings": [reading(chance, s) for s in seconds],
    }


def fill(store: Store, chance: random.Random, messages: int, hours: int) -> int:
    """Load what is there before replication begins; the number of documents."""
    store.mail.messages.insert_many([message(chance) for _ in range(messages)])
    for number in range(hours):
        store.telemetry.hours.insert_many([hour(chance, device, number, 200) for device in range(DEVICES)])
    return messages + hours * DEVICES


class Writer:
    """Changes the source until it is told to stop: every kind of change, and counts them.

    Each of the 50 devices pushes a reading a second in the time of the demo, which runs faster than the clock.
    """

    def __init__(self, store: Store, chance: random.Random, first_hour: int) -> None:
        self.counts: Counter[str] = Counter()
        self._mail: Documents = store.mail.messages
        self._hours: Documents = store.telemetry.hours
        self._chance, self._second = chance, first_hour * 3600
        self._ids: list[ObjectId] = [found["_id"] for found in self._mail.find({}, {"_id": 1})]

    def run(self, stop: Event) -> None:
        while not stop.is_set():
            self._push_readings()
            for _ in range(20):
                self._change_mail()

    def _push_readings(self) -> None:
        second, self._second = self._second, self._second + 1
        for device in range(DEVICES):
            name = f"device-{device:02}:{second // 3600:04}"
            push = {"$push": {"readings": reading(self._chance, second)}, "$setOnInsert": {"device": device}}
            self._hours.update_one({"_id": name}, push, upsert=True)
        self.counts["pushed readings"] += DEVICES

    def _change_mail(self) -> None:
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("new mail", self._receive),
            ("mail marked as seen", lambda: self._update({"$set": {"seen": True}})),
            ("mail moved", lambda: self._update({"$set": {"folder": self._chance.choice(_WORDS)}})),
            ("labels added", lambda: self._update({"$addToSet": {"labels": self._chance.choice(_WORDS)}})),
            ("bodies removed", lambda: self._update({"$unset": {"body": ""}})),
            ("mail replaced", self._replace),
            ("mail deleted", self._delete),
        ]
        name, change = self._chance.choice(kinds)
        change()
        self.counts[name] += 1

    def _any(self) -> ObjectId:
        return self._chance.choice(self._ids)

    def _receive(self) -> None:
        new = message(self._chance)
        self._mail.insert_one(new)
        self._ids.append(new["_id"])

    def _update(self, change: dict[str, Any]) -> None:
        self._mail.update_one({"_id": self._any()}, change)

    def _replace(self) -> None:
        self._mail.replace_one({"_id": (name := self._any())}, message(self._chance) | {"_id": name})

    def _delete(self) -> None:
        at = self._chance.randrange(len(self._ids))
        self._ids[at], self._ids[-1] = self._ids[-1], self._ids[at]
        self._mail.delete_one({"_id": self._ids.pop()})
