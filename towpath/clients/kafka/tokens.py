"""OAuth's tokens for kafka-python, which does not fetch them itself as librdkafka does."""

from __future__ import annotations

import base64
import json
import ssl
import time

import httpx
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from towpath.config.logins import TokenLogin

_LIFETIME_S = 3600  # of a token that nothing signs
_USED = 0.8  # of its lifetime, until a token is fetched again


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """The tokens of one login. Raises `KafkaError` when the endpoint gives none."""

    def __init__(self, login: TokenLogin) -> None:
        super().__init__()
        self._login = login
        self._token, self._until = "", 0.0

    def token(self) -> str:
        if time.monotonic() >= self._until:
            self._token, lifetime = self._fetched() if self._login.url else unsecured(self._login.subject)
            self._until = time.monotonic() + _USED * lifetime
        return self._token

    def _fetched(self) -> tuple[str, float]:
        """A token of the client credentials grant (RFC 6749, 4.4), and the seconds until it expires."""
        login = self._login
        form = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
        try:
            with httpx.Client(verify=ssl.create_default_context(), auth=(login.client, login.secret)) as client:
                answer = client.post(login.url, data=form).raise_for_status().json()
            return str(answer["access_token"]), float(answer.get("expires_in", _LIFETIME_S))
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise KafkaError(f"{login.url} gives no token: {type(error).__name__}: {error}") from error


def unsecured(subject: str, now: float | None = None) -> tuple[str, float]:
    """A token that nothing signs (RFC 7519, 6), and its lifetime in seconds. `now`: seconds since the epoch."""
    at = time.time() if now is None else now
    claims = {"sub": subject, "iat": at, "exp": at + _LIFETIME_S}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims))
    return f"{b'.'.join(parts).decode()}.", _LIFETIME_S
