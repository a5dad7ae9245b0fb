"""What a secured stack asks for, made again: a CA, certificates of every kind and random passwords, all in files."""

from __future__ import annotations

import base64
import datetime
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

_HOST = "127.0.0.1"


def _password() -> str:
    """Long enough to be found wherever it leaks, and with signs that have to be escaped somewhere."""
    return f"leak-{secrets.token_hex(8)}@:/%\\"


@dataclass(frozen=True, repr=False)
class Secrets:
    """Every password of the stack. None of them may be seen anywhere but in the files made for them."""

    source: str = field(default_factory=_password)
    kafka: str = field(default_factory=_password)
    connect: str = field(default_factory=lambda: f"leak-{secrets.token_hex(8)}")
    key: str = field(default_factory=_password)
    """The pass phrase of the destination user's key, and of the one for Kafka."""
    root: str = field(default_factory=lambda: f"leak-{secrets.token_hex(8)}")
    worker: str = field(default_factory=lambda: f"leak-{secrets.token_hex(8)}")
    """Of Connect's workers, at Kafka."""
    store: str = field(default_factory=lambda: f"leak-{secrets.token_hex(8)}")


class Authority:
    """A CA that writes PEM files as Java reads them: PKCS #8 keys."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.file, self._ca = folder, folder / f"{name}.pem", trustme.CA()
        self._ca.cert_pem.write_to_path(self.file)

    def issue(self, file: str, *hosts: str, name: str, password: str = "", days: int = 30) -> Path:
        """A certificate with CN=`name`, and its key, in one file; `days` below 0 for one that has expired."""
        now = datetime.datetime.now(datetime.UTC)
        made = self._ca.issue_cert(
            *(hosts or [f"{name}.example"]),
            common_name=name,
            organization_name="users" if not hosts else "servers",
            not_before=now - datetime.timedelta(days=60),
            not_after=now + datetime.timedelta(days=days),
        )
        key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
        how = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
        place = self.folder / file
        place.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems) + pem)
        place.chmod(0o600)
        return place

    def stores(self, pem: Path, password: str) -> None:
        """The same certificate and this CA as PKCS #12."""
        text = pem.read_bytes()
        key, certificate = serialization.load_pem_private_key(text, None), load_pem_x509_certificate(text)
        own = load_pem_x509_certificate(self.file.read_bytes())
        how = serialization.BestAvailableEncryption(password.encode())
        whole = pkcs12.serialize_key_and_certificates(b"server", key, certificate, [own], how)  # type: ignore[arg-type]
        trusted = pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(own, b"ca")], how)
        (self.folder / "server.p12").write_bytes(whole)
        (self.folder / "trust.p12").write_bytes(trusted)


def subject(pem: Path) -> str:
    """The name of the user that a certificate stands for, as MongoDB writes it."""
    return load_pem_x509_certificate(pem.read_bytes()).subject.rfc4514_string()


def secure(folder: Path, known: Secrets) -> Authority:
    """Fill a folder as `tests.support.secured_stack` says."""
    authority = Authority(folder)
    authority.stores(authority.issue("server.pem", _HOST, name="server"), known.store)
    authority.issue("stack.pem", name="stack")
    texts = {
        "p12.password": known.store,
        "mongod.key": base64.b64encode(secrets.token_bytes(96)).decode(),
        "root.password": known.root,
        "kafka.users": f"connect:{known.worker}\ntowpath:{known.kafka}",
        "connect.users": f"towpath={known.connect}",
    }
    for name, text in texts.items():
        file = folder / name
        file.write_text(text)
        file.chmod(0o600)
    return authority


def user(name: str, password: str) -> str:
    """What stands before the host of a URI."""
    return f"{quote(name, '')}:{quote(password, '')}@"
