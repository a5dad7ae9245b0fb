"""The marker of a cutover at the destination: what was begun, so that whoever comes after a kill can undo it or go on.

`towpath.cutovers` holds one document a pipeline. It is written before a step begins, so that it is never behind what
was done, and it goes when the source is primary again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal
from uuid import uuid4

from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.collection import Collection

from towpath.bookkeeping.positions import CUTOVERS, DATABASE
from towpath.errors import Overtaken, Refused
from towpath.mongo.client import connected
from towpath.pipeline import Pipeline
from towpath.text import utc

#: `over`: the destination is primary; `returned`: the source is again. The others are under way, or were interrupted.
State = Literal["to the destination", "over", "back to the source", "returned"]
Client = MongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Cutover:
    """How far a pipeline's cutover is; times are seconds since the epoch."""

    state: State
    steps: tuple[str, ...]
    """Those that were begun, in their order."""
    began: float
    moment: str = ""
    """The cluster time of the old primary up to which everything is at the new one, once it is over."""
    over: float = 0.0
    blocked: bool = False
    """Whether writes to the source are blocked."""
    has_back: bool = True
    token: str = field(default_factory=lambda: uuid4().hex)
    """Of the command that is at it: one that finds another there has been overtaken."""

    def begin(self, step: str) -> Cutover:
        return replace(self, steps=(*self.steps, step))

    @property
    def words(self) -> str:
        if self.state == "over":
            since = utc(self.over)
            back = "`towpath cutover --back` returns" if self.has_back else "there is no way back"
            return f"the destination is primary since {since}; {back}"
        if self.state == "returned":
            return "the source is primary again; `towpath cutover --back` does the rest of the return"
        return f"under way {self.state}, or interrupted; `towpath cutover --undo` takes back what was begun"


def read(client: Client, pipeline: Pipeline) -> Cutover | None:
    """None for a pipeline of which the source is primary, and nothing is under way."""
    found = _markers(client).find_one({"_id": pipeline.name})
    if found is None:
        return None
    return Cutover(
        found["state"],
        tuple(found["steps"]),
        float(found["began"]),
        str(found["moment"]),
        float(found["over"]),
        bool(found["blocked"]),
        bool(found["has_back"]),
        str(found["token"]),
    )


def take(client: Client, pipeline: Pipeline, cutover: Cutover) -> None:
    """Write the marker, whoever was at it before."""
    _markers(client).replace_one({"_id": pipeline.name}, _document(cutover), upsert=True)


def write(client: Client, pipeline: Pipeline, cutover: Cutover) -> None:
    """Write the marker anew. Raises `Overtaken` when another command is at it by now."""
    mine = {"_id": pipeline.name, "token": cutover.token}
    if not _markers(client).replace_one(mine, _document(cutover)).matched_count:
        raise Overtaken(
            f"another `towpath cutover` of {pipeline.name} has begun meanwhile: this one ends, and has not switched"
        )


def _document(cutover: Cutover) -> dict[str, Any]:
    return {**asdict(cutover), "steps": list(cutover.steps)}


def forget(client: Client, pipeline: Pipeline) -> None:
    _markers(client).delete_one({"_id": pipeline.name})


def refuse(pipeline: Pipeline) -> None:
    """Raise `Refused` when the pipeline's sink must not run: what the destination has taken since would be undone."""
    with connected(pipeline.destination_uri, "destination") as client:
        found = read(client, pipeline)
    if found is None:
        return
    if found.state == "over":
        raise Refused(
            f"{pipeline.name} is cut over: the destination is primary, and its sink must stay stopped, or older changes"
            " would be written over newer ones",
            "`towpath cutover --back` returns to the source",
        )
    raise Refused(
        f"a cutover of {pipeline.name} is under way, or was interrupted", "`towpath cutover --undo` puts things back"
    )


def _markers(client: Client) -> Collection[dict[str, Any]]:
    database = client.get_database(
        DATABASE, read_preference=ReadPreference.PRIMARY, write_concern=WriteConcern("majority")
    )
    return database[CUTOVERS]
