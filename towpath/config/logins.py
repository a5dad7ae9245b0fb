"""How Towpath logs in to Kafka and to Connect, and the files with that: passwords, keys and CAs.

Files with secrets that other users can read are refused. `[kafka] client` names a `client.properties` with Java's
names of settings, as Kafka's own tools read it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import javaproperties

from towpath.errors import BadPipelineFile, TowpathError

PROTOCOL, MECHANISM, LOGIN = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
CA, CERTIFICATE, KEY_PASSWORD = "ssl.truststore.location", "ssl.keystore.location", "ssl.key.password"
_CA_TYPE, _CERTIFICATE_TYPE = "ssl.truststore.type", "ssl.keystore.type"
HOST_CHECK = "ssl.endpoint.identification.algorithm"
TOKEN_URL, CALLBACK = "sasl.oauthbearer.token.endpoint.url", "sasl.login.callback.handler.class"
_OF_LOGIN = (PROTOCOL, MECHANISM, LOGIN, TOKEN_URL, CALLBACK)
KNOWN = (*_OF_LOGIN, CA, _CA_TYPE, CERTIFICATE, _CERTIFICATE_TYPE, KEY_PASSWORD, HOST_CHECK)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OAUTH = "OAUTHBEARER"
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", _OAUTH)
_SECURITY = "org.apache.kafka.common.security"
_MODULES = {"PLAIN": f"{_SECURITY}.plain.PlainLoginModule", _OAUTH: f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"}
_SCRAM_MODULE = f"{_SECURITY}.scram.ScramLoginModule"
_OAUTH_HANDLER = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
_UNSECURED = "unsecuredLoginStringClaim_sub"
_SETTING = re.compile(r"[a-z]+(\.[a-z]+)+")


@dataclass(frozen=True, slots=True, repr=False)
class KafkaLogin:
    """Settings of all Kafka clients, by Java's names, those that Connect creates for the connectors included.

    None for brokers without authentication. May hold passwords.
    """

    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, Path]:
        """Setting → the PEM file that it names."""
        return {key: Path(self.settings[key]) for key in (CA, CERTIFICATE) if key in self.settings}

    @property
    def user(self) -> tuple[str, str] | None:
        """User and password, if the client logs in with them."""
        return login(self.settings[LOGIN]) if LOGIN in self.settings else None

    @property
    def tokens(self) -> TokenLogin | None:
        """Where tokens come from, if the client logs in with them."""
        if self.settings.get(MECHANISM) != _OAUTH:
            return None
        jaas = self.settings[LOGIN]
        return TokenLogin(
            self.settings.get(TOKEN_URL, ""),
            *(option(jaas, name) or "" for name in ("clientId", "clientSecret", "scope", _UNSECURED)),
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The passwords in it."""
        of_tokens = self.tokens.secret if self.tokens else ""
        return tuple(text for text in (self.user[1] if self.user else "", of_tokens) if text)


@dataclass(frozen=True, slots=True, repr=False)
class TokenLogin:
    """A login with OAuth's tokens: by client credentials, from the endpoint at `url`; without `url`, with tokens that
    nothing signs, in the name of `subject`, for tests."""

    url: str
    client: str
    secret: str
    scope: str
    subject: str


@dataclass(frozen=True, slots=True, repr=False)
class ConnectLogin:
    """For Connect's REST API: user and password, and PEM files for TLS; empty where not needed."""

    user: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""


def login(jaas: str) -> tuple[str, str] | None:
    """User and password in a value of `sasl.jaas.config`; None when it lacks one of them."""
    user, password = option(jaas, "username"), option(jaas, "password")
    return None if user is None or password is None else (user, password)


def option(jaas: str, name: str) -> str | None:
    """An option in a value of `sasl.jaas.config`."""
    found = re.search(rf'\b{name}\s*=\s*"((?:[^"\\]|\\.)*)"', jaas)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else None


def kafka_login(properties: Mapping[str, str], folder: Path) -> KafkaLogin:
    """The settings of a properties file in `folder`, to which its paths are relative.

    Raises `TowpathError` for unknown, missing and incompatible settings; its message holds no secret.
    """
    settings = dict(properties)
    unknown = sorted(set(settings) - set(KNOWN))
    if not all(map(_SETTING.fullmatch, unknown)):  # perhaps a part of a password
        raise TowpathError("a line is not key=value")
    if unknown:
        raise TowpathError(f"unknown setting {', '.join(unknown)}; Towpath passes on {', '.join(KNOWN)}")
    _one_of(settings, PROTOCOL, _PROTOCOLS)
    if settings[PROTOCOL].startswith("SASL"):
        _one_of(settings, MECHANISM, _MECHANISMS)
        module = _MODULES.get(settings[MECHANISM], _SCRAM_MODULE)
        if settings[MECHANISM] == _OAUTH:
            _require_tokens(settings, module)
        elif login(settings.get(LOGIN, "")) is None or module not in settings[LOGIN]:
            raise TowpathError(f'{LOGIN}: write {module} required username="…" password="…";')
    if settings[PROTOCOL] == "SASL_PLAINTEXT" and settings[MECHANISM] in _MODULES:
        raise TowpathError(
            f"{MECHANISM}={settings[MECHANISM]} sends a password or a token as it is; write {PROTOCOL}=SASL_SSL, or use"
            " SCRAM"
        )
    if not settings[PROTOCOL].startswith("SASL") and (LOGIN in settings or MECHANISM in settings):
        raise TowpathError(f"{PROTOCOL}={settings[PROTOCOL]} has no user and password; write SASL_SSL")
    for key, kind in ((CA, _CA_TYPE), (CERTIFICATE, _CERTIFICATE_TYPE)):
        if key in settings:
            _one_of(settings, kind, ("PEM",))
            file = folder / Path(settings[key]).expanduser()
            # not what a link leads to: in a Secret of Kubernetes that has another name in each pod
            settings[key] = str(file.parent.resolve() / file.name)
    return KafkaLogin(settings)


def _require_tokens(settings: Mapping[str, str], module: str) -> None:
    jaas = settings.get(LOGIN, "")
    if TOKEN_URL not in settings and option(jaas, _UNSECURED) and module in jaas:
        return
    if not option(jaas, "clientId") or not option(jaas, "clientSecret") or module not in jaas:
        raise TowpathError(f'{LOGIN}: write {module} required clientId="…" clientSecret="…";')
    if not settings.get(TOKEN_URL, "").startswith("https://"):
        raise TowpathError(f"{TOKEN_URL}: write the https:// URL that gives tokens")
    _one_of(settings, CALLBACK, (_OAUTH_HANDLER,))


def _one_of(settings: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> None:
    if settings.get(key) not in allowed:
        raise TowpathError(f"{key} is {settings.get(key, 'missing')}; write one of {', '.join(allowed)}")


def refuse_open(file: Path, why: str) -> None:
    """Raise `BadPipelineFile` for a file that other users can read. A file that does not exist yet passes.

    On a read-only mount its group may read it: Kubernetes gives files of a Secret to root and to the group of the pod.
    """
    if not file.exists():
        return
    is_mounted = os.statvfs(file).f_flag & os.ST_RDONLY
    if file.stat().st_mode & (stat.S_IROTH if is_mounted else stat.S_IRGRP | stat.S_IROTH):
        raise BadPipelineFile(f"{file} can be read by others, and {why}", f"run: chmod 600 {file}", where=str(file))


def refuse_open_key(file: Path) -> None:
    """Raise `BadPipelineFile` for a key that all users can read. Its group may: the Connect workers read it as well."""
    if file.stat().st_mode & stat.S_IRWXO:
        raise BadPipelineFile(
            f"{file} can be read by all users, and it holds a private key", f"run: chmod o= {file}", where=str(file)
        )


def refuse_files(files: Iterable[tuple[str, str]], where: str, *, plain_sink: bool) -> None:
    """Raise `BadPipelineFile` for PEM files of a URI that cannot be used. `files`: (option, path)."""
    for option, name in files:
        file = Path(name)
        if plain_sink:
            raise BadPipelineFile(
                f'mongo-kafka\'s sink, which mode = "plain" uses, does not read {option}',
                "leave the option out, and give the workers a trust store with the CA (-Djavax.net.ssl.trustStore), and"
                ' this machine the CA among those of the system; or use mode = "exactly-once"',
                where=where,
            )
        if not file.is_absolute():
            raise BadPipelineFile(f"{option}={name}: write an absolute path: the workers read it as well", where=where)
        _refuse_unreadable(file, f"{where}: {option}")
        if option == "tlsCertificateKeyFile":
            refuse_open_key(file)


def read_kafka_login(file: Path, where: str) -> KafkaLogin:
    """The client settings in the file of [kafka] client."""
    text = _text(file, where)
    try:
        login = kafka_login(javaproperties.loads(text), file.parent)
    except ValueError as error:
        raise BadPipelineFile(f"{file} is not a properties file: {error}", where=where) from error
    except TowpathError as error:
        raise BadPipelineFile(f"{file}: {error}", where=where) from error
    if LOGIN in login.settings or KEY_PASSWORD in login.settings:
        refuse_open(file, "it holds a password for Kafka")
    for key, pem in login.files.items():
        _refuse_unreadable(pem, f"{file}: {key}")
        if key != CA:
            refuse_open_key(pem)
    return login


def read_connect_login(user_file: Path | None, ca: Path | None, certificate: Path | None, where: str) -> ConnectLogin:
    """User, password and PEM files for Connect's REST API. `where`: the pipeline file."""
    user = password = ""
    if user_file is not None:
        place = f"{where}: [connect] user_file"
        user, mark, password = _text(user_file, place).strip().partition(":")
        refuse_open(user_file, "it holds a password for Kafka Connect")
        if not mark or not user or "\n" in password:
            raise BadPipelineFile(f"{user_file} must hold one line, user:password", where=place)
    for name, file in (("ca", ca), ("certificate", certificate)):
        if file is not None:
            _refuse_unreadable(file, f"{where}: [connect] {name}")
    if certificate is not None:
        refuse_open_key(certificate)
    return ConnectLogin(user, password, str(ca or ""), str(certificate or ""))


def connect_url(url: str) -> str:
    """The URL of a Connect worker. Raises `ValueError` for any other text, in words without a password."""
    if "@" in url:
        raise ValueError(
            "it holds a user, which would be printed with it; write user:password into a file that only you can read,"
            " and name that with [connect] user_file"
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # raises for one that is too large
    except ValueError as error:
        raise ValueError(f"{shown(url)} is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"{shown(url)} is not the URL of a Connect worker: http://host:8083")
    return url


def shown(value: object) -> str:
    """The `repr` of a value, cut after 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


def _text(file: Path, where: str) -> str:
    _refuse_unreadable(file, where)
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadPipelineFile(f"{file} is not text in UTF-8", where=where) from error


def _refuse_unreadable(file: Path, where: str) -> None:
    try:
        file.open("rb").close()
    except (OSError, ValueError) as error:
        raise BadPipelineFile(f"cannot read {shown(str(file))}: {error}", where=where) from error
