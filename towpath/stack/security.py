"""A stack whose services require a certificate or a password: their additional settings.

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

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from towpath.stack.state import HOST

#: The names under which each broker has a port for users with passwords.
SASL = "{}-sasl"
_JAAS = "connect.jaas"
_MECHANISM = "SCRAM-SHA-512"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BASIC = "org.apache.kafka.connect.rest.basic.auth.extension"


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

    @property
    def options(self) -> str:
        """The options of both replica sets' URIs, without secrets."""
        return f"tls=true&tlsCAFile={self.ca}"

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
            "sasl.enabled.mechanisms": _MECHANISM,
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

    @staticmethod
    def worker_system(conf: Path) -> Mapping[str, str]:
        """System properties of a worker's JVM."""
        return {"java.security.auth.login.config": str(conf / _JAAS)}

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
