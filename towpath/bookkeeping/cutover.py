"""The marker of a cutover at the destination, with which a later command can undo or continue an interrupted one.

`towpath.cutovers` holds one document per pipeline. It is written before a step begins, so that it is never behind what
was done, and it is removed when the source is primary again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal
from uuid import uuid4

from pymongo import ReadPreference, WriteConcern
from pymongo.collection import Collection

from towpath.bookkeeping.positions import CUTOVERS, DATABASE
from towpath.errors import Overtaken, Refused
from towpath.mongo.client import Client, connected
from towpath.pipeline import Pipeline
from towpath.text import utc

#: `over`: the destination is primary. `returned`: the source is primary again. The others: under way or interrupted.
State = Literal["to the destination", "over", "back to the source", "returned"]


@dataclass(frozen=True, slots=True)
class Cutover:
    """The progress of a pipeline's cutover. Times are seconds since the epoch."""

    state: State
    steps: tuple[str, ...]
    """The steps that were begun, in order."""
    began: float
    moment: str = ""
    """Once it is over, the cluster time of the old primary up to which the new one has every change."""
    over: float = 0.0
    """When it was over; 0 before that."""
    blocked: bool = False
    """Whether writes to the source are blocked."""
    has_back: bool = True
    """Whether there is a reverse pipeline."""
    token: str = field(default_factory=lambda: uuid4().hex)
    """Identifies the command that runs it: a command that finds another token has been overtaken."""

    def begin(self, step: str) -> Cutover:
        return replace(self, steps=(*self.steps, step))

    @property
    def description(self) -> str:
        if self.state == "over":
            back = "`towpath cutover --back` fails back" if self.has_back else "there is no reverse pipeline"
            return f"the destination has been primary since {utc(self.over)}; {back}"
        if self.state == "returned":
            return "the source is primary again; `towpath cutover --back` completes the return"
        return f"under way {self.state}, or interrupted; `towpath cutover --undo` undoes what was begun"


def read(client: Client, pipeline: Pipeline) -> Cutover | None:
    """The marker; None if the source is primary and no cutover is under way."""
    marker = _markers(client).find_one({"_id": pipeline.name})
    if marker is None:
        return None
    values = {field.name: marker[field.name] for field in fields(Cutover)}
    return Cutover(**values | {"steps": tuple(marker["steps"])})


def take(client: Client, pipeline: Pipeline, cutover: Cutover) -> None:
    """Write the marker, and take over from any other command."""
    _markers(client).replace_one({"_id": pipeline.name}, _document(cutover), upsert=True)


def write(client: Client, pipeline: Pipeline, cutover: Cutover) -> None:
    """Update the marker. Raises `Overtaken` when another command has taken over."""
    marker = {"_id": pipeline.name, "token": cutover.token}
    if not _markers(client).replace_one(marker, _document(cutover)).matched_count:
        raise Overtaken(
            f"another `towpath cutover` of {pipeline.name} has begun meanwhile: this one ends, and has not switched"
        )


def _document(cutover: Cutover) -> dict[str, Any]:
    return {**asdict(cutover), "steps": list(cutover.steps)}


def forget(client: Client, pipeline: Pipeline) -> None:
    _markers(client).delete_one({"_id": pipeline.name})


def refuse(pipeline: Pipeline) -> None:
    """Raise `Refused` when the pipeline's sink must not run, because it would overwrite newer changes."""
    with connected(pipeline.destination_uri, "destination") as client:
        marker = read(client, pipeline)
    if marker is None:
        return
    if marker.state == "over":
        raise Refused(
            f"{pipeline.name} is cut over: the destination is primary, and its sink must stay stopped, or older changes"
            " would be written over newer ones",
            "`towpath cutover --back` returns to the source",
        )
    raise Refused(
        f"a cutover of {pipeline.name} is under way, or was interrupted", "`towpath cutover --undo` undoes it"
    )


def _markers(client: Client) -> Collection[dict[str, Any]]:
    database = client.get_database(
        DATABASE, read_preference=ReadPreference.PRIMARY, write_concern=WriteConcern("majority")
    )
    return database[CUTOVERS]
