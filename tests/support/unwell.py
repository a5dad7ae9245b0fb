"""An HTTP proxy before a Connect worker that at some requests answers as a sick worker, or something else, would."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

JSON, HTML = "application/json", "text/html"
#: What a fault answers: status, kind of content, body.
ANSWERS: dict[str, tuple[int, str, bytes]] = {
    "rebalance": (409, JSON, b'{"error_code": 409, "message": "Cannot complete request because of a rebalance"}'),
    "error": (500, JSON, b'{"error_code": 500, "message": "Request timed out"}'),
    "unwritten": (
        500,
        JSON,
        b'{"error_code": 500, "message": "Failed to write to config topic; this may be due to a transient error and the'
        b' request can be safely retried"}',
    ),
    "error without words": (500, JSON, b""),
    "forbidden": (403, HTML, b"<html>403 Forbidden</html>"),
    "gateway": (503, HTML, b"<html>\r\n<h1>503 Service\x1b[31m Unavailable</h1>\r\n</html>"),
    "redirect": (302, HTML, b""),
    "no such thing": (404, HTML, b"<html>not found</html>"),
    "no such path": (404, JSON, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
    "garbage": (200, JSON, b"\x00\xff{]"),
    "deep": (200, JSON, b"[" * 100_000),
    "page": (200, HTML, b"<html>Welcome to nginx!</html>"),
    "list": (200, JSON, b"[1, 2]"),
    "text": (200, JSON, b'"RUNNING"'),
    "number": (200, JSON, b"5"),
    "null": (200, JSON, b"null"),
    "object": (200, JSON, b'{"connector": [], "tasks": {}, "offsets": "x", "configs": 5, "version": null, "name": 1}'),
}
#: These break off what they answer, or never end it.
BROKEN = ("half", "nothing", "not HTTP", "bad gzip", "slow", "dripping")
FAULTS = (*ANSWERS, *BROKEN)

#: Number of the request (from 0), method and path → the fault, or None to pass it on.
Plan = Callable[[int, str, str], str | None]


@dataclass(slots=True)
class Unwell:
    """A proxy at `url`. `before` lets a faulty request not reach the worker; else only its answer is lost."""

    upstream: str | None
    plan: Plan
    before: bool = True
    url: str = ""
    asked: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """The faults that were shown, each with its request."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)

    def take(self, method: str, path: str) -> str | None:
        with self.lock:
            fault = self.plan(len(self.asked), method, path)
            self.asked.append(f"{method} {path}")
            if fault is not None:
                self.shown.append(f"{fault} at {method} {path}")
            return fault


@contextmanager
def unwell(upstream: str | None, plan: Plan, *, before: bool = True) -> Iterator[Unwell]:
    """Start the proxy; without `upstream` every request has to have a fault."""
    state = Unwell(upstream, plan, before)

    class Handler(_Handler):
        proxy = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield state
    finally:
        state.over.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    proxy: Unwell
    protocol_version = "HTTP/1.1"

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.take(self.command, self.path)
        if fault is None or not self.proxy.before:
            answer = self._passed_on(body)
            if fault is None:
                self._answer(answer.status_code, answer.headers.get("Content-Type", JSON), answer.content)
                return
        if fault in ANSWERS:
            self._answer(*ANSWERS[fault])
        else:
            self._break(str(fault))

    do_GET = do_PUT = do_POST = do_DELETE = _any  # as http.server names them

    def _passed_on(self, body: bytes) -> httpx.Response:
        kind = {"Content-Type": JSON} if body else {}
        return httpx.request(
            self.command, f"{self.proxy.upstream}{self.path}", content=body, headers=kind, timeout=90, verify=False
        )

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _break(self, fault: str) -> None:
        self.close_connection = True
        match fault:
            case "half":
                self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"name": "x", "connector": {"sta')
            case "not HTTP":
                self.wfile.write(b"-ERR unknown command 'GET'\r\n")
            case "bad gzip":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde")
            case "slow":
                self.proxy.over.wait(30)
            case "dripping":
                self._drip()

    def _drip(self) -> None:
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            end = time.monotonic() + 30
            while time.monotonic() < end and not self.proxy.over.wait(0.05):
                self.wfile.write(b" ")
                self.wfile.flush()
        except OSError:
            return  # nothing listens any more

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""
