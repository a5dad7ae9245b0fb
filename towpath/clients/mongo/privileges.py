"""The privileges of the user of a connection, as the server reports them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pymongo.errors import OperationFailure

from towpath.clients.mongo.client import Client

#: Capture needs these on all databases at once, because Debezium watches the whole deployment.
SOURCE_ACTIONS = ("find", "changeStream", "listCollections")
#: A copy in ranges also needs this: it splits a collection by its size.
COPY_ACTIONS = ("collStats",)
#: Applying records needs these on each namespace. (With `insert`, the server does not require createCollection.)
DESTINATION_ACTIONS = ("insert", "update", "remove")
#: The exactly-once sink, `status`, `wait` and `remove` need these on the collections of the sink's positions.
POSITION_ACTIONS = ("find", "insert", "update", "remove")
#: With `[ddl]`: reading what existed before at the source, and making schema changes at the destination.
DDL_SOURCE_ACTIONS = ("listIndexes",)
DDL_DESTINATION_ACTIONS = (
    *("find", "listCollections", "listIndexes", "createCollection", "createIndex", "dropIndex", "collMod"),
    *("dropCollection", "renameCollectionSameDB"),
)
#: Comparing both sides, and `check`, also need these.
DESTINATION_LOOKS = ("find", "listCollections", "listIndexes")
Answer = TypeVar("Answer")
_UNAUTHORISED = 13  # Unauthorized in MongoDB's error_codes.yml
_ANY = "anyAction"  # granted by the role __system


@dataclass(frozen=True, slots=True)
class Privileges:
    """The privileges of the authenticated user; `user` is `name@database`."""

    user: str
    granted: tuple[Mapping[str, Any], ...]

    def grant(self, roles: Iterable[tuple[str, str]]) -> str:
        """The mongosh command that grants the user these roles: (role, database)."""
        user, _, database = self.user.partition("@")
        listed = ", ".join(f'{{role: "{role}", db: "{db}"}}' for role, db in roles)
        return f'db.getSiblingDB("{database}").grantRolesToUser("{user}", [{listed}])'

    def missing(self, actions: Iterable[str], namespace: str) -> list[str]:
        """The `actions` that are not granted on a namespace; an empty one stands for all databases at once."""
        database, _, collection = namespace.partition(".")
        grants = [grant for grant in self.granted if _covers(grant["resource"], database, collection)]
        return [action for action in actions if all(action not in grant["actions"] for grant in grants)]

    def missing_on_cluster(self, actions: Iterable[str]) -> list[str]:
        """The `actions` that are not granted on the cluster as a whole."""
        grants = [grant for grant in self.granted if grant["resource"].keys() & {"cluster", "anyResource"}]
        return [action for action in actions if all({action, _ANY}.isdisjoint(grant["actions"]) for grant in grants)]

    def missing_for_mongo_kafka(self, database: str, auth_source: str) -> list[str]:
        """The actions that mongo-kafka's own validation would report as missing.

        It ignores the namespaces that are written, and checks the connector's `database`, the user's own database and
        grants on all databases (ConnectionValidator.removeUserActions, 2.0.1).
        """
        accepted = ("", database, auth_source)
        granted = {
            action
            for grant in self.granted
            if grant["resource"].get("cluster")
            or (grant["resource"].get("db") in accepted and grant["resource"].get("collection") == "")
            for action in grant["actions"]
        }
        return [action for action in DESTINATION_ACTIONS if action not in granted]


def _covers(resource: Mapping[str, Any], database: str, collection: str) -> bool:
    """Whether a privilege's resource includes a namespace; an empty name in a resource stands for all."""
    if resource.get("anyResource"):
        return True
    if "db" not in resource:
        return False
    return resource["db"] in ("", database) and resource["collection"] in ("", collection)


def privileges(client: Client) -> Privileges | None:
    """The privileges of the user; None if no user is authenticated, as on servers without access control."""
    info = client.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
    users = info["authenticatedUsers"]
    if not users:
        return None
    return Privileges(f"{users[0]['user']}@{users[0]['db']}", tuple(info["authenticatedUserPrivileges"]))


def if_allowed(query: Callable[[], Answer]) -> Answer | None:
    """The answer to a query, or None if the user lacks the privilege for it."""
    try:
        return query()
    except OperationFailure as failure:
        if failure.code == _UNAUTHORISED:
            return None
        raise
