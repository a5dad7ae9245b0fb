"""What a workload does: single writes, and the ways in which they travel to the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError, ConnectionFailure, OperationFailure, WriteError

from tests.support.raw import Documents
from tests.support.workload.changes import Change

Model = InsertOne[dict[str, Any]] | ReplaceOne[dict[str, Any]] | UpdateOne | UpdateMany | DeleteOne | DeleteMany
Filter = dict[str, Any]


class Lost(Exception):
    """No answer came from the server: the operation happened, or it did not."""


class Refused(Exception):
    """The server refused the operation, or some of its writes; its code is the text."""


@dataclass(frozen=True, slots=True)
class Insert:
    document: dict[str, Any]

    def model(self) -> Model:
        return InsertOne(dict(self.document))


@dataclass(frozen=True, slots=True)
class Replace:
    filter: Filter
    document: dict[str, Any]

    def model(self) -> Model:
        return ReplaceOne(self.filter, self.document)


@dataclass(frozen=True, slots=True)
class Update:
    filter: Filter
    change: Change
    many: bool = False

    def model(self) -> Model:
        change = self.change
        update = UpdateMany if self.many else UpdateOne
        return update(
            self.filter | change.condition, change.update, upsert=change.upsert, array_filters=_listed(change)
        )


@dataclass(frozen=True, slots=True)
class Delete:
    filter: Filter
    many: bool = False

    def model(self) -> Model:
        return DeleteMany(self.filter) if self.many else DeleteOne(self.filter)


Body = Insert | Replace | Update | Delete


@dataclass(frozen=True, slots=True)
class Write:
    """One write: its kind, the index of its collection, and what it does."""

    kind: str
    at: int
    body: Body


class Way(Enum):
    """How writes travel together."""

    SINGLE = "single"
    BULK = "bulk"
    UNORDERED_BULK = "unordered bulk"
    FIND_AND_MODIFY = "findAndModify"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class Operation:
    """Writes that travel to the server together. All but a transaction's are on one collection."""

    kind: str
    way: Way
    writes: tuple[Write, ...]

    def apply(self, collections: Sequence[Documents]) -> int:
        """Do it; return how many documents changed. Raises `Refused`; part of the writes may have happened then."""
        try:
            if self.way is Way.TRANSACTION:
                return self._in_transaction(collections)
            target = collections[self.writes[0].at]
            if self.way is Way.FIND_AND_MODIFY:
                return _find_and_modify(target, self.writes[0].body)
            return _bulk(target, self.writes, ordered=self.way is not Way.UNORDERED_BULK)
        except BulkWriteError as error:
            raise Refused(str(_first(error))) from error
        except (OperationFailure, WriteError) as error:
            raise Refused(str(error.code)) from error
        except ConnectionFailure as error:
            raise Lost(type(error).__name__) from error

    def _in_transaction(self, collections: Sequence[Documents]) -> int:
        def run(session: ClientSession) -> int:
            return sum(_bulk(collections[write.at], (write,), session=session) for write in self.writes)

        with collections[0].database.client.start_session() as session:
            return session.with_transaction(run)


def _bulk(
    target: Documents, writes: Sequence[Write], *, ordered: bool = True, session: ClientSession | None = None
) -> int:
    done = target.bulk_write([write.body.model() for write in writes], ordered=ordered, session=session)
    return done.inserted_count + done.upserted_count + done.modified_count + done.deleted_count


def _find_and_modify(target: Documents, body: Body) -> int:
    only_id = {"_id": 1}
    match body:
        case Replace(filter, document):
            found = target.find_one_and_replace(filter, document, projection=only_id)
        case Update(filter, change):
            found = target.find_one_and_update(
                filter | change.condition,
                change.update,
                only_id,
                upsert=change.upsert,
                array_filters=_listed(change),
            )
        case Delete(filter):
            found = target.find_one_and_delete(filter, projection=only_id)
        case Insert():
            raise TypeError("findAndModify does not insert")
    return int(found is not None)


def _first(error: BulkWriteError) -> int:
    """The code of a bulk's first error; of its write concern's where all writes were taken."""
    found = error.details or {}
    return int((found["writeErrors"] or found["writeConcernErrors"])[0]["code"])


def _listed(change: Change) -> list[Mapping[str, Any]] | None:
    return None if change.array_filters is None else list(change.array_filters)
