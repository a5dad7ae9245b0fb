"""What the user of a connection may do, as the server tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pymongo import MongoClient
from pymongo.errors import OperationFailure

#: Debezium watches the whole deployment, so these must hold for every database, and cannot be had one by one.
SOURCE_ACTIONS = ("find", "changeStream", "listCollections")
#: What a copy in ranges takes besides: it cuts a collection by its size.
COPY_ACTIONS = ("collStats",)
#: What applying records takes on each namespace. (The server wants no createCollection of who may insert.)
DESTINATION_ACTIONS = ("insert", "update", "remove")
#: What the exactly-once sink, and `status`, `wait` and `remove`, do with the sink's positions.
POSITION_ACTIONS = ("find", "insert", "update", "remove")
#: What comparing both sides and this check take besides.
DESTINATION_LOOKS = ("find", "listCollections", "listIndexes")
Answer = TypeVar("Answer")
_UNAUTHORISED = 13  # Unauthorized in MongoDB's error_codes.yml
_ANY = "anyAction"  # as the role __system has it


@dataclass(frozen=True, slots=True)
class Privileges:
    """The privileges of the user that is logged in; `user` is `name@database`."""

    user: str
    granted: tuple[Mapping[str, Any], ...]

    def missing_everywhere(self, actions: Iterable[str]) -> list[str]:
        """Those of `actions` that are not granted for all databases at once."""
        return [action for action in actions if not self._allows(action, "", "")]

    def missing(self, actions: Iterable[str], namespace: str) -> list[str]:
        """Those of `actions` that are not granted on a namespace."""
        database, _, collection = namespace.partition(".")
        return [action for action in actions if not self._allows(action, database, collection)]

    def missing_on_cluster(self, actions: Iterable[str]) -> list[str]:
        """Those of `actions` that are not granted on the cluster as a whole."""
        mine = [grant for grant in self.granted if grant["resource"].keys() & {"cluster", "anyResource"}]
        return [action for action in actions if all({action, _ANY}.isdisjoint(grant["actions"]) for grant in mine)]

    def missing_for_mongo_kafka(self, database: str, auth_source: str) -> list[str]:
        """Actions that mongo-kafka's own validation would miss.

        It does not look at the namespaces written, but at the connector's `database`, the user's own database and
        grants for all databases (ConnectionValidator.removeUserActions, 2.0.1).
        """
        accepted = ("", database, auth_source)
        found = {
            action
            for grant in self.granted
            if grant["resource"].get("cluster")
            or (grant["resource"].get("db") in accepted and grant["resource"].get("collection") == "")
            for action in grant["actions"]
        }
        return [action for action in DESTINATION_ACTIONS if action not in found]

    def _allows(self, action: str, database: str, collection: str) -> bool:
        return any(
            action in grant["actions"] and _covers(grant["resource"], database, collection) for grant in self.granted
        )


def _covers(resource: Mapping[str, Any], database: str, collection: str) -> bool:
    """Whether a privilege's resource takes in a namespace; an empty name in a resource stands for all."""
    if resource.get("anyResource"):
        return True
    if "db" not in resource:
        return False
    return resource["db"] in ("", database) and resource["collection"] in ("", collection)


def privileges(client: MongoClient[dict[str, Any]]) -> Privileges | None:
    """The privileges of the user; None when nobody is logged in, as on servers without access control."""
    found = client.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
    users = found["authenticatedUsers"]
    if not users:
        return None
    return Privileges(f"{users[0]['user']}@{users[0]['db']}", tuple(found["authenticatedUserPrivileges"]))


def if_allowed(ask: Callable[[], Answer]) -> Answer | None:
    """The answer of a server, or None when the user may not ask that."""
    try:
        return ask()
    except OperationFailure as failure:
        if failure.code == _UNAUTHORISED:
            return None
        raise
