"""The files of a pipeline's verdicts on this machine.

`verdict.jsonl` is the last verdict: JSON lines, the differences, then the counts. `follow.jsonl` is in the same format
what `verify --follow` has found; its last line also holds the positions from which the next one continues.
`follow.json` has its counts for `status`, written each second. `full.json` has those of the last verdict on everything.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

import towpath_verifier
from towpath.clients.kafka.topics import Place
from towpath.config.events import BadLine, Difference, Following, as_line, event
from towpath.errors import TowpathError
from towpath.store import state_files
from towpath_verifier import Key, Kind, Namespace, extended_json, id_key

KINDS: tuple[Kind, ...] = ("missing", "extra", "different", "order")


def path(pipeline: str) -> Path:
    """The file of a pipeline's last verdict on this machine."""
    return state_files.folder(pipeline) / "verdict.jsonl"


def followed_path(pipeline: str) -> Path:
    return state_files.folder(pipeline) / "follow.jsonl"


def full_path(pipeline: str) -> Path:
    return state_files.folder(pipeline) / "full.json"


def running_path(pipeline: str) -> Path:
    return platformdirs.user_state_path("towpath") / pipeline / "follow.json"  # read without making the folder


def _locked(place: Path) -> AbstractContextManager[object]:
    """A lock for replacing or changing a verdict."""
    return state_files.locked(place.with_name(f"{place.name}.lock"), wait=True)


def writing(pipeline: str) -> AbstractContextManager[state_files.Writing]:
    """A new last verdict, which replaces the old one at the end."""
    place = path(pipeline)
    return state_files.writing(place, _locked(place))


def difference(difference: towpath_verifier.Difference, destination_namespace: Namespace) -> Difference:
    """The event of one difference."""
    return Difference(
        namespace=difference.namespace,
        destination_namespace=destination_namespace,
        id=shown_id(difference.id),
        id_bson=difference.id.hex(),
        kind=difference.kind,
        paths=difference.paths,
    )


def shown_id(id: bytes) -> Any:
    """The `_id` as JSON; None where Extended JSON cannot express it exactly."""
    return json.loads(extended_json(id) or "null")


def read(place: Path) -> Iterator[Difference]:
    """The differences of documents in a verdict. Raises `TowpathError` when the file is missing or incomplete."""
    complete = False
    for number, line in enumerate(_lines(place), 1):
        if complete:
            raise TowpathError(f"{place}, line {number}: there is a line after the counts; run `towpath verify` again")
        complete = "clean" in line
        if complete or "command" in line:  # of options, views and indexes, which are not repaired through the log
            continue
        try:
            parsed = event(line)
            if not isinstance(parsed, Difference):
                raise BadLine("not a difference")
            bytes.fromhex(parsed.id_bson)
            yield parsed
        except ValueError as error:
            raise TowpathError(f"{place}, line {number}, is not a difference: {error!r}") from error
    if not complete:
        raise _incomplete(place)


def counts(place: Path) -> dict[str, Any]:
    """The last line of a verdict."""
    lines = deque(_lines(place), maxlen=1)
    last = lines[0] if lines else {}
    if "clean" not in last:
        raise _incomplete(place)
    return last


def _incomplete(place: Path) -> TowpathError:
    return TowpathError(f"{place} is not whole: its last line must hold the counts; run `towpath verify` again")


def remove_repaired(place: Path, repaired: Set[tuple[Namespace, Key]], only: str | None = None) -> int | None:
    """Remove the repaired documents from a verdict, and return how many differ still.

    With `only`, just if the verdict has this id; otherwise it returns None.
    """
    left = 0
    with _locked(place):
        if only is not None and (not place.exists() or counts(place).get("id") != only):
            return None
        removed: Counter[str] = Counter()
        with state_files.writing(place) as file:
            for line in _lines(place):
                if "id_bson" in line and (line["namespace"], id_key(bytes.fromhex(line["id_bson"]))) in repaired:
                    removed[line["kind"]] += 1
                    continue
                if "clean" in line:
                    line |= {kind: line[kind] - removed[kind] for kind in KINDS}
                    left = sum(line[kind] for kind in KINDS)
                    differs = any(line[kind] for kind in KINDS) or line.get("metadata") or line.get("errors")
                    line |= {"clean": not differs, "repaired": line.get("repaired", 0) + removed.total()}
                file.write(as_line(line))
    return left


def _lines(place: Path) -> Iterator[dict[str, Any]]:
    try:
        with place.open(encoding="utf-8") as file:
            for text in file:
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ValueError(f"{text[:40]!r} is not an object")
                yield line
    except FileNotFoundError as error:
        raise TowpathError(f"there is no verdict at {place}; run `towpath verify` first") from error
    except (OSError, ValueError) as error:
        raise TowpathError(f"cannot read the verdict {place}: {error}") from error


@dataclass(frozen=True, slots=True)
class FollowState:
    """`began`: the id of the verdict that it continues; `of`, `ignore_field_order`: what that compared, and how."""

    began: str
    of: str
    ignore_field_order: bool
    whole: bool
    """Whether that verdict gave a result for every document."""
    origin: Mapping[str, Any] | None
    at: float
    """Seconds since the epoch."""
    places: Mapping[Place, int]
    """The next offset of each partition; all records before it are compared."""
    waiting: Sequence[tuple[Namespace, bytes]]
    """Documents that differed and have to be compared again."""


def write_followed(
    pipeline: str, state: FollowState, differing: Iterable[Difference], counts: Mapping[str, Any]
) -> None:
    follow = {name: getattr(state, name) for name in FollowState.__dataclass_fields__} | {
        "places": [[*place, offset] for place, offset in state.places.items()],
        "waiting": [[namespace, id.hex()] for namespace, id in state.waiting],
    }
    with state_files.writing(followed_path(pipeline)) as file:
        for difference in differing:
            file.write(difference.line)
        file.write(as_line({**counts, "id": state.began, "follow": follow}))


def read_followed(pipeline: str) -> FollowState | None:
    """None if there is none. Raises `TowpathError` for a broken file."""
    place = followed_path(pipeline)
    if not place.exists():
        return None
    try:
        follow = counts(place)["follow"]
        places = {(topic, partition): offset for topic, partition, offset in follow["places"]}
        waiting = [(namespace, bytes.fromhex(id)) for namespace, id in follow["waiting"]]
        return FollowState(**follow | {"places": places, "waiting": waiting})
    except (KeyError, TypeError, ValueError) as error:
        raise TowpathError(f"cannot read {place}: {error!r}; remove it, then everything is compared again") from error


def write_running(pipeline: str, verdict: Following) -> None:
    state_files.folder(pipeline)
    with state_files.writing(running_path(pipeline)) as file:
        file.write(json.dumps(asdict(verdict)))


def update_running(pipeline: str, counts: Mapping[str, Any]) -> None:
    """Set the counts of differences in a running verdict that has ended."""
    if (verdict := read_running(pipeline)) is not None:
        write_running(pipeline, replace(verdict, **{kind: counts[kind] for kind in KINDS}))


def read_running(pipeline: str) -> Following | None:
    """The running verdict of a pipeline; None if there is none. Raises `TowpathError` for a broken file."""
    return _read_json(running_path(pipeline), "running verdict", lambda found: Following(**found).as_of_now())


def read_full(pipeline: str) -> dict[str, Any] | None:
    """The last verdict on everything, as stored on this machine. Raises `TowpathError` for a broken file."""

    def parsed(found: dict[str, Any]) -> dict[str, Any] | None:
        return found if found["id"] and found["at"] and isinstance(found["at_destination"], bool) else None

    return _read_json(full_path(pipeline), "verdict", parsed)


_T = TypeVar("_T")


def _read_json(place: Path, what: str, parsed: Callable[[dict[str, Any]], _T]) -> _T | None:
    try:
        return parsed(json.loads(place.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TowpathError(f"cannot read the {what} {place}: {error!r}; remove it") from error
