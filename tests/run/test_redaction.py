"""No secret stays in a text: not the pipeline's own in any spelling, and nothing that looks like one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from towpath.config.loading import parse
from towpath.config.pipeline import Pipeline
from towpath.run.doctor import HIDDEN, Redaction

#: As it is typed, and with what URIs, JSON and JAAS escape.
_PASSWORD = 'pa:ss/w"ord\\ü%'
_ENCODED = "pa%3Ass%2Fw%22ord%5C%C3%BC%25"


def _private(file: Path, text: str) -> Path:
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    escaped = json.dumps(_PASSWORD, ensure_ascii=False)[1:-1].replace("\\", "\\\\")
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    client = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
    client += f'sasl.jaas.config={login} username="u" password="{escaped}";\n'
    text = f"""
name = "shop"
[source]
uri_file = "{_private(tmp_path / "source.uri", f"mongodb://me:{_ENCODED}@db/?appName=a@b")}"
[destination]
uri_file = "{_private(tmp_path / "destination.uri", "mongodb://me:short@db/")}"
[collections]
include = ["shop.*"]
[kafka]
bootstrap = "k:1"
client = "{_private(tmp_path / "client.properties", client)}"
[connect]
url = "http://c:8083"
user_file = "{_private(tmp_path / "connect.user", "towpath:of-the-api")}"
[run]
listen = "127.0.0.1:9300"
token_file = "{_private(tmp_path / "page.token", "of-the-page")}"
"""
    return parse(text, _private(tmp_path / "shop.toml", text))


@pytest.mark.parametrize(
    "text",
    [_PASSWORD, _ENCODED, json.dumps(_PASSWORD), "short", "the API takes of-the-api", "of-the-page"],
)
def test_the_secrets_of_the_pipeline_are_hidden_wherever_they_stand(pipeline: Pipeline, text: str) -> None:
    redacted = Redaction.of(pipeline)(f"before {text} after")
    assert HIDDEN in redacted
    assert redacted.startswith("before ") and redacted.endswith(" after")
    for secret in (_PASSWORD, _ENCODED, json.dumps(_PASSWORD)[1:-1], "short", "of-the-api", "of-the-page"):
        assert secret not in redacted


@pytest.mark.parametrize(
    "text",
    [
        "mongodb://me:s3cr3t@h:27017/?replicaSet=a",
        "mongodb+srv://me:s3c/r3t@h/db",
        "connecting to mongodb://s3cr3t@h",
        "\tssl.key.password = s3cr3t",
        "ssl.truststore.password: s3cr3t",
        '{"connection.password": "s3cr3t and \\" more"}',
        '"{\\"password\\": \\"s3cr3t\\"}"',
        '{"password": "s3cr3t\\\\"}',
        'required username="u" password="s3c r3t',
        "ssl.truststore.password = s3c,r3t",
        "password: s3c r3t",
        "{password=s3c;r3t, user=me}",
        "passwd=s3cr3t",
        "mongodump --password s3cr3t --uri u",
        '"passwords": ["s3cr3t", "s3cr3t"]',
        "{Authorization=[Basic s3cr3t==], Accept=[*/*]}",
        "mongodb://me:s3c?r3t#s3cr3t@h/",
        'sasl.jaas.config=org.apache.Scram required username="u" password="s3cr3t";',
        "sasl.jaas.config = x required s3cr3t",
        "Authorization: Basic s3cr3t==",
        "tlsCertificateKeyFilePassword=s3cr3t&w=1",
        "AWS_SESSION_TOKEN:s3cr3t",
        "client_secret=s3cr3t",
        "-----BEGIN PRIVATE KEY-----\ns3cr3t\n-----END PRIVATE KEY-----",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\\ns3cr3t",
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    redacted = Redaction()(text)
    assert HIDDEN in redacted
    assert "s3c" not in redacted
    assert "r3t" not in redacted


@pytest.mark.parametrize(
    "text",
    [
        "mongodb://h:27017/?replicaSet=a",
        "http://127.0.0.1:8083/connectors",
        '"producer.override.sasl.jaas.config": "${file:/s/shop.properties:kafka.sasl.jaas.config}"',
        '"ssl.key.password": null',
        "io.towpath.sink.MongoSink applied 12 records of shop.orders",
        "user@example.com wrote to shop.orders",
        '"shop.app.tokens": {\n  "partitions": {',
        "mongodb://h1:27017,h2:27017/ and http://h:8083/ answer; ask user@example.com",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redaction()(text) == text
