"""Finds TLS problems of a connection with a separate handshake, which shows more than the clients' errors.

It sends nothing but the handshake, which needs no password.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass

_PATIENCE = 3.0  # seconds for the handshake
_SILENCE = 0.5  # seconds after which a server that sends nothing must be waiting for the client
_EXPIRED, _NOT_YET, _OTHER_HOST, _OTHER_IP = 10, 9, 62, 64  # X509_V_ERR_… of OpenSSL
#: Parts of OpenSSL's names of reasons, such as TLSV1_ALERT_UNKNOWN_CA.
_REFUSES = ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "ends the connection")


@dataclass(frozen=True, slots=True, repr=False)
class Trust:
    """A client's TLS settings. `key` is a PEM file with its certificate and key; empty names mean no file.

    `switch`, `ca_option` and `key_option` are for messages: what enables TLS, names the CA, and names the certificate.
    """

    tls: bool
    ca: str
    key: str
    password: str
    switch: str
    ca_option: str
    key_option: str
    checks_host: bool = True

    def context(self) -> ssl.SSLContext:
        """Raises `OSError`, `ssl.SSLError` among them, for files that cannot be used."""
        context = ssl.create_default_context(cafile=self.ca or None)
        context.check_hostname = self.checks_host
        if self.key:
            context.load_cert_chain(self.key, password=lambda: self.password)
        return context


@dataclass(frozen=True, slots=True)
class TlsProblem:
    """A problem, and what to do."""

    what: str
    advice: str


def tls_problem(addresses: Iterable[tuple[str, int]], trust: Trust) -> TlsProblem | None:
    """The first problem with the files, or with TLS at one of these addresses; None when TLS is not the problem."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if trust.tls:
        try:
            context = trust.context()
        except OSError as error:
            return _unusable(trust, error)
    for host, port in addresses:
        try:
            with socket.create_connection((host, port), timeout=_PATIENCE) as plain:
                problem = _with_tls(plain, host, context, trust) if trust.tls else _without(plain, context, trust)
        except OSError:
            continue  # nothing listens there, which has nothing to do with TLS
        if problem:
            return problem
    return None


def _unusable(trust: Trust, error: OSError) -> TlsProblem:
    files = " and ".join(filter(None, (trust.ca, trust.key)))
    return TlsProblem(
        f"cannot use the PEM files {files}: {error.strerror or error}",
        f"{trust.ca_option} names the CA, {trust.key_option} a certificate with its key, and the password of an"
        " encrypted key has to be given with it",
    )


def _without(plain: socket.socket, context: ssl.SSLContext, trust: Trust) -> TlsProblem | None:
    """For a client without TLS: whether the server speaks it."""
    try:
        context.wrap_socket(plain).close()
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return None
    except OSError:
        return None
    return TlsProblem("the server speaks TLS, and the client was not to", f"switch it on: {trust.switch}")


def _with_tls(plain: socket.socket, host: str, context: ssl.SSLContext, trust: Trust) -> TlsProblem | None:
    try:
        with context.wrap_socket(plain, server_hostname=host) as secured:
            secured.settimeout(_SILENCE)
            if secured.recv(1) == b"":
                return _refused("it ends the connection", trust) if trust.key else _wants_certificate(trust)
    except TimeoutError:
        return None  # it waits for the client: no problem
    except ssl.SSLCertVerificationError as error:
        return _unverified(host, error.verify_code, trust)
    except ssl.SSLError as error:
        return _refused(error.reason or "", trust)
    except OSError:
        return _no_tls(trust)
    return None


def _unverified(host: str, code: int, trust: Trust) -> TlsProblem:
    if code in (_EXPIRED, _NOT_YET):
        when = "has expired" if code == _EXPIRED else "is not valid yet"
        return TlsProblem(f"the certificate of {host} {when}", "give the server a new one, or set the clock right")
    if code in (_OTHER_HOST, _OTHER_IP):
        return TlsProblem(
            f"the certificate of the server is not for the name {host}",
            "connect by a name that is in it, or give the server a certificate with this name (subjectAltName)",
        )
    signed = f"the CA in {trust.ca}" if trust.ca else "a CA that this machine trusts"
    return TlsProblem(
        f"the certificate of {host} does not come from {signed}", f"name the CA that issued it with {trust.ca_option}"
    )


def _refused(reason: str, trust: Trust) -> TlsProblem:
    if trust.key and any(word in reason for word in _REFUSES):
        return TlsProblem(
            f"the server refuses the client's certificate in {trust.key} ({reason})",
            f"name with {trust.key_option} one that comes from the CA that the server trusts, and has not expired",
        )
    if "CERTIFICATE" in reason or "HANDSHAKE_FAILURE" in reason:
        return _wants_certificate(trust)
    return _no_tls(trust)


def _wants_certificate(trust: Trust) -> TlsProblem:
    return TlsProblem("the server wants a certificate of the client", f"name a PEM file with {trust.key_option}")


def _no_tls(trust: Trust) -> TlsProblem:
    return TlsProblem(
        "the server does not speak TLS at this port",
        f"name the port with TLS, or switch it off ({trust.switch} switches it on)",
    )
