"""Who may read, and who may start commands; and which requests are refused before anything answers them."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from towpath.config.logins import refuse_open
from towpath.config.pipeline import Run
from towpath.errors import TowpathError

_SHORTEST_TOKEN = 16  # characters
_LOGIN_SECONDS = 12 * 3600.0
_MOST_LOGINS = 100
#: Open to everyone: whether it lives, the form for the token, the style of that page, and to sign out.
_OPEN = ("/healthz", "/readyz", "/login", "/logout", "/static/")
_HOST = re.compile(r"(\[.+\]|[^:]+)(:\d*)?")
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
    """Who may do what at one address."""

    token: str
    """Empty where no one can start commands."""
    open: bool
    """Whether everyone may read."""
    secure: bool
    """Whether it is served with TLS."""
    cookie: str
    """The name of the cookie: browsers send the cookies of a host to each of its ports."""
    hosts: tuple[str, ...]
    """Names by which requests may address the server. IP addresses are always allowed: a page of another site cannot
    make its own name resolve to them and read the answer under that name (DNS rebinding)."""
    logins: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """Cookies, and until when they are valid."""

    @property
    def actions(self) -> bool:
        return bool(self.token)

    def fits(self, token: str) -> bool:
        return bool(self.token) and hmac.compare_digest(token.encode(), self.token.encode())

    def sign_in(self, request: Request, response: Response) -> None:
        """Give the browser a cookie; it is `Secure` also behind a proxy that speaks TLS."""
        value = secrets.token_urlsafe(32)
        self.logins[value] = time.monotonic() + _LOGIN_SECONDS
        while len(self.logins) > _MOST_LOGINS:
            self.logins.popitem(last=False)
        secure = self.secure or request.headers.get("origin", "").startswith("https:")
        response.set_cookie(self.cookie, value, httponly=True, samesite="strict", secure=secure)

    def sign_out(self, request: Request, response: Response) -> None:
        self.logins.pop(request.cookies.get(self.cookie, ""), None)
        response.delete_cookie(self.cookie)

    def is_known(self, request: HTTPConnection) -> bool:
        """Whether a request brings the token, or the cookie that was given for it."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.fits(token.strip())
        return self.logins.get(request.cookies.get(self.cookie, ""), 0.0) > time.monotonic()

    def is_foreign(self, headers: Mapping[str, str]) -> bool:
        """Whether a page of another site has made a browser send this request."""
        if headers.get("authorization", "").lower().startswith("bearer "):  # browsers never add that
            return False
        host = headers.get("host", "")
        own = {"", f"https://{host}", f"{'https' if self.secure else 'http'}://{host}"}  # a proxy may speak TLS for it
        is_same_site = headers.get("sec-fetch-site", "") in ("", "same-origin", "none")
        return not is_same_site or headers.get("origin", "") not in own


def access_of(listening: Run) -> Access:
    """Who may do what. Raises `TowpathError` for an address that would be open to others although no option says so."""
    host, port = address(listening.listen)
    if not (_is_loopback(host) or listening.token_file or listening.read_only):
        raise TowpathError(
            f"{listening.listen} is not an address of the loopback, so others can reach it",
            "give --token-file FILE, or --read-only if everyone who reaches it may read",
        )
    if listening.key and not listening.certificate:
        raise TowpathError("a key without a certificate", "also give --certificate FILE")
    token = read_token(listening.token_file) if listening.token_file and not listening.read_only else ""
    names = ("localhost", host, socket.gethostname(), socket.getfqdn(), *listening.hosts)
    if wild := [name for name in names if "*" in name]:
        raise TowpathError(f"{wild[0]!r} is not the name of a host", "give each name that requests may use: --host")
    is_open = _is_loopback(host) or listening.read_only
    return Access(token, is_open, listening.certificate is not None, f"towpath-{port}", tuple(filter(None, names)))


def address(text: str) -> tuple[str, int]:
    """Host and port. Raises `TowpathError`."""
    host, _, port = text.rpartition(":")
    if not host or "/" in host or not port.isdigit() or int(port) > 65535:
        raise TowpathError(f"{text!r} is not an address; write host:port, such as 127.0.0.1:9300")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Hosts(TrustedHostMiddleware):
    """Also trusts IP addresses; see `Access.hosts`."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        super().__init__(app, access.hosts, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = _HOST.fullmatch(HTTPConnection(scope).headers.get("host", "")) if scope["type"] == "http" else None
        is_trusted = host is not None and is_address(host[1].strip("[]"))
        await (self.app if is_trusted else super().__call__)(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Headers:
    """Adds the headers that keep browsers from harm, and counts the answers by their status code."""

    app: ASGIApp
    counts: Counter[int]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.counts[message["status"]] += 1
                headers = MutableHeaders(scope=message)
                age = "max-age=300" if scope["path"].startswith("/static/") else "no-store"
                for name, value in (*_HEADERS.items(), ("cache-control", age)):
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


@dataclass(frozen=True, slots=True)
class Guard:
    """Refuses who may not read, who may not start commands, and what a page of another site sends."""

    app: ASGIApp
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        access, reads = self.access, request.method in ("GET", "HEAD")
        if not reads and access.is_foreign(request.headers):
            return refused(403, "a page of another site may not send this")
        if request.url.path.startswith(_OPEN):
            return None
        if not reads and not access.actions:
            return refused(403, "this server is read-only: start it with a token file for commands")
        if (reads and access.open) or access.is_known(request):
            return None
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/login", 303)
        return refused(401, "a token is needed: Authorization: Bearer …", {"www-authenticate": "Bearer"})


def refused(status: int, words: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": words}, status, headers)
