"""Options, indexes and views of both sides, by code that shares nothing with the verifier.

A destination has the relaxed form while changes stream in: without what rejects or deletes documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import bson

from tests.support import raw

_OF_OPTIONS = ("capped", "size", "max", "expireAfterSeconds")
_OF_INDEX = ("unique", "prepareUnique", "expireAfterSeconds", "v", "ns", "background")

#: Namespace → kind, options and indexes by name, all of it relaxed.
Definitions = Mapping[str, tuple[str, dict[str, Any], dict[str, dict[str, Any]]]]


def definitions(client: raw.Client, databases: Iterable[str]) -> Definitions:
    found = {}
    for database in databases:
        for entry in client[database].list_collections():
            if entry["name"].startswith("system."):
                continue
            options = {name: value for name, value in entry.get("options", {}).items() if name not in _OF_OPTIONS}
            if "validator" in options:
                options["validationAction"] = "warn"
            indexes = {} if entry["type"] == "view" else _indexes(client, database, entry["name"])
            found[f"{database}.{entry['name']}"] = entry["type"], options, indexes
    return found


def _indexes(client: raw.Client, database: str, name: str) -> dict[str, dict[str, Any]]:
    listed = client[database][name].list_indexes()
    return {
        str(index["name"]): {key: value for key, value in index.items() if key not in _OF_INDEX}
        for index in map(dict, listed)
    }


def assert_same(source: raw.Client, destination: raw.Client, databases: Iterable[str]) -> int:
    """Fail unless both sides have the same collections, views, options and indexes; return how many collections."""
    names = tuple(databases)
    left, right = definitions(source, names), definitions(destination, names)
    faults = [f"only at the source: {name}" for name in left.keys() - right.keys()]
    faults += [f"only at the destination: {name}" for name in right.keys() - left.keys()]
    for name in left.keys() & right.keys():
        if _bytes(left[name]) != _bytes(right[name]):
            faults.append(f"{name}:\n  source      {left[name]}\n  destination {right[name]}")
    assert not faults, "\n".join(faults)
    return len(left)


def _bytes(definition: tuple[str, dict[str, Any], dict[str, dict[str, Any]]]) -> bytes:
    """The order of options and of indexes means nothing; the order within them does."""
    kind, options, indexes = definition
    ordered = {name: dict(sorted(index.items())) for name, index in sorted(indexes.items())}
    return bson.encode({"kind": kind, "options": dict(sorted(options.items())), "indexes": ordered})
