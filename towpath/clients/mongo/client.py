"""The clients of a MongoDB cluster; the driver's errors become `MongoError`, with the side and the address."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from dns.exception import DNSException
from pymongo import MongoClient
from pymongo.errors import ConfigurationError, ConnectionFailure, OperationFailure, PyMongoError
from pymongo.uri_parser import parse_uri

from towpath.clients.mongo.versions import OLDEST, short
from towpath.clients.tls import TlsProblem, Trust, tls_problem
from towpath.config.mongo_uri import without_credentials
from towpath.errors import MongoError, MongoUnreachable
from towpath_verifier import brief, stale_member

Client = MongoClient[dict[str, Any]]

# AuthenticationFailed, Unauthorized, UserNotFound in MongoDB's error_codes.yml
_UNAUTHENTICATED, _UNAUTHORISED, _NO_SUCH_USER = 18, 13, 11
#: The destination of a replay, which is not in the pipeline file: its side and its setting.
REPLAY = "replay's destination", "--destination"
#: Seconds for an answer that a healthy server gives at once.
ANSWER_S = 20.0


@dataclass(frozen=True, slots=True, order=True)
class ClusterTime:
    """A MongoDB timestamp: seconds since the epoch, and an ordinal within that second."""

    seconds: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.seconds}:{self.ordinal}"


def cluster_time(text: str) -> ClusterTime:
    """Parse `seconds:ordinal`. Raises ValueError for anything else."""
    seconds, _, ordinal = str(text).partition(":")
    return ClusterTime(int(seconds), int(ordinal))


class Cluster:
    """One cluster, and the clients for it: each opens at its first use, stays open, and is closed by `close`.

    So the pause of a cutover opens no connection to a server that was used before. Safe for threads.
    """

    def __init__(self, uri: str, side: str, setting: str = "") -> None:
        """`side` in messages, such as source; `setting`: what names the cluster, `[side] uri` by default."""
        self.uri, self.side, self.setting = uri, side, setting or f"[{side}] uri"
        self.address = without_credentials(uri)
        #: Most seconds for server selection, whatever a call says: fewer for a cluster that is said to be lost.
        self.longest_selection = float("inf")
        self._lock = threading.Lock()
        self._clients: dict[tuple[float, float | None], Client] = {}

    @classmethod
    def of_replay(cls, uri: str) -> Cluster:
        """The destination of a replay."""
        return cls(uri, *REPLAY)

    def client(self, *, timeout: float = 10, answer: float | None = None) -> Client:
        """The open client, whose calls raise the driver's errors; for code that handles them itself.

        `timeout`: seconds for server selection, unless the URI sets serverSelectionTimeoutMS. `answer`: seconds for
        each answer, unless the URI sets socketTimeoutMS or timeoutMS. Raises `MongoError` for a URI that is of no use.
        """
        timeout = min(timeout, self.longest_selection)
        with self._lock:
            if (timeout, answer) not in self._clients:
                self._clients[timeout, answer] = self._open(timeout, answer)
            return self._clients[timeout, answer]

    @contextmanager
    def connected(self, *, timeout: float = 10, answer: float | None = None) -> Iterator[Client]:
        """The client, for calls of this cluster only: the driver's errors are raised as `MongoError`.

        It is `MongoUnreachable` where no server answered. A direct connection to a member that is not the primary is
        refused. Bounds as for `client`.
        """
        client = self.client(timeout=timeout, answer=answer)
        try:
            if stale_member(client):
                raise MongoError(
                    f"the {self.side} at {self.address} is not the primary of its replica set: what it has may be old",
                    f"remove directConnection from the URI, or name the primary ({self.setting})",
                    where=self.address,
                )
            yield client
        except (ConnectionFailure, OperationFailure, ConfigurationError) as error:  # the last: an unsupported version
            raise self._failure(error) from error

    def briefly(self) -> AbstractContextManager[Client]:
        """As `connected`, with short bounds, for queries that are repeated anyway."""
        return self.connected(timeout=5, answer=ANSWER_S)

    def renew(self) -> None:
        """Use new clients from now on: an exception in the middle of the driver may have left a lock taken."""
        with self._lock:
            self._clients = {}

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()

    def _open(self, timeout: float, answer: float | None) -> Client:
        # the primary, whatever the URI says: another member may be behind; for a direct connection, see `connected`
        options: dict[str, Any] = {"appname": "towpath", "tz_aware": True, "readPreference": "primary"}
        if "serverselectiontimeoutms=" not in self.uri.lower():
            options["serverSelectionTimeoutMS"] = int(timeout * 1000)
        if answer is not None and not re.search(r"[?&](socket)?timeoutms=", self.uri.lower()):
            options["socketTimeoutMS"] = int(answer * 1000)
        self._refuse_unescaped()
        # first the files: OpenSSL asks the terminal for a missing password
        if "tlsc" in self.uri.lower() and (cause := tls_problem([], _trust(_parsed(self.uri), self.uri))):
            raise MongoError(f"{self._unusable}: {cause.what}", f"{cause.advice} ({self.setting})")
        try:
            return MongoClient(self.uri, **options)
        except (ConfigurationError, ValueError, PyMongoError) as error:
            raise _kind(error)(f"{self._unusable}: {error} ({self.setting})") from error

    @property
    def _unusable(self) -> str:
        return f"the URI of the {self.side} cannot be used"

    def _refuse_unescaped(self) -> None:
        """Raise `MongoError` for a user or password that is not escaped: a parser's message would show part of it."""
        login, mark, _ = self.uri.partition("://")[2].rpartition("@")
        if mark and (set(login) & set("/?#[]@") or login.count(":") > 1):
            raise MongoError(
                f"{self._unusable}: its user or password holds one of : / ? # [ ] @ as it is",
                f"write %3A %2F %3F %23 %5B %5D %40 ({self.setting})",
            )

    def _failure(self, error: PyMongoError) -> MongoError:
        """The error of a call."""
        named = f"the {self.side} at {self.address}"
        if isinstance(error, ConfigurationError):
            supported = f"Towpath supports MongoDB {short(OLDEST)} and later ({self.setting})"
            advice = supported if "wire version" in str(error) else f"see {self.setting}"
            return _kind(error)(f"{named} cannot be used: {error}", advice, where=self.address)
        if isinstance(error, OperationFailure):
            kind = MongoUnreachable if error.timeout else MongoError
            return kind(*self._refusal(named, error), where=self.address)
        parsed = _parsed(self.uri)
        members = [(host, port or 27017) for host, port in parsed.get("nodelist", [])]
        of_tls = tls_problem(members, _trust(parsed, self.uri))  # such a server answers
        cause = of_tls or TlsProblem(brief(error), "is it running and the address right?")
        what, advice = f"cannot reach {named}: {cause.what}", f"{cause.advice} ({self.setting})"
        return (MongoError if of_tls else MongoUnreachable)(what, advice, where=self.address)

    def _refusal(self, named: str, error: OperationFailure) -> tuple[str, str]:
        """(what happened, advice)"""
        message = brief(error)
        if error.code in (_UNAUTHENTICATED, _NO_SUCH_USER):
            return f"{named} refuses the user or the password: {message}", f"see {self.setting}"
        if error.code == _UNAUTHORISED:
            what = f"the user in {self.setting} may not do what is needed at {self.address}: {message}"
            return what, "grant it the missing role (docs/reference/roles.md)"
        return f"{named} refused: {message}", ""


def _kind(error: Exception) -> type[MongoError]:
    """For a URI or a configuration. DNS knows no servers of a lost cluster, if its URI begins with mongodb+srv."""
    return MongoUnreachable if isinstance(error.__cause__, DNSException) else MongoError


def _parsed(uri: str) -> dict[str, Any]:
    try:
        return parse_uri(uri, validate=False)
    except (PyMongoError, ValueError):
        return {}  # the client reports it


def _trust(parsed: dict[str, Any], uri: str) -> Trust:
    options = {str(name).lower(): str(value) for name, value in parsed.get("options", {}).items()}
    given = {name for name, value in options.items() if value.lower() not in ("false", "")}
    return Trust(
        tls=bool(given & {"tls", "ssl", "tlscafile", "tlscertificatekeyfile"}) or uri.startswith("mongodb+srv"),
        ca=options.get("tlscafile", ""),
        key=options.get("tlscertificatekeyfile", ""),
        password=options.get("tlscertificatekeyfilepassword", ""),
        switch="tls=true in the URI",
        ca_option="tlsCAFile in the URI",
        key_option="tlsCertificateKeyFile in the URI",
        checks_host=not given & {"tlsallowinvalidhostnames", "tlsinsecure", "tlsallowinvalidcertificates"},
    )
