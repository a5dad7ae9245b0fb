"""Repair: the source connector re-reads documents, they pass through the log in order, and are compared afterwards.

Only the pipeline itself writes to the destination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial

from towpath.config.text import counted
from towpath.log import barrier, dead_letters, reread_requests
from towpath.session import Session
from towpath.verify.targets import DocumentRef, document_of, unreadable
from towpath_verifier import Key, Namespace, Pair, Passed, Recheck, Same, Settling, Unsettled, id_key

#: Limits of a batch, which is re-read, applied and compared before the next: memory stays bounded.
_DOCUMENTS, _BYTES = 20_000, 8 << 20


@dataclass(frozen=True, slots=True)
class Repaired:
    """A document that is equal on both sides now."""

    document: DocumentRef


@dataclass(frozen=True, slots=True)
class NotRepaired:
    """A document that is not equal; `kind` is missing, extra, different, order, or unknown."""

    document: DocumentRef
    kind: str
    reason: str


Outcome = Repaired | NotRepaired


def repair(
    session: Session, documents: Iterable[DocumentRef], passed: Passed | None, timeout: float
) -> Iterator[Outcome]:
    """Repair these documents in batches; yield the outcome of each.

    `timeout` is in seconds, for each batch to be re-read and applied. Raises `Refused` where no connector would answer
    the re-read requests, `NotYet` when a batch is not applied in time; requests that were sent are still applied.
    """
    session.require_deployed()
    clients = session.source.client(), session.destination.client()
    for batch in _batches(documents):
        count = counted(sum(map(len, batch.values())), "document")
        session.say(f"requesting {count} of {counted(len(batch), 'namespace')}")
        settling = partial(Settling, *clients, Recheck(), passed, say=session.say)
        yield from _batch(session, batch, settling, timeout)


def _batches(documents: Iterable[DocumentRef]) -> Iterator[dict[Namespace, list[bytes]]]:
    batch: dict[Namespace, dict[Key, bytes]] = {}
    count = size = 0
    for document in documents:
        batch.setdefault(document.namespace, {})[id_key(document.id)] = document.id
        count, size = count + 1, size + len(document.id)
        if count == _DOCUMENTS or size > _BYTES:
            yield {namespace: list(ids.values()) for namespace, ids in batch.items()}
            batch, count, size = {}, 0, 0
    if batch:
        yield {namespace: list(ids.values()) for namespace, ids in batch.items()}


def _batch(
    session: Session, batch: Mapping[Namespace, list[bytes]], settling: Callable[[], Settling], timeout: float
) -> Iterator[Outcome]:
    pipeline, topics = session.pipeline, session.topics
    letters = dead_letters.end(pipeline, topics)
    odd = [(namespace, id, reason) for namespace, ids in batch.items() for id in ids if (reason := unreadable(id))]
    for namespace, id, reason in odd:
        yield NotRepaired(DocumentRef(namespace, id), "unknown", f"{reason}, by which no driver can query it")
    skipped = {(namespace, id) for namespace, id, _ in odd}
    requested = {namespace: [id for id in ids if (namespace, id) not in skipped] for namespace, ids in batch.items()}
    for namespace in requested:
        reread_requests.refuse_unanswered(pipeline, topics, namespace)
    for namespace, ids in requested.items():
        reread_requests.write(pipeline, topics, namespace, ids)
    barrier.wait(session, timeout, session.say)
    refusals = cache(lambda: dict(_refusals(session, letters)))
    for namespace, ids in requested.items():
        left = set[Key]()
        for outcome in settling().outcomes(Pair(namespace, pipeline.renamed(namespace)), ids):
            document, key = DocumentRef(namespace, outcome.id), id_key(outcome.id)
            if not isinstance(outcome, Same):
                left.add(key)
            if isinstance(outcome, Unsettled):
                yield NotRepaired(document, "unknown", f"it could not be judged: {outcome.why}")
            elif not isinstance(outcome, Same):
                unknown = "it was re-read and applied; does something else write to the destination?"
                yield NotRepaired(document, outcome.kind, refusals().get((namespace, key), unknown))
        yield from (Repaired(DocumentRef(namespace, id)) for id in ids if id_key(id) not in left)


def _refusals(session: Session, start: int) -> Iterator[tuple[tuple[Namespace, Key], str]]:
    """Why the destination refused documents: those of the dead letters since the offset `start`."""
    if session.pipeline.dead_letter_topic not in session.topics.all():
        return
    for letter in dead_letters.letters(session.pipeline, session.topics, follow=False, start=start):
        document = document_of(session.pipeline, letter.place[0], letter.key)
        if document is not None:
            code = f" ({letter.code})" if letter.code else ""
            yield (document.namespace, id_key(document.id)), f"the destination refuses it: {letter.reason}{code}"
