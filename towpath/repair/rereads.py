"""Repair: documents are read again by the source connector, come through the log in order, and are compared.

Nothing is written to the destination but by the pipeline itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient

from towpath import barrier
from towpath.log import dead_letters, reread_requests
from towpath.mongo.client import connected
from towpath.repair.targets import Wanted, refused, unreadable
from towpath.session import Session
from towpath.text import counted
from verifier import Namespace, Pair, Passed, Recheck
from verifier.collections import outcomes
from verifier.proof import Same, Unsettled
from verifier.raw import Key, id_key
from verifier.settlement import Settling

#: What is asked for, applied and compared before the next is begun: memory stays bounded.
_AT_ONCE, _BYTES = 20_000, 8 << 20

Client = MongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Mended:
    """A document that is the same on both sides now."""

    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Left:
    """A document that is not; `kind` is missing, extra, different, order, or unknown."""

    wanted: Wanted
    kind: str
    why: str


Repaired = Mended | Left


def repair(
    session: Session, wanted: Iterable[Wanted], passed: Passed | None, timeout: float, say: Callable[[str], None]
) -> Iterator[Repaired]:
    """Repair these documents, a batch at a time, and tell of each what came of it.

    `timeout` is in seconds, for each batch to be re-read and applied. Raises `Refused` where nobody would read
    again, `NotYet` when a batch is not applied in time; what was asked for until then is applied all the same.
    """
    session.require_deployed()
    with (
        connected(session.pipeline.source_uri, "source") as source,
        connected(session.pipeline.destination_uri, "destination") as destination,
    ):
        for batch in _batches(wanted):
            documents = counted(sum(map(len, batch.values())), "document")
            say(f"asking for {documents} of {counted(len(batch), 'namespace')}")
            yield from _batch(session, source, destination, batch, passed, timeout, say)


def _batches(wanted: Iterable[Wanted]) -> Iterator[dict[Namespace, list[bytes]]]:
    batch: dict[Namespace, dict[Key, bytes]] = {}
    count = size = 0
    for one in wanted:
        batch.setdefault(one.namespace, {})[id_key(one.id)] = one.id
        count, size = count + 1, size + len(one.id)
        if count == _AT_ONCE or size > _BYTES:
            yield {namespace: list(ids.values()) for namespace, ids in batch.items()}
            batch, count, size = {}, 0, 0
    if batch:
        yield {namespace: list(ids.values()) for namespace, ids in batch.items()}


def _batch(
    session: Session,
    source: Client,
    destination: Client,
    batch: Mapping[Namespace, list[bytes]],
    passed: Passed | None,
    timeout: float,
    say: Callable[[str], None],
) -> Iterator[Repaired]:
    pipeline, topics = session.pipeline, session.topics
    letters = dead_letters.end(pipeline, topics)
    odd = [(namespace, id, why) for namespace, ids in batch.items() for id in ids if (why := unreadable(id))]
    for namespace, id, why in odd:
        yield Left(Wanted(namespace, id), "unknown", f"{why}, by which no driver can ask for it")
    no = {(namespace, id) for namespace, id, _ in odd}
    asked = {namespace: [id for id in ids if (namespace, id) not in no] for namespace, ids in batch.items()}
    for namespace in asked:
        reread_requests.refuse_unanswered(pipeline, topics, namespace)
    for namespace, ids in asked.items():
        reread_requests.write(pipeline, topics, namespace, ids)
    barrier.wait(pipeline, session.connect, topics, timeout, say)
    reasons = _Reasons(session, letters)
    for namespace, ids in asked.items():
        pair = Pair(namespace, pipeline.renames.destination(namespace))
        left = {id_key(one.wanted.id): one for one in _left(source, destination, pair, ids, passed, reasons, say)}
        yield from left.values()
        yield from (Mended(Wanted(namespace, id)) for id in ids if id_key(id) not in left)


def _left(
    source: Client,
    destination: Client,
    pair: Pair,
    ids: list[bytes],
    passed: Passed | None,
    reasons: _Reasons,
    say: Callable[[str], None],
) -> Iterator[Left]:
    for outcome in outcomes(Settling(source, destination, Recheck(), passed, say=say), pair, ids):
        wanted = Wanted(outcome.namespace, outcome.id)
        if isinstance(outcome, Unsettled):
            yield Left(wanted, "unknown", f"it could not be judged: {outcome.why}")
        elif not isinstance(outcome, Same):
            yield Left(wanted, outcome.kind, reasons.of(wanted))


class _Reasons:
    """Why documents are not mended, by the dead letters that came in since an offset."""

    def __init__(self, session: Session, start: int) -> None:
        self._it, self._start = session, start
        self._known: dict[tuple[Namespace, Key], str] | None = None

    def of(self, wanted: Wanted) -> str:
        if self._known is None:
            self._known = dict(self._read())
        said = self._known.get((wanted.namespace, id_key(wanted.id)))
        return said or "it was re-read and applied; does something else write to the destination?"

    def _read(self) -> Iterator[tuple[tuple[Namespace, Key], str]]:
        pipeline, topics = self._it.pipeline, self._it.topics
        if pipeline.dead_letter_topic not in topics.all():
            return
        for letter in dead_letters.letters(pipeline, topics, follow=False, start=self._start):
            wanted = refused(pipeline, letter.place[0], letter.key)
            if wanted is not None:
                code = f" ({letter.code})" if letter.code else ""
                yield (wanted.namespace, id_key(wanted.id)), f"the destination refuses it: {letter.reason}{code}"
