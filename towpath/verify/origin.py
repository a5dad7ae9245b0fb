"""The origin of a verdict: clusters, collections, selection, deployment.

All of it can be read with few privileges. A cluster is identified by its replica set and the UUIDs of its collections,
which are new for each collection. A deployment is identified by the ids of the pipeline's topics, which are new for
each topic: `remove --topics` and `deploy` start another one. Within a deployment, a new history begins at the
destination when changes may be missing there or it is rebuilt (`towpath.store.verdict`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from towpath.clients.mongo.replica_set import ReplicaSet, replica_set
from towpath.config.pipeline import Pipeline
from towpath.deploy.schema import Listing, at_destination, at_source
from towpath.errors import TowpathError
from towpath.log.definitions import pipeline_topics
from towpath.session import Session
from towpath.store import verdict

_SIDES = ("source", "destination")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """`sets`: side → replica set; `uuids`: side → namespace → UUID; `topics`: topic → id; `history`: see `verdict`."""

    sets: Mapping[str, str]
    uuids: Mapping[str, Mapping[str, str]]
    topics: Mapping[str, str]
    selection: Mapping[str, Any]
    history: str

    @classmethod
    def read(cls, session: Session, topic_ids: Mapping[str, str] | None = None, listing: Listing | None = None) -> Self:
        """The origin as of now. `topic_ids`, of the pipeline's topics, and `listing`: if already known.

        Raises `TowpathError` when a cluster or Kafka does not answer.
        """
        pipeline = session.pipeline
        with session.source.briefly() as client:
            source = str(replica_set(client, "source"))
            ours = listing.source if listing else at_source(client, pipeline)
        with session.destination.briefly() as client:
            destination = str(replica_set(client, "destination"))
            theirs = listing.destination if listing else at_destination(client, pipeline)
            history = verdict.history(client, pipeline)
        if topic_ids is None:
            topic_ids = session.topics.ids(pipeline_topics(pipeline, session.topics.all()))
        uuids = {
            side: {collection.namespace: collection.uuid for collection in by_name.values() if collection.uuid}
            for side, by_name in zip(_SIDES, (ours, theirs), strict=True)
        }
        sets = dict(zip(_SIDES, (source, destination), strict=True))
        return cls(sets, uuids, topic_ids, _selection(pipeline), history)

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Self | None:
        """None for a verdict whose origin could not be read."""
        return None if value is None else cls(**value)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def doubt(self, now: Origin) -> str:
        """Why a verdict of this origin does not count for the pipeline as it is now; empty if it counts."""
        return self.deployment_doubt(now) or self.history_doubt(now.history) or next(self._changed(now), "")

    def deployment_doubt(self, now: Origin) -> str:
        """As `doubt`, but only for the clusters and the log."""
        for side in _SIDES:
            before, after = self.sets[side], now.sets[side]
            if not ReplicaSet.parse(before).is_same(ReplicaSet.parse(after)):
                return f"the {side} was {before}, and is {after}"
        if not self.topics:
            return "it was made while the pipeline was not deployed"
        common = sorted(self.topics.keys() & now.topics.keys())
        if not common:
            return "the pipeline's log is gone: it was removed since"
        recreated = (name for name in common if self.topics[name] != now.topics[name])
        if name := next(recreated, ""):
            return f"the pipeline was removed and deployed again since: the topic {name} is another one"
        return ""

    def history_doubt(self, now: str) -> str:
        """As `doubt`, but only for the history at the destination, which is `now`."""
        if self.history == now:
            return ""
        return f"the destination has another history since {now}" if now else "the destination has an older history"

    def created(self, now: Origin) -> list[str]:
        """The collections, by their names at the source, that exist now, and did not when this origin was read."""
        before, after = ({name for side in _SIDES for name in one.uuids[side]} for one in (self, now))
        return sorted(after - before)

    def _changed(self, now: Origin) -> Iterator[str]:
        for side in _SIDES:
            before, after = self.uuids[side], now.uuids[side]
            gone = [name for name, uuid in before.items() if after.get(name) != uuid]
            if gone:
                more = f" and {len(gone) - _SHOWN:,} more" if len(gone) > _SHOWN else ""
                yield f"at the {side} {', '.join(sorted(gone)[:_SHOWN])}{more} was dropped since, or is another one"
        if self.selection != now.selection:
            yield "the pipeline file named other collections then"


def _selection(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "include": list(pipeline.collections.include),
        "exclude": list(pipeline.collections.exclude),
        "rename": dict(pipeline.collections.rename),
    }


def try_origin(
    session: Session, topic_ids: Mapping[str, str] | None = None, listing: Listing | None = None
) -> tuple[Origin | None, str]:
    """As `Origin.read`; or None, and why the origin cannot be read."""
    try:
        return Origin.read(session, topic_ids, listing), ""
    except TowpathError as error:
        return None, str(error)
