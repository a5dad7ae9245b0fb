"""Values that go from document to document under a unique index."""

from __future__ import annotations

from random import Random

from tests.support import raw


class Swapping:
    """Two documents swap a value of a unique index back and forth; between, one of them holds another."""

    def __init__(self, documents: raw.Documents, number: int) -> None:
        """`number`: of the documents, whose `_id`s count from 0."""
        self._documents, self._number, self._random = documents, number, Random(1)

    def swap(self) -> None:
        one, other = self._random.sample(range(self._number), 2)
        mine, theirs = (self._documents.find_one({"_id": n}, {"email": 1}) for n in (one, other))
        assert mine is not None and theirs is not None
        for n, email in ((one, "between"), (other, mine["email"]), (one, theirs["email"])):
            self._documents.update_one({"_id": n}, {"$set": {"email": email}})
