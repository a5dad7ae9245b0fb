"""Files with credentials, keys and CAs. Files with secrets that other users can read are refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from towpath.clients.kafka.client import CA, KafkaClient, of, properties
from towpath.config import schema
from towpath.config.pipeline import ConnectLogin
from towpath.errors import BadPipelineFile, TowpathError


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
    """Raise `BadPipelineFile` for a key that everybody can read. Its group may: the Connect workers read it as well."""
    if file.stat().st_mode & stat.S_IRWXO:
        raise BadPipelineFile(
            f"{file} can be read by everybody, and it holds a private key", f"run: chmod o= {file}", where=str(file)
        )


def refuse_files(files: Iterable[tuple[str, str]], where: str, *, plain_sink: bool) -> None:
    """Raise `BadPipelineFile` for PEM files of a URI that cannot be used. `files`: (option, path)."""
    for option, name in files:
        file = Path(name)
        if plain_sink:
            raise BadPipelineFile(
                f'mongo-kafka\'s sink, which mode = "plain" uses, does not read {option}; give the workers a'
                " trust store (-Djavax.net.ssl.trustStore) and leave the option out, or deploy with mode ="
                ' "exactly-once"',
                where=where,
            )
        if not file.is_absolute():
            raise BadPipelineFile(f"{option}={name}: write an absolute path: the workers read it as well", where=where)
        _refuse_unreadable(file, f"{where}: {option}")
        if option == "tlsCertificateKeyFile":
            refuse_open_key(file)


def kafka_client(section: schema.Kafka, path: Path) -> KafkaClient:
    """The client settings in the file of [kafka] client."""
    if section.client is None:
        return KafkaClient()
    file, where = beside(path, section.client, "[kafka] client"), f"{path}: [kafka] client"
    try:
        client = of(properties(_text(file, where)), file.parent)
    except TowpathError as error:
        raise BadPipelineFile(f"{file}: {error}", where=where) from error
    if client.has_secret:
        refuse_open(file, "it holds a password for Kafka")
    for key, pem in client.files.items():
        _refuse_unreadable(pem, f"{file}: {key}")
        if key != CA:
            refuse_open_key(pem)
    return client


def connect_login(section: schema.Connect, path: Path) -> ConnectLogin:
    """User, password and PEM files for Connect's REST API."""
    user = password = ""
    if section.user_file is not None:
        file, where = beside(path, section.user_file, "[connect] user_file"), f"{path}: [connect] user_file"
        user, mark, password = _text(file, where).strip().partition(":")
        refuse_open(file, "it holds a password for Kafka Connect")
        if not mark or not user or "\n" in password:
            raise BadPipelineFile(f"{file} must hold one line, user:password", where=where)
    pem = {
        name: beside(path, text, f"[connect] {name}")
        for name in ("ca", "certificate")
        if (text := getattr(section, name))
    }
    for name, file in pem.items():
        _refuse_unreadable(file, f"{path}: [connect] {name}")
    if "certificate" in pem:
        refuse_open_key(pem["certificate"])
    if pem and not section.url.startswith("https://"):
        raise BadPipelineFile(f"[connect] {' and '.join(pem)} go with an https:// url", where=str(path))
    return ConnectLogin(user, password, str(pem.get("ca", "")), str(pem.get("certificate", "")))


def shown(value: object) -> str:
    """The `repr` of a value, cut after 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


def beside(path: Path, name: str, key: str) -> Path:
    """The path of a file or folder that `key` names, relative to the pipeline file at `path`."""
    try:
        return (path.parent / Path(name).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise BadPipelineFile(f"{shown(name)} is not a path: {error}", where=f"{path}: {key}") from error


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
