"""Compares options, views and indexes of collections; and the relaxed schema, under which documents are replicated.

Fields that a server generates (the uuid, versions of an index or of the collation library) do not count. An option at
its default equals an absent one. This module changes nothing.

The relaxed schema omits what would reject or delete documents. Changes are in order for each document, not across
documents, so that a value of a unique index may exist twice for a short time. The source's deletes of expired documents
are replicated; the destination must not delete by its own clock. The source has accepted what a validator may reject.

A former source keeps its indexes and limits when changes come back to it: only its TTL monitor and validators are
stopped, in place. (Dates from before 1958 still expire: no TTL is longer than 68 years.) A unique index there can
still reject a value that moves from one document to another. Servers accept no transaction on a capped collection
(code 263), so MongoSink cannot write to one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from bson.json_util import RELAXED_JSON_OPTIONS, dumps

from towpath_verifier import repair_commands
from towpath_verifier.descriptions import BUILDING, Described, Options, described, feature_version, renamed, unlike
from towpath_verifier.differences import Namespace, Pair
from towpath_verifier.reads import Client, refuse_stale
from towpath_verifier.repair_commands import Command, is_conversion

Kind = Literal["collection", "option", "view", "index"]


@dataclass(frozen=True, slots=True)
class MetadataDifference:
    """One option, index or view that differs, or a whole collection; None for a side that does not have it."""

    pair: Pair
    kind: Kind
    name: str
    """The name of the index or option; empty for a whole collection."""
    what: str
    """The difference in words."""
    source: Any
    destination: Any
    commands: Sequence[Command]
    """The commands that correct it at the destination. Differences that share commands need them run only once."""

    @property
    def awaits_conversion(self) -> bool:
        """Both indexes refuse new duplicates, and only one is unique: the other is to be converted (`collMod`).

        A cutover leaves an index so until its conversion is done, and for good if that has found duplicates.
        """
        return self.kind == "index" and is_conversion(self.source, self.destination)

    @property
    def command(self) -> str:
        """The commands for MongoDB's shell, one on each line."""
        return "\n".join(command.text for command in self.commands)

    def as_json(self) -> dict[str, Any]:
        values = {name: json.loads(_json(getattr(self, name))) for name in ("source", "destination")}
        return {
            "namespace": self.pair.source,
            "destination_namespace": self.pair.destination,
            "kind": self.kind,
            "what": self.what,
            **values,
            "command": self.command,
        }


@dataclass(frozen=True, slots=True)
class _Compared:
    """A pair with the descriptions of both servers."""

    pair: Pair
    source: Described
    destination: Described
    applies: str
    """When or where the source's value applies, for messages."""
    version: repair_commands.Version
    """The destination's version."""

    def describe(self, subject: str, source: Any, destination: Any) -> str:
        return f"{subject} is {_json(source)} {self.applies} and {_json(destination)} at the destination"


@dataclass(frozen=True, slots=True)
class Form:
    """What a destination is compared with: derived from the source's description; `applies` says when, for messages."""

    of: Callable[[Described], Described]
    applies: str


AS_IT_IS = Form(lambda described: described, "at the source")
"""What a destination is compared with by default: the same as at the source."""


@dataclass(frozen=True, slots=True)
class Schemas:
    """The descriptions of these pairs by both servers, read at about the same time."""

    pairs: tuple[Pair, ...]
    source: Mapping[Namespace, Described]
    destination: Mapping[Namespace, Described]
    version: repair_commands.Version
    """The destination's version, which decides what can be changed in place."""

    @classmethod
    def read(cls, source: Client, destination: Client, pairs: Iterable[Pair]) -> Schemas:
        """Read both servers' descriptions. Raises PyMongo's errors when a server does not answer."""
        pairs = tuple(pairs)
        for client in (source, destination):
            refuse_stale(client)
        ours = described(source, [pair.source for pair in pairs])
        theirs = described(destination, [pair.destination for pair in pairs])
        return cls(pairs, ours, theirs, feature_version(destination))

    def differences(self, form: Form = AS_IT_IS) -> list[MetadataDifference]:
        """What differs from the source in this form. Run the commands in the order of the differences."""
        names = {pair.source: pair.destination for pair in self.pairs}
        return [difference for pair in self.pairs for difference in self._of(pair, names, form)]

    def _of(self, pair: Pair, names: Mapping[Namespace, Namespace], form: Form) -> Iterator[MetadataDifference]:
        source, destination = self.source.get(pair.source), self.destination.get(pair.destination)
        if source is None:
            if destination is not None:
                what = f"the {destination.kind} is only at the destination"
                drop = [repair_commands.drop(pair.destination)]
                yield MetadataDifference(pair, _kind(destination), "", what, None, destination.options, drop)
            return
        source = form.of(renamed(source, pair, names))
        if destination is None:
            what = f"the {source.kind} is missing at the destination"
            create = repair_commands.create(pair.destination, source)
            yield MetadataDifference(pair, _kind(source), "", what, source.options, None, create)
            return
        compared = _Compared(pair, source, destination, form.applies, self.version)
        if source.kind != destination.kind:
            what = f"it is a {source.kind} at the source and a {destination.kind} at the destination"
            commands = repair_commands.create_again(pair.destination, source)
            yield MetadataDifference(pair, _kind(source), "", what, source.options, destination.options, commands)
        elif source.kind == "view":
            yield from _of_view(compared)
        else:
            yield from _of_collection(compared)


def _kind(described: Described) -> Kind:
    return "view" if described.kind == "view" else "collection"


def _of_view(both: _Compared) -> Iterator[MetadataDifference]:
    commands = repair_commands.of_view(both.pair.destination, both.source, both.destination)
    for name in unlike(both.source.options, both.destination.options):
        mine, theirs = both.source.options.get(name), both.destination.options.get(name)
        what = both.describe(f"the view's {name}", mine, theirs)
        yield MetadataDifference(both.pair, "view", name, what, mine, theirs, commands)


def _of_collection(both: _Compared) -> Iterator[MetadataDifference]:
    """Where one option cannot be changed, recreating the collection corrects all differences."""
    changes = {
        name: repair_commands.option(both.pair.destination, name, both.source, both.destination)
        for name in unlike(both.source.options, both.destination.options)
    }
    immutable = [name for name, commands in changes.items() if commands is None]
    recreate = repair_commands.create_again(both.pair.destination, both.source) if immutable else None
    for name, commands in changes.items():
        mine, theirs = both.source.options.get(name), both.destination.options.get(name)
        what = both.describe(f"the option {name}", mine, theirs)
        if name in immutable:
            what += "; it cannot be changed, and a recreated collection has no documents"
        yield MetadataDifference(both.pair, "option", name, what, mine, theirs, recreate or commands or ())
    # what becomes capped loses its indexes, and gets those of the source
    replaced = recreate or ("capped" not in both.destination.options and changes.get("capped"))
    for name in repair_commands.in_order(both.source, both.destination):
        mine, theirs = both.source.indexes.get(name), both.destination.indexes.get(name)
        commands = replaced or repair_commands.index(both.pair.destination, name, mine, theirs, both.version)
        what = _describe_index(both, name, mine, theirs)
        yield MetadataDifference(both.pair, "index", name, what, mine, theirs, commands)


def _describe_index(
    both: _Compared, name: str, source: Mapping[str, Any] | None, destination: Mapping[str, Any] | None
) -> str:
    if source is None or destination is None:
        side = "missing at" if destination is None else "only at"
        return f"the index {name} on {_json((source or destination or {})['key'])} is {side} the destination"
    if is_conversion(source, destination):
        side = "destination" if source.get("unique") else "source"
        return f"the index {name} refuses new duplicates at the {side}, and is not converted to unique there yet"
    if unlike(source, destination) == [BUILDING]:
        return f"the index {name} is being built at the {'source' if source.get(BUILDING) else 'destination'}"
    return "; ".join(
        both.describe(f"the index {name}'s {field}", source.get(field), destination.get(field))
        for field in unlike(source, destination)
    )


def _json(value: Any) -> str:
    return "null" if value is None else str(dumps(value, json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False))


#: The longest TTL that a server accepts, in seconds.
NEVER = 2**31 - 1
_OF_OPTION = {
    "capped": "its limit as a capped collection",
    "expireAfterSeconds": "its TTL",
    "validationAction": "the validator's refusals (it warns until then)",
}
_OF_INDEX = {
    "unique": "uniqueness of the index {}",
    "prepareUnique": "uniqueness of the index {}",
    "expireAfterSeconds": "TTL of the index {}",
}


def _harmless(omitted: Collection[str], change: Callable[[Options], Options], current: Described) -> Described:
    """Without the options `omitted`, with validators that only warn and changed indexes; only a collection changes."""
    if current.kind != "collection":
        return current
    options = {name: value for name, value in current.options.items() if name not in omitted}
    if "validator" in options:
        options["validationAction"] = "warn"
    return replace(current, options=options, indexes={name: change(index) for name, index in current.indexes.items()})


RELAXED = Form(
    partial(
        _harmless,
        {"capped", "expireAfterSeconds"},
        lambda index: {name: value for name, value in index.items() if name not in _OF_INDEX},
    ),
    "while changes stream in",
)
"""What a destination is compared with while changes stream in: without what would reject or delete documents."""
RELAXED_IN_PLACE = Form(
    partial(
        _harmless,
        {"expireAfterSeconds"},
        lambda index: index | {"expireAfterSeconds": NEVER} if "expireAfterSeconds" in index else index,
    ),
    "while changes stream back",
)
"""The same for a destination that existed before, such as a former source: with TTLs that delete nothing."""


def omitted(current: Described, form: Form) -> Iterator[str]:
    """Describe what this form leaves out of a collection."""
    harmless = form.of(current)
    options = unlike(current.options, harmless.options)
    yield from (text for name, text in _OF_OPTION.items() if name in options)
    for name, index in current.indexes.items():
        fields = unlike(index, harmless.indexes[name])
        yield from dict.fromkeys(text.format(name) for field, text in _OF_INDEX.items() if field in fields)
