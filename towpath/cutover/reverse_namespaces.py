"""Which namespaces the way back of a pipeline takes in, and what they are called there: pure names."""

from __future__ import annotations

from collections.abc import Iterable

from towpath.errors import Refused
from towpath.namespaces import Renames, Selection

#: Where sinks keep their positions, at the side that they write to. Patterns may take it in; it is nobody's document.
_OURS = "towpath.*"


def reverse(selection: Selection, renames: Renames) -> tuple[Selection, Renames]:
    """What is captured at the destination: exactly what a pipeline of these writes there; and the renames back.

    A pattern that the collections keep their names under stays, and takes in later ones as well. Raises `Refused` where
    patterns cannot say it.
    """
    moved = _moved(selection, renames)
    back = {new: old for old, new in moved.items()}
    for old, new in moved.items():
        if back[new] != old:
            raise Refused(f"{old} and {back[new]} are both written to {new}, so there is no way back; see [rename]")
    kept = tuple(pattern for pattern in selection.include if pattern not in moved)
    include = (*kept, *(new for new in back if not Selection(kept).matches(new)))
    left = tuple(old for old in moved if old not in back and Selection(kept).matches(old))
    found = Selection(include, (*(pattern for pattern in selection.exclude if pattern not in back), *left, _OURS))
    for new, old in back.items():
        if not found.matches(new):
            raise Refused(
                f"there is no way back for {old}: it is written to {new}, which a pattern of [collections] exclude"
                " takes in; name in exclude what is to be left out without a *"
            )
    return found, Renames(back)


def renamed(patterns: Iterable[str], selection: Selection, renames: Renames) -> tuple[str, ...]:
    """Patterns of namespaces at the source, as patterns at the destination that take in the same collections."""
    given, moved = tuple(patterns), _moved(selection, renames)
    names = (new for old, new in moved.items() if Selection(given).matches(old))
    return tuple(dict.fromkeys((*(pattern for pattern in given if pattern not in moved), *names)))


def _moved(selection: Selection, renames: Renames) -> dict[str, str]:
    """The renames that mean something: of what is taken in, to another name."""
    return {old: new for old, new in renames.by_source.items() if old != new and selection.matches(old)}
