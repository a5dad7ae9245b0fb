"""The server of page, API and metrics."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import prometheus_client as prometheus
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from towpath.config.logins import refuse_open_key
from towpath.config.pipeline import Run
from towpath.errors import TowpathError
from towpath.monitor import api, pages
from towpath.monitor.access import Access, Guard, Headers, Hosts, access_of, address, refused
from towpath.monitor.commands import COMMANDS, Commands, Running
from towpath.monitor.dashboard import COLUMNS, Dashboard, History, Short, Shown
from towpath.monitor.metrics import Metrics
from towpath.monitor.updates import Client, Full, Updates
from towpath.run.children import Launcher
from towpath.run.report import as_json

MOST_CONNECTIONS = 400
LONGEST_REQUEST = 16 * 1024  # bytes, of the headers and of the body
_UNREAD_SECONDS = 30  # after which a connection is closed whose client takes nothing of what is sent
_BUFFER = 64 * 1024  # bytes that the kernel keeps for one client
_STALE = 30.0  # seconds after which a report no longer says that a pipeline is ready
_SHUTDOWN = 3  # seconds for answers in progress


@dataclass(slots=True)
class _Server:
    """The answers."""

    dashboard: Dashboard
    access: Access
    commands: Commands
    ready_lag: float
    """Seconds up to which `/readyz` answers 200."""
    requests: Counter[int] = field(default_factory=Counter)
    """Status code → how many were answered with it."""
    registry: prometheus.CollectorRegistry = field(default_factory=prometheus.CollectorRegistry)

    def __post_init__(self) -> None:
        self.registry.register(Metrics(self.dashboard, self.requests))
        prometheus.ProcessCollector(registry=self.registry)
        prometheus.PlatformCollector(registry=self.registry)

    def app(self) -> Starlette:
        name = "/api/v1/pipelines/{name}"
        routes = [
            Route("/", self.overview),
            Route("/pipelines/{name}", self.page),
            Route("/updates", self.page_updates),
            Route("/login", self.login, methods=["GET", "POST"]),
            Route("/logout", self.logout, methods=["POST"]),
            Mount("/static", StaticFiles(packages=[("towpath.monitor", "static")])),
            Route("/healthz", self.health),
            Route("/readyz", self.ready),
            Route("/metrics", self.metrics),
            Route("/api/v1/openapi.json", self.openapi),
            Route("/api/v1/pipelines", self.pipelines),
            Route("/api/v1/events", self.events),
            Route(name, self.pipeline),
            Route(f"{name}/history", self.history),
            Route(f"{name}/{{command}}", self.command, methods=["POST"]),
        ]
        return Starlette(
            routes=routes,
            middleware=[
                Middleware(Headers, counts=self.requests),
                Middleware(Hosts, access=self.access),
                Middleware(Guard, access=self.access),
            ],
            exception_handlers={HTTPException: _refused, ClientDisconnect: _gone},
            lifespan=self.lifespan,
            max_body_size=LONGEST_REQUEST,
        )

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await self.commands.close()

    def shown(self, name: str) -> Shown:
        shown = self.dashboard.pipelines.get(name)
        if shown is None:
            raise HTTPException(404, "no pipeline of that name is shown here")
        return shown

    async def overview(self, request: Request) -> Response:
        pipelines = [
            (shown.report.name, pages.row(Short.of(shown.report))) for shown in self.dashboard.pipelines.values()
        ]
        if len(pipelines) == 1:
            return RedirectResponse(f"/pipelines/{pipelines[0][0]}")
        return _html(pages.overview(pipelines, self._visitor(request)))

    async def page(self, request: Request) -> Response:
        shown = self.shown(request.path_params["name"])
        return _html(pages.pipeline(self.dashboard.context(shown), shown.sections, self._visitor(request)))

    def _visitor(self, request: Request) -> dict[str, Any]:
        return {
            "may_act": self.access.actions and self.access.is_known(request),
            "can_login": self.access.actions,
            "several": len(self.dashboard.pipelines) > 1,
        }

    async def login(self, request: Request) -> Response:
        if not self.access.actions:
            raise HTTPException(404, "there is no token: this server is read-only")
        if request.method == "GET":
            return _html(pages.login(wrong=False))
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
        if not self.access.fits(form.get("token", [""])[0].strip()):
            await asyncio.sleep(1)  # a guess a second for each connection
            return _html(pages.login(wrong=True), 401)
        response = RedirectResponse("/", 303)
        self.access.sign_in(request, response)
        return response

    async def logout(self, request: Request) -> Response:
        response = RedirectResponse("/", 303)
        self.access.sign_out(request, response)
        return response

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """No numbers: everyone may ask."""
        ready = all(map(self._is_ready, self.dashboard.pipelines.values()))
        return JSONResponse({"status": "ready" if ready else "not ready"}, 200 if ready else 503)

    def _is_ready(self, shown: Shown) -> bool:
        report = shown.report
        # after a cutover, the sink is stopped, and the capture continues
        lags = {"running": report.lag.seconds, "destination primary": report.lag.capture_seconds}
        lag, is_fresh = lags.get(report.state), time.time() - (report.at or 0) <= _STALE
        return lag is not None and is_fresh and lag <= self.ready_lag

    async def metrics(self, request: Request) -> Response:
        return Response(prometheus.generate_latest(self.registry), media_type=prometheus.CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(api.description())

    async def pipelines(self, request: Request) -> Response:
        return _json(api.Pipelines(tuple(Short.of(shown.report) for shown in self.dashboard.pipelines.values())))

    async def pipeline(self, request: Request) -> Response:
        return _json(self.shown(request.path_params["name"]).whole)

    async def history(self, request: Request) -> Response:
        return _json(History(COLUMNS, tuple(self.shown(request.path_params["name"]).samples)))

    async def command(self, request: Request) -> Response:
        shown, name = self.shown(request.path_params["name"]), request.path_params["command"]
        await request.body()  # it may have none, and must not be long
        if name not in COMMANDS:
            raise HTTPException(404, f"no such command; there are {', '.join(COMMANDS)}")
        try:
            return _json(self.commands.start(shown, name), 202)
        except Running as error:
            raise HTTPException(409, str(error)) from error

    async def events(self, request: Request) -> Response:
        return self._stream(request, "api")

    async def page_updates(self, request: Request) -> Response:
        return self._stream(request, "page" if request.query_params.get("pipeline") else "overview")

    def _stream(self, request: Request, audience: str) -> Response:
        name = request.query_params.get("pipeline", "")
        if name:
            self.shown(name)
        if request.method == "HEAD":  # it would wait for updates that it never gets
            return Response(media_type="text/event-stream")
        updates = self.dashboard.updates
        try:
            return _Stream(updates, updates.join(audience, name, self.dashboard.first(audience, name)))
        except Full as error:
            raise HTTPException(503, str(error), {"retry-after": "5"}) from error


class _Stream(StreamingResponse):
    """What a client follows; its place is free again however the answer ends."""

    def __init__(self, updates: Updates, client: Client) -> None:
        super().__init__(updates.stream(client), media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._updates, self._client = updates, client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._updates.leave(self._client)


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html")


def _json(value: Any, status: int = 200) -> Response:
    text = json.dumps(as_json(value), ensure_ascii=False, allow_nan=False)
    return Response(text, status, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refused(error.status_code, error.detail, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # its client is gone


@contextmanager
def served(dashboard: Dashboard, listening: Run, ready_lag: float, launcher: Launcher) -> Iterator[str]:
    """Serve in a thread; yields the URL. Raises `TowpathError` when it cannot listen there, or must not."""
    access, (host, port) = access_of(listening), address(listening.listen)
    config = uvicorn.Config(
        _Server(dashboard, access, Commands(dashboard, launcher), ready_lag).app(),
        log_config=None,
        log_level="error",
        access_log=False,
        http="h11",
        ws="none",
        lifespan="on",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=LONGEST_REQUEST,
        timeout_graceful_shutdown=_SHUTDOWN,
        ssl_context_factory=_tls(listening),
    )
    listener, begun = _bound(host, port), threading.Event()
    running = uvicorn.Server(config)

    async def serve() -> None:
        dashboard.loop = asyncio.get_running_loop()
        begun.set()
        await running.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="server", daemon=True)
    thread.start()
    begun.wait()
    shown = f"[{host}]" if ":" in host else host
    try:
        yield f"{'https' if listening.certificate else 'http'}://{shown}:{listener.getsockname()[1]}/"
    finally:
        running.should_exit = True
        if dashboard.loop is not None:
            dashboard.loop.call_soon_threadsafe(dashboard.updates.close)  # the server waits for the streams
        thread.join(_SHUTDOWN + 15)
        listener.close()


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises `TowpathError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, place = found[0]
        listening = socket.socket(family, kind)  # `create_server` would have [::] accept no IPv4
        # connections inherit these
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_SECONDS * 1000)
        listening.bind(place)
        listening.listen(1_024)
        return listening
    except OSError as error:
        raise TowpathError(
            f"cannot listen at {host}:{port}: {error.strerror or error}", "choose another address: --listen"
        ) from error


def _tls(listening: Run) -> Callable[..., ssl.SSLContext] | None:
    """What makes the TLS context; None without a certificate. Raises `TowpathError`."""
    if listening.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # without `password`, OpenSSL would ask the terminal for one
        context.load_cert_chain(listening.certificate, listening.key, password="")
    except OSError as error:  # an `SSLError` is also one
        files = " and ".join(str(file) for file in (listening.certificate, listening.key) if file)
        no_pem = "no PEM files of a chain and its key without a passphrase"
        why = no_pem if isinstance(error, ssl.SSLError) else error.strerror
        raise TowpathError(f"cannot use the certificate: {why}", where=files) from error
    refuse_open_key(listening.key or listening.certificate)
    return lambda *_: context
