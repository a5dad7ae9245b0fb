"""Input of the demo, shaped like two real stores: mail, and sensor readings with a document per device and hour."""

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


def message(rng: random.Random) -> dict[str, Any]:
    """A mail of about 1 KB."""
    return {
        "_id": ObjectId(),
        "from": f"{rng.choice(_WORDS)}@example.org",
        "to": [f"{rng.choice(_WORDS)}@example.net" for _ in range(rng.randint(1, 3))],
        "subject": " ".join(rng.choices(_WORDS, k=6)),
        "received": _START + timedelta(seconds=rng.randrange(10**7)),
        "size": Int64(rng.randrange(10**6)),
        "folder": "inbox",
        "labels": [],
        "seen": False,
        "body": " ".join(rng.choices(_WORDS, k=140)),
    }


def reading(rng: random.Random, second: int) -> dict[str, Any]:
    """One reading, about 100 bytes of BSON."""
    return {
        "t": _START + timedelta(seconds=second),
        "temperature": rng.uniform(-20, 40),
        "humidity": rng.uniform(0, 1),
        "level_mm": rng.randrange(4000),
        "flow": rng.uniform(0, 9),
        "ok": True,
    }


def hour(rng: random.Random, device: int, number: int, readings: int) -> dict[str, Any]:
    """The document of one device and hour."""
    seconds = range(number * 3600, number * 3600 + readings)
    return {
        "_id": f"device-{device:02}:{number:04}",
        "device": device,
        "readings": [reading(rng, s) for s in seconds],
    }


def fill(store: Store, rng: random.Random, messages: int, hours: int) -> int:
    """Load the documents that exist before replication starts. Returns their number."""
    store.mail.messages.insert_many([message(rng) for _ in range(messages)])
    for number in range(hours):
        store.telemetry.hours.insert_many([hour(rng, device, number, 200) for device in range(DEVICES)])
    return messages + hours * DEVICES


class Writer:
    """Changes the source until it is stopped: makes every kind of change, and counts them.

    Each of the 50 devices pushes one reading per simulated second; simulated time runs faster than the clock.
    """

    def __init__(self, store: Store, rng: random.Random, first_hour: int) -> None:
        self.counts: Counter[str] = Counter()
        self._mail: Documents = store.mail.messages
        self._hours: Documents = store.telemetry.hours
        self._rng, self._second = rng, first_hour * 3600
        self._ids: list[ObjectId] = [document["_id"] for document in self._mail.find({}, {"_id": 1})]

    def run(self, stop: Event) -> None:
        while not stop.is_set():
            self._push_readings()
            for _ in range(20):
                self._change_mail()

    def _push_readings(self) -> None:
        second, self._second = self._second, self._second + 1
        for device in range(DEVICES):
            name = f"device-{device:02}:{second // 3600:04}"
            push = {"$push": {"readings": reading(self._rng, second)}, "$setOnInsert": {"device": device}}
            self._hours.update_one({"_id": name}, push, upsert=True)
        self.counts["pushed readings"] += DEVICES

    def _change_mail(self) -> None:
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("new mail", self._receive),
            ("mail marked as seen", lambda: self._update({"$set": {"seen": True}})),
            ("mail moved", lambda: self._update({"$set": {"folder": self._rng.choice(_WORDS)}})),
            ("labels added", lambda: self._update({"$addToSet": {"labels": self._rng.choice(_WORDS)}})),
            ("bodies removed", lambda: self._update({"$unset": {"body": ""}})),
            ("mail replaced", self._replace),
            ("mail deleted", self._delete),
        ]
        name, change = self._rng.choice(kinds)
        change()
        self.counts[name] += 1

    def _random_id(self) -> ObjectId:
        return self._rng.choice(self._ids)

    def _receive(self) -> None:
        new = message(self._rng)
        self._mail.insert_one(new)
        self._ids.append(new["_id"])

    def _update(self, change: dict[str, Any]) -> None:
        self._mail.update_one({"_id": self._random_id()}, change)

    def _replace(self) -> None:
        self._mail.replace_one({"_id": (name := self._random_id())}, message(self._rng) | {"_id": name})

    def _delete(self) -> None:
        at = self._rng.randrange(len(self._ids))
        self._ids[at], self._ids[-1] = self._ids[-1], self._ids[at]
        self._mail.delete_one({"_id": self._ids.pop()})
