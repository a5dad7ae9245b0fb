"""Reads of raw BSON: nothing is decoded on the way, so the driver can neither correct nor refuse anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import bson
import tenacity
from bson.codec_options import CodecOptions
from bson.max_key import MaxKey
from bson.raw_bson import _RAW_ARRAY_BSON_OPTIONS, RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.cursor import RawBatchCursor
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError, WaitQueueTimeoutError

from towpath_verifier import raw
from towpath_verifier.differences import Namespace, by_database
from towpath_verifier.errors import ServerLost, VerifierError
from towpath_verifier.raw import Element

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
Client = MongoClient[Any]

#: Ids in one command: `$in` and change streams stay far below 16 MB.
IDS, ID_BYTES = 1_000, 1 << 20


def collection(client: Client, namespace: Namespace) -> Collection[Any]:
    database, name = namespace.split(".", 1)
    return client[database][name]


def existing(client: Client, namespaces: Iterable[Namespace]) -> dict[Namespace, dict[str, Any]]:
    """The entry in `listCollections` of each of these namespaces that exists."""
    wanted = set(namespaces)
    return {
        namespace: dict(entry)
        for database in by_database(wanted)
        for entry in client[database].list_collections()
        if (namespace := f"{database}.{entry['name']}") in wanted
    }


def among(path: bytes, ids: Sequence[bytes]) -> RawBSONDocument:
    """The filter `{path: {$in: […]}}` with the `_id`s of these BSON `{_id: …}`, their bytes unchanged."""
    values = raw.array(raw.id_element(id) for id in ids)._replace(name=b"$in")
    return RawBSONDocument(raw.document((Element(raw.DOCUMENT, path, raw.document((values,))),)))


def by_ids(
    documents: Collection[Any], ids: Sequence[bytes], at: Timestamp | None = None
) -> Iterator[tuple[raw.Key, bytes]]:
    """Key and bytes of the documents that have one of these ids; `at`: as they were at this cluster time."""
    command: dict[str, Any] = {"find": documents.name, "filter": among(b"_id", ids), "batchSize": IDS}
    if at is not None:
        command["readConcern"] = {"level": "snapshot", "atClusterTime": at}
    database = documents.database
    with database.client.start_session() as session:
        reply = database.command(command, codec_options=RAW, session=session)["cursor"]
        batch = reply["firstBatch"]
        while True:
            for document in batch:
                yield raw.id_key(bytes(document.raw)), bytes(document.raw)
            if not reply["id"]:
                return
            more = {"getMore": reply["id"], "collection": documents.name, "batchSize": IDS}
            reply = database.command(more, codec_options=RAW, session=session)["cursor"]
            batch = reply["nextBatch"]


def chunks(ids: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Ids in lists that fit into one command."""
    chunk: list[bytes] = []
    size = 0
    for id in ids:
        if chunk and (len(chunk) == IDS or size + len(id) > ID_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(id)
        size += len(id)
    if chunk:
        yield chunk


def now(client: Client) -> Timestamp | None:
    """The cluster time: everything acknowledged or read so far is at or before it. None for a standalone."""
    time = client.admin.command("ping").get("operationTime")
    return time if isinstance(time, Timestamp) else None


def in_id_order(documents: Collection[Any], low: bytes | None, high: bytes | None, batch_size: int) -> Iterator[bytes]:
    """Batches of the documents from one `_id` (inclusive) to another (exclusive), in the order of the index on `_id`.

    Bounds are BSON `{_id: …}`, None for an end of the collection. `min` and `max` have no type bracketing; a read with
    `min` and without `max` ends before MaxKey, which may be an `_id` and is read separately.
    """
    bounds = {name: RawBSONDocument(bound) for name, bound in (("min", low), ("max", high)) if bound is not None}
    raw_documents = documents.with_options(codec_options=RAW)
    sort = None if bounds else [("_id", 1)]
    with _RawBatches(
        raw_documents, {}, hint=[("_id", 1)], sort=sort, batch_size=batch_size, **cast(Any, bounds)
    ) as cursor:
        yield from cursor
    if low is not None and high is None:
        with _RawBatches(raw_documents, {"_id": MaxKey()}) as cursor:
            yield from cursor


class _RawBatches(RawBatchCursor[Any]):
    """The cursor of `find_raw_batches`, for a fifth of its CPU: the driver's own makes an object of each document."""

    def _unpack_response(self, response: Any, *_: Any, **__: Any) -> list[Any]:
        reply = dict(bson.decode(response.raw_command_response(), _RAW_ARRAY_BSON_OPTIONS))
        if "cursor" in reply:  # which an error has not
            reply["cursor"] = dict(reply["cursor"])
        bson._convert_raw_document_lists_to_streams(reply)
        return [reply]


_T = TypeVar("_T")
#: Codes of a server that shuts down, starts, or is no longer the primary, and from 8.0 on of one that is overloaded or
#: changes its featureCompatibilityVersion (MongoDB, error_codes.yml).
_PASSING = frozenset(
    (6, 7, 43, 89, 91, 133, 134, 175, 189, 237, 262, 433, 449, 462, 9001, 10107, 11600, 11602, 13435, 13436, 10045600)
)


def is_passing(error: BaseException) -> bool:
    """Whether the same read may succeed later."""
    if isinstance(error, OperationFailure) and not isinstance(error, ConnectionFailure):
        return error.code in _PASSING
    return isinstance(error, ConnectionFailure | WaitQueueTimeoutError)


def with_retries(
    action: str, patience: float, read: Callable[[], _T], say: Callable[[str], None] = lambda words: None
) -> _T:
    """The result of `read`, tried again for up to `patience` seconds while a server is unreachable.

    `action` completes "cannot …" in messages. Raises `ServerLost` when the server stays unreachable, `VerifierError`
    when it refuses.
    """

    def report(state: tenacity.RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            say(f"cannot {action}: {brief(state.outcome.exception())}; trying again for {patience:g} s")

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_passing),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=5),
        stop=tenacity.stop_after_delay(patience),
        before_sleep=report,
        reraise=True,
    )
    try:
        return retrying(read)
    except PyMongoError as error:
        raise verifier_error(action, error) from error


def verifier_error(action: str, error: PyMongoError, where: str = "") -> VerifierError:
    """The driver's error as a `VerifierError`; `action` completes "cannot …", and names the place `where`."""
    if is_passing(error):
        return ServerLost(f"cannot {action}: {brief(error)}", where=where)
    code = str((getattr(error, "details", None) or {}).get("codeName", ""))
    return VerifierError(f"cannot {action}: the server refused: {brief(error)}", where=where, code=code)


def brief(error: Any) -> str:
    """The beginning of a driver's message, without its details."""
    details = getattr(error, "details", None) or {}
    return str(details.get("errmsg", error)).split(", full error")[0].split(", Timeout:")[0]
