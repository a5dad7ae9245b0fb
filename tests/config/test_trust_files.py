"""What says how to come in: read strictly, refused when others can read it, told under every client's names."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import javaproperties
import pytest

from tests.support.secured import documented_acls, documented_roles
from towpath.checks.connect import exposed
from towpath.clients.kafka.tokens import Tokens, unsecured
from towpath.clients.kafka.topics import for_kafka_python, for_librdkafka
from towpath.clients.mongo.client import Cluster
from towpath.clients.mongo.privileges import (
    COPY_ACTIONS,
    DESTINATION_ACTIONS,
    DESTINATION_LOOKS,
    POSITION_ACTIONS,
    SOURCE_ACTIONS,
)
from towpath.config import mongo_uri
from towpath.config.loading import read
from towpath.config.logins import KafkaLogin, kafka_login, login
from towpath.config.mongo_uri import without_credentials
from towpath.config.pipeline import Pipeline
from towpath.errors import BadPipelineFile, MongoError, TowpathError
from towpath.log.definitions import definitions
from towpath.store import credentials

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a\\"b\\\\c;";'
PLAIN = {"sasl.jaas.config": SCRAM.replace("scram.Scram", "plain.Plain")}
BY_PASSWORD = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": SCRAM,
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "ca.pem",
}
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLogin"
BY_TOKEN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f'{OAUTH}Module required clientId="me" clientSecret="s3cret" scope="kafka";',
    "sasl.login.callback.handler.class": f"{OAUTH}CallbackHandler",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
}
UNSECURED = {"sasl.jaas.config": f'{OAUTH}Module required unsecuredLoginStringClaim_sub="me";'}
BY_CERTIFICATE = {
    "security.protocol": "SSL",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "me.pem",
    "ssl.key.password": "secret",
}
URI = "mongodb://db/?tls=true&tlsCAFile=/a%20b/ca.pem&w=1&tlsCertificateKeyFile=/k.pem&tlsCertificateKeyFilePassword=p%26q"


def written(folder: Path, extra: str = "", client: str = "", mode: str = "exactly-once", **uris: str) -> Path:
    """A pipeline file in `folder`; `extra` belongs to [connect], `client` to [kafka]."""
    source, destination = (uris.get(side, f"mongodb://{side}/") for side in ("source", "destination"))
    file, connect = folder / "p.toml", extra or 'url = "http://c:8083"'
    file.write_text(
        f'name = "p"\nmode = "{mode}"\n[source]\nuri = "{source}"\n[destination]\nuri = "{destination}"\n'
        f'[collections]\ninclude = ["a.*"]\n[kafka]\nbootstrap = "k:9092"\n{client}\n'
        f'[connect]\nsecrets = "."\n{connect}\n'
    )
    file.chmod(0o600)
    return file


def private(file: Path, text: str, mode: int = 0o600) -> Path:
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    return file


def lines(settings: dict[str, str]) -> str:
    return "# a comment\n\n" + "".join(f"{key} = {value}\n".replace("\\", "\\\\") for key, value in settings.items())


def test_a_uri_is_split_for_java_and_joined_for_python() -> None:
    found = mongo_uri.split(URI)
    assert found.uri == "mongodb://db/?tls=true&w=1"
    assert found.pem == {"tls.ca": "/a b/ca.pem", "tls.certificate": "/k.pem", "tls.key.password": "p&q"}
    again = mongo_uri.split(mongo_uri.joined(found.uri, found.pem))
    assert again == found
    assert mongo_uri.split("mongodb://db").uri == "mongodb://db" == mongo_uri.joined("mongodb://db", {})


def test_a_client_has_the_same_settings_under_every_name(tmp_path: Path) -> None:
    client = kafka_login(javaproperties.loads(lines(BY_PASSWORD)), tmp_path)
    assert client.user == ("me", 'a"b\\c;')
    ca = str(tmp_path / "ca.pem")
    assert for_librdkafka(client) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'a"b\\c;',
        "ssl.ca.location": ca,
    }
    assert for_kafka_python(client) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        "sasl_plain_password": 'a"b\\c;',
        "ssl_cafile": ca,
    }
    own = str(tmp_path / "me.pem")
    client = kafka_login(BY_CERTIFICATE, tmp_path)
    assert for_librdkafka(client) == {
        "security.protocol": "SSL",
        "ssl.certificate.location": own,
        "ssl.key.location": own,
        "ssl.key.password": "secret",
    }
    assert for_librdkafka(KafkaLogin()) == {}


def assert_refused(settings: dict[str, str], folder: Path, words: str) -> None:
    """The settings are refused with these words, and without a password."""
    with pytest.raises(TowpathError) as refused:
        kafka_login(settings, folder)
    assert words in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_client_logs_in_with_tokens_of_its_credentials(tmp_path: Path) -> None:
    client = kafka_login(BY_TOKEN, tmp_path)
    assert (client.user, client.secrets) == (None, ("s3cret",))
    assert for_librdkafka(client) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s3cret",
        "sasl.oauthbearer.scope": "kafka",
    }
    assert isinstance(for_kafka_python(client)["sasl_oauth_token_provider"], Tokens)


def test_a_token_that_nothing_signs_names_its_subject(tmp_path: Path) -> None:
    endpoint = "sasl.oauthbearer.token.endpoint.url"
    handler = "sasl.login.callback.handler.class"
    given = {key: text for key, text in (BY_TOKEN | UNSECURED).items() if key not in (endpoint, handler)}
    client = kafka_login(given, tmp_path)
    assert for_librdkafka(client)["sasl.oauthbearer.config"] == "principal=me"
    assert client.secrets == ()
    head, claims, signature = unsecured("me", now=1_000.0)[0].split(".")
    assert (json.loads(base64.urlsafe_b64decode(head + "==")), signature) == ({"alg": "none"}, "")
    assert json.loads(base64.urlsafe_b64decode(claims + "==")) == {"sub": "me", "iat": 1_000, "exp": 4_600}
    tokens = for_kafka_python(client)["sasl_oauth_token_provider"]
    assert tokens.token() == tokens.token()  # it is kept


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sasl.jaas.config": f'{OAUTH}Module required clientId="me";'}, 'clientId="…" clientSecret="…"'),
        ({"sasl.oauthbearer.token.endpoint.url": "http://login.example"}, "write the https:// URL"),
        ({"sasl.login.callback.handler.class": "my.Handler"}, "write one of org.apache.kafka"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sends a password or a token as it is"),
    ],
)
def test_a_login_with_tokens_that_cannot_work_is_refused(tmp_path: Path, changed: dict[str, str], words: str) -> None:
    assert_refused(BY_TOKEN | changed, tmp_path, words)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sasl.mechanisms": "PLAIN"}, "unknown setting sasl.mechanisms"),
        ({"security.protocol": "TLS"}, "security.protocol is TLS; write one of PLAINTEXT"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism is GSSAPI"),
        ({"sasl.jaas.config": 'x required username="me" password="s3cret";'}, "ScramLoginModule required username="),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **PLAIN},
            "sends a password or a token as it is",
        ),
        ({"security.protocol": "SSL"}, "has no user and password; write SASL_SSL"),
        ({"ssl.truststore.type": "JKS"}, "ssl.truststore.type is JKS; write one of PEM"),
    ],
)
def test_a_client_that_cannot_work_is_refused(tmp_path: Path, changed: dict[str, str], words: str) -> None:
    assert_refused(BY_PASSWORD | changed, tmp_path, words)


def test_what_is_no_login_has_no_user() -> None:
    assert login("com.sun.security.auth.module.Krb5LoginModule required;") is None


@pytest.mark.parametrize(
    ("names", "mode", "words"),
    [
        ({"client": "client.properties"}, 0o640, "client.properties can be read by others"),
        ({"connect": "connect.user"}, 0o640, "connect.user can be read by others"),
        ({"key": "key.pem"}, 0o604, "key.pem can be read by all users"),
        ({"client": "client.properties", "connect": "connect.user", "key": "key.pem"}, 0o600, ""),
        ({"key": "key.pem"}, 0o640, ""),
    ],
)
def test_files_that_others_can_read_are_refused(tmp_path: Path, names: dict[str, str], mode: int, words: str) -> None:
    private(tmp_path / "ca.pem", "", 0o644)
    private(tmp_path / "client.properties", lines(BY_PASSWORD), mode)
    private(tmp_path / "connect.user", "me:secret\n", mode)
    private(tmp_path / "key.pem", "", mode)
    extra = ['url = "https://c:8083"', *(['user_file = "connect.user"'] if "connect" in names else [])]
    extra += ['certificate = "key.pem"'] if "key" in names else []
    file = written(tmp_path, "\n".join(extra), 'client = "client.properties"' if "client" in names else "")
    if not words:
        assert read(file).connect.login.password == ("secret" if "connect" in names else "")
        return
    with pytest.raises(BadPipelineFile, match=words):
        read(file)


def test_a_key_in_a_uri_is_looked_at_as_well(tmp_path: Path) -> None:
    key = private(tmp_path / "key.pem", "", 0o604)
    uri = f"mongodb://s/?tls=true&tlsCertificateKeyFile={key}"
    with pytest.raises(BadPipelineFile, match=r"key\.pem can be read by all users"):
        read(written(tmp_path, source=uri))
    key.chmod(0o600)
    assert read(written(tmp_path, source=uri)).source.uri == uri
    with pytest.raises(BadPipelineFile, match="write an absolute path"):
        read(written(tmp_path, source="mongodb://s/?tlsCertificateKeyFile=key.pem"))
    with pytest.raises(BadPipelineFile, match="mongo-kafka's sink"):
        read(written(tmp_path, mode="plain", destination=uri))
    file = written(tmp_path, source=uri + "&tlsCertificateKeyFilePassword=x")
    file.chmod(0o644)
    with pytest.raises(BadPipelineFile, match="it holds the password of the source"):
        read(file)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ('url = "https://me:secret@c:8083"', "holds a user, which would be printed"),
        ('url = "http://c:8083"\nca = "ca.pem"', "go with an https:// url"),
        ('url = "https://c:8083"\nca = "missing.pem"', "cannot read .*missing.pem"),
        ('url = "https://c:8083"\nuser_file = "ca.pem"', "must hold one line, user:password"),
    ],
)
def test_connect_sections_that_cannot_work(tmp_path: Path, extra: str, words: str) -> None:
    private(tmp_path / "ca.pem", "")
    with pytest.raises(BadPipelineFile, match=words) as refused:
        read(written(tmp_path, extra))
    assert "secret@" not in str(refused.value)


def secret_pipeline(folder: Path) -> Pipeline:
    private(folder / "k.pem", "")
    private(folder / "ca.pem", "")
    private(folder / "client.properties", lines(BY_PASSWORD))
    key = f"tlsCertificateKeyFile={folder / 'k.pem'}&tlsCertificateKeyFilePassword=leaked"
    uri = f"mongodb://me:leaked@s/?tls=true&{key}"
    return read(written(folder, client='client = "client.properties"', source=uri, destination=uri))


def test_configurations_hold_references_and_the_secrets_file_what_they_mean(tmp_path: Path) -> None:
    pipeline = secret_pipeline(tmp_path)
    text = credentials.properties(pipeline, "rs", "rs")
    for name, config in definitions(pipeline).items():
        side = "source" if name.endswith("source") else "destination"
        assert config["towpath.tls.key.password"] == f"${{file:{pipeline.secrets_file}:{side}.tls.key.password}}"
        assert (
            config["producer.override.sasl.jaas.config"] == f"${{file:{pipeline.secrets_file}:kafka.sasl.jaas.config}}"
        )
        assert "leaked" not in str(config) and "ScramLoginModule" not in str(config)
    for line in (
        "source.tls.key.password=leaked",
        "destination.tls.key.password=leaked",
        "kafka.sasl.mechanism=SCRAM-SHA-512",
    ):
        assert line in text.splitlines()
    assert "tlsCertificate" not in text, "Java's driver would warn of it in its log"
    file = private(tmp_path / "p.properties", text)
    assert credentials.read_destination(file) == mongo_uri.joined(*_parts(pipeline.destination.uri + "&replicaSet=rs"))


def _parts(uri: str) -> tuple[str, dict[str, str]]:
    found = mongo_uri.split(uri)
    return found.uri, found.pem


@pytest.mark.parametrize("uri", ["mongodb://me:pa/ss@h:1/db?x=1", "mongodb://me:pa?ss@h:1/", "mongodb://me:p:ss@h:1"])
def test_a_uri_is_shown_without_any_part_of_its_password(uri: str) -> None:
    assert "ss" not in without_credentials(uri) and "h:1" in without_credentials(uri)
    with pytest.raises(MongoError, match="write %3A %2F") as refused, Cluster(uri, "source").connected():
        pass
    assert "ss@" not in str(refused.value) and "'pa'" not in str(refused.value)


def test_the_documented_roles_are_what_check_asks_for() -> None:
    everywhere, note = documented_roles()["towpathReader"]
    assert note == {"resource": {"cluster": True}, "actions": ["appendOplogNote"]}  # `wait` is faster with it
    assert everywhere["resource"] == {"db": "", "collection": ""}
    assert set(everywhere["actions"]) == {*SOURCE_ACTIONS, *COPY_ACTIONS, "listIndexes"}  # the last is `verify`'s
    positions, written_to = documented_roles()["towpathWriter"]
    assert set(positions["actions"]) == set(POSITION_ACTIONS)
    assert tuple(written_to["actions"][:3]) == DESTINATION_ACTIONS
    assert set(written_to["actions"]) == {*DESTINATION_ACTIONS, *DESTINATION_LOOKS, "collStats"}  # likewise


def test_the_documented_access_lists_are_read_whole() -> None:
    of_towpath, of_workers = 2 * 6 + 6 + 3 * 2 + 2 + 2 + 2 + 1 + 1, 3 * 4 + 1 + 2
    assert len(documented_acls()) == of_towpath + of_workers


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ('url = "http://localhost:8083"', ""),
        ('url = "http://127.0.0.2:8083"', ""),
        ('url = "http://connect:8083"', "has no authentication"),
        ('url = "https://10.0.0.1:8083"', "has no authentication"),
        ('url = "http://10.0.0.1:8083"\nuser_file = "connect.user"', "goes to 10.0.0.1 over the network unencrypted"),
        ('url = "https://connect:8083"\nuser_file = "connect.user"', ""),
        ('url = "https://connect:8083"\ncertificate = "key.pem"', ""),
    ],
)
def test_a_rest_api_that_lets_everybody_in_is_a_trap(tmp_path: Path, extra: str, words: str) -> None:
    private(tmp_path / "connect.user", "me:secret")
    private(tmp_path / "key.pem", "")
    found = [finding.finding for finding in exposed(read(written(tmp_path, extra)))]
    assert len(found) == bool(words) and words in "".join(found)
