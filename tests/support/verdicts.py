"""The collection `towpath.verdicts`, in memory: what a server does with the operations of `towpath.store.verdict`."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError

from tests.support.sessions import FakeCluster
from towpath.store import verdict


class Verdicts:
    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.ahead_s = 0.0
        """By how many seconds the clocks of all machines are ahead of the server's."""

    def find_one(self, query: Mapping[str, Any], projection: Mapping[str, int] | None = None) -> dict[str, Any] | None:
        found = next((one for one in self.documents.values() if _matches(one, query)), None)
        left_out = {name for name, shown in (projection or {}).items() if not shown}
        return found and {name: deepcopy(value) for name, value in found.items() if name not in left_out}

    def update_one(self, query: Mapping[str, Any], update: Mapping[str, Any], upsert: bool = False) -> None:
        document = next((one for one in self.documents.values() if _matches(one, query)), None)
        if document is None:
            if not upsert:
                return
            if query["_id"] in self.documents:
                raise DuplicateKeyError("E11000 duplicate key error")
            document = self.documents[query["_id"]] = {"_id": query["_id"]}
        for operator, changes in update.items():
            for path, value in changes.items():
                holder, name = document, path
                if "." in path:
                    first, name = path.split(".")
                    holder = document.setdefault(first, {})
                if operator == "$unset":
                    holder.pop(name, None)
                elif operator == "$currentDate":
                    holder[name] = datetime.now(UTC) - timedelta(seconds=self.ahead_s)
                else:
                    assert operator == "$set"
                    holder[name] = value

    def replace_one(self, query: Mapping[str, Any], document: Mapping[str, Any], upsert: bool) -> None:
        self.documents[query["_id"]] = {**query, **document}


def _matches(document: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    for path, wanted in query.items():
        if path == "$or":
            if not any(_matches(document, one) for one in wanted):
                return False
            continue
        value: Any = document
        for name in path.split("."):
            value = (value or {}).get(name)
        if isinstance(wanted, Mapping):
            if value is not None and value > wanted["$not"]["$gt"]:
                return False
        elif value != wanted:
            return False
    return True


def destination(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A destination that has nothing but its verdicts."""
    monkeypatch.setattr(verdict, "_verdicts", lambda client: client)
    return FakeCluster(Verdicts(), side="destination")
