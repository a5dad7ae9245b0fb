"""A stack whose services require a certificate or a password, with one process of each kind.

All secrets are in files of one folder, which the caller creates:

- `ca.pem`: the CA that all trust; `server.pem`: certificate (CN=server, for 127.0.0.1) and key of every service;
  `stack.pem`: certificate and key of the stack's own clients (CN=stack). Keys are PKCS #8.
- `server.p12`, `trust.p12`, `p12.password`: for Connect's REST API, whose web server does not read PEM files.
- `mongod.key`: authenticates the members of a replica set; `root.password`: of the user `root` on both sides.
- `kafka.users`: `user:password` lines, for SCRAM, the first for Connect's workers; `connect.users`: `user=password`
  lines, for Connect's REST API.

The source accepts passwords; the destination and Connect's REST API require a certificate as well. Kafka has a listener
for certificates, and one for passwords, which the workers use. Its brokers have access control lists; `server`, `stack`
and the workers may do everything.
"""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.support import control
from towpath import stack as embedded
from towpath.stack import Stack, StackOptions, parts, plan, processes, ready, record, tools
from towpath.stack.processes import HOST, Process, ports_for
from towpath.stack.record import controller_of

#: The name of the port at which the broker accepts users with passwords.
SASL = "kafka-sasl"
_JAAS = "connect.jaas"
_MECHANISM = "SCRAM-SHA-512"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_BASIC = "org.apache.kafka.connect.rest.basic.auth.extension"
_ADMIN_TIMEOUT_S, _READY_S = 2, 180


@dataclass(frozen=True, slots=True)
class Security:
    """The folder."""

    folder: Path

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def own(self) -> str:
        """Certificate and key of the stack's own clients."""
        return str(self.folder / "stack.pem")

    @property
    def root_password(self) -> str:
        return (self.folder / "root.password").read_text(encoding="utf-8").strip()

    def for_pymongo(self) -> dict[str, Any]:
        return {"tls": True, "tlsCAFile": self.ca, "tlsCertificateKeyFile": self.own}

    def for_librdkafka(self) -> dict[str, str]:
        own = {f"ssl.{part}.location": self.own for part in ("certificate", "key")}
        return {"security.protocol": "SSL", "ssl.ca.location": self.ca, **own}

    def for_httpx(self) -> httpx.Client:
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.own)
        return httpx.Client(verify=context, auth=self._pairs("connect.users", "=")[0])

    def mongod(self, side: str) -> tuple[str, ...]:
        """Additional arguments of a mongod. At the source, passwords alone are enough."""
        words: tuple[str, ...] = ("--tlsMode", "requireTLS", "--tlsCertificateKeyFile", str(self.folder / "server.pem"))
        words += ("--tlsCAFile", self.ca, "--keyFile", str(self.folder / "mongod.key"))
        return words + (("--tlsAllowConnectionsWithoutCertificates",) if side == "source" else ())

    def broker(self, port: int, sasl_port: int, controller_port: int) -> dict[str, str]:
        """Settings of a broker that replace those of a plain one."""
        outside = f"SSL://{HOST}:{port},SASL_SSL://{HOST}:{sasl_port}"
        return {
            "listeners": f"{outside},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": outside,
            "listener.security.protocol.map": "SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.location": str(self.folder / "server.pem"),
            "ssl.keystore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "ssl.truststore.type": "PEM",
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": f"{_MECHANISM},OAUTHBEARER",
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{OAUTH} required;",
            f"listener.name.sasl_ssl.{_MECHANISM.lower()}.sasl.jaas.config": f"{_SCRAM} required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:server;User:stack;User:{self._users()[0][0]}",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        }

    def worker(self, port: int, bootstrap: str) -> dict[str, str]:
        """Settings of a Connect worker that replace those of a plain one; it logs in at `bootstrap` with a password."""
        user, secret = self._users()[0]
        password = (self.folder / "p12.password").read_text(encoding="utf-8").strip()
        rest = {"ssl.key.password": password, "ssl.client.auth": "required"}
        for store, name in (("keystore", "server.p12"), ("truststore", "trust.p12")):
            rest[f"ssl.{store}.location"] = str(self.folder / name)
            rest |= {f"ssl.{store}.type": "PKCS12", f"ssl.{store}.password": password}
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": f'{_SCRAM} required username="{user}" password="{secret}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "listeners": f"https://{HOST}:{port}",
            "rest.advertised.listener": "https",
            "rest.extension.classes": f"{_BASIC}.BasicAuthSecurityRestExtension",
            **{f"listeners.https.{key}": value for key, value in rest.items()},
        }

    def write_jaas(self, conf: Path) -> None:
        """Write the file that names the file of a worker's users."""
        users = self.folder / "connect.users"
        text = f'KafkaConnect {{\n  {_BASIC}.PropertyFileLoginModule required file="{users}";\n}};\n'
        (conf / _JAAS).write_text(text, encoding="utf-8")

    def make_kafka_users(self, bootstrap: str) -> None:
        """Create the users with passwords at the brokers; existing ones keep theirs."""
        admin = AdminClient({"bootstrap.servers": bootstrap, **self.for_librdkafka()})
        information = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, information, password.encode()) for user, password in self._users()
        ]
        for answer in admin.alter_user_scram_credentials(users).values():
            answer.result(timeout=30)

    def _users(self) -> list[tuple[str, str]]:
        return self._pairs("kafka.users", ":")

    def _pairs(self, file: str, mark: str) -> list[tuple[str, str]]:
        lines = (self.folder / file).read_text(encoding="utf-8").split()
        return [(user, password) for user, _, password in (line.partition(mark) for line in lines)]


def start(directory: Path, security: Security, progress: Callable[[str], None]) -> tuple[Stack, str]:
    """Start a stack in a new folder; it, and the address at which its broker accepts passwords.

    `stack.kill`, `stack.status` and `stack.down` work on the folder, also when this fails; `start_again` starts.
    """
    options = StackOptions(directory.resolve())
    nodes = {side: name for side, (name,) in options.nodes.items()}
    record.prepare(options.directory, "conf", "logs", "secrets", *(f"data/{name}" for name in nodes.values()))
    ports, found = ports_for([*options.port_names, SASL], None, {}), parts.parts(progress)
    by_password = f"{HOST}:{ports[SASL]}"
    planned = plan.processes_of(options, ports, found)
    for side, name in nodes.items():
        planned[name] = _with_words(planned[name], *security.mongod(side))
    login = f"-Djava.security.auth.login.config={options.directory / 'conf' / _JAAS}"
    program, *words = planned["connect-0"].command
    planned["connect-0"] = dataclasses.replace(planned["connect-0"], command=(program, login, *words))
    plan.write_files(options, ports, found)
    controller = ports[controller_of("kafka")]
    broker = plan.broker_properties(options.data("kafka"), ports["kafka"], [controller])
    broker |= security.broker(ports["kafka"], ports[SASL], controller)
    plan.write_properties(options.configuration("kafka"), broker)
    worker = plan.worker_properties(options.secrets, by_password, ports["connect-0"], found.plugins)
    plan.write_properties(options.configuration("connect-0"), worker | security.worker(ports["connect-0"], by_password))
    security.write_jaas(options.directory / "conf")
    tools.run("format the broker", plan.format_command(found, options.configuration("kafka")))

    plain = Stack.of(options, ports, planned)
    source, destination = (f"{uri}&tls=true&tlsCAFile={security.ca}" for uri in (plain.source, plain.destination))
    urls = tuple(url.replace("http:", "https:") for url in plain.connect_urls)
    stack = dataclasses.replace(plain, source=source, destination=destination, connect_urls=urls)
    stack = _spawned(stack, [*nodes.values(), "kafka"])
    checks = {side: _set_check(security, side, ports[name]) for side, name in nodes.items()}
    checks["kafka"] = lambda: _broker(security, stack.bootstrap)
    ready.await_ready(checks, [stack.processes[name] for name in (*nodes.values(), "kafka")], _READY_S, progress)
    for name in nodes.values():
        with _direct(security, ports[name]) as client:
            client.admin.command("createUser", "root", pwd=security.root_password, roles=["root"])
    # the broker must know the worker's user before the worker starts
    security.make_kafka_users(stack.bootstrap)
    stack = _spawned(stack, ["connect-0"])
    _await(stack, security, "connect-0", progress)
    return stack, by_password


def start_again(directory: Path, security: Security, name: str) -> None:
    """Start a mongod or the worker, which does not run, and wait until it answers."""
    control.start(directory, name, await_ready=False)
    _await(embedded.status(directory), security, name, lambda words: None)


def _await(stack: Stack, security: Security, name: str, progress: Callable[[str], None]) -> None:
    process, worker = stack.processes[name], lambda: _worker(security, stack.connect)
    check = worker if process.kind == "connect" else _set_check(security, name.partition("-")[0], process.port)
    ready.await_ready({name: check}, [process], _READY_S, progress)


def _with_words(process: Process, *words: str) -> Process:
    return dataclasses.replace(process, command=(*process.command, *words))


def _spawned(stack: Stack, names: list[str]) -> Stack:
    for name in names:
        stack = stack.with_process(processes.spawn(stack.processes[name]))
        record.write(stack)
    return stack


def _direct(security: Security, port: int) -> MongoClient[dict[str, Any]]:
    return MongoClient(HOST, port, directConnection=True, serverSelectionTimeoutMS=2000, **security.for_pymongo())


def _set_check(security: Security, name: str, port: int) -> ready.Check:
    def check() -> str:
        try:
            with _direct(security, port) as client:
                hello = client.admin.command("hello")
                if "setName" in hello:
                    return "" if hello.get("isWritablePrimary") else "not primary yet"
                members = [{"_id": 0, "host": f"{HOST}:{port}"}]
                client.admin.command("replSetInitiate", {"_id": name, "members": members})
                return "just initiated"
        except PyMongoError as error:
            return str(error)

    return check


def _broker(security: Security, bootstrap: str) -> str:
    try:
        settings = {"bootstrap.servers": bootstrap, "log_level": 0, **security.for_librdkafka()}
        return "" if AdminClient(settings).list_topics(timeout=_ADMIN_TIMEOUT_S).brokers else "not registered yet"
    except KafkaException as error:
        return str(error)


def _worker(security: Security, url: str) -> str:
    try:
        with security.for_httpx() as client:
            answer = client.get(f"{url}/connector-plugins", timeout=5)
            return "" if answer.is_success and answer.json() else answer.text[:200]
    except httpx.HTTPError as error:
        return str(error)
