"""Collections, views and indexes as their server describes them, without what the server adds itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from multiprocessing.pool import ThreadPool
from typing import Any, Literal, TypeVar

import bson
from pymongo.errors import OperationFailure

from towpath_verifier.differences import Namespace, Pair
from towpath_verifier.reads import NAMESPACE_NOT_FOUND, Client, by_database

Kind = Literal["collection", "view", "timeseries"]
Options = dict[str, Any]
Answer = TypeVar("Answer")

#: Options that the server adds, or that newer servers no longer use.
_SERVER_MADE = {"uuid", "autoIndexId", "flags", "temp", "create", "recordPreImages"}
#: The value of an option that is absent.
DEFAULTS: Mapping[str, Any] = {
    "validator": {},
    "validationLevel": "strict",
    "validationAction": "error",
    "changeStreamPreAndPostImages": {"enabled": False},
}
#: The `max` of a capped collection whose limit of documents was removed.
_NO_LIMIT = 2**31 - 1
_UNAUTHORISED = 13  # MongoDB's error_codes.yml
_ALL_INDEXES = 1000  # more than a collection can have (64)
#: Marks an index that is not built to its end.
BUILDING = "building"
_INDEX_SERVER_MADE = {"v", "ns", "background", "dropDups"}
_FLAGS = ("unique", "sparse", "hidden", "prepareUnique")


@dataclass(frozen=True, slots=True)
class Described:
    """One namespace. `options` has `capped` as `{size, max}`; `indexes` go by name, without the one on `_id`."""

    kind: Kind
    options: Options
    indexes: Mapping[str, Options] = field(default_factory=dict)

    @property
    def building(self) -> list[str]:
        """The indexes that are not built to their end; they differ from ready ones."""
        return [name for name, index in self.indexes.items() if BUILDING in index]

    @property
    def ready(self) -> Described:
        """As if its index builds had ended."""
        return replace(self, indexes={name: _without(index, BUILDING) for name, index in self.indexes.items()})


def feature_version(client: Client) -> tuple[int, int]:
    """What decides the server's features: featureCompatibilityVersion, or the server's version where that is denied."""
    try:
        reply = client.admin.command("getParameter", featureCompatibilityVersion=1)
        major, minor = reply["featureCompatibilityVersion"]["version"].split(".")[:2]
    except OperationFailure as error:
        if error.code != _UNAUTHORISED:
            raise
        major, minor = client.admin.command("buildInfo")["versionArray"][:2]
    return int(major), int(minor)


def described(client: Client, namespaces: Iterable[str]) -> dict[str, Described]:
    """The descriptions of these namespaces, without those that do not exist."""
    descriptions = dict[str, Described]()
    for database, names in by_database(namespaces).items():
        for entry in client[database].list_collections(filter={"name": {"$in": names}}):
            name = f"{database}.{entry['name']}"
            descriptions[name] = Described(entry["type"], options(entry.get("options", {})))
    holders = [name for name, described in descriptions.items() if described.kind != "view"]
    for name, indexes in concurrently(lambda holder: _indexes(client, holder), holders).items():
        descriptions[name] = replace(descriptions[name], indexes=indexes)
    return descriptions


def _indexes(client: Client, namespace: str) -> dict[str, Options]:
    database, name = namespace.split(".", 1)
    listing = {"listIndexes": name, "includeBuildUUIDs": True, "cursor": {"batchSize": _ALL_INDEXES}}
    try:
        listed = client[database].command(listing)["cursor"]["firstBatch"]
    except OperationFailure as error:
        if error.code == NAMESPACE_NOT_FOUND:
            return {}
        raise
    specs = ({**entry["spec"], BUILDING: True} if "buildUUID" in entry else entry for entry in listed)
    return {spec["name"]: index(spec) for spec in specs if spec["name"] != "_id_" and not spec.get("clustered")}


_THREADS = 8  # commands that a server has to answer at the same time, at most
_SHARE = 25  # commands for which another thread is worth while; fewer are sent one after the other


def concurrently(ask: Callable[[Namespace], Answer], namespaces: Sequence[Namespace]) -> dict[Namespace, Answer]:
    """The answer for each namespace, where servers have no command that answers for all. Raises the first error.

    One after the other, ten thousand commands would take ten thousand times the way to the server and back.
    """
    threads = min(_THREADS, len(namespaces) // _SHARE)
    if threads < 2:
        return {name: ask(name) for name in namespaces}
    context = copy_context()

    def enter() -> None:  # as the driver's timeout is in it
        for variable, value in context.items():
            variable.set(value)

    with ThreadPool(threads, enter) as pool:  # whose end waits for no server that does not answer
        return dict(zip(namespaces, pool.imap(ask, namespaces), strict=True))


def options(listed: Mapping[str, Any]) -> Options:
    """A collection's options in one form: without defaults, and without numeric types where they mean nothing."""
    kept = {name: value for name, value in listed.items() if name not in _SERVER_MADE}
    capped, size, most = kept.pop("capped", False), kept.pop("size", 0), kept.pop("max", 0)
    if capped:
        kept["capped"] = {"size": _whole(size)} | ({"max": _whole(most)} if 0 < most < _NO_LIMIT else {})
    if "expireAfterSeconds" in kept:
        kept["expireAfterSeconds"] = _whole(kept["expireAfterSeconds"])
    if "clusteredIndex" in kept:
        kept["clusteredIndex"] = _without(kept["clusteredIndex"], "v")
    if "granularity" in kept.get("timeseries", {}):  # it determines the span
        kept["timeseries"] = _without(kept["timeseries"], "bucketMaxSpanSeconds")
    return {name: value for name, value in _collated(kept).items() if value != DEFAULTS.get(name)}


def index(listed: Mapping[str, Any]) -> Options:
    """An index's specification in one form, without its name."""
    kept = {name: value for name, value in listed.items() if name not in {*_INDEX_SERVER_MADE, "name"}}
    kept["key"] = {name: _whole(order) for name, order in kept["key"].items()}
    for flag in _FLAGS:
        if kept.pop(flag, False):
            kept[flag] = True
    if "expireAfterSeconds" in kept:
        kept["expireAfterSeconds"] = _whole(kept["expireAfterSeconds"])
    if "weights" in kept:
        kept["weights"] = {name: _whole(kept["weights"][name]) for name in sorted(kept["weights"])}
    return _collated(kept)


def _collated(options: Options) -> Options:
    """Without the version of the server's collation library; the simple collation counts as none."""
    collation = options.pop("collation", None)
    if collation and collation.get("locale") != "simple":
        options["collation"] = _without(collation, "version")
    return options


def _without(value: Mapping[str, Any], name: str) -> Options:
    return {key: inner for key, inner in value.items() if key != name}


def _whole(number: Any) -> Any:
    """An integral number as an int; anything else (`"text"`, NaN) unchanged."""
    if isinstance(number, bool) or not isinstance(number, int | float) or number % 1 != 0:
        return number
    return int(number)


def unlike(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    """The names of the options that differ. Types and the order of fields inside an option count."""
    return [name for name in {**left, **right} if _bytes(left.get(name)) != _bytes(right.get(name))]


def _bytes(value: Any) -> bytes:
    return bson.encode({"": value})


#: Stages that read another collection, and the field that names it.
_READS = {"$lookup": "from", "$graphLookup": "from", "$unionWith": "coll"}


def renamed(view: Described, pair: Pair, names: Mapping[Namespace, Namespace]) -> Described:
    """The view as it must be at the destination; anything but a view unchanged.

    A view reads only collections of the same database, so a collection that moved to another database keeps its name.
    """
    if view.kind != "view":
        return view
    ours, theirs = (f"{namespace.split('.', 1)[0]}." for namespace in (pair.source, pair.destination))

    def name(old: str) -> str:
        new = names.get(ours + old, ours + old)
        return new.removeprefix(theirs) if new.startswith(theirs) else old

    options = view.options | {
        "viewOn": name(view.options["viewOn"]),
        "pipeline": _renamed(view.options.get("pipeline", []), name),
    }
    return replace(view, options=options)


def _renamed(value: Any, name: Callable[[str], str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, name) for item in value]
    if not isinstance(value, Mapping):
        return value
    stages = {stage: _renamed(inner, name) for stage, inner in value.items()}
    for stage, target in _READS.items():
        inner = stages.get(stage)
        if isinstance(inner, str):  # {$unionWith: "collection"}
            stages[stage] = name(inner)
        elif isinstance(inner, dict) and isinstance(inner.get(target), str):
            inner[target] = name(inner[target])
    return stages
