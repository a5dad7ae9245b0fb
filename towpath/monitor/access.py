"""Who may read, and who may start commands; and which requests are refused before anything looks at them."""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import cookie_parser

from towpath.config.logins import refuse_open
from towpath.errors import TowpathError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LONGEST_BODY = 16 * 1024  # bytes
_SHORTEST_TOKEN = 16  # characters
_LOGIN_SECONDS = 12 * 3600.0
_MOST_LOGINS = 100
#: Open to everybody: whether it lives, the form for the token, the style of that page, and to sign out, even if one is.
_OPEN = ("/healthz", "/readyz", "/login", "/logout", "/static/")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def read_token(file: Path) -> str:
    """The token in a file that only its owner can read. Raises `TowpathError`."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise TowpathError(f"cannot read the token: {why}", where=str(file)) from error
    refuse_open(file, "it holds the token of the page")
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise TowpathError(
            f"the token must have at least {_SHORTEST_TOKEN} ASCII characters and no space",
            f"for example: (umask 077; openssl rand -hex 24 > {file})",
            where=str(file),
        )
    return token


@dataclass(frozen=True, slots=True)
class Access:
    """`token` is empty where nobody can start commands. `open`: whether everybody may read."""

    token: str
    open: bool
    secure: bool
    """Whether it is served with TLS."""
    cookie: str
    """The name of the cookie: browsers send the cookies of a host to each of its ports."""
    hosts: frozenset[str]
    """Names, in lower case, by which requests may address the server. IP addresses are always allowed: a page of
    another site cannot make its own name resolve to them and read the answer under that name (DNS rebinding)."""
    logins: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """Cookies, and until when they are valid."""

    @property
    def actions(self) -> bool:
        return bool(self.token)

    def knows(self, host: str) -> bool:
        """Whether the `Host` header names this server."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        if name.startswith("[") and name.endswith("]"):
            name = name[1:-1]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower().rstrip(".") in self.hosts
        return True

    def fits(self, token: str) -> bool:
        return bool(self.token) and hmac.compare_digest(token.encode(), self.token.encode())

    def login(self) -> str:
        """A new cookie value."""
        value = secrets.token_urlsafe(32)
        self.logins[value] = time.monotonic() + _LOGIN_SECONDS
        while len(self.logins) > _MOST_LOGINS:
            self.logins.popitem(last=False)
        return value

    def logout(self, headers: dict[bytes, bytes]) -> None:
        self.logins.pop(self._cookie(headers), None)

    def is_known(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request brings the token, or the cookie of somebody who has entered it."""
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() == "bearer":
            return self.fits(token.strip())
        until = self.logins.get(self._cookie(headers), 0.0)
        return until > time.monotonic()

    def _cookie(self, headers: dict[bytes, bytes]) -> str:
        return cookie_parser(headers.get(b"cookie", b"").decode("latin-1")).get(self.cookie, "")

    def is_foreign(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a page of another site has made a browser send this request."""
        if headers.get(b"authorization", b"").lower().startswith(b"bearer "):  # no browser adds that by itself
            return False
        site, origin, host = (headers.get(name, b"") for name in (b"sec-fetch-site", b"origin", b"host"))
        own = {b"", b"https://" + host} | (
            set() if self.secure else {b"http://" + host}
        )  # a proxy may speak TLS for it
        return site not in (b"", b"same-origin", b"none") or origin not in own


def allowed_hosts(listening: str, more: Iterable[str]) -> frozenset[str]:
    """`listening`: the host that was given to listen at."""
    own = ("localhost", listening, socket.gethostname(), socket.getfqdn())
    return frozenset(name.lower().rstrip(".") for name in (*own, *more) if name)


@dataclass(frozen=True, slots=True)
class Guard:
    """Refuses what is not allowed, before the application; adds the headers that keep browsers from harm."""

    app: App
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message.get("headers", ())}
                more = {**_HEADERS, "cache-control": "no-store"}
                message["headers"] = [
                    *message.get("headers", ()),
                    *((n.encode(), v.encode()) for n, v in more.items() if n.encode() not in present),
                ]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            status, words, headers = refusal
            await answer(send_with_headers, status, words, headers)
            return
        await self.app(scope, _Limited(receive), send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self.access.knows(hosts[0].decode("latin-1")):
            return 421, "this server is not known by that name: give it with --host or [run] hosts", {}
        if sum(len(name) + len(value) for name, value in scope["headers"]) > LONGEST_BODY:
            return 431, f"the headers of a request may have {LONGEST_BODY:,} bytes", {}
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > LONGEST_BODY:
            return 413, f"a request may have {LONGEST_BODY:,} bytes", {}
        path, method = scope["path"], scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            return 405, "only GET, HEAD and POST", {"allow": "GET, HEAD, POST"}
        if method == "POST" and self.access.is_foreign(headers):
            return 403, "a page of another site may not send this", {}
        if path.startswith(_OPEN):
            return None
        if method == "POST" and not self.access.actions:
            return 403, "this server is read-only: start it with a token file for commands", {}
        if (method == "POST" or not self.access.open) and not self.access.is_known(headers):
            if method == "GET" and b"text/html" in headers.get(b"accept", b""):
                return 303, "a token is needed", {"location": "/login"}
            return 401, "a token is needed: Authorization: Bearer …", {"www-authenticate": "Bearer"}
        return None


class TooLong(Exception):
    """The body of a request is longer than it may be."""


@dataclass(slots=True)
class _Limited:
    """Receives a body that names no length, up to the limit."""

    receive: Receive
    size: int = 0

    async def __call__(self) -> MutableMapping[str, Any]:
        message = await self.receive()
        self.size += len(message.get("body", b""))
        if self.size > LONGEST_BODY:
            raise TooLong
        return message


async def answer(send: Send, status: int, words: str, headers: dict[str, str]) -> None:
    body = json.dumps({"error": words}).encode()
    named = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close", **headers}
    start = {"type": "http.response.start", "status": status}
    await send({**start, "headers": [(name.encode(), value.encode()) for name, value in named.items()]})
    await send({"type": "http.response.body", "body": body})
