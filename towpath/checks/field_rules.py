"""The checks of rules for fields: paths that occur in no document, and what else of a collection needs their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from towpath.checks.rule import Finding, warning
from towpath.config.pipeline import FieldRule
from towpath_verifier import Mask

#: Where rules are in the pipeline file.
WHERE = "[[collections.rules]]"


class Occurrences:
    """Which paths of some rules occur in documents."""

    def __init__(self, rules: Sequence[FieldRule]) -> None:
        self._missing = {path: Mask((path,)) for rule in rules for path in rule.actions}
        self._seen = False

    def see(self, document: bytes) -> None:
        self._seen = True
        found = [path for path, mask in self._missing.items() if mask(document) is not document]
        for path in found:
            del self._missing[path]

    def findings(self) -> Iterator[Finding]:
        """Nothing where no document was seen."""
        for path in self._missing if self._seen else ():
            yield warning(
                f"has no field {path} in a sample, and a rule names it",
                "is it misspelt? `towpath rules PIPELINE --show NAMESPACE` shows what is left of documents",
                where=WHERE,
            )


def of_indexes(rules: Sequence[FieldRule], indexes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Indexes whose fields the rules take away. At the destination they are built on what is left."""
    for index in indexes:
        for path, action in _named(rules, index["key"]):
            what = f"its index {index['name']} is"
            if index.get("unique") and action != "hash":
                yield warning(
                    f"{what} unique, and a rule leaves {'nothing' if action == 'drop' else 'one value'} of {path}:"
                    " documents that are then alike cannot have a unique index at the destination",
                    f"hash {path}, which keeps values apart, or drop the index at the source",
                    where=WHERE,
                )
            if "expireAfterSeconds" in index:
                yield warning(
                    f"{what} a TTL index, and a rule leaves no date in {path}: after a cutover nothing expires",
                    "leave that field out of the rules, if documents must expire at the destination",
                    where=WHERE,
                )


def of_validator(rules: Sequence[FieldRule], validator: Mapping[str, Any]) -> Iterator[Finding]:
    """A validator that names what the rules take away."""
    words = set(_words(validator))
    for rule in rules:
        for path in rule.actions:
            if words.issuperset(path.split(".")):
                yield warning(
                    f"has a validator that names {path}, and a rule changes it: the destination only warns until a"
                    " cutover, and refuses writes afterwards",
                    "compare the validator with what `towpath rules PIPELINE --show NAMESPACE` prints",
                    where=WHERE,
                )


def _named(rules: Sequence[FieldRule], paths: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Path and kind of action of the rules that change what one of these paths leads to."""
    keys = [".".join(part for part in path.split(".") if not part.isdigit()) + "." for path in paths]
    for rule in rules:
        for path, action in rule.actions.items():
            if any(key.startswith(f"{path}.") or f"{path}.".startswith(key) for key in keys):
                yield path, action.partition(" ")[0]


def _words(value: Any) -> Iterator[str]:
    """All names and texts in it, split at their dots."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from name.lstrip("$").split(".")
            yield from _words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner)
    elif isinstance(value, str):
        yield from value.lstrip("$").split(".")
