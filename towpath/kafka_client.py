"""How Towpath's clients log in at Kafka: the settings of a `client.properties`, as Kafka's own tools take it.

Java's names are the ones that are written down; librdkafka and kafka-python get theirs from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from towpath.errors import TowpathError
from towpath.tls import Trouble, Trust, trouble

PROTOCOL, MECHANISM, LOGIN = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
CA, CERTIFICATE, KEY_PASSWORD = "ssl.truststore.location", "ssl.keystore.location", "ssl.key.password"
_CA_TYPE, _CERTIFICATE_TYPE = "ssl.truststore.type", "ssl.keystore.type"
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
KNOWN = (PROTOCOL, MECHANISM, LOGIN, CA, _CA_TYPE, CERTIFICATE, _CERTIFICATE_TYPE, KEY_PASSWORD, _HOST_CHECK)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
_MODULES = {"PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule"}
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OPTION = r'%s\s*=\s*"((?:[^"\\]|\\.)*)"'


@dataclass(frozen=True, slots=True, repr=False)
class KafkaClient:
    """Settings by Java's names; none for brokers that let everybody in. May hold passwords."""

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
        told, found = self.settings, dict[str, Any]()
        names = {PROTOCOL: PROTOCOL, MECHANISM: MECHANISM, CA: "ssl.ca.location", KEY_PASSWORD: KEY_PASSWORD}
        names |= {CERTIFICATE: "ssl.certificate.location"}
        found = {name: told[key] for key, name in names.items() if key in told}
        if CERTIFICATE in told:
            found["ssl.key.location"] = told[CERTIFICATE]
        if self.user:
            found["sasl.username"], found["sasl.password"] = self.user
        if _HOST_CHECK in told:
            found[_HOST_CHECK] = told[_HOST_CHECK] or "none"
        return found

    def for_kafka_python(self) -> dict[str, Any]:
        told, found = self.settings, dict[str, Any]()
        names = {PROTOCOL: "security_protocol", MECHANISM: "sasl_mechanism", CA: "ssl_cafile"}
        names |= {CERTIFICATE: "ssl_certfile", KEY_PASSWORD: "ssl_password"}
        found = {name: told[key] for key, name in names.items() if key in told}
        if CERTIFICATE in told:
            found["ssl_keyfile"] = told[CERTIFICATE]
        if self.user:
            found["sasl_plain_username"], found["sasl_plain_password"] = self.user
        if told.get(_HOST_CHECK) == "":
            found["ssl_check_hostname"] = False
        return found

    def trouble(self, bootstrap: str, refused: str = "") -> Trouble | None:
        """What is wrong with TLS or the login, and what to do. `refused`: the client's words of a refused login."""
        if refused:
            return Trouble(
                f"the brokers refuse the user or the password: {refused.partition(': ')[2] or refused}",
                f"correct them, or {MECHANISM}, in the file of [kafka] client",
            )
        told = self.settings
        trust = Trust(
            tls=told.get(PROTOCOL, "PLAINTEXT").endswith("SSL"),
            ca=told.get(CA, ""),
            key=told.get(CERTIFICATE, ""),
            password=told.get(KEY_PASSWORD, ""),
            switch=f"{PROTOCOL}=SSL or SASL_SSL in the file of [kafka] client",
            ca_option=f"{CA} in the file of [kafka] client",
            key_option=f"{CERTIFICATE} in the file of [kafka] client",
            checks_host=told.get(_HOST_CHECK) != "",
        )
        return trouble(_addresses(bootstrap), trust)

    def references(self, secrets: Path) -> dict[str, str]:
        """Settings of a connector for all clients that Connect makes for it: setting → where in the secrets file.

        Not the address: a source with an address of its own has its offsets written to a second topic as well, in an
        order that a transaction does not bear.
        """
        return {
            f"{client}.override.{key}": f"${{file:{secrets}:kafka.{key}}}"
            for client in ("producer", "consumer", "admin")
            for key in self.settings
        }


#: For brokers that let everybody in.
ANYBODY = KafkaClient()


def _addresses(bootstrap: str) -> Iterator[tuple[str, int]]:
    for one in bootstrap.split(","):
        host, _, port = one.strip().rpartition(":")
        if port.isdecimal():
            yield host.strip("[]"), int(port)


def login(jaas: str) -> tuple[str, str] | None:
    """User and password of a line for `sasl.jaas.config`; None when it is none of a user and a password."""
    found = [re.search(_OPTION % name, jaas) for name in ("username", "password")]
    if not all(found):
        return None
    user, password = (re.sub(r"\\(.)", r"\1", match[1]) for match in found if match)
    return user, password


def of(told: Mapping[str, str], folder: Path) -> KafkaClient:
    """The settings of a properties file in `folder`, to which its paths are relative.

    Raises `TowpathError` for what is unknown, missing or cannot work; its words hold no value of a secret.
    """
    unknown = sorted(set(told) - set(KNOWN))
    if unknown:
        raise TowpathError(f"unknown setting {', '.join(unknown)}; Towpath passes on {', '.join(KNOWN)}")
    settings = dict(told)
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
            settings[key] = str((folder / Path(settings[key]).expanduser()).resolve())
    return KafkaClient(settings)


def _one_of(settings: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> None:
    if settings.get(key) not in allowed:
        raise TowpathError(f"{key} is {settings.get(key, 'missing')}; write one of {', '.join(allowed)}")


def properties(text: str) -> dict[str, str]:
    """A Java properties file as far as one is written by hand: comments, `key=value`, lines that go on after a `\\`."""
    found: dict[str, str] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        key, mark, value = line.partition("=")
        if not mark:
            raise TowpathError("a line is not key=value")
        found[key.strip()] = re.sub(r"\\(.)", r"\1", value.strip())
    return found
