"""Credentials and TLS for Connect's REST API."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from towpath.tls import Trouble, Trust, trouble


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """User and password, and PEM files for TLS; empty where not needed."""

    user: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""

    @property
    def basic(self) -> tuple[str, str] | None:
        return (self.user, self.password) if self.user else None

    def context(self) -> ssl.SSLContext | bool:
        """The TLS context that verifies the worker's certificate. Raises `OSError` for files that cannot be used."""
        return self._trust(tls=True).context() if self.ca or self.certificate else True

    def trouble(self, url: str) -> Trouble | None:
        """What is wrong with TLS at this URL."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        address = parts.hostname or "", parts.port or (443 if tls else 80)
        return trouble([address], self._trust(tls=tls))

    def _trust(self, *, tls: bool) -> Trust:
        names = "[connect] ca", "[connect] certificate"
        return Trust(tls, self.ca, self.certificate, "", "https:// in [connect] url", *names)


NO_LOGIN = Login()
