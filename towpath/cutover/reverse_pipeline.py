"""The reverse pipeline: a pipeline of the other direction, which begins while nothing writes.

To begin it, while the caller makes sure that nothing writes:

    make_ready             beforehand, while writes continue: topics, an idle sink, the source connectors STOPPED
    barrier.wait           of the pipeline: its sink has applied all
    control.stop           of the pipeline's sink; its capture continues
    begin                  the capture starts
    wait_begun             from here on, writes to the destination are replicated to the source

To fail back, again while nothing writes:

    barrier.wait           of the reverse pipeline: its sink has applied all
    deployment.remove      the reverse pipeline, with its log
    barrier.wait_captured  of the pipeline: what the reverse pipeline wrote is in its log as well
    written_ends           the end of that, in each partition
    skip_to_end            the pipeline's sink skips that, because its destination has it already
    connect.resume         the pipeline's sink

So the two sinks never write at the same time, and neither reads what the other wrote. The file of the reverse pipeline
is derived from the pipeline's file: sides swapped, renames inverted.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from towpath.checks.change import left_by_removal
from towpath.checks.facts import Facts
from towpath.clients.connect.control import Wait, statuses, wait_running, wait_stopped
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import ClusterTime
from towpath.clients.mongo.replica_set import operation_time
from towpath.config import loading as pipeline_file
from towpath.config.loading import REVERSE, reverse_file_path
from towpath.config.namespaces import Selection
from towpath.config.pipeline import Pipeline
from towpath.config.text import first_few
from towpath.deploy import deployment
from towpath.errors import BadPipelineFile, NotYet, Refused, TowpathError
from towpath.files import replacing
from towpath.history import rebuild
from towpath.log.definitions import pipeline_topics
from towpath.log.lag import change_topics, unread
from towpath.log.source_offsets import read_state
from towpath.session import Session, opened
from towpath.store import positions

_POLL_S = 0.05
_SHOWN = 3  # names in a message
_REMOVE = "`towpath remove --topics` with the file of the reverse pipeline removes that; then begin again"


def refuse_existing(reverse: Session) -> None:
    """Raise `Refused` when there is a reverse pipeline already, or anything is left of one.

    Its positions or records would be taken for the new one's, and the undo of a cutover would remove it.
    """
    existing = [name for name in reverse.pipeline.connectors if reverse.connect.config(name) is not None]
    if existing:
        raise Refused(f"there is a reverse pipeline already: {', '.join(existing)}; {_REMOVE}")
    _refuse_used(reverse)


def make_ready(reverse: Session, timeout: float = 120) -> None:
    """Create what the reverse pipeline needs and lacks, so that `begin` only has to start it.

    `timeout` is in seconds. Raises what `refuse_existing` and a deployment raise.
    """
    refuse_existing(reverse)
    facts = Facts(reverse, allow_missing=True, create_stopped=reverse.pipeline.source_connectors)
    for change in deployment.plan(facts):
        reverse.say(change.description)
        change.apply()
    for name in reverse.pipeline.source_connectors:
        wait_stopped(reverse.connect, name)
        deployment.forget_earlier(reverse, name)  # of one that was removed without its log
    wait_running(reverse.connect, [reverse.pipeline.sink_connector], timeout)


def begin(reverse: Session, forward: Pipeline) -> ClusterTime:
    """Have Connect start the capture of the reverse pipeline from `make_ready`; return its source's time before that.

    Nothing that the sink of `forward` wrote is later, as that sink is STOPPED; nothing may write until `wait_begun`
    returns. Raises `Refused` when a connector is not STOPPED.
    """
    names = reverse.pipeline.source_connectors
    refuse_unstopped(reverse.connect, [forward.sink_connector, *names])
    with reverse.source.connected() as client:
        before = operation_time(client)
    for name in names:
        reverse.connect.resume(name)
    return before


def wait_begun(reverse: Session, before: ClusterTime, timeout: float) -> ClusterTime:
    """The cluster time by which the capture has started; every later write is replicated.

    `before` is what `begin` returned, `timeout` in seconds. Raises `Refused` when the capture continues from an earlier
    time, so that it might hold what the other sink wrote; `NotYet` and `TowpathError` when it does not start.
    """
    connect, names = reverse.connect, reverse.pipeline.source_connectors

    def start_of_capture() -> ClusterTime:
        # once a task is RUNNING, it has started; that costs Connect nothing to tell, the offsets a read of their topic
        if starting := [one.name for one in statuses(connect, names) if not one.running]:
            raise NotYet(f"{', '.join(starting)} is not running")
        starts = {name: read_state(connect, name).start for name in names}
        known = [start for start in starts.values() if start is not None]
        if len(known) < len(starts):
            missing = ", ".join(name for name, start in starts.items() if start is None)
            raise NotYet(f"{missing} has not committed anything")
        if min(known) < before:
            raise Refused(f"{', '.join(names)} has captured before, and continues from its old position; {_REMOVE}")
        return max(known)

    late = "the reverse pipeline has not started in time"
    return Wait(connect, names, timeout, late, pause=_POLL_S, failed_for=0).until(start_of_capture)


def written_ends(session: Session, timeout: float) -> dict[Place, int]:
    """Partition → the end of all that is in the log now, once every transaction in it has ended.

    The ends are the high watermarks: the last stable offset may come before the last commit. `timeout` is in seconds.
    Raises `NotYet`.
    """
    topics = session.topics
    existing = change_topics(session.pipeline, topics.all())
    ends, until = topics.written(existing), time.monotonic() + timeout
    while True:
        open_ends = list(unread(ends, topics.ends(existing)))
        if not open_ends:
            return ends
        if time.monotonic() > until:
            topic, partition = open_ends[0]
            raise NotYet(
                f"{topic}, partition {partition}: a transaction has not ended; `towpath restart {session.file}` ends it"
                " as had been decided"
            )
        time.sleep(_POLL_S)


def skip_to_end(session: Session, ends: Mapping[Place, int]) -> int:
    """Move the sink, which must be STOPPED, to these ends of its log; return the number of partitions.

    Both sides must have the same documents, as far as the log names them before the ends. What is captured after them
    is applied. Raises `Refused`.
    """
    refuse_unmovable(session)
    with session.destination.connected() as client:
        positions.skip_to(client, session.pipeline, ends, datetime.now(UTC))
    return len(ends)


def refuse_unmovable(session: Session) -> None:
    """Raise `Refused` unless the sink can skip what is in the log."""
    refuse_unstopped(session.connect, [session.pipeline.sink_connector])
    rebuild.refuse_unapplied(session)


def refuse_unstopped(connect: Connect, names: Iterable[str]) -> None:
    """Raise `Refused` unless these connectors exist and are STOPPED without a task."""
    for connector in statuses(connect, names):
        if connector.state != "STOPPED" or connector.tasks:
            raise Refused(f"{connector.name} is {connector.state} with {len(connector.tasks)} tasks, not STOPPED")


def _refuse_used(reverse: Session) -> None:
    """Raise `Refused` when the log has records or the sink has positions: an earlier reverse pipeline left them."""
    pipeline, existing = reverse.pipeline, reverse.topics.all()
    own = [existing[name] for name in pipeline_topics(pipeline, existing) if name not in pipeline.heartbeat_topics]
    used = sorted({topic for (topic, _), end in reverse.topics.written(own).items() if end > 0})
    if used and pipeline.kafka.topics == "exist":
        raise Refused(
            f"{first_few(used, 3)} hold records, of an earlier reverse pipeline or of someone else",
            "if no one needs the records, delete these topics and create them again, as `towpath topics PIPELINE"
            " --reverse` prints them; then begin again",
        )
    if used:
        others = Facts(reverse).own_topics.others
        if foreign := [topic for topic in used if topic in others]:
            stops = any(map(pipeline.is_change_topic, foreign))
            words = ("the log", ", whose source would stop there (TWP-HISTORY-LOST)") if stops else ("topics", "")
            raise Refused(
                f"{first_few(foreign, 3)} hold records, and have names of {words[0]} of {pipeline.name}{words[1]}",
                left_by_removal(foreign),
            )
        raise Refused(f"{', '.join(used[:3])} hold records of an earlier reverse pipeline; {_REMOVE}")
    with reverse.destination.connected() as client:
        if any(position.offset > 0 for position in positions.positions(client, pipeline).values()):
            raise Refused(f"the sink {pipeline.sink_connector} has positions of an earlier reverse pipeline; {_REMOVE}")


_MAX_NAME = 64  # characters of a pipeline's name
_COPIED_SECTIONS = ("kafka", "connect", "write")


def reverse_file_text(path: Path) -> str:
    """The TOML of the reverse pipeline: from the destination of this file's pipeline to its source.

    It makes no initial copy and does not compact its log, which exists only until the fail back. It belongs into the
    same folder, because it names the same files. Raises `BadPipelineFile`, and `Refused` where no reverse pipeline is
    possible.
    """
    pipeline = pipeline_file.read(path)
    if not pipeline.exactly_once:
        raise Refused(
            f'{pipeline.name} has mode = "plain", whose sink applies changes at least once, so that no point in time'
            ' separates its writes from those of others; a reverse pipeline needs mode = "exactly-once"'
        )
    if pipeline.collections.rules:
        raise Refused(
            f"{pipeline.name} has rules, so there can be no reverse pipeline: it would write to the source what the"
            " rules have left",
            "cut over with --no-reverse-pipeline; nothing is then written to the source",
        )
    selection, renames = reverse_selection(pipeline.selection, pipeline.collections.rename)
    whole = renamed_patterns(pipeline.capture.whole_documents, pipeline.selection, pipeline.collections.rename)
    sections_of_file = tomllib.loads(path.read_text(encoding="utf-8"))
    capture = sections_of_file.get("capture", {})
    sections: dict[str, dict[str, Any]] = {
        "source": sections_of_file["destination"],
        "destination": sections_of_file["source"],
        "collections": {"include": selection.include, "exclude": selection.exclude, "rename": renames},
        "capture": {"copy": "none", "whole_documents": whole, **_pick(capture, "splice_cache")},
        **{name: sections_of_file[name] for name in _COPIED_SECTIONS if name in sections_of_file},
        "log": _pick(sections_of_file.get("log", {}), "retention"),
        "run": _pick(sections_of_file.get("run", {}), "verify", "repair"),
        "ddl": _ddl(pipeline),
    }
    name = _name(pipeline)
    if len(name) > _MAX_NAME:
        raise Refused(
            f"the reverse pipeline of {pipeline.name} would be called {name}, and a name has at most {_MAX_NAME}"
            f" characters: a pipeline with a reverse pipeline needs a name of at most {_MAX_NAME - len(REVERSE)}"
        )
    head = f"# The reverse pipeline of {pipeline.name}, from {path.name}.\n"
    return head + tomli_w.dumps({"name": name} | {name: values for name, values in sections.items() if values})


def _name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}{REVERSE}"


def foreign_reverse_file(session: Session) -> str:
    """Why the file that exists is not that of the reverse pipeline, however it was edited; empty if it is, or none is.

    What an undo removes must not depend on a file of another pipeline.
    """
    if not (file := reverse_file_path(session.file)).exists():
        return ""
    try:
        name = pipeline_file.read(file).name
    except BadPipelineFile as error:
        return str(error)
    return "" if name == _name(session.pipeline) else f"{file} is of the pipeline {name}"


def opened_reverse(forward: Session, text: str | None) -> AbstractContextManager[Session]:
    """The session of the reverse pipeline, with the clusters of the pipeline's. `text`: of its file, unless it exists.

    Messages about a cluster name its side as the pipeline's file does.
    """
    return opened(reverse_file_path(forward.file), text, forward.say, (forward.source, forward.destination))


def write_reverse_file(path: Path) -> Path:
    """Write the reverse pipeline's file, readable by its owner only, unless it exists with the same content.

    Raises `TowpathError` when it exists with other content, and what `reverse_file_text` raises.
    """
    file, text = reverse_file_path(path), checked_reverse_file(path)
    try:
        if not file.exists():
            with replacing(file) as stream:
                stream.write(text)
    except OSError as error:
        raise TowpathError(f"cannot write {file}: {error.strerror}") from error
    return file


def checked_reverse_file(path: Path) -> str:
    """`reverse_file_text`. Raises `TowpathError` when the file exists with other content."""
    file, text = reverse_file_path(path), reverse_file_text(path)
    try:
        if file.exists() and file.read_text(encoding="utf-8") != text:
            raise TowpathError(f"{file} exists and is not the reverse pipeline of {path} as it is now; move it away")
    except OSError as error:
        raise TowpathError(f"cannot read {file}: {error.strerror}") from error
    return text


def refuse_outdated(reverse: Session, path: Path) -> None:
    """Raise `TowpathError` unless this is the reverse pipeline of this file as it is now.

    An undo takes what an earlier command has made, whatever the file says by now; nothing may begin with that.
    """
    if pipeline_file.parse(checked_reverse_file(path), reverse.file) != reverse.pipeline:
        raise TowpathError(f"the reverse pipeline of {path} has changed; run the same command again")


def refuse_other_namespaces(forward: Session, reverse: Session) -> None:
    """Raise `Refused` unless the file of the reverse pipeline names what the pipeline writes, as at the cutover.

    What only one of them names is not at both sides, or the sink would not skip it.
    """
    selection, renames = reverse_selection(forward.pipeline.selection, forward.pipeline.collections.rename)
    collections, differing = reverse.pipeline.collections, list[str]()
    for key, expected, found in (
        ("include", {*selection.include}, {*collections.include}),
        ("exclude", {*selection.exclude, _BOOKKEEPING}, {*collections.exclude, _BOOKKEEPING}),
        ("rename", {*map(_rename, renames.items())}, {*map(_rename, collections.rename.items())}),
    ):
        for verb, names in (("has", found - expected), ("lacks", expected - found)):
            differing += [f"{key} {verb} {first_few(sorted(names), _SHOWN)}"] if names else []
    if differing:
        raise Refused(
            f"cannot fail back: {reverse.file} does not name the collections of {forward.file} any more"
            f" ({'; '.join(differing)}), and what only one of them names would be lost",
            "set back what has changed since the cutover, and `towpath deploy` that file; if it is that of the reverse"
            " pipeline, also run verify and repair with it",
        )


def _rename(pair: tuple[str, str]) -> str:
    old, new = pair
    return f"{old} to {new}"


def _ddl(pipeline: Pipeline) -> dict[str, str]:
    """Schema changes after the switch are replicated back in the same way."""
    return {"drop": pipeline.ddl.drop} if pipeline.ddl.apply else {}


def _pick(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: section[key] for key in keys if key in section}


#: Where sinks store their positions, at the side that they write to. A pattern of the user may match it.
_BOOKKEEPING = "towpath.*"


def reverse_selection(selection: Selection, renames: Mapping[str, str]) -> tuple[Selection, dict[str, str]]:
    """The selection at the destination, which matches exactly what the pipeline writes there, and the inverse renames.

    A pattern without renamed collections stays as it is and matches later collections as well. Raises `Refused` where
    patterns cannot express that.
    """
    moved = _moved(selection, renames)
    inverse = {new: old for old, new in moved.items()}
    for old, new in moved.items():
        if inverse[new] != old:
            raise Refused(
                f"{old} and {inverse[new]} are both written to {new}, so there can be no reverse pipeline; see [rename]"
            )
    kept = tuple(pattern for pattern in selection.include if pattern not in moved)
    is_kept = Selection(kept).matches
    include = (*kept, *(new for new in inverse if not is_kept(new)))
    excluded = tuple(old for old in moved if old not in inverse and is_kept(old))
    reversed_selection = Selection(
        include, (*(pattern for pattern in selection.exclude if pattern not in inverse), *excluded, _BOOKKEEPING)
    )
    for new, old in inverse.items():
        if not reversed_selection.matches(new):
            raise Refused(
                f"{old} cannot be replicated back: it is written to {new}, which a pattern of [collections] exclude"
                " matches; list the excluded collections by name, without a *"
            )
    return reversed_selection, inverse


def renamed_patterns(patterns: Iterable[str], selection: Selection, renames: Mapping[str, str]) -> tuple[str, ...]:
    """Patterns of source namespaces, as patterns at the destination that match the same collections."""
    source_patterns, moved = tuple(patterns), _moved(selection, renames)
    is_named = Selection(source_patterns).matches
    names = (new for old, new in moved.items() if is_named(old))
    return tuple(dict.fromkeys((*(pattern for pattern in source_patterns if pattern not in moved), *names)))


def _moved(selection: Selection, renames: Mapping[str, str]) -> dict[str, str]:
    """The renames with an effect: of selected namespaces, to another name."""
    return {old: new for old, new in renames.items() if old != new and selection.matches(old)}
