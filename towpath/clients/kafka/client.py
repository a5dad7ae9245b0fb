"""How Towpath's clients log in to Kafka: the settings of a `client.properties`, as Kafka's own tools read it.

The file has Java's names; those of librdkafka and kafka-python are derived from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from towpath.config.tls import Trouble, Trust, trouble
from towpath.errors import TowpathError

#: Bytes. 16 MiB is the largest document; a record adds its key, headers and the update's own wrapping.
LARGEST_RECORD = 17 * 1024 * 1024
PROTOCOL, MECHANISM, LOGIN = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
CA, CERTIFICATE, KEY_PASSWORD = "ssl.truststore.location", "ssl.keystore.location", "ssl.key.password"
_CA_TYPE, _CERTIFICATE_TYPE = "ssl.truststore.type", "ssl.keystore.type"
HOST_CHECK = "ssl.endpoint.identification.algorithm"
KNOWN = (PROTOCOL, MECHANISM, LOGIN, CA, _CA_TYPE, CERTIFICATE, _CERTIFICATE_TYPE, KEY_PASSWORD, HOST_CHECK)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
_MODULES = {"PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule"}
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LIBRDKAFKA = {key: key for key in (PROTOCOL, MECHANISM, KEY_PASSWORD)} | {
    "ssl.ca.location": CA,
    "ssl.certificate.location": CERTIFICATE,
    "ssl.key.location": CERTIFICATE,
}
_KAFKA_PYTHON = {
    "security_protocol": PROTOCOL,
    "sasl_mechanism": MECHANISM,
    "ssl_cafile": CA,
    "ssl_certfile": CERTIFICATE,
    "ssl_keyfile": CERTIFICATE,
    "ssl_password": KEY_PASSWORD,
}
_OPTION = r'%s\s*=\s*"((?:[^"\\]|\\.)*)"'


@dataclass(frozen=True, slots=True, repr=False)
class KafkaClient:
    """Settings by Java's names; none for brokers without authentication. May hold passwords."""

    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_secret(self) -> bool:
        return LOGIN in self.settings or KEY_PASSWORD in self.settings

    @property
    def files(self) -> dict[str, Path]:
        """Setting → the PEM file that it names."""
        return {key: Path(self.settings[key]) for key in (CA, CERTIFICATE) if key in self.settings}

    @property
    def user(self) -> tuple[str, str] | None:
        """User and password, if the client logs in with them."""
        return login(self.settings[LOGIN]) if LOGIN in self.settings else None

    def for_librdkafka(self) -> dict[str, Any]:
        options = self._renamed(_LIBRDKAFKA, "sasl.username", "sasl.password")
        if HOST_CHECK in self.settings:
            options[HOST_CHECK] = self.settings[HOST_CHECK] or "none"
        return options

    def for_kafka_python(self) -> dict[str, Any]:
        options = self._renamed(_KAFKA_PYTHON, "sasl_plain_username", "sasl_plain_password")
        if self.settings.get(HOST_CHECK) == "":
            options["ssl_check_hostname"] = False
        return options

    def _renamed(self, names: Mapping[str, str], user: str, password: str) -> dict[str, Any]:
        """The settings under other names: `names` maps an option to Java's setting."""
        options = {name: self.settings[key] for name, key in names.items() if key in self.settings}
        return options | (dict(zip((user, password), self.user, strict=True)) if self.user else {})

    def trouble(self, bootstrap: str, refused: str = "") -> Trouble | None:
        """What is wrong with TLS or the login, and what to do. `refused`: the client's message on a refused login."""
        if refused:
            return Trouble(
                f"the brokers refuse the user or the password: {refused.partition(': ')[2] or refused}",
                f"correct them, or {MECHANISM}, in the file of [kafka] client",
            )
        trust = Trust(
            tls=self.settings.get(PROTOCOL, "PLAINTEXT").endswith("SSL"),
            ca=self.settings.get(CA, ""),
            key=self.settings.get(CERTIFICATE, ""),
            password=self.settings.get(KEY_PASSWORD, ""),
            switch=f"{PROTOCOL}=SSL or SASL_SSL in the file of [kafka] client",
            ca_option=f"{CA} in the file of [kafka] client",
            key_option=f"{CERTIFICATE} in the file of [kafka] client",
            checks_host=self.settings.get(HOST_CHECK) != "",
        )
        return trouble(_addresses(bootstrap), trust)

    def references(self, secrets: Path) -> dict[str, str]:
        """Settings of a connector for all clients that Connect creates for it: setting → reference to the secrets file.

        Not the address: Connect writes the offsets of a source with an address of its own to a second topic as well, in
        an order that a transaction does not allow.
        """
        return {
            f"{client}.override.{key}": f"${{file:{secrets}:kafka.{key}}}"
            for client in ("producer", "consumer", "admin")
            for key in self.settings
        }


#: For brokers without authentication.
ANYBODY = KafkaClient()


def _addresses(bootstrap: str) -> Iterator[tuple[str, int]]:
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if port.isdecimal():
            yield host.strip("[]"), int(port)


def login(jaas: str) -> tuple[str, str] | None:
    """User and password in a value of `sasl.jaas.config`; None when it lacks one of them."""
    user, password = (re.search(_OPTION % name, jaas) for name in ("username", "password"))
    return (_unescaped(user[1]), _unescaped(password[1])) if user and password else None


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def of(properties: Mapping[str, str], folder: Path) -> KafkaClient:
    """The settings of a properties file in `folder`, to which its paths are relative.

    Raises `TowpathError` for unknown, missing and incompatible settings; its message holds no secret.
    """
    unknown = sorted(set(properties) - set(KNOWN))
    if unknown:
        raise TowpathError(f"unknown setting {', '.join(unknown)}; Towpath passes on {', '.join(KNOWN)}")
    settings = dict(properties)
    _one_of(settings, PROTOCOL, _PROTOCOLS)
    if settings[PROTOCOL].startswith("SASL"):
        _one_of(settings, MECHANISM, _MECHANISMS)
        module = _MODULES.get(settings[MECHANISM], _SCRAM_MODULE)
        if login(settings.get(LOGIN, "")) is None or module not in settings[LOGIN]:
            raise TowpathError(f'{LOGIN}: write {module} required username="…" password="…";')
    if settings[PROTOCOL] == "SASL_PLAINTEXT" and settings[MECHANISM] == "PLAIN":
        raise TowpathError(f"{MECHANISM}=PLAIN sends the password as it is; write {PROTOCOL}=SASL_SSL, or use SCRAM")
    if not settings[PROTOCOL].startswith("SASL") and (LOGIN in settings or MECHANISM in settings):
        raise TowpathError(f"{PROTOCOL}={settings[PROTOCOL]} has no user and password; write SASL_SSL")
    for key, kind in ((CA, _CA_TYPE), (CERTIFICATE, _CERTIFICATE_TYPE)):
        if key in settings:
            _one_of(settings, kind, ("PEM",))
            file = folder / Path(settings[key]).expanduser()
            # not what a link leads to: in a Secret of Kubernetes that has another name in each pod
            settings[key] = str(file.parent.resolve() / file.name)
    return KafkaClient(settings)


def _one_of(settings: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> None:
    if settings.get(key) not in allowed:
        raise TowpathError(f"{key} is {settings.get(key, 'missing')}; write one of {', '.join(allowed)}")


def properties(text: str) -> dict[str, str]:
    """The settings in a Java properties file: comments, `key=value`, and lines continued with a `\\`."""
    settings: dict[str, str] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        key, mark, value = line.partition("=")
        if not mark:
            raise TowpathError("a line is not key=value")
        settings[key.strip()] = _unescaped(value.strip())
    return settings
