"""Reads of raw BSON, which are tried again: nothing is decoded, so the driver can neither correct nor refuse it.

VerifierError           root, with the fields `what`, `where`, `advice` and `code`
├── ServerLost          a server was unreachable for too long
├── Unsuitable          the chosen way of comparing does not work here
└── WorkerDied          a worker process ended unexpectedly
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import tenacity
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import (
    ConnectionFailure,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    WaitQueueTimeoutError,
)

from towpath_verifier import raw
from towpath_verifier.differences import Namespace
from towpath_verifier.raw import Element

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
Client = MongoClient[Any]
"""A PyMongo client, with documents of any type."""


class VerifierError(Exception):
    """Root of all errors; raised as such when a server refuses a command or the journal cannot be written.

    `what` went wrong; `where`: a namespace, side or file; `advice`: what to do; `code`: the name of the server's error
    code. Unknown fields are empty. The message is `where: what; advice`, without `where` if `what` contains it.
    """

    def __init__(self, what: str, advice: str = "", *, where: str = "", code: str = "") -> None:
        self.what, self.where, self.advice, self.code = what, where, advice, code
        super().__init__(f"{self.sentence}; {advice}" if advice else self.sentence)

    @property
    def sentence(self) -> str:
        """The message without the advice."""
        return f"{self.where}: {self.what}" if self.where and self.where not in self.what else self.what


class ServerLost(VerifierError):
    """A server was unreachable for too long (`Options.lost_for`); a journal keeps the ranges that were finished."""


class Unsuitable(VerifierError):
    """`Options.quiet` does not work here: there are writes, or the server cannot show them (a standalone)."""


class WorkerDied(VerifierError):
    """A worker process ended unexpectedly: it was killed, or memory ran out."""


_T = TypeVar("_T")
#: Codes of a server that shuts down, starts, or is no longer the primary, and from 8.0 on of one that is overloaded or
#: changes its featureCompatibilityVersion (MongoDB, error_codes.yml).
_PASSING = frozenset(
    (6, 7, 43, 89, 91, 133, 134, 175, 189, 237, 262, 433, 449, 462, 9001, 10107, 11600, 11602, 13435, 13436, 10045600)
)


def _is_passing(error: BaseException) -> bool:
    """Whether the same read may succeed later."""
    if isinstance(error, OperationFailure) and not isinstance(error, ConnectionFailure):
        return error.code in _PASSING
    return isinstance(error, ConnectionFailure | WaitQueueTimeoutError)


def with_retries(
    action: str, patience: float, read: Callable[[], _T], say: Callable[[str], None] = lambda words: None
) -> _T:
    """The result of `read`, tried again for up to `patience` seconds after it first failed for lack of a server.

    `action` completes "cannot …" in messages. Raises `ServerLost` when the server stays unreachable, `VerifierError`
    when it refuses.
    """
    failed_at: list[float] = []

    def stop(state: tenacity.RetryCallState) -> bool:
        failed_at.append(state.outcome_timestamp or 0.0)
        return failed_at[-1] - failed_at[0] >= patience

    def report(state: tenacity.RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            say(f"cannot {action}: {brief(state.outcome.exception())}; trying again for {patience:g} s")

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_is_passing),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=5),
        stop=stop,
        before_sleep=report,
        reraise=True,
    )
    try:
        return retrying(read)
    except PyMongoError as error:
        raise verifier_error(action, error) from error


def verifier_error(action: str, error: PyMongoError, where: str = "") -> VerifierError:
    """The driver's error as a `VerifierError`; `action` completes "cannot …", and names the place `where`."""
    if _is_passing(error):
        return ServerLost(f"cannot {action}: {brief(error)}", where=where)
    code = str((getattr(error, "details", None) or {}).get("codeName", ""))
    return VerifierError(f"cannot {action}: the server refused: {brief(error)}", where=where, code=code)


def brief(error: Any) -> str:
    """The beginning of a driver's message, without its details."""
    details = getattr(error, "details", None) or {}
    return str(details.get("errmsg", error)).split(", full error")[0].split(", Timeout:")[0]


#: As PyMongo names them; others refuse to be read, or are no members.
_BEHIND = ("RSSecondary", "RSOther", "RSArbiter")


def stale_member(client: Client) -> str:
    """The member, not the primary, that a direct connection leads to; empty for all other connections.

    The driver reads there whatever the read preference, and what it returns may be old. No request is sent; it waits
    for the first connection.
    """
    if not client.options.direct_connection or client.is_primary:
        return ""
    ((host, port), member), *_ = client.topology_description.server_descriptions().items()
    return f"{host}:{port}" if member.server_type_name in _BEHIND else ""


def refuse_stale(client: Client) -> None:
    """Raise the driver's `NotPrimaryError` if there is a `stale_member`: it may become the primary."""
    if member := stale_member(client):
        raise NotPrimaryError(
            f"{member} is not the primary of its replica set, so what it has may be old; remove directConnection from"
            " the URI, or name the primary"
        )


#: Ids in one command: `$in` and change streams stay far below 16 MB.
IDS, ID_BYTES = 1_000, 1 << 20
NAMESPACE_NOT_FOUND = 26
_MAJORITY_MS = 30_000  # for a majority of the members to get as far as the primary was


def collection(client: Client, namespace: Namespace) -> Collection[Any]:
    database, name = namespace.split(".", 1)
    return client[database][name]


def by_database(namespaces: Iterable[Namespace]) -> dict[str, list[str]]:
    """Database → the names of its collections among these namespaces."""
    names: dict[str, list[str]] = {}
    for namespace in namespaces:
        database, name = namespace.split(".", 1)
        names.setdefault(database, []).append(name)
    return names


def among(path: bytes, ids: Sequence[bytes]) -> RawBSONDocument:
    """The filter `{path: {$in: […]}}` with the `_id`s of these BSON `{_id: …}`, their bytes unchanged."""
    values = raw.array(raw.id_element(id) for id in ids)._replace(name=b"$in")
    return RawBSONDocument(raw.document((Element(raw.DOCUMENT, path, raw.document((values,))),)))


def matching(*filters: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The filter that matches what all of these match; None and an empty one match everything."""
    given = [each for each in filters if each]
    return given[0] if len(given) == 1 else {"$and": given} if given else {}


def by_ids(
    documents: Collection[Any],
    ids: Sequence[bytes],
    at: Timestamp | None = None,
    only: Mapping[str, Any] | None = None,
    since: Timestamp | None = None,
) -> Iterator[tuple[raw.Key, bytes]]:
    """Key and bytes of the documents that have one of these ids, and match the filter `only`.

    An id is any BSON with an `_id`. `at`: as they were at this cluster time. `since`: as a majority of the members has
    them at this cluster time or later; raises `ExecutionTimeout` if none does in time.
    """
    chosen = matching(among(b"_id", ids), only)
    command: dict[str, Any] = {"find": documents.name, "filter": chosen, "batchSize": IDS}
    if at is not None:
        command["readConcern"] = {"level": "snapshot", "atClusterTime": at}
    elif since is not None:
        command |= {"readConcern": {"level": "majority", "afterClusterTime": since}, "maxTimeMS": _MAJORITY_MS}
    refuse_stale(documents.database.client)
    database = documents.database.with_options(codec_options=RAW)
    with (
        database.client.start_session() as session,  # a snapshot is that of its session
        database.cursor_command(command, codec_options=RAW, session=session) as cursor,
    ):
        for document in cursor.batch_size(IDS):
            yield raw.id_key(bytes(document.raw)), bytes(document.raw)


def present(documents: Collection[Any], ids: Sequence[bytes], only: Mapping[str, Any] | None = None) -> set[raw.Key]:
    """The keys of the documents that have one of these ids, and match the filter `only`. Reads nothing else of them."""
    found = documents.with_options(codec_options=RAW).find(matching(among(b"_id", ids), only), {"_id": 1})
    return {raw.id_key(bytes(document.raw)) for document in found}


def chunks(ids: Iterable[bytes], most: int = ID_BYTES) -> Iterator[list[bytes]]:
    """Ids in lists of up to `most` bytes that fit into one command; a larger one stands alone."""
    chunk: list[bytes] = []
    size = 0
    for id in ids:
        if chunk and (len(chunk) == IDS or size + len(id) > most):
            yield chunk
            chunk, size = [], 0
        chunk.append(id)
        size += len(id)
    if chunk:
        yield chunk


def cluster_time(client: Client) -> Timestamp | None:
    """The cluster time: everything acknowledged or read so far is at or before it. None for a standalone."""
    time = client.admin.command("ping").get("operationTime")
    return time if isinstance(time, Timestamp) else None


@dataclass(frozen=True, slots=True)
class Size:
    """About how many documents a collection holds, and how many bytes they are."""

    documents: int
    bytes: int


def size(documents: Collection[Any]) -> Size:
    """By the server's own counts; zeros for a collection that does not exist."""
    try:
        reply = next(documents.aggregate([{"$collStats": {"storageStats": {}}}]), None)
    except OperationFailure as error:
        if error.code != NAMESPACE_NOT_FOUND:
            raise
        reply = None
    stats = reply["storageStats"] if reply else {}
    return Size(int(stats.get("count", 0)), int(stats.get("size", 0)))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The `_id`s from `low` (inclusive) to `high` (exclusive), each BSON `{_id: …}`; None for no bound."""

    low: bytes | None = None
    high: bytes | None = None

    def split(self, bounds: Sequence[bytes]) -> list[Bounds]:
        """The ranges that these ascending bounds cut this one into."""
        return [Bounds(low, high) for low, high in zip([self.low, *bounds], [*bounds, self.high], strict=True)]

    @property
    def stage(self) -> dict[str, Any]:
        """The `$match` of an aggregation; `$expr` has no type bracketing, and also uses the index."""
        parts: list[Any] = []
        for operator, bound in (("$gte", self.low), ("$lt", self.high)):
            if bound is not None:
                literal = RawBSONDocument(raw.document((raw.id_element(bound)._replace(name=b"$literal"),)))
                parts.append({operator: ["$_id", literal]})
        return {"$match": {"$expr": {"$and": parts}}} if parts else {"$match": {}}


def aggregated(documents: Collection[Any], stages: Sequence[Any], **how: Any) -> Iterator[bytes]:
    """The documents that an aggregation returns, one by one."""
    refuse_stale(documents.database.client)
    raw_documents = documents.with_options(codec_options=RAW)
    with raw_documents.aggregate_raw_batches(stages, allowDiskUse=True, **how) as cursor:
        for batch in cursor:
            yield from raw.documents(cast(bytes, batch))
