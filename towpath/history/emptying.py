"""What a rebuild and a new replay begin with: one command removes positions and documents, and no sink has written.

A document in `towpath.rebuilds` of the destination is the marker. Each removal is a transaction that also writes it, so
that no command removes anything once another has taken the marker over: see "Rebuild" in `docs/design/log.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any
from uuid import uuid4

from pymongo import DeleteOne, ReadPreference, ReturnDocument, WriteConcern
from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError
from pymongo.read_concern import ReadConcern

from towpath.clients.kafka.consume import messages
from towpath.clients.mongo.client import Client, Cluster
from towpath.clients.mongo.replica_set import RAW, collections
from towpath.config.namespaces import namespace_of
from towpath.config.text import counted
from towpath.errors import Overtaken, Refused
from towpath.history.plan import Log, namespaces
from towpath.history.preconditions import document_counts
from towpath.log.records import is_schema_change
from towpath.session import Session
from towpath.store.positions import REBUILDS, collection_of

_AT_ONCE = 1_000  # documents that one transaction deletes
_MAJORITY = WriteConcern("majority")
#: What a transaction does, with its session.
Act = Callable[[Client, ClientSession], object]


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker of a rebuild, or of a replay that begins. Only the command whose token it has removes anything.

    What changes it raises `Overtaken` once another command has taken it over, or it is gone.
    """

    cluster: Cluster
    name: str
    """Of the pipeline, or of the replay."""
    token: str = field(default_factory=lambda: uuid4().hex)

    def insert(self, values: Mapping[str, Any]) -> None:
        """Begin a rebuild. Raises `Refused` when another command has begun one."""
        with self.cluster.connected() as client:
            try:
                collection_of(client, REBUILDS).insert_one({"_id": self.name, **values, "token": self.token})
            except DuplicateKeyError as error:
                raise Refused(
                    f"another command has begun a rebuild of {self.name} in the meantime",
                    "the same command with the same options continues it",
                ) from error

    def take(self, began: float) -> dict[str, Any]:
        """Continue the rebuild that began at this time; return what is stored. Raises `Refused` when it has ended."""
        own, change = {"_id": self.name, "began": began}, {"$set": {"token": self.token}}
        with self.cluster.connected() as client:
            rebuilds = collection_of(client, REBUILDS)
            stored = rebuilds.find_one_and_update(own, change, return_document=ReturnDocument.AFTER)
        if stored is None:
            raise Refused(f"another command has ended the rebuild of {self.name} in the meantime")
        return stored

    def put(self) -> None:
        """Begin a replay, and overtake every command that begins one of this name."""
        with self.cluster.connected() as client:
            collection_of(client, REBUILDS).replace_one({"_id": self.name}, {"token": self.token}, upsert=True)

    def require(self) -> None:
        with self.cluster.connected() as client:
            if collection_of(client, REBUILDS).find_one(self._own, {"_id": 1}) is None:
                raise self._overtaken

    def change(self, act: Act, values: Mapping[str, Any] | None = None) -> None:
        """Do this in one transaction, which also sets these values in the marker."""
        update = {"$inc": {"changes": 1}} | ({"$set": values} if values else {})

        def do(client: Client, transaction: ClientSession) -> None:
            if not collection_of(client, REBUILDS).update_one(self._own, update, session=transaction).matched_count:
                raise self._overtaken
            act(client, transaction)

        with self.cluster.connected() as client, client.start_session() as session:
            session.with_transaction(partial(do, client), ReadConcern("local"), _MAJORITY, ReadPreference.PRIMARY)

    def delete(self) -> None:
        """Remove the marker, if it is still this command's."""
        with self.cluster.connected() as client:
            collection_of(client, REBUILDS).delete_one(self._own)

    @property
    def _own(self) -> dict[str, Any]:
        return {"_id": self.name, "token": self.token}

    @property
    def _overtaken(self) -> Overtaken:
        return Overtaken(
            f"another `towpath replay` has taken over {self.name}, or has ended it: this one ends",
            "`towpath status` shows what it is at",
        )


def empty(session: Session, marker: Marker, log: Log) -> None:
    """Delete all documents of the namespaces in a range of the log. Indexes and options stay, unless the log has them.

    What the log begins to make is dropped: it has options and indexes from then on.
    """
    destination = session.pipeline.renamed
    targets = {destination(name): name for name in namespaces(session.pipeline, log)}
    made = _made_by_log(session, log)
    with marker.cluster.connected() as client:
        counts = document_counts(client, targets)
        existing = collections(client, sorted({target.partition(".")[0] for target in targets}))
    for found in existing:
        if targets.get(found.namespace) in made:
            session.say(f"dropping {found.namespace}, which the log makes again")
            _drop(marker, found.namespace)
        elif found.namespace in targets and found.kind == "collection":
            if count := counts.get(found.namespace):
                session.say(f"emptying {found.namespace}: {counted(count, 'document')}")
            _delete_all(marker, found.namespace)


def _drop(marker: Marker, namespace: str) -> None:
    database, name = namespace.split(".", 1)
    marker.require()
    with marker.cluster.connected() as client:
        client.get_database(database, write_concern=_MAJORITY).drop_collection(name)
    try:
        marker.require()
    except Overtaken as error:
        raise Overtaken(
            f"{error.what}; {namespace} was dropped in the meantime, perhaps after the other command had filled it",
            "when that has ended, `towpath verify` shows it",
        ) from error


def _delete_all(marker: Marker, namespace: str) -> None:
    database, name = namespace.split(".", 1)

    def delete(batch: list[DeleteOne], client: Client, transaction: ClientSession) -> None:
        client[database][name].bulk_write(batch, ordered=False, session=transaction)

    with marker.cluster.connected() as client:
        ids = client[database].get_collection(name, RAW, ReadPreference.PRIMARY).find({}, {"_id": 1})
        while batch := [DeleteOne(id) for id in islice(ids, _AT_ONCE)]:
            marker.change(partial(delete, batch))


def _made_by_log(session: Session, log: Log) -> set[str]:
    """The namespaces whose topic begins with a schema change, which is in each partition."""
    made = set()
    with session.topics.reader() as consumer:
        for place in (place for place, (first, end) in log.items() if place[1] == 0 and first < end):
            for _, message in islice(messages(consumer, {place: log[place]}, at_once=1), 1):
                if is_schema_change(message.key()):
                    made.add(namespace_of(session.pipeline.name, place[0]))
    return made
