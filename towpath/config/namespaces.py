"""Which collections a pipeline includes, and the topics of their records.

The same regular expression decides everywhere: in Debezium's `collection.include.list`, in the change stream filter
that Debezium derives from it (the server's PCRE) and in the sink's `topics.regex` (Java); `Selection.matches` decides
as it does. Debezium ignores case and, in the change stream, adds no anchors; `(?-i:…)`, `^` and `$` undo both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

_PATTERN = re.compile(r"[^.\0/\\\s\"$]+\.[^\0$]+")  # what MongoDB allows in names
#: The server's own databases, and Towpath's: what it keeps at a destination, which may also be a source.
RESERVED = ("admin", "config", "local", "towpath")
_NEVER = rf"(?!(?:{'|'.join(RESERVED)})\.)(?![^.]+\.system\.)"
_UUID = "-".join(f"[0-9a-f]{{{length}}}" for length in (8, 4, 4, 4, 12))
#: Collections that a server makes for a moment, for `$out`, a rename across databases, and `convertToCapped`.
_TEMPORARY = rf"(?![^.]+\.tmp(?:\.agg_out\.{_UUID}|[0-9A-Za-z]{{5}}\.(?:renameCollection|convertToCapped\..+))$)"


def is_pattern(text: str) -> bool:
    """Whether `text` is a namespace or a namespace pattern (`shop.orders`, `shop.*`, `*.audit_*`)."""
    return _PATTERN.fullmatch(text) is not None


def meet(one: str, other: str) -> str:
    """A pattern that both patterns match, by database and collection; empty where no name matches both.

    `shop.*` and `*.orders` meet in `shop.orders`, `shop.a*` and `shop.*b` in `shop.a*b`.
    """
    parts = [_narrower(*pair) for pair in zip(one.split(".", 1), other.split(".", 1), strict=True)]
    return ".".join(parts) if all(parts) else ""


def _narrower(one: str, other: str) -> str:
    for wide, narrow in ((one, other), (other, one)):
        if re.fullmatch(_escaped(wide, ".*"), narrow):
            return narrow
    if "*" not in one or "*" not in other:
        return ""
    (start, *inner, end), (other_start, *other_inner, other_end) = one.split("*"), other.split("*")
    first, last = max(start, other_start, key=len), max(end, other_end, key=len)
    if not (first.startswith(start) and first.startswith(other_start)):
        return ""
    return "*".join((first, *inner, *other_inner, last)) if last.endswith(end) and last.endswith(other_end) else ""


def _escaped(text: str, wildcard: str) -> str:
    """The text as a regex that has `wildcard` in place of `*`, and no commas, at which Debezium splits."""
    return wildcard.join(re.escape(part).replace(r"\-", "-").replace(",", r"\x2C") for part in text.split("*"))


def _either(patterns: Iterable[str]) -> str:
    names = (pattern.split(".", 1) for pattern in patterns)
    expressions = (f"{_escaped(database, '[^.]*')}\\.{_escaped(collection, '.*')}" for database, collection in names)
    return f"(?:{'|'.join(expressions)})"


@dataclass(frozen=True)
class Selection:
    """The namespaces that match one of `include`, none of `exclude` and, if given, one of `only`.

    Keep the object where many names are matched: it compiles its patterns once, which takes milliseconds for a thousand
    listed names. `matches` looks those up, and so takes no longer for them; else it is `namespace_regex`.
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    lasting: bool = False
    """Without the server's temporary collections."""

    @property
    def _limits(self) -> str:
        """What a name must not be, and what else it must be, to match."""
        exclude = f"(?!{_either(self.exclude)}$)" if self.exclude else ""
        only = f"(?={_either(self.only)}$)" if self.only else ""
        return _NEVER + (_TEMPORARY if self.lasting else "") + exclude + only

    @property
    def _core(self) -> str:
        return self._limits + _either(self.include)

    @property
    def namespace_regex(self) -> str:
        """Matches the whole name of a namespace, in Java, PCRE and Python alike; holds no comma."""
        return f"^(?-i:{self._core})$"

    def topic_regex(self, prefix: str) -> str:
        """Matches the whole name of a topic of these namespaces."""
        return f"^{re.escape(prefix)}\\.{self._core}$".replace(r"\-", "-")

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset(pattern for pattern in self.include if "*" not in pattern)

    @cached_property
    def _unlisted(self) -> re.Pattern[str]:
        return re.compile(self._limits + _either(pattern for pattern in self.include if "*" in pattern))

    @cached_property
    def _limited(self) -> re.Pattern[str]:
        return re.compile(self._limits)

    def matches(self, namespace: str) -> bool:
        if namespace in self._listed:
            return self._limited.match(namespace) is not None
        return bool(namespace) and self._unlisted.fullmatch(namespace) is not None


def topic_of(prefix: str, namespace: str) -> str:
    """The topic of a namespace: `<prefix>.<db>.<collection>`."""
    return f"{prefix}.{namespace}"


def namespace_of(prefix: str, topic: str) -> str:
    """The namespace whose records are on `topic`."""
    return topic.removeprefix(prefix + ".")


def unmatched(patterns: Iterable[str], namespaces: Collection[str]) -> Iterator[str]:
    """The patterns that match none of these namespaces."""
    known = frozenset(namespaces)
    for pattern in patterns:
        # a thousand listed names are not each compared with ten thousand collections
        if pattern not in known and not ("*" in pattern and any(map(Selection((pattern,)).matches, namespaces))):
            yield pattern


def renames_of(config: Mapping[str, str]) -> dict[str, str]:
    """The renames in a sink's configuration: source namespace → destination namespace; empty if it is not ours."""
    try:
        renames = json.loads(config.get("towpath.rename", "{}"))
    except (ValueError, RecursionError):
        return {}
    return {str(old): str(new) for old, new in renames.items()} if isinstance(renames, dict) else {}
