"""Whole collections compared by the hashes that the servers make of them, while nobody writes: exact and fast."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from verifier import history
from verifier.differences import Namespace, Pair
from verifier.errors import Unsuitable
from verifier.reads import Client, now
from verifier.server_loss import in_words

_QUIET = "--quiet is for when nobody writes"


def hashes(client: Client, namespaces: Iterable[Namespace]) -> dict[Namespace, str]:
    """`dbHash` of each of these collections that exists: over the bytes of all documents in `_id` order."""
    by_database: defaultdict[str, list[str]] = defaultdict(list)
    for namespace in namespaces:
        database, name = namespace.split(".", 1)
        by_database[database].append(name)
    found: dict[Namespace, str] = {}
    for database, names in by_database.items():
        reply = client[database].command("dbHash", collections=names)
        found |= {f"{database}.{name}": digest for name, digest in reply["collections"].items()}
    return found


@dataclass(frozen=True, slots=True)
class Watch:
    """Sees whether anything is written to a client's namespaces from a moment on."""

    client: Client
    namespaces: Sequence[Namespace]
    side: str
    since: Timestamp

    def written(self) -> set[Namespace]:
        """What has been written to since. Raises `VerifierError` when that cannot be seen."""
        try:
            until = now(self.client) or self.since
            return history.written(self.client, self.namespaces, self.since, until)
        except PyMongoError as error:
            raise in_words(f"look for writes to the {self.side}", error) from error
        except history.Unknown as error:
            raise Unsuitable(f"cannot see whether anything is written to the {self.side}: {error}") from error

    def refuse_writes(self) -> None:
        """Raise `Unsuitable` when something has been written since."""
        if written := self.written():
            raise Unsuitable(
                f"{', '.join(sorted(written))} was written to at the {self.side} meanwhile, and {_QUIET}: stop the"
                " writers and wait until the pipeline is in step, or compare without it"
            )


def watch(client: Client, namespaces: Sequence[Namespace], side: str) -> Watch:
    """Watch from now on. Raises `Unsuitable` for a standalone, which has no change streams to see writes by."""
    since = now(client)
    if since is None:
        raise Unsuitable(f"the {side} is a standalone mongod, on which writes cannot be seen; {_QUIET}")
    return Watch(client, namespaces, side, since)


def same_by_hash(source: Client, destination: Client, pairs: Sequence[Pair]) -> Mapping[Pair, bool]:
    """Which pairs hold the same documents, byte for byte."""
    try:
        ours = hashes(source, [pair.source for pair in pairs])
        theirs = hashes(destination, [pair.destination for pair in pairs])
    except PyMongoError as error:
        raise in_words("have collections hashed (dbHash)", error) from error
    return {pair: ours.get(pair.source) == theirs.get(pair.destination) for pair in pairs}
