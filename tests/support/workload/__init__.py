"""A random workload that anyone can repeat: one seed, one list of operations, whatever the server's timing.

    workload = Workload(seed, [collection], documents=300)
    workload.fill()
    for operation in workload.steps(5000): ...
    workload.statistics.never(KINDS)

What is random comes from the seed and from what was drawn before, never from the server: operations may meet
documents that do not suit them, are refused, counted and skipped. One workload, one writer: what several
workloads do to the same documents depends on timing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from tests.support.raw import Documents
from tests.support.workload import values as v
from tests.support.workload.changes import CHANGES, Change
from tests.support.workload.operations import (
    Delete,
    Filter,
    Insert,
    Lost,
    Operation,
    Refused,
    Replace,
    Update,
    Way,
    Write,
)
from tests.support.workload.pipelines import MOVES, ODD_NAMES, PIPELINES, Pipeline, fresh_names
from tests.support.workload.versions import document_of, stamped

#: Writes that are no plain updates of one document.
_DOCUMENTS = ("insert", "replace", "replace of another _id type", "delete", "updateMany", "deleteMany")
#: Two writes that only make sense together.
REINSERT = "reinsert under another _id type"
_WAYS = tuple(way.value for way in Way if way is not Way.SINGLE)

#: Every kind of operation that a workload does without options.
KINDS = (*CHANGES, *PIPELINES, *_DOCUMENTS, REINSERT, *_WAYS)


@dataclass(slots=True)
class Statistics:
    """How often each kind of operation changed something, changed nothing, or was refused."""

    effective: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    """The server's error codes of the refusals."""

    @property
    def operations(self) -> int:
        return self.effective.total() + self.idle.total() + self.refused.total()

    def never(self, kinds: Iterable[str]) -> list[str]:
        """The kinds that never changed a document."""
        return [kind for kind in kinds if not self.effective[kind]]

    def __str__(self) -> str:
        lines = [f"{'kind':<32} changed nothing refused"]
        for kind in sorted({*self.effective, *self.idle, *self.refused}):
            lines.append(f"{kind:<32} {self.effective[kind]:7} {self.idle[kind]:7} {self.refused[kind]:7}")
        codes = ", ".join(f"{code}: {times}" for code, times in self.codes.most_common())
        return "\n".join([*lines, f"codes of the refusals: {codes or 'none'}"])


class Workload:
    """Seeded random operations on the documents 0 … `documents` − 1 of each collection.

    `moves` adds pipelines that move existing fields; `odd_names` adds fields with dots, `$` or no name at all, and
    pipelines that change them. A change stream does not tell either of them from something else. `versions` has every
    write raise a counter, as `tests.support.order` wants it. `may_lose` continues where the server does not answer.
    """

    def __init__(
        self,
        seed: int,
        collections: Sequence[Documents],
        *,
        documents: int = 300,
        moves: bool = False,
        odd_names: bool = False,
        versions: bool = False,
        may_lose: bool = False,
    ) -> None:
        self.seed = seed
        self.statistics = Statistics()
        self._collections = collections
        self._documents = documents
        self._may_lose = may_lose
        self._random = Random(seed)
        self._fresh = fresh_names(self._random)
        self._odd_names = odd_names
        self._numbers = count(1) if versions else None
        self._present: list[set[int]] = [set() for _ in collections]
        pipelines: dict[str, Pipeline] = PIPELINES | (MOVES if moves else {}) | (ODD_NAMES if odd_names else {})
        self._updates: dict[str, Callable[[Random], Change]] = CHANGES | {
            kind: lambda random, pipeline=pipeline: pipeline(random, self._fresh)
            for kind, pipeline in pipelines.items()
        }

    def fill(self, share: float = 0.8) -> int:
        """Insert this share of the documents; return how many there are in all collections."""
        for at, collection in enumerate(self._collections):
            chosen = self._random.sample(range(self._documents), int(self._documents * share))
            self._present[at].update(chosen)
            collection.insert_many([self._first(index) for index in chosen])
        return sum(map(len, self._present))

    def steps(self, operations: int | None = None) -> Iterator[Operation]:
        """Apply this many operations, one before each item; without end when no number is given."""
        for _ in count() if operations is None else range(operations):
            operation = self.draw()
            self._apply(operation)
            yield operation

    def run(self, operations: int, *, until_changed: Collection[str] = ()) -> None:
        """Apply `operations`; as many again, up to 20 times, until each of `until_changed` changed a document."""
        for _ in range(20):
            for _ in self.steps(operations):
                pass
            if not self.statistics.never(until_changed):
                return
        raise AssertionError(f"never changed a document: {self.statistics.never(until_changed)}\n{self.statistics}")

    def _apply(self, operation: Operation) -> None:
        try:
            changed = operation.apply(self._collections)
        except Refused as refused:
            self.statistics.refused[operation.kind] += 1
            self.statistics.codes[str(refused)] += 1
        except Lost as lost:
            if not self._may_lose:
                raise lost.__cause__ or lost from None
            self.statistics.refused[operation.kind] += 1
            self.statistics.codes[str(lost)] += 1
        else:
            counter = self.statistics.effective if changed else self.statistics.idle
            counter[operation.kind] += 1

    def draw(self) -> Operation:
        """The next operation; it need not be applied."""
        operation = self._operation()
        return operation if self._numbers is None else stamped(operation, self._numbers)

    def _operation(self) -> Operation:
        random, at = self._random, self._random.randrange(len(self._collections))
        way = random.choices(tuple(Way), (80, 5, 3, 6, 6))[0]
        if random.random() < 0.04:
            return Operation(REINSERT, random.choice((Way.BULK, Way.TRANSACTION)), self._reinsert(at))
        if way is Way.SINGLE:
            write = self._write(at, self._kind(at, (6, 6, 2, 5, 4, 1, 76)))
            return Operation(write.kind, way, (write,))
        if way is Way.FIND_AND_MODIFY:
            return Operation(way.value, way, (self._write(at, random.choice(("replace", "delete", "", "", "", ""))),))
        places = [at] * random.randint(2, 8)
        if way is Way.TRANSACTION:
            places = random.choices(range(len(self._collections)), k=random.randint(2, 5))
        kinds = [self._kind(place, (6, 6, 0, 5, 4, 0, 79)) for place in places]
        return Operation(way.value, way, tuple(map(self._write, places, kinds)))

    def _kind(self, at: int, weights: Sequence[int]) -> str:
        """A kind of `_DOCUMENTS`, or none, by weight; inserts instead of deletes once many documents are gone."""
        kind = self._random.choices((*_DOCUMENTS, ""), weights)[0]
        sparse = len(self._present[at]) < 0.6 * self._documents
        return "insert" if sparse and kind.startswith("delete") else kind

    def _write(self, at: int, kind: str) -> Write:
        """A write of this kind, or an update of any."""
        random, present = self._random, self._present[at]
        index = self._pick(at)
        same: Filter = {"_id": v.identity(random, index)}
        match kind:
            case "insert":
                index = random.choice(sorted(set(range(self._documents)) - present) or [index])
                present.add(index)
                return Write(kind, at, Insert(self._document(index)))
            case "replace":
                return Write(kind, at, Replace(same, self._fields()))
            case "replace of another _id type":
                return Write(kind, at, Replace(same, self._document(index)))
            case "delete":
                present.discard(index)
                return Write(kind, at, Delete(same))
            case "deleteMany":
                chosen = [index, self._pick(at), self._pick(at)]
                present.difference_update(chosen)
                return Write(kind, at, Delete({"_id": {"$in": [v.identity(random, one) for one in chosen]}}, many=True))
            case "updateMany":
                chosen = [self._pick(at) for _ in range(6)]
                change = replace(random.choice(list(self._updates.values()))(random), upsert=False)
                filter = {"_id": {"$in": [v.identity(random, one) for one in chosen]}}
                return Write(kind, at, Update(filter, change, many=True))
        kind = random.choice(list(self._updates))
        change = self._updates[kind](random)
        if change.upsert:
            index = random.randrange(self._documents)
            same = {"_id": v.identity(random, index)}
            present.add(index)
        return Write(kind, at, Update(same, change))

    def _reinsert(self, at: int) -> tuple[Write, ...]:
        """Delete a document and insert another under an equal `_id`, as a rule of another type."""
        index = self._pick(at)
        self._present[at].add(index)
        gone = Write(REINSERT, at, Delete({"_id": v.identity(self._random, index)}))
        return gone, Write(REINSERT, at, Insert(self._document(index)))

    def _pick(self, at: int) -> int:
        """A document that is there, as far as one can tell; a few of them more often than the rest."""
        there = sorted(self._present[at])
        if not there or self._random.random() < 0.05:
            return self._random.randrange(self._documents)
        return self._random.choice(there[:5] if self._random.random() < 0.2 else there)

    def _first(self, index: int) -> dict[str, v.Value]:
        document = self._document(index)
        return document if self._numbers is None else document_of(document, next(self._numbers))

    def _document(self, index: int) -> dict[str, v.Value]:
        return {"_id": v.identity(self._random, index)} | self._fields()

    def _fields(self) -> dict[str, v.Value]:
        fields = v.document(self._random)
        if self._odd_names:
            fields |= v.shuffled(self._random, {"a.b": 1, "": v.scalar(self._random), "o0.k": {"": 2}}, least=0)
        return fields
