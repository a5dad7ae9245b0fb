"""Views whose collections have other names at the destination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verifier.descriptions import Described
from verifier.differences import Namespace, Pair

#: Stages that read another collection, and the field that names it.
_READS = {"$lookup": "from", "$graphLookup": "from", "$unionWith": "coll"}


def renamed(view: Described, pair: Pair, names: Mapping[Namespace, Namespace]) -> Described:
    """The view as it has to be at the destination; anything else as it is.

    A view reads collections of its own database only, so that one which went to another keeps its name here.
    """
    if view.kind != "view":
        return view
    here, there = (f"{namespace.split('.', 1)[0]}." for namespace in (pair.source, pair.destination))

    def name(old: str) -> str:
        new = names.get(here + old, here + old)
        return new.removeprefix(there) if new.startswith(there) else old

    options = view.options | {
        "viewOn": name(view.options["viewOn"]),
        "pipeline": _renamed(view.options.get("pipeline", []), name),
    }
    return replace(view, options=options)


def _renamed(value: Any, name: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(one, name) for one in value]
    if not isinstance(value, Mapping):
        return value
    return {stage: _stage(stage, _renamed(inner, name), name) for stage, inner in value.items()}


def _stage(stage: str, inner: Any, name: Any) -> Any:
    field = _READS.get(stage)
    if field is None:
        return inner
    if isinstance(inner, str):  # {$unionWith: "collection"}
        return name(inner)
    if isinstance(inner, Mapping) and isinstance(inner.get(field), str):
        return {key: name(old) if key == field else old for key, old in inner.items()}
    return inner
