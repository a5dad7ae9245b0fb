"""How Kafka's clients get the settings of a `client.properties`, and why a login fails.

The file has Java's names; those of librdkafka and kafka-python are derived from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from towpath.clients.tls import Trouble, Trust
from towpath.clients.tls import trouble as tls_trouble
from towpath.config.logins import CA, CERTIFICATE, HOST_CHECK, KEY_PASSWORD, MECHANISM, PROTOCOL, KafkaLogin

#: Bytes. 16 MiB is the largest document; a record adds its key, headers and the update's own wrapping.
LARGEST_RECORD = 17 * 1024 * 1024
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


def for_librdkafka(login: KafkaLogin) -> dict[str, Any]:
    options = _renamed(login, _LIBRDKAFKA, "sasl.username", "sasl.password")
    if HOST_CHECK in login.settings:
        options[HOST_CHECK] = login.settings[HOST_CHECK] or "none"
    return options


def for_kafka_python(login: KafkaLogin) -> dict[str, Any]:
    options = _renamed(login, _KAFKA_PYTHON, "sasl_plain_username", "sasl_plain_password")
    if login.settings.get(HOST_CHECK) == "":
        options["ssl_check_hostname"] = False
    return options


def _renamed(login: KafkaLogin, names: Mapping[str, str], user: str, password: str) -> dict[str, Any]:
    """The settings under other names: `names` maps an option to Java's setting."""
    options = {name: login.settings[key] for name, key in names.items() if key in login.settings}
    return options | (dict(zip((user, password), login.user, strict=True)) if login.user else {})


def trouble(login: KafkaLogin, bootstrap: str, refused: str = "") -> Trouble | None:
    """What is wrong with TLS or the login, and what to do. `refused`: the client's message on a refused login."""
    if refused:
        return Trouble(
            f"the brokers refuse the user or the password: {refused.partition(': ')[2] or refused}",
            f"correct them, or {MECHANISM}, in the file of [kafka] client",
        )
    settings = login.settings
    trust = Trust(
        tls=settings.get(PROTOCOL, "PLAINTEXT").endswith("SSL"),
        ca=settings.get(CA, ""),
        key=settings.get(CERTIFICATE, ""),
        password=settings.get(KEY_PASSWORD, ""),
        switch=f"{PROTOCOL}=SSL or SASL_SSL in the file of [kafka] client",
        ca_option=f"{CA} in the file of [kafka] client",
        key_option=f"{CERTIFICATE} in the file of [kafka] client",
        checks_host=settings.get(HOST_CHECK) != "",
    )
    return tls_trouble(_addresses(bootstrap), trust)


def _addresses(bootstrap: str) -> Iterator[tuple[str, int]]:
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if port.isdecimal():
            yield host.strip("[]"), int(port)
