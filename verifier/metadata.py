"""Compares options, views and indexes of collections, and gives the commands that correct a difference.

Fields that a server makes for itself (the uuid, versions of an index, of the collation library) do not count, and a
default counts the same whether it is written down or not. Nothing is changed here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bson.json_util import RELAXED_JSON_OPTIONS, dumps

from verifier import repair_commands
from verifier.descriptions import Client, Described, described, renamed, unlike, version
from verifier.differences import Namespace, Pair
from verifier.repair_commands import Command

Kind = Literal["collection", "option", "view", "index"]


@dataclass(frozen=True, slots=True)
class MetadataDifference:
    """One option, index or view that differs, or a whole collection; None for a side that does not have it."""

    pair: Pair
    kind: Kind
    name: str
    """Of the index or the option; empty for a whole collection."""
    what: str
    """The difference in words."""
    source: Any
    destination: Any
    commands: tuple[Command, ...]
    """What corrects it at the destination. Differences that share commands need them run only once."""

    @property
    def command(self) -> str:
        """The commands for MongoDB's shell, one on each line."""
        return "\n".join(command.text for command in self.commands)

    def as_json(self) -> dict[str, Any]:
        shown = {name: json.loads(_shown(getattr(self, name))) for name in ("source", "destination")}
        return {
            "namespace": self.pair.source,
            "destination_namespace": self.pair.destination,
            "kind": self.kind,
            "what": self.what,
            **shown,
            "command": self.command,
        }


@dataclass(frozen=True, slots=True)
class _Compared:
    """A pair with the descriptions of both servers."""

    pair: Pair
    source: Described
    destination: Described
    wanted: str
    """When or where the destination must have the source's form, in words."""
    version: repair_commands.Version
    """Of the destination."""

    def words(self, subject: str, source: Any, destination: Any) -> str:
        return f"{subject} is {_shown(source)} {self.wanted} and {_shown(destination)} at the destination"

    def difference(
        self, kind: Kind, name: str, what: str, source: Any, destination: Any, commands: Iterable[Command]
    ) -> MetadataDifference:
        return MetadataDifference(self.pair, kind, name, what, source, destination, tuple(commands))


@dataclass(frozen=True, slots=True)
class Form:
    """What a destination is compared with: derived from the source's description; `words` says when it applies."""

    of: Callable[[Described], Described]
    words: str


AS_IT_IS = Form(lambda described: described, "at the source")


def differences(
    source: Client, destination: Client, pairs: Iterable[Pair], form: Form = AS_IT_IS
) -> list[MetadataDifference]:
    """Compare the options and indexes of these collections, and these views.

    Run the commands in the order of the differences. Raises PyMongo's errors when a server does not answer.
    """
    return Looked.at(source, destination, pairs).differences(form)


@dataclass(frozen=True, slots=True)
class Looked:
    """The descriptions of these pairs by both servers, read at about the same time."""

    pairs: tuple[Pair, ...]
    source: Mapping[Namespace, Described]
    destination: Mapping[Namespace, Described]
    version: repair_commands.Version
    """Of the destination, which decides what can be changed in place."""

    @classmethod
    def at(cls, source: Client, destination: Client, pairs: Iterable[Pair]) -> Looked:
        """Read them. Raises PyMongo's errors when a server does not answer."""
        wanted = tuple(pairs)
        here = described(source, [pair.source for pair in wanted])
        there = described(destination, [pair.destination for pair in wanted])
        return cls(wanted, here, there, version(destination))

    def differences(self, form: Form = AS_IT_IS) -> list[MetadataDifference]:
        """See the function of this name."""
        names = {pair.source: pair.destination for pair in self.pairs}
        return [difference for pair in self.pairs for difference in self._of(pair, names, form)]

    def _of(self, pair: Pair, names: Mapping[Namespace, Namespace], form: Form) -> Iterator[MetadataDifference]:
        source, destination = self.source.get(pair.source), self.destination.get(pair.destination)
        if source is None:
            if destination is not None:
                what = f"the {destination.kind} is only at the destination"
                drop = (repair_commands.drop(pair.destination),)
                yield MetadataDifference(pair, _kind(destination), "", what, None, destination.options, drop)
            return
        source = form.of(renamed(source, pair, names))
        if destination is None:
            what = f"the {source.kind} is missing at the destination"
            make = tuple(repair_commands.create(pair.destination, source))
            yield MetadataDifference(pair, _kind(source), "", what, source.options, None, make)
            return
        compared = _Compared(pair, source, destination, form.words, self.version)
        if source.kind != destination.kind:
            what = f"it is a {source.kind} at the source and a {destination.kind} at the destination"
            commands = repair_commands.create_again(pair.destination, source)
            yield compared.difference(_kind(source), "", what, source.options, destination.options, commands)
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
        yield both.difference("view", name, both.words(f"the view's {name}", mine, theirs), mine, theirs, commands)


def _of_collection(both: _Compared) -> Iterator[MetadataDifference]:
    """Where one option cannot be changed, recreating the collection corrects all differences."""
    options = unlike(both.source.options, both.destination.options)
    changes = {
        name: repair_commands.option(both.pair.destination, name, both.source, both.destination) for name in options
    }
    fixed = [name for name, commands in changes.items() if commands is None]
    again = repair_commands.create_again(both.pair.destination, both.source) if fixed else None
    for name, commands in changes.items():
        mine, theirs = both.source.options.get(name), both.destination.options.get(name)
        what = both.words(f"the option {name}", mine, theirs)
        if name in fixed:
            what += "; it cannot be changed, and a recreated collection has no documents"
        yield both.difference("option", name, what, mine, theirs, again or commands or ())
    for name in repair_commands.in_order(both.source, both.destination):
        here, there = both.source.indexes.get(name), both.destination.indexes.get(name)
        commands = again or repair_commands.index(both.pair.destination, name, here, there, both.version)
        yield both.difference("index", name, _index_words(both, name, here, there), here, there, commands)


def _index_words(
    both: _Compared, name: str, source: Mapping[str, Any] | None, destination: Mapping[str, Any] | None
) -> str:
    if source is None or destination is None:
        side = "missing at" if destination is None else "only at"
        return f"the index {name} on {_shown((source or destination or {})['key'])} is {side} the destination"
    return "; ".join(
        both.words(f"the index {name}'s {field}", source.get(field), destination.get(field))
        for field in unlike(source, destination)
    )


def _shown(value: Any) -> str:
    return "null" if value is None else str(dumps(value, json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False))
