"""Comparisons by hashes that the servers compute: of whole collections while nobody writes, and of `_id` ranges.

Hashes of whole collections (`dbHash`) are exact; digests of documents (`$toHashedIndexKey`) can miss differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from bson.timestamp import Timestamp
from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from towpath_verifier import proof, raw
from towpath_verifier.differences import Namespace, Pair, by_database
from towpath_verifier.errors import Unsuitable
from towpath_verifier.merge import Equal, Merged, Unequal
from towpath_verifier.ranges import Bounds, between, match
from towpath_verifier.raw import Element, Key, id_key, key
from towpath_verifier.reads import RAW, Client, now, verifier_error, with_retries

_QUIET = "the option quiet requires that nobody writes"


def hashes(client: Client, namespaces: Iterable[Namespace]) -> dict[Namespace, str]:
    """`dbHash` of each of these collections that exists: a hash of the bytes of all documents in `_id` order."""
    return {
        f"{database}.{name}": digest
        for database, names in by_database(namespaces).items()
        for name, digest in client[database].command("dbHash", collections=names)["collections"].items()
    }


@dataclass(frozen=True, slots=True)
class Watch:
    """Shows which of these namespaces have been written to after a cluster time."""

    client: Client
    namespaces: Sequence[Namespace]
    side: str
    since: Timestamp

    def written(self) -> set[Namespace]:
        """Those with writes since. Raises `VerifierError` when the server cannot show writes."""
        try:
            until = now(self.client) or self.since
            return proof.written(self.client, self.namespaces, self.since, until)
        except PyMongoError as error:
            raise verifier_error(f"look for writes to the {self.side}", error, self.side) from error
        except proof.Unknown as error:
            what = f"cannot see whether anything is written to the {self.side}: {error}"
            raise Unsuitable(what, where=self.side) from error

    def refuse_writes(self) -> None:
        """Raise `Unsuitable` when something has been written since."""
        if written := self.written():
            raise Unsuitable(
                f"{', '.join(sorted(written))} was written to at the {self.side} during the run, and {_QUIET}",
                "stop the writers and wait until the destination has caught up, or compare without it",
                where=self.side,
            )


def watch(client: Client, namespaces: Sequence[Namespace], side: str, lost_for: float) -> Watch:
    """Watch from now on. Raises `Unsuitable` for a standalone, which has no change streams to show writes, and
    `ServerLost` for a server that is unreachable for `lost_for` seconds."""
    since = with_retries(f"read the {side}'s cluster time", lost_for, lambda: now(client))
    if since is None:
        raise Unsuitable(f"the {side} is a standalone mongod, on which writes cannot be seen; {_QUIET}", where=side)
    return Watch(client, namespaces, side, since)


def same_by_hash(source: Client, destination: Client, pairs: Sequence[Pair]) -> Mapping[Pair, bool]:
    """Which pairs hold the same documents, byte for byte."""
    try:
        ours = hashes(source, [pair.source for pair in pairs])
        theirs = hashes(destination, [pair.destination for pair in pairs])
    except PyMongoError as error:
        raise verifier_error("hash collections with dbHash", error) from error
    return {pair: ours.get(pair.source) == theirs.get(pair.destination) for pair in pairs}


_NAMED = 1_000  # a range of up to so many documents is compared digest by digest
_PARTS = 16  # parts that a larger range is split into
#: Primes below 2^32: sums of a 64-bit digest modulo each stay exact for 2^31 documents, and both keep nearly all of it.
_MODULI = (4_294_967_291, 4_294_967_279)
_HASH = {"$toHashedIndexKey": "$$ROOT"}


@dataclass(frozen=True, slots=True)
class Digest:
    """How many documents a range holds, and the sums of their hashes."""

    documents: int = 0
    sums: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Screen:
    """Compares one range by digests: iterate over it for the documents whose digests are equal, and those that differ.

    It fetches no documents, so `Equal.bytes` is 0, and `source` and `destination` of each `Unequal` are None.
    """

    source: Collection[Any]
    destination: Collection[Any]
    bounds: Bounds
    lost_for: float = 60.0
    say: Callable[[str], None] = field(default=lambda words: None)
    read: int = 0
    """Bytes of BSON in the replies."""

    def __iter__(self) -> Iterator[Merged]:
        return self._range(self.bounds)

    def _range(self, bounds: Bounds) -> Iterator[Merged]:
        ours, theirs = self._digest(self.source, bounds), self._digest(self.destination, bounds)
        if ours == theirs:
            yield Equal(ours.documents, 0)
            return
        larger = self.source if ours.documents >= theirs.documents else self.destination
        few = max(ours.documents, theirs.documents) <= _NAMED
        parts = [bounds] if few else self._split(larger, bounds)
        if len(parts) == 1:
            yield from self._named(bounds)
            return
        for part in parts:
            yield from self._range(part)

    def _digest(self, documents: Collection[Any], bounds: Bounds) -> Digest:
        sums = {f"h{n}": {"$sum": {"$mod": ["$h", modulus]}} for n, modulus in enumerate(_MODULI)}
        group = {"$group": {"_id": None, "n": {"$sum": 1}, **sums}}
        for row in self._rows(documents, bounds, {"$project": {"_id": 0, "h": _HASH}}, group):
            fields = {element.name: element for element in raw.elements(row)}
            count = int.from_bytes(fields[b"n"].value, "little")
            return Digest(count, tuple(_whole(fields[f"h{n}".encode()]) for n in range(len(_MODULI))))
        return Digest()

    def _split(self, documents: Collection[Any], bounds: Bounds) -> list[Bounds]:
        buckets = self._rows(
            documents, bounds, {"$project": {"_id": 1}}, {"$bucketAuto": {"groupBy": "$_id", "buckets": _PARTS}}
        )
        lows = [next(raw.elements(raw.id_element(bucket).value)) for bucket in buckets]
        return between([raw.document((Element(low.kind, b"_id", low.value),)) for low in lows[1:]], bounds)

    def _named(self, bounds: Bounds) -> Iterator[Merged]:
        ours, theirs = self._singles(self.source, bounds), self._singles(self.destination, bounds)
        keys, nothing = ours.keys() | theirs.keys(), (b"", b"")
        unequal = [key for key in keys if ours.get(key, nothing)[1] != theirs.get(key, nothing)[1]]
        yield Equal(len(keys) - len(unequal), 0)
        yield from (Unequal((ours.get(key) or theirs[key])[0], None, None) for key in unequal)

    def _singles(self, documents: Collection[Any], bounds: Bounds) -> dict[Key, tuple[bytes, bytes]]:
        """BSON `{_id: …}` and digest of each document."""
        rows = self._rows(documents, bounds, {"$project": {"h": _HASH}})
        return {id_key(row): (raw.id_document(row), _whole(list(raw.elements(row))[-1])) for row in rows}

    def _rows(self, documents: Collection[Any], bounds: Bounds, *stages: Mapping[str, Any]) -> list[bytes]:
        def read() -> list[bytes]:
            with documents.with_options(codec_options=RAW).aggregate_raw_batches(
                [match(bounds), *stages], hint={"_id": 1}, allowDiskUse=True
            ) as cursor:
                return list(cast(Iterator[bytes], cursor))

        batches = with_retries(f"compute digests of {documents.full_name}", self.lost_for, read, self.say)
        self.read += sum(map(len, batches))
        return [row for batch in batches for row in raw.documents(batch)]


def _whole(element: Element) -> bytes:
    """An integer, in the same form whether the server sent 32 or 64 bits."""
    return str(key(element)[-1]).encode()
