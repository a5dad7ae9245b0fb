"""A cluster that refuses is not one that does not answer: only the second may be lost, and only it is tolerated."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from dns.resolver import NXDOMAIN
from pymongo import ReadPreference
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    ExecutionTimeout,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WTimeoutError,
)

from tests.deploy.test_changes_in_log import LOGGED
from tests.support.servers import free_port
from tests.support.sessions import FakeCluster, session_of
from towpath.checks import capture
from towpath.checks.facts import Facts
from towpath.cli import deploy, manifests
from towpath.clients.connect import rest
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka import topics as kafka
from towpath.clients.kafka.topics import Topics
from towpath.clients.mongo import client as clusters
from towpath.clients.mongo.client import Cluster
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.clients.tls import TlsProblem
from towpath.config.logins import CA, PROTOCOL, KafkaLogin
from towpath.errors import (
    ConnectError,
    ConnectUnreachable,
    KafkaRefused,
    KafkaUnreachable,
    MongoError,
    MongoUnreachable,
    TowpathError,
)
from towpath.history import preconditions
from towpath.history import replay as replaying
from towpath.history.plan import Plan, Replay
from towpath.run import status as gather
from towpath.run.report import Problem, unknown
from towpath_verifier.reads import RAW, collection
from towpath_verifier.workers import Job

URI = "mongodb://127.0.0.1:1/"
DENIED = OperationFailure("not authorized on towpath", 13, {"errmsg": "not authorized on towpath"})
AWAY = ConnectUnreachable("nothing is there")
NO_PLAN = Plan(only=(), until=None, follow=False, forced=False, began=0.0, letters=0, log={})
REFUSED, GONE = MongoError("the destination refused: no"), MongoUnreachable("cannot reach the destination")


def caused(error: PyMongoError, cause: BaseException) -> PyMongoError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DENIED, MongoError),
        (OperationFailure("Authentication failed.", 18), MongoError),
        (OperationFailure("an unknown stage", 40324), MongoError),
        (ConfigurationError("wire version"), MongoError),
        (caused(ConfigurationError("no such name"), NXDOMAIN()), MongoUnreachable),
        (ExecutionTimeout("operation exceeded time limit", 50), MongoUnreachable),
        (WTimeoutError("waiting for replication timed out", 64), MongoUnreachable),
        (ServerSelectionTimeoutError("no servers"), MongoUnreachable),
        (NetworkTimeout("timed out"), MongoUnreachable),
        (NotPrimaryError("not primary"), MongoUnreachable),
        (AutoReconnect("connection closed"), MongoUnreachable),
    ],
)
def test_what_a_server_answers_is_a_refusal_and_what_none_answers_is_not(
    error: PyMongoError, kind: type[MongoError]
) -> None:
    with pytest.raises(MongoError) as raised, Cluster(URI, "destination").connected():
        raise error
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    "uri",
    ["mongodb://me:p@ss@db/", "mongodb://", "mongodb://db/?tls=true&tlsInsecure=true&tlsAllowInvalidCertificates=true"],
)
def test_a_uri_that_cannot_be_used_is_no_cluster_that_is_lost(uri: str) -> None:
    with pytest.raises(MongoError) as raised, Cluster(uri, "source").connected():
        pass
    assert type(raised.value) is MongoError


def test_a_server_whose_certificate_is_not_trusted_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = clusters.TlsProblem("its certificate has expired", "give it one")
    monkeypatch.setattr(clusters, "tls_problem", lambda *_: problem)
    with pytest.raises(MongoError, match="its certificate has expired") as raised, Cluster(URI, "source").connected():
        raise ServerSelectionTimeoutError("SSL handshake failed")
    assert type(raised.value) is MongoError


def failing(error: TowpathError) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [REFUSED, GONE])
def test_deploy_makes_no_collection_without_its_options(error: MongoError, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy, "plan", failing(error))
    facts = Facts(session_of(LOGGED))
    facts.collections = ()
    with pytest.raises(TowpathError, match="nothing was deployed") as raised:
        deploy._schema_plan(facts)
    assert "--no-prepare" in raised.value.advice


def test_status_says_that_a_rebuild_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = SimpleNamespace(connect=None, pipeline=LOGGED, topics=None, file="shop.toml")
    nothing = unknown(session)
    monkeypatch.setattr(gather, "find_all", lambda *_: ())
    monkeypatch.setattr(gather.rebuild, "read_progress", failing(REFUSED))
    assert gather.with_replays(session, nothing) == replace(nothing, rebuild_error=Problem.of(REFUSED))
    monkeypatch.setattr(gather.rebuild, "read_progress", failing(GONE))
    assert gather.with_replays(session, nothing) == nothing, "the status itself reports that"


def test_check_names_what_keeps_it_from_the_oplog(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(LOGGED.changed(capture={"copy_method": "towpath"}))
    for error, levels in ((REFUSED, ["warning"]), (GONE, [])):
        monkeypatch.setattr(capture, "read_captured", failing(error))
        assert [finding.level for finding in capture.check(session, {}, {})] == levels


def test_a_replay_to_a_cluster_that_may_be_the_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost source is a reason for a replay, and cannot be its destination; one that refuses may be."""
    target = SimpleNamespace(replica_set=ReplicaSet("rs", ("b:1",)))

    def levels(error: MongoError) -> list[str]:
        def cluster(side: str) -> Any:
            return type("Away", (), {"side": side, "replica_set": property(failing(error))})()

        deployed = SimpleNamespace(source=cluster("source"), destination=cluster("destination"), configurations={})
        facts: Any = SimpleNamespace(pipeline=LOGGED, deployed=deployed, target=target)
        return [finding.level for finding in preconditions.elsewhere(facts)]

    assert levels(GONE) == ["warning", "warning"]
    with pytest.raises(MongoError, match="the destination refused"):
        levels(REFUSED)


@pytest.mark.parametrize("error", [REFUSED, GONE])
def test_a_replay_whose_destination_refuses_has_no_connector_before_its_positions_go(
    error: MongoError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in between leaves none that would begin again, and the file with which the command removes the rest."""
    done: list[str] = []
    pipeline = LOGGED
    replay = Replay(pipeline, "x", ReplicaSet("rs", ("b:1",)), URI, NO_PLAN)
    deletions = {"forget_offsets": lambda _: None, "delete": lambda _: done.append("deleted")}
    connect = SimpleNamespace(config=lambda _: {}, **deletions)
    topics = SimpleNamespace(all=lambda: {})
    session: Any = SimpleNamespace(
        connect=connect,
        topics=topics,
        say=lambda _: done.append("said"),
        replay_destination=lambda _: FakeCluster(error=error),
    )
    monkeypatch.setattr(replaying, "stop", lambda *_: done.append("stopped"))
    if error is GONE:
        replaying.remove(replay, session, keep_letters=False)
        assert done == ["stopped", "deleted", "said", "said"]
        return
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: done.append("without the file"))
    with pytest.raises(TowpathError, match=r"only its connector was removed: .*no; the same command tries again"):
        replaying.remove(replay, session, keep_letters=False)
    assert done == ["stopped", "deleted", "said"]


def test_manifests_are_those_of_a_first_deployment_only_where_nothing_answers() -> None:
    def looked(error: ConnectError) -> Facts:
        facts = Facts(session_of(LOGGED, SimpleNamespace(url="http://c", config=failing(error))))
        manifests._read_connect(facts)
        return facts

    assert set(looked(AWAY).deployed.values()) == {None}
    for error in (ConnectError("403", status=403), ConnectUnreachable("404, and not from Connect", status=404)):
        with pytest.raises(ConnectError, match=error.what[:3]):
            looked(error)


def test_a_worker_whose_certificate_is_not_trusted_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with Connect("http://127.0.0.1:1") as connect:
        with pytest.raises(ConnectUnreachable):
            connect.names()
        monkeypatch.setattr(rest, "_tls_problem", lambda *_: TlsProblem("its certificate has expired", "give it one"))
        with pytest.raises(ConnectError, match="expired; give it one") as raised:
            connect.names()
    assert type(raised.value) is ConnectError


@pytest.mark.parametrize("url", ["nonsense", "ftp://c:8083"])
def test_a_url_that_cannot_be_used_is_no_worker_that_is_away(url: str) -> None:
    with Connect(url) as connect, pytest.raises(ConnectError, match="cannot reach Kafka Connect") as raised:
        connect.names()
    assert type(raised.value) is ConnectError


def test_brokers_that_refuse_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_REACHED", 0.0)
    with Topics("127.0.0.1:1") as topics:
        with pytest.raises(KafkaUnreachable, match="is a broker running there"):
            topics.brokers()
        topics._errors = Refusals()
        with pytest.raises(KafkaRefused, match="the brokers refuse the user or the password: wrong password"):
            topics.brokers()


class Refusals(list[KafkaError]):
    """What librdkafka tells of a login, of which no broker knows here."""

    def clear(self) -> None:
        self[:] = [KafkaError(KafkaError._AUTHENTICATION, "sasl_plaintext://k: wrong password")]


def test_a_client_that_cannot_be_used_is_no_broker_that_is_away(tmp_path: Path) -> None:
    login = KafkaLogin({PROTOCOL: "SSL", CA: str(tmp_path / "nothing.pem")})
    with pytest.raises(KafkaRefused, match="cannot use"):
        Topics("127.0.0.1:1", login).brokers()


def test_a_cluster_that_is_said_to_be_lost_is_not_waited_for() -> None:
    lost = Cluster(f"mongodb://127.0.0.1:{free_port()}/?directConnection=true", "source")
    lost.longest_selection = 0.05
    began = time.monotonic()
    with closing(lost), pytest.raises(MongoUnreachable), lost.briefly() as client:
        client.admin.command("ping")
    assert time.monotonic() - began < 2


def test_every_read_goes_to_the_primary_whatever_the_uri_says() -> None:
    uri = "mongodb://gone.example:1/?replicaSet=a&readPreference=secondaryPreferred"
    with closing(Cluster(uri, "source")) as cluster:
        assert cluster.client().read_preference == ReadPreference.PRIMARY
    for client in Job(uri, uri, ignore_field_order=False, screen=False, lost_for=1.0).clients():
        with closing(client):
            documents = collection(client, "shop.orders")
            assert documents.with_options(codec_options=RAW).read_preference == ReadPreference.PRIMARY
    with pytest.raises(MongoError, match=r"primary cannot be combined with tags \(\[source\] uri\)"):
        Cluster(f"{uri}&readPreferenceTags=dc:one", "source").client()
