"""What else makes two collections the same: options, views and indexes, and the commands that mend a difference.

Fields that a server makes for itself (the uuid, versions of an index, of the collation library) do not count, nor
whether a default is written down. Nothing is changed here.
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
    """One thing in which two collections differ, in words; a side that does not have it has None."""

    pair: Pair
    kind: Kind
    name: str
    """Of the index or the option; empty for a whole collection."""
    what: str
    source: Any
    destination: Any
    commands: tuple[Command, ...]
    """What mends it at the destination. Differences that share commands are mended by running them once."""

    @property
    def command(self) -> str:
        """The commands for MongoDB's shell, one a line."""
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
    """A pair with what both servers tell of it."""

    pair: Pair
    source: Described
    destination: Described
    wanted: str
    """Where the source's form is wanted, in words."""
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
    """What a destination is compared with: made of what the source has, and who wants it so, in words."""

    of: Callable[[Described], Described]
    words: str


AS_IT_IS = Form(lambda described: described, "at the source")


def differences(
    source: Client, destination: Client, pairs: Iterable[Pair], form: Form = AS_IT_IS
) -> list[MetadataDifference]:
    """Compare the options and indexes of these collections, and these views.

    Commands go in the order in which they stand. Raises what PyMongo raises when a server cannot be asked.
    """
    return Looked.at(source, destination, pairs).differences(form)


@dataclass(frozen=True, slots=True)
class Looked:
    """What both servers told of these pairs, at one look."""

    pairs: tuple[Pair, ...]
    source: Mapping[Namespace, Described]
    destination: Mapping[Namespace, Described]
    version: repair_commands.Version
    """Of the destination, which decides what can be changed in place."""

    @classmethod
    def at(cls, source: Client, destination: Client, pairs: Iterable[Pair]) -> Looked:
        """Raises what PyMongo raises when a server cannot be asked."""
        wanted = tuple(pairs)
        here = described(source, [pair.source for pair in wanted])
        there = described(destination, [pair.destination for pair in wanted])
        return cls(wanted, here, there, version(destination))

    def differences(self, form: Form = AS_IT_IS) -> list[MetadataDifference]:
        """See the function of this name."""
        names = {pair.source: pair.destination for pair in self.pairs}
        return [found for pair in self.pairs for found in self._of(pair, names, form)]

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


def _kind(one: Described) -> Kind:
    return "view" if one.kind == "view" else "collection"


def _of_view(it: _Compared) -> Iterator[MetadataDifference]:
    commands = repair_commands.of_view(it.pair.destination, it.source, it.destination)
    for name in unlike(it.source.options, it.destination.options):
        mine, theirs = it.source.options.get(name), it.destination.options.get(name)
        yield it.difference("view", name, it.words(f"the view's {name}", mine, theirs), mine, theirs, commands)


def _of_collection(it: _Compared) -> Iterator[MetadataDifference]:
    """All are mended by making the collection again where one of its options cannot be changed."""
    options = unlike(it.source.options, it.destination.options)
    changes = {name: repair_commands.option(it.pair.destination, name, it.source, it.destination) for name in options}
    fixed = [name for name, commands in changes.items() if commands is None]
    again = repair_commands.create_again(it.pair.destination, it.source) if fixed else None
    for name, commands in changes.items():
        mine, theirs = it.source.options.get(name), it.destination.options.get(name)
        what = it.words(f"the option {name}", mine, theirs)
        if name in fixed:
            what += "; it cannot be changed, and a collection that is made again has no documents"
        yield it.difference("option", name, what, mine, theirs, again or commands or ())
    for name in repair_commands.in_order(it.source, it.destination):
        here, there = it.source.indexes.get(name), it.destination.indexes.get(name)
        commands = again or repair_commands.index(it.pair.destination, name, here, there, it.version)
        yield it.difference("index", name, _index_words(it, name, here, there), here, there, commands)


def _index_words(
    it: _Compared, name: str, source: Mapping[str, Any] | None, destination: Mapping[str, Any] | None
) -> str:
    if source is None or destination is None:
        side = "missing at" if destination is None else "only at"
        return f"the index {name} on {_shown((source or destination or {})['key'])} is {side} the destination"
    return "; ".join(
        it.words(f"the index {name}'s {field}", source.get(field), destination.get(field))
        for field in unlike(source, destination)
    )


def _shown(value: Any) -> str:
    return "null" if value is None else str(dumps(value, json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False))
