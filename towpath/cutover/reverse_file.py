"""The pipeline file of the reverse pipeline, written from the other's: sides swapped, renames inverted."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from towpath.config import loading as pipeline_file
from towpath.errors import Refused, TowpathError
from towpath.namespaces import Renames, Selection

_LONGEST = 64  # characters of a pipeline's name
_AS_THEY_ARE = ("kafka", "connect", "write")


def back_file(path: Path) -> str:
    """The TOML of the pipeline that leads back: from the destination of this file's pipeline to its source.

    It has the same folder, where the files that it names are, and copies nothing. Its log is not compacted: it lives
    for as long as the way back is open. Raises `BadPipelineFile`, and `Refused` where there can be no way back.
    """
    pipeline = pipeline_file.read(path)
    if not pipeline.exactly_once:
        raise Refused(
            f'{pipeline.name} has mode = "plain", whose sink applies changes at least once, so that no moment divides'
            ' what it wrote from what others write: only pipelines with mode = "exactly-once" have a way back'
        )
    selection, renames = reverse(pipeline.selection, pipeline.renames)
    whole = renamed(pipeline.whole_documents, pipeline.selection, pipeline.renames)
    said = tomllib.loads(path.read_text(encoding="utf-8"))
    sections: dict[str, Mapping[str, Any]] = {
        "source": said["destination"],
        "destination": said["source"],
        "collections": {"include": selection.include, "exclude": selection.exclude},
        "collections.rename": renames.by_source,
        "capture": {"copy": "none", "whole_documents": whole},
        **{name: said[name] for name in _AS_THEY_ARE if name in said},
        "log": _some(said.get("log", {}), "retention"),
        "run": _some(said.get("run", {}), "verify", "repair"),
    }
    head = f"# The way back of the pipeline {pipeline.name}, from {path.name}.\n"
    return head + f"name = {_value(_name(pipeline.name))}\n" + "".join(map(_section, sections, sections.values()))


def back_path(path: Path) -> Path:
    """Where it lies: beside the file."""
    return path.with_name(f"{path.stem}-back.toml")


def write_back_file(path: Path) -> Path:
    """Write it beside the file, for its owner only; one that says the same stays.

    Raises `TowpathError` for one that says something else, besides what `back_file` raises.
    """
    file, text = back_path(path), other_refused(path)
    try:
        if not file.exists():
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        raise TowpathError(f"cannot write {file}: {error.strerror}") from error
    return file


def other_refused(path: Path) -> str:
    """`back_file`, where it can be written. Raises `TowpathError` when there is a file that says something else."""
    file, text = back_path(path), back_file(path)
    try:
        if file.exists() and file.read_text(encoding="utf-8") != text:
            raise TowpathError(f"{file} is there and is not the way back of {path} as it is now; move it away")
    except OSError as error:
        raise TowpathError(f"cannot read {file}: {error.strerror}") from error
    return text


def _name(name: str) -> str:
    found = f"{name}-back"
    if len(found) > _LONGEST:
        raise Refused(
            f"the way back of {name} would be called {found}, and a name has {_LONGEST} characters at most: a pipeline"
            f" with a way back needs a name of {_LONGEST - len('-back')} at most"
        )
    return found


def _some(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: section[key] for key in keys if key in section}


def _section(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"{_value(key) if '.' in key else key} = {_value(value)}\n" for key, value in values.items()]
    return f"\n[{name}]\n" + "".join(lines) if lines else ""


def _value(value: Any) -> str:
    """As TOML has it: JSON is, for texts of printable characters, whole numbers, truth values and lists of those."""
    return json.dumps(value, ensure_ascii=False)


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
