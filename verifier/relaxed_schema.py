"""The relaxed schema, under which a collection takes replicated changes, and what of the source's it holds back.

Order holds for each document, not across documents, so a value of a unique index may exist twice for a short time. The
source's own deletes of expired and overflowing documents are replicated, or `verify` sees them; two clocks must not
delete. What a validator would refuse, the source has accepted already.

A cluster that was a source until now keeps its indexes and its limits when changes come back to it: there only the TTL
monitor and validators are stopped, in place. (Dates from before 1958 still expire: no TTL is longer than 68 years.) A
unique index there can still refuse a value that is moving from one document to another. Servers accept no transaction
on a capped collection (code 263), so MongoSink cannot write to one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from verifier.descriptions import Described, Options
from verifier.metadata import Form

#: The longest TTL that a server accepts, in seconds.
NEVER = 2**31 - 1
_OF_INDEX = {
    "unique": "uniqueness of the index {}",
    "prepareUnique": "uniqueness of the index {}",
    "expireAfterSeconds": "TTL of the index {}",
}
_VALIDATOR = "the validator's refusals (it warns until then)"


def relaxed(wanted: Described) -> Described:
    """The collection without what would refuse or delete documents while changes stream in; a view unchanged."""
    if wanted.kind != "collection":
        return wanted
    options = {name: value for name, value in wanted.options.items() if name not in ("capped", "expireAfterSeconds")}
    if _refuses(options):
        options["validationAction"] = "warn"
    indexes = {name: _relaxed_index(index) for name, index in wanted.indexes.items()}
    return replace(wanted, options=options, indexes=indexes)


def _refuses(options: Options) -> bool:
    return "validator" in options and options.get("validationAction") != "warn"


def _relaxed_index(index: Options) -> Options:
    return {name: value for name, value in index.items() if name not in _OF_INDEX}


def in_place(current: Described) -> Described:
    """The collection with TTLs that delete nothing and validators that refuse nothing; a view unchanged."""
    if current.kind != "collection":
        return current
    options = {name: value for name, value in current.options.items() if name != "expireAfterSeconds"}
    if _refuses(options):
        options["validationAction"] = "warn"
    ttl = {name: index | {"expireAfterSeconds": NEVER} for name, index in current.indexes.items() if _expires(index)}
    return replace(current, options=options, indexes={**current.indexes, **ttl})


def _expires(index: Options) -> bool:
    return bool(index.get("expireAfterSeconds", NEVER) != NEVER)


#: What a destination is compared with while changes stream in.
HARMLESS = Form(relaxed, "while changes stream in")
#: The same for a destination that existed before, such as a former source.
HARMLESS_IN_PLACE = Form(in_place, "while changes stream back")


def stopped(current: Described) -> Iterator[str]:
    """What `in_place` stops of a collection, in words."""
    if current.kind != "collection":
        return
    if "expireAfterSeconds" in current.options:
        yield "its TTL"
    if _refuses(current.options):
        yield _VALIDATOR
    yield from (
        _OF_INDEX["expireAfterSeconds"].format(name) for name, index in current.indexes.items() if _expires(index)
    )


def held_back(wanted: Described) -> Iterator[str]:
    """What `relaxed` leaves out of a collection until the cutover, in words."""
    if wanted.kind != "collection":
        return
    options: dict[str, Any] = wanted.options
    if "capped" in options:
        yield "its limit as a capped collection"
    if "expireAfterSeconds" in options:
        yield "its TTL"
    if _refuses(options):
        yield _VALIDATOR
    for name, index in wanted.indexes.items():
        yield from dict.fromkeys(words.format(name) for field, words in _OF_INDEX.items() if field in index)
