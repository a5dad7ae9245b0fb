"""The server of page, API and metrics."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

import prometheus_client as prometheus
import uvicorn
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from towpath.config.logins import refuse_open_key
from towpath.config.sections import Run
from towpath.errors import TowpathError
from towpath.monitor import pages
from towpath.monitor.access import Access, Guard, TooLong, allowed_hosts, read_token
from towpath.monitor.board import Board, Shown
from towpath.monitor.commands import COMMANDS, Commands, Running
from towpath.monitor.connections import Connection, bound
from towpath.monitor.metrics import OWN, PipelineMetrics
from towpath.monitor.updates import Client, Full, Update, Updates
from towpath.run.children import Launcher

_STALE = 30.0  # seconds after which a report no longer says that a pipeline is ready
_SHUTDOWN = 3  # seconds for answers in progress
_FILES = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "uPlot.min.js": "text/javascript",
    "uPlot.min.css": "text/css",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """`ready_lag`: the lag in seconds up to which `/readyz` is content."""

    listening: Run
    ready_lag: float


def access_of(listening: Run) -> Access:
    """Who may do what. Raises `TowpathError` for an address that would be open to others without anybody saying so."""
    host, port = _address(listening.listen)
    if not (_is_loopback(host) or listening.token_file or listening.read_only):
        raise TowpathError(
            f"{listening.listen} is not an address of the loopback, so others can reach it",
            "give --token-file FILE, or --read-only if everybody who reaches it may read",
        )
    if listening.key and not listening.certificate:
        raise TowpathError("a key without a certificate", "give --certificate FILE, too")
    token = read_token(listening.token_file) if listening.token_file and not listening.read_only else ""
    is_open = _is_loopback(host) or listening.read_only
    hosts = allowed_hosts(host, listening.hosts)
    return Access(token, is_open, listening.certificate is not None, f"towpath-{port}", hosts)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or "/" in host or not port.isdigit() or int(port) > 65535:
        raise TowpathError(f"{text!r} is not an address; write host:port, such as 127.0.0.1:9300")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(slots=True)
class _Server:
    """The answers."""

    board: Board
    access: Access
    settings: Settings
    commands: Commands
    requests: Counter[int] = field(default_factory=Counter)

    def app(self) -> Starlette:
        name = "/api/v1/pipelines/{name}"
        parts = {
            "": lambda shown: shown.whole,
            "/verdict": lambda shown: shown.verdict,
            "/gate": lambda shown: shown.gate,
            "/dead-letters": lambda shown: shown.dead_letters,
            "/history": lambda shown: shown.history.as_json(),
        }
        routes = [
            Route("/", self.overview),
            Route("/pipelines/{name}", self.page),
            Route("/updates", self.page_updates),
            Route("/login", self.login, methods=["GET", "POST"]),
            Route("/logout", self.logout, methods=["POST"]),
            Route("/static/{file}", self.static),
            Route("/healthz", self.health),
            Route("/readyz", self.ready),
            Route("/metrics", self.metrics),
            Route("/api/v1/openapi.json", self.openapi),
            Route("/api/v1/pipelines", self.pipelines),
            Route("/api/v1/events", self.events),
            *(Route(f"{name}{path}", _part(self, read)) for path, read in parts.items()),
            Route(f"{name}/{{command}}", self.command, methods=["POST"]),
        ]
        handlers: Any = {HTTPException: _refused, TooLong: _too_long, ClientDisconnect: _gone}
        return Starlette(routes=routes, exception_handlers=handlers)

    def shown(self, request: Request) -> Shown:
        shown = self.board.get(request.path_params["name"])
        if shown is None:
            raise HTTPException(404, "no pipeline of that name is shown here")
        return shown

    def _may_act(self, request: Request) -> bool:
        return self.access.actions and self.access.is_known(dict(request.scope["headers"]))

    async def overview(self, request: Request) -> Response:
        pipelines = self.board.pipelines
        if len(pipelines) == 1:
            return RedirectResponse(f"/pipelines/{pipelines[0].report['name']}")
        rows = [pages.row(shown.short) for shown in pipelines]
        names = [shown.report["name"] for shown in pipelines]
        return _html(pages.overview(list(zip(names, rows, strict=True)), self._visitor(request)))

    async def page(self, request: Request) -> Response:
        shown = self.shown(request)
        return _html(pages.pipeline(self.board.context(shown), shown.sections, self._visitor(request)))

    def _visitor(self, request: Request) -> dict[str, Any]:
        return {
            "may_act": self._may_act(request),
            "can_login": self.access.actions,
            "several": len(self.board.pipelines) > 1,
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
        secure = self.access.secure or request.headers.get("origin", "").startswith("https:")
        response.set_cookie(self.access.cookie, self.access.login(), httponly=True, samesite="strict", secure=secure)
        return response

    async def logout(self, request: Request) -> Response:
        self.access.logout(dict(request.scope["headers"]))
        response = RedirectResponse("/", 303)
        response.delete_cookie(self.access.cookie)
        return response

    async def static(self, request: Request) -> Response:
        file = request.path_params["file"]
        if file not in _FILES:
            raise HTTPException(404, "no such file")
        content = (resources.files("towpath.monitor") / "static" / file).read_bytes()
        return Response(content, media_type=_FILES[file], headers={"cache-control": "max-age=300"})

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """No figures: everybody may ask."""
        ready = all(map(self._is_ready, self.board.pipelines))
        return JSONResponse({"status": "ready" if ready else "not ready"}, 200 if ready else 503)

    def _is_ready(self, shown: Shown) -> bool:
        report = shown.report
        if report["state"] != "running" or time.time() - (report["at"] or 0) > _STALE:
            return False
        lag = report["lag"]["seconds"]
        return lag is not None and lag <= self.settings.ready_lag

    async def metrics(self, request: Request) -> Response:
        registry = prometheus.CollectorRegistry()
        registry.register(PipelineMetrics(lambda: self.board.reports))
        registry.register(_OwnMetrics(self))
        prometheus.ProcessCollector(registry=registry)
        prometheus.PlatformCollector(registry=registry)
        return Response(prometheus.generate_latest(registry), media_type=prometheus.CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        text = (resources.files("towpath.monitor") / "openapi.json").read_bytes()
        return Response(text, media_type="application/json")

    async def pipelines(self, request: Request) -> Response:
        return _json({"pipelines": [shown.short for shown in self.board.pipelines]})

    async def command(self, request: Request) -> Response:
        shown, name = self.shown(request), request.path_params["command"]
        await request.body()  # it may have none, and must not be long
        if name not in COMMANDS:
            raise HTTPException(404, f"no such command; there are {', '.join(COMMANDS)}")
        try:
            return _json(self.commands.start(shown, name).as_json(), 202)
        except Running as error:
            raise HTTPException(409, str(error)) from error

    async def events(self, request: Request) -> Response:
        name = self._followed(request)
        return self._stream(request.method, "api", name, list(self.board.first_short(name)))

    async def page_updates(self, request: Request) -> Response:
        name = self._followed(request)
        if name:
            return self._stream(request.method, "page", name, self.board.first(name))
        return self._stream(request.method, "overview", "", list(self.board.first_overview()))

    def _followed(self, request: Request) -> str:
        name = request.query_params.get("pipeline", "")
        if name and self.board.get(name) is None:
            raise HTTPException(404, "no pipeline of that name is shown here")
        return name

    def _stream(self, method: str, audience: str, name: str, first: list[Update]) -> Response:
        if method == "HEAD":  # it would wait for updates that it never gets
            return Response(media_type="text/event-stream")
        try:
            return _Stream(self.board.updates, self.board.updates.join(audience, name, first))
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


def _part(server: _Server, read: Any) -> Any:
    async def answer(request: Request) -> Response:
        return _json(read(server.shown(request)))

    return answer


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html")


def _json(value: Any, status: int = 200) -> Response:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    return Response(text, status, media_type="application/json")


async def _refused(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody gets it


async def _too_long(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "the request is too long"}, 413, {"connection": "close"})


@dataclass(slots=True, eq=False)
class _OwnMetrics(Collector):
    server: _Server

    def collect(self) -> Iterator[Metric]:
        (clients, dropped, requests), updates = OWN, self.server.board.updates
        yield GaugeMetricFamily(clients[0], clients[3], value=updates.clients)
        yield CounterMetricFamily(dropped[0], dropped[3], value=updates.dropped)
        counts = CounterMetricFamily(requests[0], requests[3], labels=("code",))
        for code, count in sorted(self.server.requests.items()):
            counts.add_metric((str(code),), count)
        yield counts


@contextmanager
def served(board: Board, access: Access, settings: Settings, launcher: Launcher) -> Iterator[str]:
    """Serve in a thread; yields the URL. Raises `TowpathError` when it cannot listen there."""
    listening = settings.listening
    host, port = _address(listening.listen)
    tls = _tls(listening)
    listener = bound(host, port)
    commands = Commands(board, launcher)
    server = _Server(board, access, settings, commands)
    config = uvicorn.Config(
        _counting(Guard(server.app(), access), server.requests),
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        http=Connection,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN,
        ssl_certfile=str(listening.certificate) if tls else None,
        ssl_keyfile=str(listening.key) if listening.key else None,
    )
    running, begun = uvicorn.Server(config), threading.Event()

    async def serve() -> None:
        board.loop = asyncio.get_running_loop()
        begun.set()
        stopping = asyncio.get_running_loop().create_task(_stop(running, board, commands))
        await running.serve(sockets=[listener])
        await stopping

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="server", daemon=True)
    thread.start()
    begun.wait()
    shown = f"[{host}]" if ":" in host else host
    try:
        yield f"{'https' if tls else 'http'}://{shown}:{listener.getsockname()[1]}/"
    finally:
        running.should_exit = True
        thread.join(_SHUTDOWN + 15)
        listener.close()


async def _stop(running: uvicorn.Server, board: Board, commands: Commands) -> None:
    """End the streams and the commands once the server is to end: it waits for the streams."""
    while not running.should_exit:
        await asyncio.sleep(0.1)
    board.updates.close()
    await commands.close()


def _counting(app: Any, counts: Counter[int]) -> Any:
    async def counted(scope: Any, receive: Any, send: Any) -> None:
        async def noting(message: Any) -> None:
            if message["type"] == "http.response.start":
                counts[message["status"]] += 1
            await send(message)

        await app(scope, receive, noting)

    return counted


def _tls(listening: Run) -> bool:
    if listening.certificate is None:
        return False
    try:
        # without `password`, OpenSSL would ask the terminal for one, once here and once more in the server's thread
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(listening.certificate, listening.key, password="")
    except OSError as error:  # an `SSLError` is one, too
        files = " and ".join(str(file) for file in (listening.certificate, listening.key) if file)
        no_pem = "no PEM files of a chain and its key without a passphrase"
        why = no_pem if isinstance(error, ssl.SSLError) else error.strerror
        raise TowpathError(f"cannot use the certificate: {why}", where=files) from error
    refuse_open_key(listening.key or listening.certificate)
    return True
