"""The commands that give a collection of the destination the source's options and indexes. Nothing runs them here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import bson
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps

from towpath_verifier.descriptions import BUILDING, DEFAULTS, Described, Options, unlike


@dataclass(frozen=True, slots=True)
class Command:
    """A command for one database."""

    database: str
    body: Mapping[str, Any]

    @property
    def text(self) -> str:
        """`db.getSiblingDB("…").runCommand({…})`; values that JSON has no types for are Extended JSON."""
        where = f"db.getSiblingDB({json.dumps(self.database, ensure_ascii=False)})"
        if _is_plain(self.body):
            return f"{where}.runCommand({json.dumps(self.body, ensure_ascii=False)})"
        canonical = dumps(self.body, json_options=CANONICAL_JSON_OPTIONS, ensure_ascii=False)
        return f"{where}.runCommand(EJSON.deserialize({canonical}, {{relaxed: false}}))"


def _is_plain(value: Any) -> bool:
    """Whether the shell reads the value's JSON as exactly this value: it reads every whole number as an int32."""
    match value:
        case bson.Int64():
            return False
        case None | bool() | str():
            return True
        case int():
            return -_INT32 <= value < _INT32
        case float():
            return math.isfinite(value) and not value.is_integer()
        case Mapping():
            return all(map(_is_plain, value.values()))
        case list():
            return all(map(_is_plain, value))
    return False


Commands = Sequence[Command]
_INT32 = 2**31
_COARSENESS = ("seconds", "minutes", "hours")
#: A server's version, which decides its features.
Version = tuple[int, int]
#: `prepareUnique` refuses new duplicates; `unique` has none.
_UNIQUENESS = ("prepareUnique", "unique")
_UNIQUE_IN_PLACE: Version = (6, 0)
_TTL_IN_PLACE: Version = (5, 1)


def command(namespace: str, operation: str, **arguments: Any) -> Command:
    database, name = namespace.split(".", 1)
    return Command(database, {operation: name, **arguments})


def drop(namespace: str) -> Command:
    return command(namespace, "drop")


def create(namespace: str, wanted: Described) -> Commands:
    """Create a collection with its indexes, or a view."""
    options = {name: value for name, value in wanted.options.items() if name != "capped"}
    capped = wanted.options.get("capped")
    if capped:
        options |= {"capped": True, **capped}
    return [command(namespace, "create", **options), *_indexes(namespace, wanted.indexes)]


def create_again(namespace: str, wanted: Described) -> Commands:
    return [drop(namespace), *create(namespace, wanted)]


def _indexes(namespace: str, wanted: Mapping[str, Options]) -> Commands:
    if not wanted:
        return []
    indexes = [{**spec, "name": name} for name, spec in wanted.items()]
    for spec in indexes:
        spec.pop(BUILDING, None)
    return [command(namespace, "createIndexes", indexes=indexes)]


def of_view(namespace: str, wanted: Described, current: Described) -> Commands:
    if "collation" in unlike(wanted.options, current.options):
        return create_again(namespace, wanted)
    return [command(namespace, "collMod", viewOn=wanted.options["viewOn"], pipeline=wanted.options.get("pipeline", []))]


def option(namespace: str, name: str, wanted: Described, current: Described) -> Commands | None:
    """The commands that change one option; None if none can, so that the collection must be recreated."""
    mine, theirs = wanted.options.get(name), current.options.get(name)
    if name in DEFAULTS:
        return [command(namespace, "collMod", **{name: DEFAULTS[name] if mine is None else mine})]
    if name == "capped" and mine:
        return _cap(namespace, mine, current, wanted.indexes)
    if name == "expireAfterSeconds" and ("clusteredIndex" in current.options or current.kind == "timeseries"):
        return [command(namespace, "collMod", expireAfterSeconds="off" if mine is None else mine)]
    if name == "timeseries" and mine and _is_coarser(mine, theirs):
        return [command(namespace, "collMod", timeseries={"granularity": mine["granularity"]})]
    return None


def _cap(namespace: str, wanted: Mapping[str, int], current: Described, indexes: Mapping[str, Options]) -> Commands:
    """A capped collection's size changes in place; one that becomes capped loses its indexes, and gets these."""
    most = wanted.get("max", 0)  # 0 is no limit
    if "capped" in current.options:
        return [command(namespace, "collMod", cappedSize=wanted["size"], cappedMax=most)]
    limit = [command(namespace, "collMod", cappedMax=most)] if most else []
    return [command(namespace, "convertToCapped", size=wanted["size"]), *limit, *_indexes(namespace, indexes)]


def _is_coarser(wanted: Mapping[str, Any], current: Mapping[str, Any] | None) -> bool:
    """Whether only the granularity differs, in the one direction that a server allows."""
    if not current or {**wanted, "granularity": ""} != {**current, "granularity": ""}:
        return False
    new, old = wanted.get("granularity"), current.get("granularity")
    return new in _COARSENESS and old in _COARSENESS and _COARSENESS.index(new) > _COARSENESS.index(old)


def in_order(wanted: Described, current: Described) -> list[str]:
    """Names of the indexes that differ: first those to drop, which may conflict with one to create."""
    names = {**wanted.indexes, **current.indexes}
    both = wanted.indexes.keys() & current.indexes.keys()
    differing = [name for name in names if name not in both or unlike(wanted.indexes[name], current.indexes[name])]
    return sorted(differing, key=lambda name: (name in wanted.indexes, name))


def index(namespace: str, name: str, wanted: Options | None, current: Options | None, version: Version) -> Commands:
    """Create, drop or change one index; it is recreated where a server of this version cannot change it in place."""
    if wanted is None:
        return [command(namespace, "dropIndexes", index=name)]
    if current is None:
        return _indexes(namespace, {name: wanted})
    fields = [field for field in unlike(wanted, current) if field != BUILDING]  # which ends without a command
    if current.get("unique") and wanted.get("prepareUnique"):  # the same, for writes; a rebuild would only weaken it
        fields = [field for field in fields if field not in _UNIQUENESS]
    if all(_changes_in_place(field, wanted, current, version) for field in fields):
        return [command(namespace, "collMod", index={"name": name, **change}) for change in _changes(wanted, fields)]
    return [command(namespace, "dropIndexes", index=name), *_indexes(namespace, {name: wanted})]


def is_conversion(wanted: Mapping[str, Any] | None, current: Mapping[str, Any] | None) -> bool:
    """Whether the conversion of one of these indexes to unique would make them the same."""
    if wanted is None or current is None or sorted(unlike(wanted, current)) != sorted(_UNIQUENESS):
        return False
    return {index.get("unique", False) for index in (wanted, current)} == {True, False}


def _changes_in_place(field: str, wanted: Options, current: Options, version: Version) -> bool:
    match field:
        case "hidden":
            return True
        case "expireAfterSeconds":
            return field in wanted and (field in current or version >= _TTL_IN_PLACE)
        case "unique":
            return field in wanted and version >= _UNIQUE_IN_PLACE
        case "prepareUnique":
            return version >= _UNIQUE_IN_PLACE
    return False


def _changes(wanted: Options, fields: Sequence[str]) -> Iterator[Options]:
    """`unique` needs `prepareUnique`, a separate command; both come last, so that duplicates block nothing else."""
    together = {field: wanted.get(field, False) for field in ("expireAfterSeconds", "hidden") if field in fields}
    if together:
        yield together
    if "unique" in fields:
        if "prepareUnique" not in fields:  # else it is so already
            yield {"prepareUnique": True}
        yield {"unique": True}
    elif "prepareUnique" in fields:
        yield {"prepareUnique": wanted.get("prepareUnique", False)}
