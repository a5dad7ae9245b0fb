"""A secured stack with the users of one pipeline, who may do what docs/reference/roles.md says and no more."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pymongo import MongoClient

from tests.support import control, raw, secured_stack
from tests.support.certificates import Authority, Secrets, secure, subject, user
from tests.support.secured_stack import OAUTH, Security
from towpath import stack as embedded

_PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "roles.md").read_text()
#: The pipeline of the page's commands.
NAME = "shop"
#: What the page calls the workers' group, and what it is in the embedded stack.
_GROUPS = "connect-shop-", "towpath-stack-shop-"
_RESOURCES = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def documented_roles() -> dict[str, list[dict[str, Any]]]:
    """Role → privileges of the `createRole` commands of the page."""
    found = re.findall(r"runCommand\((\{createRole.*?\})\)\n", re.sub(r"//.*", "", _PAGE) + "\n", re.DOTALL)
    commands = [json.loads(re.sub(r"(\w+):", r'"\1":', text)) for text in found]
    return {command["createRole"]: command["privileges"] for command in commands}


def documented_acls() -> list[AclBinding]:
    """What the `kafka-acls.sh` commands of the page allow."""
    lines = [line for line in _PAGE.replace("\\\n", "").splitlines() if line.startswith("kafka-acls.sh --add")]
    return [binding for line in lines for binding in _acls(shlex.split(line)[2:])]


def _acls(words: list[str]) -> Iterator[AclBinding]:
    pattern, resources, operations, principal = ResourcePatternType.LITERAL, [], [], ""
    given = iter(words)
    for word in given:
        if word == "--cluster":
            resources.append((ResourceType.BROKER, "kafka-cluster"))
            continue
        value = next(given)
        if word in _RESOURCES:
            kind = _RESOURCES[word]
            resources.append((kind, value.replace(*_GROUPS) if kind == ResourceType.TRANSACTIONAL_ID else value))
        elif word == "--operation":
            operations.append(getattr(AclOperation, re.sub(r"(?<!^)(?=[A-Z])", "_", value).upper()))
        elif word == "--allow-principal":
            principal = value
        else:
            assert (word, value) == ("--resource-pattern-type", "prefixed")
            pattern = ResourcePatternType.PREFIXED
    for kind, name in resources:
        for operation in operations:
            yield AclBinding(kind, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)


@dataclass(frozen=True, repr=False)
class Secured:
    """The running stack, its files, and clients that may do everything."""

    folder: Path
    stack: embedded.Stack
    sasl_bootstrap: str
    """Where Kafka accepts passwords; at the stack's `bootstrap` it accepts certificates."""
    authority: Authority
    known: Secrets
    source: raw.Client
    destination: raw.Client

    def start_again(self, process: str) -> None:
        """Start a mongod or the worker, which does not run, and wait until it answers."""
        secured_stack.start_again(self.stack.directory, Security(self.authority.folder), process)

    @property
    def source_uri(self) -> str:
        """Of the pipeline's user, by password."""
        return self._with(self.stack.source, user("towpath", self.known.source)) + "&authSource=admin"

    @property
    def destination_uri(self) -> str:
        """Of the pipeline's user, by certificate."""
        key = self._file("sink.pem")
        password = user("", self.known.key)[1:-1]
        return (
            f"{self.stack.destination}&serverSelectionTimeoutMS=3000&authMechanism=MONGODB-X509"
            f"&tlsCertificateKeyFile={key}"
            f"&tlsCertificateKeyFilePassword={password}"
        )

    def as_root(self, uri: str) -> str:
        """For clients that may do everything; only tests have it."""
        return self.by_password(uri, "root", self.known.root)

    def by_password(self, uri: str, name: str, password: str) -> str:
        """Of a user with a password, also where the server requires a certificate."""
        return (
            f"{self._with(uri, user(name, password))}&authSource=admin&tlsCertificateKeyFile={self._file('stack.pem')}"
        )

    @staticmethod
    def _with(uri: str, login: str) -> str:
        return uri.replace("://", f"://{login}")

    def _file(self, name: str) -> Path:
        return self.authority.folder / name

    def kafka_by_password(self, password: str | None = None, ca: Path | None = None) -> dict[str, str]:
        escaped = re.sub(r'(["\\])', r"\\\1", self.known.kafka if password is None else password)
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{_SCRAM} required username="towpath" password="{escaped}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca or self.authority.file),
        }

    def kafka_by_token(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="towpath";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
        }

    def kafka_by_certificate(self) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._file("kafka.pem")),
        }

    def rest(self) -> httpx.Client:
        """A client of Connect's REST API."""
        client = Security(self.authority.folder).for_httpx()
        client.base_url = httpx.URL(self.stack.connect)
        return client


def secret_file(file: Path, text: str) -> Path:
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text(text, encoding="utf-8")
    return file


def properties(values: dict[str, str]) -> str:
    """A properties file of these values."""
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in values.items())


def write(secured: Secured, *, by: str, source: str | None = None, ddl: bool = False) -> Path:
    """Write the pipeline file and what it names; `by` password, token or certificate at Kafka; whether with `[ddl]`."""
    folder, certificates = secured.folder / "pipeline", secured.authority.folder
    folder.mkdir(exist_ok=True)
    logins = {"password": secured.kafka_by_password, "token": secured.kafka_by_token}
    client = logins.get(by, secured.kafka_by_certificate)()
    secret_file(folder / "source.uri", source or secured.source_uri)
    secret_file(folder / "destination.uri", secured.destination_uri)
    secret_file(folder / "client.properties", properties(client))
    secret_file(folder / "connect.user", f"towpath:{secured.known.connect}\n")
    sections: dict[str, dict[str, Any]] = {
        "source": {"uri_file": "source.uri"},
        "destination": {"uri_file": "destination.uri"},
        "collections": {"include": ["shop.*"]},
        "kafka": {
            "bootstrap": secured.sasl_bootstrap if by in logins else secured.stack.bootstrap,
            "client": "client.properties",
        },
        "connect": {
            "url": secured.stack.connect,
            "secrets": str(secured.stack.directory / "secrets"),
            "user_file": "connect.user",
            "ca": str(secured.authority.file),
            "certificate": str(certificates / "rest.pem"),
        },
    }
    if ddl:
        sections["ddl"] = {"drop": "apply"}
    lines = [f'name = "{NAME}"']
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    file = folder / f"{NAME}.toml"
    file.write_text("\n".join(lines))
    return file


def worker_by_certificate(secured: Secured) -> None:
    """Have the Connect worker come in at Kafka's other listener, and start it again."""
    file = secured.stack.directory / "conf" / "connect-0.properties"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(("sasl.", "security.", "bootstrap"))]
    own = properties(
        {
            "bootstrap.servers": secured.stack.bootstrap,
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(secured.authority.folder / "stack.pem"),
        }
    )
    file.write_text("\n".join([*lines, own]))
    control.kill(secured.stack.directory, "connect-0", signal.SIGTERM)
    secured.start_again("connect-0")


@contextmanager
def running(folder: Path, say: Any, *, with_users: bool = True) -> Iterator[Secured]:
    """Start a secured stack, with the pipeline's users at both sides or with the ACLs alone."""
    known, certificates = Secrets(), folder / "certificates"
    authority = secure(certificates, known)
    authority.issue("sink.pem", name="sink", password=known.key)
    authority.issue("kafka.pem", name="towpath")
    authority.issue("rest.pem", name="rest")
    place = folder / "stack"
    try:
        stack, by_password = secured_stack.start(place, Security(certificates), say)
        with of(folder, stack, by_password, authority, known) as secured:
            if with_users:
                _make_users(secured)
            _allow(secured)
            yield secured
    finally:
        control.end(place)


@contextmanager
def of(
    folder: Path, stack: embedded.Stack, by_password: str, authority: Authority, known: Secrets
) -> Iterator[Secured]:
    own = Security(authority.folder)
    login = {"username": "root", "password": known.root, **own.for_pymongo()}
    with (
        MongoClient[dict[str, Any]](stack.source, **login) as source,
        MongoClient[dict[str, Any]](stack.destination, **login) as destination,
    ):
        yield Secured(folder, stack, by_password, authority, known, source, destination)


def _make_users(secured: Secured) -> None:
    roles = documented_roles()
    writer = ("towpathWriter", "towpathSchema")
    for client, role in ((secured.source, "towpathReader"), *((secured.destination, role) for role in writer)):
        client.admin.command("createRole", role, privileges=roles[role], roles=[])
    reader = [{"role": "towpathReader", "db": "admin"}]
    secured.source.admin.command("createUser", "towpath", pwd=secured.known.source, roles=reader)
    name = subject(secured.authority.folder / "sink.pem")
    granted = [{"role": role, "db": "admin"} for role in writer]
    secured.destination["$external"].command("createUser", name, roles=granted)


def _allow(secured: Secured) -> None:
    """The ACLs of the page."""
    own = Security(secured.authority.folder).for_librdkafka()
    admin = AdminClient({"bootstrap.servers": secured.stack.bootstrap, **own})
    for answer in admin.create_acls(documented_acls(), request_timeout=20).values():
        answer.result(timeout=20)
