"""The marker of a cutover at the destination, with which a later command can undo or continue an interrupted one.

`towpath.cutovers` holds one document per pipeline. It is written before a step begins, so that it is never behind what
was done, and it is removed when the source is primary again. Only the command whose token it has changes it: of several
commands, on several machines, one at most continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field, TypeAdapter
from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from towpath.clients.mongo import write_block
from towpath.clients.mongo.client import ANSWER_S, Client
from towpath.clients.mongo.privileges import if_allowed
from towpath.config.loading import REVERSE
from towpath.config.pipeline import Pipeline
from towpath.config.text import first_few, utc
from towpath.errors import Overtaken, Refused
from towpath.session import Session
from towpath.store import writers
from towpath.store.positions import CUTOVERS, collection_of

#: `destination primary`: the cutover is done. `source primary`: a fail back is done but for its last steps. The others:
#: under way or interrupted.
State = Literal[
    "cutting over", "taking over", "destination primary", "failing back", "source primary", "returning the old source"
]
#: The states in which steps have begun that can be undone.
UNDER_WAY: tuple[State, ...] = ("cutting over", "taking over", "failing back", "returning the old source")
#: Those of `towpath takeover`.
TAKEOVERS: tuple[State, ...] = ("taking over", "returning the old source")
#: The states in which the switch is done.
SWITCHED: tuple[State, ...] = ("destination primary", "source primary")
#: What is known of --switch-with since the switch; empty if it was not given, or has failed, which was told.
Redirect = Literal["", "begun", "done"]
_SHOWN = 3  # conversions in a description


@dataclass(frozen=True, slots=True)
class Conversion:
    """What indexes of a collection at the new primary get after the switch: a TTL, uniqueness, or a rebuild."""

    namespace: str
    indexes: tuple[str, ...]
    enforced: bool
    """Whether they are to become unique, and refuse new duplicates already; not before MongoDB 6.0."""
    problem: str = ""
    """Why the last attempt failed: the duplicates, or what the server refuses; empty before the first."""
    commands: Annotated[str, Field(exclude=True)] = ""
    """Not in reports. In Extended JSON; see `towpath.deploy.schema.of_text`."""
    expires: Annotated[bool, Field(exclude=True)] = False
    """Not in reports. Whether it is the TTL of an index; without `indexes`, of a clustered collection."""

    @property
    def names(self) -> str:
        return f"{', '.join(self.indexes)} of {self.namespace}" if self.indexes else self.namespace

    @property
    def action(self) -> str:
        return f"restore the TTL of {self.names}" if self.expires else f"convert {self.names}"

    @property
    def description(self) -> str:
        if self.expires:
            what = "index" if self.indexes else "collection"
            return self.problem or f"the {what} {self.names} does not delete expired documents yet"
        kind = "refuses new duplicates, and is not converted to unique yet" if self.enforced else "is not rebuilt yet"
        return self.problem or f"the index {self.names} {kind}"

    @property
    def done(self) -> str:
        if self.expires:
            return f"restored the TTL of {self.names}"
        return f"converted {self.names} to unique" if self.enforced else f"rebuilt {self.names}"


@dataclass(frozen=True, slots=True)
class Cutover:
    """The progress of a pipeline's cutover. Times are seconds since the epoch."""

    state: State
    steps: tuple[str, ...]
    """The steps that were begun, in order."""
    began: float
    cluster_time: str = ""
    """Once it is done, the cluster time of the old primary up to which the new one has every change."""
    switched_at: float = 0.0
    """When the destination became primary; 0 before that."""
    blocked: bool = False
    """Whether writes to the source are blocked."""
    has_reverse_pipeline: bool = True
    """Whether there is a reverse pipeline."""
    is_takeover: bool = False
    """Whether the source was lost, and has not returned: the new primary lacks its changes from `cluster_time` on."""
    conversions: tuple[Conversion, ...] = ()
    """What is left to restore or to convert at the present primary."""
    later: Annotated[tuple[Conversion, ...], Field(exclude=True)] = ()
    """Not in reports. `conversions` after the switch; stored before the pause, so that its size ends none."""
    captured_since: Annotated[str, Field(exclude=True)] = ""
    """Not in reports. The cluster time of the destination by which the capture of the reverse pipeline had begun."""
    redirect: Annotated[Redirect, Field(exclude=True)] = ""
    """Not in reports."""
    undo: Annotated[Mapping[str, str], Field(exclude=True)] = field(default_factory=dict)
    """Not in reports. Step → the commands that undo its changes of a schema, in Extended JSON."""
    token: Annotated[str, Field(exclude=True)] = field(default_factory=lambda: uuid4().hex)
    """Not in reports. Of the command that runs it: a command that finds another token has been overtaken."""

    def begin(self, step: str) -> Cutover:
        return replace(self, steps=(*self.steps, step))

    @property
    def description(self) -> str:
        return self.described()

    def described(self, missing: str = "") -> str:
        """`missing`: the file of the reverse pipeline, if that is not deployed any more."""
        if self.state == "destination primary" and self.is_takeover:
            return (
                f"the destination took over at {utc(self.switched_at)}, when the source was lost; it has every change"
                f" before the source's cluster time {self.cluster_time}{self._left}"
            )
        if self.state == "destination primary":
            back = "there is no reverse pipeline"
            if missing:
                back = f"its reverse pipeline is not deployed: to be able to fail back, run towpath deploy {missing}"
            elif self.has_reverse_pipeline:
                back = "`towpath cutover --back` fails back"
            return f"the destination has been primary since {utc(self.switched_at)}; {back}{self._left}"
        if self.state == "source primary":
            return f"the source is primary again; `towpath cutover --back` completes the return{self._left}"
        undo = undo_command(self.state)
        return f"under way ({self.state}); if it was interrupted, run {undo} before you start the writers again"

    @property
    def to_convert(self) -> bool:
        """Whether there are conversions that were not tried, at the present primary."""
        return self.state in SWITCHED and any(not conversion.problem for conversion in self.conversions)

    @property
    def _left(self) -> str:
        left = ["--switch-with has not ended, or was interrupted"] if self.redirect == "begun" else []
        left += [conversion.description for conversion in self.conversions]
        more = f"; and {len(left) - _SHOWN:,} more" if len(left) > _SHOWN else ""
        return "".join(f"; {words}" for words in left[:_SHOWN]) + more


def undo_command(state: State) -> str:
    """The command that undoes what is under way."""
    return "`towpath takeover --undo`" if state in TAKEOVERS else "`towpath cutover --undo`"


_CUTOVER = TypeAdapter(Cutover)


def read(client: Client, pipeline: Pipeline) -> Cutover | None:
    """The marker; None if the source is primary and no cutover is under way."""
    return _read(client, pipeline.name)


def _read(client: Client, name: str) -> Cutover | None:
    marker = _markers(client).find_one({"_id": name})
    return None if marker is None else _CUTOVER.validate_python(marker)


def known(session: Session, *, briefly: bool = False) -> Cutover | None:
    """The marker; None also for a user who may not read it. For what would do no harm without it.

    `briefly`: for a query that is repeated anyway.
    """
    destination = session.destination
    with destination.briefly() if briefly else destination.connected(answer=ANSWER_S) as client:
        return if_allowed(lambda: read(client, session.pipeline))


def lacks_reverse_pipeline(session: Session, cutover: Cutover | None) -> bool:
    """Whether a cutover is done whose reverse pipeline lacks a connector, so that nothing can fail back."""
    if cutover is None or cutover.state != "destination primary" or not cutover.has_reverse_pipeline:
        return False
    names = session.pipeline.changed(name=f"{session.pipeline.name}{REVERSE}").connectors
    return any(session.connect.config(name) is None for name in names)


def insert(client: Client, pipeline: Pipeline, cutover: Cutover) -> None:
    """Store the marker of a new cutover. Raises `Overtaken` when there is one of another command."""
    try:
        _markers(client).insert_one({"_id": pipeline.name, **asdict(cutover)})
    except DuplicateKeyError as error:
        stored = read(client, pipeline)  # it is ours if the reply to an earlier attempt was lost
        if stored is None or stored.token != cutover.token:
            raise _overtaken(pipeline) from error


def replace_own(client: Client, pipeline: Pipeline, tokens: Iterable[str], cutover: Cutover) -> None:
    """Replace the marker if it has one of these tokens. Raises `Overtaken` otherwise."""
    if not _markers(client).replace_one(_own(pipeline, tokens), asdict(cutover)).matched_count:
        raise _overtaken(pipeline)


def take(client: Client, pipeline: Pipeline, tokens: Iterable[str], token: str) -> Cutover:
    """Give the marker a new token if it has one of these, and return what is stored.

    Whatever an earlier token was to write, and has not reached the server yet, has no effect any more. Raises
    `Overtaken` for a marker with another token, and for none.
    """
    stored = _markers(client).find_one_and_update(
        _own(pipeline, tokens), {"$set": {"token": token}}, return_document=ReturnDocument.AFTER
    )
    if stored is None:
        raise _overtaken(pipeline)
    return _CUTOVER.validate_python(stored)


def require_own(client: Client, pipeline: Pipeline, tokens: Iterable[str]) -> None:
    """Raises `Overtaken` unless the marker has one of these tokens."""
    if _markers(client).find_one(_own(pipeline, tokens), {"_id": 1}) is None:
        raise _overtaken(pipeline)


def require_switched(client: Client, pipeline: Pipeline, state: State) -> None:
    """Raises `Overtaken` unless the switch is done, and the marker still in this state."""
    if state not in SWITCHED or _markers(client).find_one({"_id": pipeline.name, "state": state}, {"_id": 1}) is None:
        raise _overtaken(pipeline)


def converted(client: Client, pipeline: Pipeline, conversion: Conversion, problem: str) -> None:
    """Take a conversion out of the marker, or record its problem. Needs no token: commands do not depend on it."""
    expires = True if conversion.expires else {"$ne": True}
    named = {"namespace": conversion.namespace, "indexes": list(conversion.indexes), "expires": expires}
    marker = {"_id": pipeline.name, "state": {"$in": list(SWITCHED)}}
    if problem:
        found = {**marker, "conversions": {"$elemMatch": named}}
        _markers(client).update_one(found, {"$set": {"conversions.$.problem": problem}})
    else:
        _markers(client).update_one(marker, {"$pull": {"conversions": named}})


def redirected(client: Client, pipeline: Pipeline, tokens: Iterable[str], redirect: Redirect) -> None:
    """As `replace_own`, of this field only: other commands take conversions out of the marker at the same time."""
    if not _markers(client).update_one(_own(pipeline, tokens), {"$set": {"redirect": redirect}}).matched_count:
        raise _overtaken(pipeline)


def delete_own(client: Client, pipeline: Pipeline, tokens: Iterable[str]) -> None:
    """Remove the marker if it has one of these tokens. Raises `Overtaken` for a marker with another token."""
    if not _markers(client).delete_one(_own(pipeline, tokens)).deleted_count and read(client, pipeline) is not None:
        raise _overtaken(pipeline)


def _own(pipeline: Pipeline, tokens: Iterable[str]) -> dict[str, Any]:
    return {"_id": pipeline.name, "token": {"$in": list(tokens)}}


def _overtaken(pipeline: Pipeline) -> Overtaken:
    return Overtaken(
        f"another command has taken over the cutover of {pipeline.name}, or has ended it: this one ends",
        "`towpath status` shows what it is at",
    )


def refuse_takeover(session: Session) -> None:
    """Raise `Refused` once a takeover has begun: the source is lost, or what it has is older."""
    marker = known(session)
    if marker is not None and (marker.is_takeover or marker.state in TAKEOVERS):
        refuse(session)


def leads(session: Session) -> bool:
    """Whether a cutover or a takeover is under way or done, so that the destination must not follow the source."""
    if not session.pipeline.exactly_once:
        return False
    marker = known(session, briefly=True)
    return marker is not None and marker.state != "source primary"


def is_cut_over(session: Session) -> bool:
    """Whether a cutover is done: the sink stays stopped, and the capture runs, so that a fail back is possible."""
    if not session.pipeline.exactly_once:
        return False
    with session.destination.briefly() as client:
        marker = read(client, session.pipeline)
    return marker is not None and marker.state == "destination primary" and not marker.is_takeover


def no_copy(session: Session) -> str:
    """Why the destination must not be made equal to the source, in words; empty where it is, or becomes, a copy.

    Of a pipeline without an initial copy, such as a reverse pipeline, only a deployment makes it one.
    """
    name = session.pipeline.name
    if leads(session):
        return f"the cutover of {name} is under way or done"
    if session.pipeline.copy_method != "none":
        return ""
    with session.destination.briefly() as client:
        registered = if_allowed(lambda: writers.read_all(client).get(name))
    is_deployed = registered is not None and not registered.removed
    return "" if is_deployed else f"{name} is not deployed, and makes no initial copy"


def why_idle(session: Session) -> str:
    """Why a cutover has the connectors of this reverse pipeline stopped or removed, in words.

    Empty for any other pipeline, while the reverse pipeline is to run, and for a user who may not read it.
    """
    name = session.pipeline.name.removesuffix(REVERSE)
    if name == session.pipeline.name:
        return ""
    with session.source.briefly() as client:  # the destination of the pipeline, which holds its marker
        marker = if_allowed(lambda: _read(client, name))
        registered = if_allowed(lambda: writers.read_all(client).get(name))
    if marker is None and (registered is None or registered.removed):
        return ""
    if marker is None:
        return f"the reverse pipeline of {name}, whose source is primary: the next cutover of {name} creates it"
    if marker.state == "destination primary" and marker.has_reverse_pipeline:
        return ""
    return f"the reverse pipeline of {name}, which is needed after its cutover; {name}: {marker.description}"


def refuse_removal(session: Session, *, log: bool) -> None:
    """Raise `Refused` while a cutover or a takeover is under way or not complete: only the marker says what is left.

    `log`: whether the marker is removed as well.
    """
    marker = known(session)
    if marker is not None and marker.state != "destination primary":
        refuse(session)
    if marker is not None and log and marker.to_convert:
        left = [one.action for one in marker.conversions if not one.problem]
        raise Refused(
            f"{session.pipeline.name}: the switch has left to {first_few(left, _SHOWN)}, and only what would be deleted"
            " says how",
            f"`towpath prepare {session.file}` does it; then run this again",
        )


def known_to_marker(session: Session) -> Iterator[str]:
    """What only the marker of a cutover or takeover that is done knows, in words; it goes when the log is removed."""
    marker = known(session)
    if marker is not None and marker.state == "destination primary":
        back = "takeover --return" if marker.is_takeover else "cutover --back"
        since = (
            marker.description if marker.is_takeover else f"the destination is primary since {utc(marker.switched_at)}"
        )
        yield (
            f"{since}; what is removed is the only mark of that. After it, `towpath {back}` is no longer possible, and"
            f" `towpath deploy {session.file}` would copy the old source over the new primary: put the file away"
        )
    if marker is not None and marker.blocked:
        yield f"the cutover has blocked the writes to the source; to allow them there: {write_block.MONGOSH_UNDO}"


def refuse(session: Session) -> None:
    """Raise `Refused` when the destination is no copy now, which the pipeline must not change: it has what is newer."""
    pipeline = session.pipeline
    with session.destination.connected() as client:
        marker = read(client, pipeline)
    match marker and marker.state:
        case None:
            return
        case "destination primary" if marker and marker.is_takeover:
            raise Refused(
                f"{pipeline.name} has taken over: the destination is primary, so its connectors must stay stopped and"
                " its schema must stay as it is: what the source has is older",
                "docs/how-to/takeover.md says how to continue",
            )
        case "destination primary":
            raise Refused(
                f"{pipeline.name} is cut over: the destination is primary, so its sink must stay stopped and its schema"
                " must stay as it is: what the source has is older",
                "`towpath cutover --back` returns to the source"
                if marker and marker.has_reverse_pipeline
                else "there is no reverse pipeline, so nothing returns to the source",
            )
        case "source primary":
            raise Refused(
                f"the fail back of {pipeline.name} has made the source primary, and is not complete",
                "`towpath cutover --back` completes it",
            )
    assert marker is not None
    what = "takeover" if marker.state in TAKEOVERS else "cutover"
    raise Refused(
        f"a {what} of {pipeline.name} is under way, or was interrupted", f"{undo_command(marker.state)} undoes it"
    )


def _markers(client: Client) -> Collection[dict[str, Any]]:
    return collection_of(client, CUTOVERS)
