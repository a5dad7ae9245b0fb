"""The form in which a collection takes replicated changes unharmed, and what is put right at the cutover.

Order holds for each document, not across documents, so a value of a unique index may be there twice for a moment.
The source's own deletes of expired and overflowing documents are replicated or seen by `verify`; two clocks must not
delete. What a validator refuses the source has taken already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from verifier.described import Described, Options
from verifier.metadata import Form

_OF_INDEX = {
    "unique": "uniqueness of the index {}",
    "prepareUnique": "uniqueness of the index {}",
    "expireAfterSeconds": "TTL of the index {}",
}


def harmless(wanted: Described) -> Described:
    """The collection without what would refuse or delete documents while they stream in; a view as it is."""
    if wanted.kind != "collection":
        return wanted
    options = {name: value for name, value in wanted.options.items() if name not in ("capped", "expireAfterSeconds")}
    if _refuses(options):
        options["validationAction"] = "warn"
    indexes = {name: _harmless_index(index) for name, index in wanted.indexes.items()}
    return replace(wanted, options=options, indexes=indexes)


def _refuses(options: Options) -> bool:
    return "validator" in options and options.get("validationAction") != "warn"


def _harmless_index(index: Options) -> Options:
    return {name: value for name, value in index.items() if name not in _OF_INDEX}


#: What a destination is compared with while changes stream in.
HARMLESS = Form(harmless, "while changes stream in")


def held_back(wanted: Described) -> Iterator[str]:
    """What waits for the cutover, in words."""
    if wanted.kind != "collection":
        return
    options: dict[str, Any] = wanted.options
    if "capped" in options:
        yield "its limit as a capped collection"
    if "expireAfterSeconds" in options:
        yield "its TTL"
    if _refuses(options):
        yield "the validator's refusals (it warns until then)"
    for name, index in wanted.indexes.items():
        yield from dict.fromkeys(words.format(name) for field, words in _OF_INDEX.items() if field in index)
