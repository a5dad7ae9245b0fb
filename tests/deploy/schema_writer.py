"""A seeded writer that changes documents at full speed, and in between the collections that they are in.

It knows which lives each name has had (see `tests.support.lives`). One thread makes collections and documents, in the
same order with the same seed. Another one beside it changes documents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from random import Random
from threading import Event
from typing import Any

from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne
from pymongo.errors import BulkWriteError, OperationFailure

from tests.support import raw
from tests.support.lives import MARK, mark

IDS, BULK = 150, 100
BESIDE = range(1000, 1010)
"""The `_id`s that only the thread beside changes: of one document, no version is written before an earlier one."""
_OURS = {"_id": {"$lte": IDS}}
_BESIDE_EVERY_S = 0.01
_LATE = datetime(2200, 1, 1, tzinfo=UTC)
INDEXES: dict[str, dict[str, Any]] = {
    "plain": {"key": {"n": 1}},
    "unique": {"key": {"u": 1}, "unique": True},
    "expires": {"key": {"at": 1}, "expireAfterSeconds": 3600},
    "two": {"key": {"n": -1, "text": 1}, "sparse": True},
    "words": {"key": {"text": "text"}, "default_language": "german"},
    "some": {"key": {"n": 1, "u": 1}, "partialFilterExpression": {"n": {"$gt": 5}}},
    "all": {"key": {"part.$**": 1}},
    "hashed": {"key": {"text": "hashed"}},
    "collated": {"key": {"text": 1}, "collation": {"locale": "de", "strength": 2}},
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"validator": {MARK: {"$exists": True}}},
    {"validator": {"u": {"$type": "string"}}, "validationLevel": "moderate", "validationAction": "warn"},
    {"clusteredIndex": {"key": {"_id": 1}, "unique": True, "name": "by id"}},
    {"changeStreamPreAndPostImages": {"enabled": True}},
)


class SchemaWriter:
    """Writes to `names` of the databases that are replicated, and renames into and out of the one `outside`."""

    def __init__(self, seed: int, client: raw.Client, names: list[str], outside: str) -> None:
        self.random, self.client, self.names = Random(seed), client, names
        self.order: dict[str, list[int]] = defaultdict(list)
        """Namespace → its lives."""
        self.done: dict[str, int] = defaultdict(int)
        """Operation → how often it was done."""
        self.affected = names[0]
        """What the last schema change was about."""
        self._outside = outside
        self._beside = Random(f"beside {seed}")
        self._lives, self._versions = count(1), count(1)
        self._life: dict[str, int] = {}
        """The collections that exist, and the life of each."""
        self._views: set[str] = set()
        self._operations: list[str] = []

    @property
    def operations(self) -> dict[str, Callable[[], bool]]:
        """Each returns whether it found something to do."""
        return {
            "create": self._create,
            "create capped": self._create_capped,
            "create a view": self._create_view,
            "change a view": self._change_view,
            "drop a view": self._drop_view,
            "createIndexes": self._create_indexes,
            "dropIndexes": self._drop_indexes,
            "dropIndexes *": self._drop_all_indexes,
            "collMod": self._modify,
            "collMod of the pre- and post-images": self._modify_images,
            "collMod of an index": self._modify_index,
            "rename": self._rename,
            "rename onto another": self._rename_onto,
            "rename out": self._rename_out,
            "rename in": self._rename_in,
            "drop": self._drop,
            "drop and insert": self._drop_and_insert,
            "dropDatabase": self._drop_database,
            "$out": self._out,
            "$out again": self._out_again,
            "$merge": self._merge,
            "transaction": self._transaction,
        }

    def write(self, bulks: int, *, changes_every: int = 6) -> None:
        """So many bulks, with a schema change after about each `changes_every` of them."""
        for _ in range(bulks):
            self.bulk(self.random.choice(self.names))
            if self.random.randrange(changes_every) == 0:
                self.change()

    def change(self) -> str:
        """The next schema change: each kind comes once in turn, in an order that the seed decides."""
        while True:
            if not self._operations:
                self._operations = self.random.sample(sorted(self.operations), len(self.operations))
            name = self._operations.pop()
            if self.operations[name]():
                self.done[name] += 1
                return name

    @contextmanager
    def beside(self) -> Iterator[list[int]]:
        """Until the exit of the `with`, a thread changes documents whatever schema change there is just then.

        It makes no document, as that could make a collection. Yields, in a list, how often it has written.
        """
        stop, written = Event(), [0]

        def write() -> None:
            while not stop.wait(_BESIDE_EVERY_S):
                alive = [(name, life) for name, life in list(self._life.items()) if name in self.names]
                if alive:
                    written[0] += self._change_beside(*self._beside.choice(alive))

        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(write)
            try:
                yield written
            finally:
                stop.set()
            running.result(60)

    def _change_beside(self, namespace: str, life: int) -> int:
        def change() -> dict[str, Any]:
            return {"$set": {**mark(life, next(self._versions)), "n": self._beside.randrange(10)}}

        of_life = {f"{MARK}.life": life}
        updates = [UpdateOne({"_id": identity, **of_life}, change()) for identity in BESIDE]
        with suppress(BulkWriteError, OperationFailure):  # as the schema change may end it
            return self._of(namespace).bulk_write(updates).modified_count
        return 0

    def never(self) -> list[str]:
        return [name for name in self.operations if not self.done[name]]

    def bulk(self, namespace: str) -> None:
        life = self._alive(namespace)
        with suppress(BulkWriteError):  # a duplicate of a unique index, say
            beside = [InsertOne(self._document(identity, life)) for identity in BESIDE]
            self._of(namespace).bulk_write([*(self._write(life) for _ in range(BULK)), *beside], ordered=False)

    def _write(self, life: int) -> Any:
        random, identity = self.random, self.random.randrange(IDS)
        fields = mark(life, next(self._versions))
        match random.randrange(10):
            case 0 | 1:
                return DeleteOne({"_id": identity})
            case 2 | 3 | 4:
                return ReplaceOne({"_id": identity}, self._document(identity, life), upsert=True)
            case 5:
                return UpdateOne({"_id": identity}, {"$set": fields, "$push": {"list": random.randrange(100)}})
            case 6:
                push = {"$each": [random.randrange(100)], "$slice": -20}
                return UpdateOne({"_id": identity}, {"$set": fields, "$push": {"list": push}})
            case _:
                change = {f"part.{random.choice('abc')}": random.random(), "n": random.randrange(10)}
                return UpdateOne({"_id": identity}, {"$set": fields | change})

    def _document(self, identity: int, life: int) -> dict[str, Any]:
        random, version = self.random, next(self._versions)
        return {
            "_id": identity,
            **mark(life, version),
            "u": f"u{identity}",
            "n": random.randrange(10),
            "at": _LATE,
            "text": random.choice(("eins", "zwei", "drei")) * random.randrange(1, 5),
            "part": {"a": version},
            "list": [random.randrange(100) for _ in range(random.randrange(5))],
        }

    def _of(self, namespace: str) -> raw.Documents:
        return self.client.get_database(namespace.split(".", 1)[0])[namespace.split(".", 1)[1]]

    def _database(self, namespace: str) -> Any:
        return self.client.get_database(namespace.split(".", 1)[0])

    def _alive(self, namespace: str) -> int:
        """The life of a collection, which may begin now."""
        if namespace not in self._life:
            self._begin(namespace, next(self._lives))
            with suppress(OperationFailure):
                self._of(namespace).insert_one(self._document(IDS, self._life[namespace]))
        return self._life[namespace]

    def _begin(self, namespace: str, life: int) -> None:
        self._life[namespace] = life
        self.order[namespace].append(life)

    def _pick(self, *, exists: bool) -> str | None:
        found = [name for name in self.names if (name in self._life) == exists]
        if not found:
            return None
        self.affected = self.random.choice(found)
        return self.affected

    def _create(self) -> bool:
        if (namespace := self._pick(exists=False)) is None:
            return False
        options = self.random.choice(OPTIONS)
        self._database(namespace).command({"create": namespace.split(".", 1)[1], **options})
        self._begin(namespace, next(self._lives))
        return True

    def _create_capped(self) -> bool:
        """It gets no documents: no server reads those of a capped collection as of a known time."""
        name = f"capped{next(self._lives)}"
        self._database(self.names[0]).command({"create": name, "capped": True, "size": 100_000, "max": 50})
        return True

    def _create_view(self) -> bool:
        database, name = self.names[0].split(".", 1)[0], f"view{next(self._lives)}"
        on = self.names[0].split(".", 1)[1]
        self.client[database].command({"create": name, "viewOn": on, "pipeline": [{"$match": {"n": {"$gt": 3}}}]})
        self._views.add(f"{database}.{name}")
        return True

    def _change_view(self) -> bool:
        if not self._views:
            return False
        namespace = self.random.choice(sorted(self._views))
        pipeline = [{"$match": {"n": self.random.randrange(10)}}, {"$project": {"n": 1}}]
        on = self.names[1].split(".", 1)[1]
        name = namespace.split(".", 1)[1]
        self._database(namespace).command({"collMod": name, "viewOn": on, "pipeline": pipeline})
        return True

    def _drop_view(self) -> bool:
        if not self._views:
            return False
        namespace = self.random.choice(sorted(self._views))
        self._of(namespace).drop()
        self._views.discard(namespace)
        return True

    def _create_indexes(self, *only: str) -> bool:
        if (namespace := self._pick(exists=True)) is None:
            return False
        chosen = only or self.random.sample(sorted(INDEXES), self.random.randint(1, 3))
        indexes = [{"name": name, **INDEXES[name]} for name in chosen]
        with suppress(OperationFailure):  # a second text index, say
            self._database(namespace).command({"createIndexes": namespace.split(".", 1)[1], "indexes": indexes})
            return True
        return False

    def _with_index(self, *only: str) -> tuple[str, str] | None:
        found = [
            (namespace, index["name"])
            for namespace in self._life
            if namespace in self.names
            for index in self._of(namespace).list_indexes()
            if index["name"] in (only or INDEXES)
        ]
        if not found:
            return None
        self.affected, index = self.random.choice(sorted(found))
        return self.affected, index

    def _drop_indexes(self) -> bool:
        if not (found := self._with_index() or (self._create_indexes() and self._with_index())):
            return False
        self._of(found[0]).drop_index(found[1])
        return True

    def _drop_all_indexes(self) -> bool:
        if not (found := self._with_index() or (self._create_indexes() and self._with_index())):
            return False
        self._of(found[0]).drop_indexes()
        return True

    def _modify(self) -> bool:
        if (namespace := self._pick(exists=True)) is None:
            return False
        change: dict[str, Any] = self.random.choice(
            (
                {"validator": {"n": {"$lt": 100}}, "validationLevel": "strict", "validationAction": "error"},
                {"validator": {}},
            )
        )
        self._database(namespace).command({"collMod": namespace.split(".", 1)[1], **change})
        return True

    def _modify_images(self) -> bool:
        if (namespace := self._pick(exists=True)) is None:
            return False
        images = self._of(namespace).options().get("changeStreamPreAndPostImages", {"enabled": False})
        change = {"changeStreamPreAndPostImages": {"enabled": not images["enabled"]}}
        self._database(namespace).command({"collMod": namespace.split(".", 1)[1], **change})
        return True

    def _modify_index(self) -> bool:
        found = self._with_index("expires", "plain") or (self._create_indexes("plain") and self._with_index("plain"))
        if not found:
            return False
        change: dict[str, Any] = {"hidden": bool(self.random.randrange(2))}
        if found[1] == "expires":
            change["expireAfterSeconds"] = self.random.randrange(4000, 9000)
        name = found[0].split(".", 1)[1]
        self._database(found[0]).command({"collMod": name, "index": {"name": found[1], **change}})
        return True

    def _renamed(self, old: str, new: str, *, drops: bool = False) -> None:
        self.client.admin.command({"renameCollection": old, "to": new, "dropTarget": drops})
        life = self._life.pop(old)
        if new in self.names:
            self._begin(new, life)
        else:
            self._life[new] = life

    def _rename(self) -> bool:
        old, new = self._pick(exists=True), self._pick(exists=False)
        if old is None or new is None:
            return False
        self._renamed(old, new)
        return True

    def _rename_onto(self) -> bool:
        old, new = self._pick(exists=True), self._pick(exists=True)
        if old is None or new is None or old == new:
            return False
        self._renamed(old, new, drops=True)
        return True

    def _outer(self) -> str:
        return f"{self._outside}.outer"

    def _rename_out(self) -> bool:
        if (old := self._pick(exists=True)) is None:
            return False
        self._renamed(old, self._outer(), drops=self._outer() in self._life)
        return True

    def _rename_in(self) -> bool:
        new = self._pick(exists=self.random.random() < 0.5)
        if self._outer() not in self._life or new is None:
            return False
        self._renamed(self._outer(), new, drops=new in self._life)
        return True

    def _drop(self) -> bool:
        if (namespace := self._pick(exists=True)) is None:
            return False
        self._of(namespace).drop()
        del self._life[namespace]
        return True

    def _drop_and_insert(self) -> bool:
        if (namespace := self._pick(exists=True)) is None:
            return False
        self._of(namespace).drop()
        del self._life[namespace]
        self.bulk(namespace)
        return True

    def _drop_database(self) -> bool:
        database = self.names[-1].split(".", 1)[0]
        gone = [name for name in self._life if name.startswith(f"{database}.")]
        if not gone:
            return False
        self.client.drop_database(database)
        for name in gone:
            del self._life[name]
        return True

    def _copy(self, to: str | None) -> bool:
        if to is None:
            return False
        database, name = to.split(".", 1)
        found = [of for of in self.names if of in self._life and of != to and of.startswith(f"{database}.")]
        if not found:
            return False
        life = next(self._lives)
        try:
            self._of(self.random.choice(found)).aggregate([{"$set": mark(life, next(self._versions))}, {"$out": name}])
        except OperationFailure:  # onto a capped or a clustered one
            return False
        self._begin(to, life)
        return True

    def _out(self) -> bool:
        return self._copy(self._pick(exists=True))

    def _out_again(self) -> bool:
        return self._copy(self._pick(exists=False))

    def _merge(self) -> bool:
        of, to = self._pick(exists=True), self._pick(exists=self.random.random() < 0.5)
        if of is None or to is None or of == to or self._of(of).find_one(_OURS) is None:  # of nothing it makes nothing
            return False
        if to not in self._life:
            self._begin(to, next(self._lives))
        new = mark(self._life[to], next(self._versions))
        database, name = to.split(".", 1)
        into = {"db": database, "coll": name}
        self._of(of).aggregate([{"$match": _OURS}, {"$set": new}, {"$merge": {"into": into, "whenMatched": "replace"}}])
        return True

    def _transaction(self) -> bool:
        """A collection that begins in a transaction with documents of it and of another."""
        new, other = self._pick(exists=False), self._pick(exists=True)
        if new is None or other is None:
            return False
        life = next(self._lives)
        with self.client.start_session() as session, session.start_transaction():
            self._of(new).insert_many([self._document(n, life) for n in range(20)], session=session)
            changed = {"$set": mark(self._life[other], next(self._versions))}
            self._of(other).update_one({"_id": 1}, changed, session=session)
        self._begin(new, life)
        return True
