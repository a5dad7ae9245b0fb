"""A look at some documents of a collection: field names that a change stream cannot tell, and near the size limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import ExecutionTimeout

from towpath.finding import Finding, ok, warning
from towpath.pipeline import Pipeline
from towpath.preflight.names import odd_names
from towpath.text import counted

_DOCUMENTS = 300
_SECONDS = 3.0
_BYTES = 32 * 1024 * 1024
#: Beyond this a change event, which wraps the document, may not fit into the server's own limit of 16 MiB.
LARGE = int(15.9 * 1024 * 1024)
_SHOWN = 3
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


def documents(client: MongoClient[dict[str, Any]], namespace: str, count: int) -> Iterator[RawBSONDocument]:
    """Some hundred documents, bounded in bytes and time as well.

    From a large collection `$sample` picks without reading it all; a small one is read through, since `$sample`
    would sort it there.
    """
    database, collection = namespace.split(".", 1)
    wanted: Any = client[database].get_collection(collection, codec_options=_RAW)
    pipeline: list[dict[str, Any]]
    if count > 20 * _DOCUMENTS:  # the server's random cursor works below 5 % of the collection
        pipeline = [{"$sample": {"size": _DOCUMENTS}}]
    else:
        pipeline = [{"$match": {"$sampleRate": min(1.0, _DOCUMENTS / max(count, 1))}}]
    end, size = time.monotonic() + _SECONDS, 0
    try:
        for document in wanted.aggregate(pipeline, batchSize=50, maxTimeMS=int(_SECONDS * 1000)):
            yield document
            size += len(document.raw)
            if size > _BYTES or time.monotonic() > end:
                return
    except ExecutionTimeout:
        return


def sample(client: MongoClient[dict[str, Any]], namespace: str, count: int, pipeline: Pipeline) -> Iterator[Finding]:
    """What a sample of one collection of `count` documents shows."""
    subject, looked_at, largest = f"source {namespace}", 0, 0
    odd: dict[str, None] = {}
    for document in documents(client, namespace, count):
        looked_at += 1
        largest = max(largest, len(document.raw))
        odd.update(dict.fromkeys(map(_shown, odd_names(bytes(document.raw)))))
    if odd:
        yield _odd_finding(subject, namespace, list(odd), pipeline)
    if largest > LARGE:
        yield warning(
            subject,
            f"holds a document of {largest / 2**20:.2f} MiB: a change event has to fit into 16 MiB together with what"
            " wraps it, and an update of such a document may stop capture (BSONObjectTooLarge)",
            "make such documents smaller, or leave the collection out with [collections] exclude",
        )
    yield ok(
        subject,
        f"sampled {looked_at:,} of {counted(count, 'document')}{f', the largest {largest:,} bytes' if largest else ''}",
    )


def _odd_finding(subject: str, namespace: str, odd: list[str], pipeline: Pipeline) -> Finding:
    more = f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else ""
    found = f"has fields whose names hold a dot, begin with $ or are empty: {', '.join(odd[:_SHOWN])}{more}"
    if pipeline.captured_whole and pipeline.captured_whole.matches(namespace):
        return ok(subject, f"{found}; [capture] whole_documents looks its documents up")
    return warning(
        subject,
        f"{found}; in an update a change stream cannot tell the field a.b from b inside a",
        f'if updates touch them, add "{namespace}" to [capture] whole_documents before the first deploy',
    )


def _shown(path: tuple[str, ...]) -> str:
    return " → ".join(repr(name) if name != "[]" else name for name in path)
