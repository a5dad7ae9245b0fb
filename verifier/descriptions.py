"""Collections, views and indexes as their server describes them, without what the server adds of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import bson
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from verifier.differences import Namespace, Pair

Kind = Literal["collection", "view", "timeseries"]
Options = dict[str, Any]
Client = MongoClient[dict[str, Any]]

#: Options that tell nothing about the content, or are history.
_SERVER_MADE = {"uuid", "autoIndexId", "flags", "temp", "create", "recordPreImages"}
#: What an option is when it is not there.
DEFAULTS: Mapping[str, Any] = {
    "validator": {},
    "validationLevel": "strict",
    "validationAction": "error",
    "changeStreamPreAndPostImages": {"enabled": False},
}
#: How a server lists a capped collection whose limit of documents was taken away.
_NO_LIMIT = 2**31 - 1
_UNAUTHORISED = 13  # MongoDB's error_codes.yml
_INDEX_SERVER_MADE = {"v", "ns", "background", "dropDups"}
_FLAGS = ("unique", "sparse", "hidden", "prepareUnique")


@dataclass(frozen=True, slots=True)
class Described:
    """One namespace. `options` has `capped` as `{size, max}`; `indexes` go by name, without the one on `_id`."""

    kind: Kind
    options: Options
    indexes: Mapping[str, Options] = field(default_factory=dict)


def version(client: Client) -> tuple[int, int]:
    """What the server's features go by: its featureCompatibilityVersion, or its own version to who may not see that."""
    try:
        found = client.admin.command("getParameter", featureCompatibilityVersion=1)
        major, minor = found["featureCompatibilityVersion"]["version"].split(".")[:2]
    except OperationFailure as error:
        if error.code != _UNAUTHORISED:
            raise
        major, minor = client.admin.command("buildInfo")["versionArray"][:2]
    return int(major), int(minor)


def described(client: Client, namespaces: Iterable[str]) -> dict[str, Described]:
    """Namespace → what the server tells of it; nothing of one that does not exist."""
    by_database: dict[str, list[str]] = {}
    for namespace in namespaces:
        database, name = namespace.split(".", 1)
        by_database.setdefault(database, []).append(name)
    found: dict[str, Described] = {}
    for database, names in by_database.items():
        for one in client[database].list_collections(filter={"name": {"$in": names}}):
            indexes = {} if one["type"] == "view" else _indexes(client, database, one["name"])
            found[f"{database}.{one['name']}"] = Described(one["type"], options(one.get("options", {})), indexes)
    return found


def _indexes(client: Client, database: str, name: str) -> dict[str, Options]:
    listed = [dict(one) for one in client[database][name].list_indexes()]
    return {one["name"]: index(one) for one in listed if one["name"] != "_id_" and not one.get("clustered")}


def options(listed: Mapping[str, Any]) -> Options:
    """A collection's options in one form: defaults are left out, and so are numbers' types where they mean nothing."""
    found = {name: value for name, value in listed.items() if name not in _SERVER_MADE}
    capped, size, most = found.pop("capped", False), found.pop("size", 0), found.pop("max", 0)
    if capped:
        found["capped"] = {"size": _whole(size)} | ({"max": _whole(most)} if 0 < most < _NO_LIMIT else {})
    if "expireAfterSeconds" in found:
        found["expireAfterSeconds"] = _whole(found["expireAfterSeconds"])
    if "clusteredIndex" in found:
        found["clusteredIndex"] = _without(found["clusteredIndex"], "v")
    if "granularity" in found.get("timeseries", {}):  # which the span follows from
        found["timeseries"] = _without(found["timeseries"], "bucketMaxSpanSeconds")
    return {name: value for name, value in _collated(found).items() if value != DEFAULTS.get(name)}


def index(listed: Mapping[str, Any]) -> Options:
    """An index's specification in one form, without its name."""
    found = {name: value for name, value in listed.items() if name not in {*_INDEX_SERVER_MADE, "name"}}
    found["key"] = {name: _whole(order) for name, order in found["key"].items()}
    for flag in _FLAGS:
        if found.pop(flag, False):
            found[flag] = True
    if "expireAfterSeconds" in found:
        found["expireAfterSeconds"] = _whole(found["expireAfterSeconds"])
    if "weights" in found:
        found["weights"] = {name: _whole(found["weights"][name]) for name in sorted(found["weights"])}
    return _collated(found)


def _collated(found: Options) -> Options:
    """Without the version of the server's collation library; the simple collation is none."""
    collation = found.pop("collation", None)
    if collation and collation.get("locale") != "simple":
        found["collation"] = _without(collation, "version")
    return found


def _without(value: Mapping[str, Any], name: str) -> Options:
    return {key: inner for key, inner in value.items() if key != name}


def _whole(number: Any) -> Any:
    """An integral number as an int; anything else (`"text"`, NaN) as it is."""
    if isinstance(number, bool) or not isinstance(number, int | float) or number % 1 != 0:
        return number
    return int(number)


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The names of the options that differ. Within one, types and the order of fields count, as in an expression."""
    return [name for name in {**one, **other} if _bytes(one.get(name)) != _bytes(other.get(name))]


def _bytes(value: Any) -> bytes:
    return bson.encode({"": value})


#: Stages that read another collection, and the field that names it.
_READS = {"$lookup": "from", "$graphLookup": "from", "$unionWith": "coll"}


def renamed(view: Described, pair: Pair, names: Mapping[Namespace, Namespace]) -> Described:
    """The view as it has to be at the destination; anything else as it is.

    A view reads collections of its own database only, so that one which went to another keeps its name here.
    """
    if view.kind != "view":
        return view
    here, there = (f"{namespace.split('.', 1)[0]}." for namespace in (pair.source, pair.destination))

    def name(old: str) -> str:
        new = names.get(here + old, here + old)
        return new.removeprefix(there) if new.startswith(there) else old

    options = view.options | {
        "viewOn": name(view.options["viewOn"]),
        "pipeline": _renamed(view.options.get("pipeline", []), name),
    }
    return replace(view, options=options)


def _renamed(value: Any, name: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(one, name) for one in value]
    if not isinstance(value, Mapping):
        return value
    return {stage: _stage(stage, _renamed(inner, name), name) for stage, inner in value.items()}


def _stage(stage: str, inner: Any, name: Any) -> Any:
    field = _READS.get(stage)
    if field is None:
        return inner
    if isinstance(inner, str):  # {$unionWith: "collection"}
        return name(inner)
    if isinstance(inner, Mapping) and isinstance(inner.get(field), str):
        return {key: name(old) if key == field else old for key, old in inner.items()}
    return inner
