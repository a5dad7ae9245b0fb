"""Who may read and start commands, and what is refused: a server without any pipeline behind it, asked over HTTP."""

from __future__ import annotations

import gc
import http.client
import re
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from benchmarks.bench.following import following
from tests.monitor.test_clients import WHOLE, connect
from tests.support import api
from tests.support.awaited import promised, until
from tests.support.pipeline import TOWPATH
from tests.support.served import HOOKS, listen_at
from towpath.cli import launcher
from towpath.cli.monitor import _ADDRESS, chosen
from towpath.config.loading import read, write_pipeline_file
from towpath.config.pipeline import Run
from towpath.errors import TowpathError
from towpath.monitor import server
from towpath.monitor.access import access_of
from towpath.monitor.commands import COMMANDS, Commands
from towpath.monitor.dashboard import Dashboard, Shown
from towpath.monitor.server import LONGEST_REQUEST, served
from towpath.monitor.updates import MOST_CLIENTS
from towpath.monitor.watch import add
from towpath.run import report as reports
from towpath.run.report import Lag, Problem, Report
from towpath.session import opened

PASSWORD = "hunter2"
TOKEN = "0123456789abcdef-token"
MANY = httpx.Limits(max_connections=None)
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return file


def pipeline_file(folder: Path) -> Path:
    file = folder / "shop.toml"
    if not file.exists():
        write_pipeline_file(file, include=["shop.*"])
        file.write_text(
            re.sub("^uri = .*", f'uri = "mongodb://root:{PASSWORD}@db.example"', file.read_text(), flags=re.M)
        )
    return file


@contextmanager
def serving(tmp_path: Path, listening: Run, verify: ssl.SSLContext | bool = True) -> Iterator[httpx.Client]:
    """A client of a server that shows a pipeline `shop`, of which nothing is known."""
    dashboard = Dashboard()
    with opened(pipeline_file(tmp_path)) as session:
        add(dashboard, session, lambda: None)
        with (
            served(dashboard, listening, 60, launcher) as url,
            httpx.Client(base_url=url, verify=verify, timeout=10, limits=MANY, event_hooks=HOOKS) as client,
        ):
            yield client


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[httpx.Client]:
    with serving(tmp_path, listen_at("127.0.0.1:0")) as client:
        yield client


@pytest.fixture
def client(tmp_path: Path, token_file: Path) -> Iterator[httpx.Client]:
    """Of a server at the loopback, with a token for commands."""
    with serving(tmp_path, listen_at("127.0.0.1:0", token_file=token_file)) as client:
        yield client


@pytest.fixture
def guarded(tmp_path: Path, token_file: Path) -> Iterator[httpx.Client]:
    """Of a server at all addresses, which only shows something to who has the token."""
    with serving(tmp_path, listen_at("0.0.0.0:0", token_file=token_file)) as client:
        yield client


def test_the_description_names_each_address_and_command_of_the_api(tmp_path: Path) -> None:
    dashboard, listening = Dashboard(), listen_at("127.0.0.1:0")
    app = server._Server(dashboard, access_of(listening), Commands(dashboard, launcher), 60).app()
    pages = re.compile("/(|login|logout|updates|static|pipelines/.*|api/v1/openapi.json)")
    listed: list[Any] = app.routes
    routes = {route.path: route for route in listed if not pages.fullmatch(route.path)}
    assert {path: route.methods - {"HEAD"} for path, route in routes.items()} == {
        path: {method.upper() for method in methods} for path, methods in api.API["paths"].items()
    }
    (_, command) = api.API["paths"]["/api/v1/pipelines/{name}/{command}"]["post"]["parameters"]
    assert command["schema"]["enum"] == list(COMMANDS)


def test_a_pipeline_is_ready_that_runs_and_does_not_lag_and_was_polled_lately(tmp_path: Path) -> None:
    dashboard, listening = Dashboard(), listen_at("127.0.0.1:0")
    shown = server._Server(dashboard, access_of(listening), Commands(dashboard, launcher), 60)
    with opened(pipeline_file(tmp_path)) as session:
        nothing = reports.unknown(session)

    def ready(**other: Any) -> bool:
        good = {"state": "running", "at": time.time(), "lag": Lag(0, 60.0, 0.0)}
        return shown._is_ready(Shown(replace(nothing, **good | other), lambda: None))

    assert ready()
    assert [ready(lag=Lag(0, lag, lag)) for lag in (0.0, 60.1, None)] == [True, False, False]
    assert not ready(state="paused")
    assert not ready(at=None)
    assert not ready(at=time.time() - 31)


def test_at_the_loopback_everyone_reads_and_no_one_commands(open_client: httpx.Client) -> None:
    assert open_client.get("/").status_code == 307
    assert "unknown" in open_client.get("/pipelines/shop").text
    assert open_client.get("/api/v1/pipelines").json()["pipelines"][0]["state"] == "unknown"
    assert open_client.get("/healthz").status_code == 200
    assert open_client.get("/readyz").status_code == 503
    assert 'towpath_pipeline_state{pipeline="shop",state="unknown"} 1.0' in open_client.get("/metrics").text
    assert open_client.post("/api/v1/pipelines/shop/pause").status_code == 403
    assert open_client.get("/login").status_code == 404


def test_it_listens_where_the_file_says_and_options_come_first(tmp_path: Path, token_file: Path) -> None:
    file = pipeline_file(tmp_path)
    none = dict.fromkeys(("listen", "token_file", "certificate", "key"), None) | {"read_only": False, "hosts": ()}
    assert chosen(read(file).run, none) is None
    listen = f'listen = "127.0.0.1:1"\ntoken_file = "{token_file}"\nhosts = ["a"]'
    file.write_text(file.read_text().replace("[run]", f"[run]\n{listen}"))
    configured = read(file).run
    assert chosen(configured, none) == configured == listen_at("127.0.0.1:1", token_file=token_file, hosts=("a",))
    given = none | {"listen": "127.0.0.1:2", "hosts": ("b",)}
    assert chosen(configured, given) == listen_at("127.0.0.1:2", token_file=token_file, hosts=("b", "a"))
    assert access_of(listen_at(_ADDRESS)).open, "what `towpath monitor` has without --listen is the loopback"


def test_other_addresses_need_a_decision(token_file: Path) -> None:
    with pytest.raises(TowpathError, match="others can reach it; give --token-file FILE, or --read-only"):
        access_of(listen_at("0.0.0.0:0"))
    assert access_of(listen_at("[::1]:0")).open
    assert access_of(listen_at("0.0.0.0:0", read_only=True)).open
    assert not access_of(listen_at("0.0.0.0:0", read_only=True, token_file=token_file)).actions
    assert not access_of(listen_at("0.0.0.0:0", token_file=token_file)).open


def test_a_token_that_others_can_read_or_guess_is_refused(token_file: Path) -> None:
    token_file.chmod(0o644)
    with pytest.raises(TowpathError, match="can be read by others"):
        access_of(listen_at("127.0.0.1:0", token_file=token_file))
    token_file.chmod(0o600)
    token_file.write_text("short", encoding="utf-8")
    with pytest.raises(TowpathError, match="at least 16 ASCII characters"):
        access_of(listen_at("127.0.0.1:0", token_file=token_file))


def test_what_cannot_be_used_is_named(tmp_path: Path, token_file: Path) -> None:
    missing = tmp_path / "missing"
    for listening, words in (
        (listen_at("9300"), "'9300' is not an address; write host:port"),
        (listen_at("http://127.0.0.1:9300"), "'http://127.0.0.1:9300' is not an address; write host:port"),
        (listen_at("127.0.0.1:99999"), "is not an address; write host:port"),
        (listen_at("127.0.0.1:0", hosts=("*.example",)), "'*.example' is not the name of a host; give each name"),
        (listen_at("127.0.0.1:0", token_file=missing), "missing: cannot read the token: No such file or directory"),
        (listen_at("127.0.0.1:0", key=token_file), "a key without a certificate; also give --certificate FILE"),
        (listen_at("127.0.0.1:0", certificate=missing), "missing: cannot use the certificate: No such file or dir"),
        (listen_at("127.0.0.1:0", certificate=token_file), "cannot use the certificate: no PEM files of a chain"),
        (listen_at("nowhere.invalid:0", read_only=True), "cannot listen at nowhere.invalid:0: "),
    ):
        with pytest.raises(TowpathError, match=re.escape(words)), serving(tmp_path, listening):
            pass


def test_without_the_token_nothing_is_shown_at_another_address(guarded: httpx.Client) -> None:
    for path in ("/api/v1/pipelines", "/metrics", "/updates", "/api/v1/events", "/api/v1/openapi.json", "/nothing"):
        assert guarded.get(path).status_code == 401, path
    to_login = guarded.get("/pipelines/shop", headers={"Accept": "text/html"})
    assert (to_login.status_code, to_login.headers["location"]) == (303, "/login")
    assert guarded.get("/healthz").json() == {"status": "ok"}
    assert guarded.get("/api/v1/pipelines", headers=BEARER).status_code == 200
    assert guarded.get("/api/v1/pipelines", headers={"Authorization": f"Bearer {TOKEN}x"}).status_code == 401
    assert guarded.get("/api/v1/pipelines", headers={"Authorization": "Bearer"}).status_code == 401
    assert guarded.get("/api/v1/pipelines", headers={"Cookie": "towpath-0="}).status_code == 401


def test_a_browser_signs_in_and_out(guarded: httpx.Client) -> None:
    assert "That is not the token" in guarded.post("/login", data={"token": "wrong"}).text
    signed_in = guarded.post("/login", data={"token": TOKEN})
    assert signed_in.status_code == 303
    assert {"httponly", "samesite=strict"} <= {
        part.strip().lower() for part in signed_in.headers["set-cookie"].split(";")
    }
    assert TOKEN not in str(signed_in.headers)
    assert "data-command" in guarded.get("/pipelines/shop").text
    for _ in ("signs out", "was signed out already"):
        signed_out = guarded.post("/logout")
        assert (signed_out.status_code, signed_out.headers["location"]) == (303, "/")
    assert guarded.post("/logout", headers={"Origin": "http://evil.example"}).status_code == 403
    assert guarded.get("/api/v1/pipelines").status_code == 401


def test_cookies_of_other_servers_of_the_host_do_no_harm(guarded: httpx.Client, token_file: Path) -> None:
    own = guarded.post("/login", data={"token": TOKEN}).headers["set-cookie"].partition(";")[0]
    guarded.cookies.clear()
    for other in ('state={"open": true, "at": [1]}', "a b=c", "[x]=y", "towpath=1", "plain", "=", 'open="'):
        for cookies in (f"{other}; {own}", f"{own}; {other}"):
            assert guarded.get("/api/v1/pipelines", headers={"Cookie": cookies}).status_code == 200, cookies
    names = {access_of(listen_at(f"127.0.0.1:{port}", token_file=token_file)).cookie for port in (9300, 9301)}
    assert len(names) == 2


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9300", "127.0.0.1.evil.example", "", "localhost.evil:80", "a_b.evil", "[evil]"],
)
def test_a_foreign_host_name_is_refused(client: httpx.Client, host: str) -> None:
    assert client.get("/api/v1/pipelines", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:9300", "[::1]:9300", "10.0.0.7", socket.gethostname()]
)
def test_own_names_and_addresses_are_served(client: httpx.Client, host: str) -> None:
    assert client.get("/api/v1/pipelines", headers={"Host": host}).status_code == 200


def test_a_further_name_is_served_that_was_given(tmp_path: Path) -> None:
    with serving(tmp_path, listen_at("127.0.0.1:0", hosts=("Towpath.Example",))) as client:
        assert client.get("/healthz", headers={"Host": "towpath.example:80"}).status_code == 200


def test_commands_need_the_token_and_pages_of_other_sites_cannot_send_them(client: httpx.Client) -> None:
    path = "/api/v1/pipelines/shop/nothing"
    assert client.post(path).status_code == 401
    assert client.post(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.post(path, headers=BEARER).status_code == 404
    assert client.post("/api/v1/pipelines/other/pause", headers=BEARER).status_code == 404
    client.post("/login", data={"token": TOKEN})
    assert client.post(path).status_code == 404
    assert client.post(path, headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.post(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.post("/login", data={"token": TOKEN}, headers={"Origin": "http://evil.example"}).status_code == 403
    basic = {"Origin": "http://evil.example", "Authorization": "Basic dG93cGF0aDo="}  # browsers add that automatically
    assert client.post(path, headers=basic).status_code == 403
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert client.request(method, path, headers=BEARER).status_code == 405


def test_a_browser_signs_in_through_a_proxy_that_speaks_tls(tmp_path: Path, token_file: Path) -> None:
    name = "towpath.example"
    sent = {"Host": name, "Origin": f"https://{name}", "Sec-Fetch-Site": "same-origin"}
    with serving(tmp_path, listen_at("127.0.0.1:0", token_file=token_file, hosts=(name,))) as client:
        signed_in = client.post("/login", data={"token": TOKEN}, headers=sent)
        assert (signed_in.status_code, "Secure" in signed_in.headers["set-cookie"]) == (303, True)
        cookie = {"Cookie": signed_in.headers["set-cookie"].partition(";")[0]}
        assert client.post("/api/v1/pipelines/shop/nothing", headers=sent | cookie).status_code == 404
        elsewhere = sent | cookie | {"Origin": "https://127.0.0.1:9300"}
        assert client.post("/api/v1/pipelines/shop/nothing", headers=elsewhere).status_code == 403


def test_oversized_requests_are_refused(client: httpx.Client) -> None:
    path, long = "/api/v1/pipelines/shop/pause", b"x" * (LONGEST_REQUEST + 1)
    assert client.post(path, headers=BEARER, content=long).status_code == 413
    assert client.post(path, headers=BEARER, content=iter([long])).status_code == 413  # chunked: it names no length
    assert client.post("/login", content=iter([long])).status_code == 413
    headers = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {long.decode()}"
    with connect(str(client.base_url), "", headers) as connection:
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 400 ")
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static//etc/passwd"),
        *("/static/....//server.py", "/static/style.css%00.js", "/pipelines/../../etc/passwd", "//etc/passwd"),
        *("/pipelines/shop%2f..%2fx", "/api/v1/pipelines/shop/../../../healthz", "/static/", "/pipelines/"),
        *("/login/../metrics", "/healthz/../metrics", "/static/../metrics", "http://127.0.0.1/metrics/../static"),
    ],
)
def test_tricks_with_paths_lead_nowhere(guarded: httpx.Client, path: str) -> None:
    parts = urlsplit(str(guarded.base_url))
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    connection.putrequest("GET", path, skip_host=True)  # as it is: httpx would shorten it
    connection.putheader("Host", "localhost")
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status in (401, 404)
    assert b"import" not in answer.read()
    connection.close()


def test_answers_tell_browsers_what_they_may_do(client: httpx.Client) -> None:
    headers = client.get("/pipelines/shop").headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
    assert "server" not in headers
    assert client.get("/static/page.js").headers["cache-control"] == "max-age=300"
    assert client.get("/healthz", headers={"Host": "evil.example"}).headers["x-frame-options"] == "DENY"


def tls_files(folder: Path, authority: trustme.CA) -> tuple[Path, Path]:
    """Certificate and key of 127.0.0.1."""
    issued, certificate, key = authority.issue_cert("127.0.0.1"), folder / "page.pem", folder / "page.key"
    certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    key.touch(0o600)
    key.write_bytes(issued.private_key_pem.bytes())
    return certificate, key


def test_a_key_that_others_can_read_or_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    certificate, key = tls_files(tmp_path, trustme.CA())
    listening = listen_at("127.0.0.1:0", certificate=certificate, key=key)
    key.chmod(0o604)
    with pytest.raises(TowpathError, match="can be read by all users"), serving(tmp_path, listening):
        pass
    key.chmod(0o640)
    with serving(tmp_path, listening, verify=False):
        pass
    sealed = load_pem_private_key(key.read_bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    key.write_bytes(sealed)
    with pytest.raises(TowpathError, match="without a passphrase"), serving(tmp_path, listening):
        pass


def test_it_speaks_tls(tmp_path: Path, token_file: Path) -> None:
    authority = trustme.CA()
    certificate, key = tls_files(tmp_path, authority)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with serving(
        tmp_path, listen_at("127.0.0.1:0", token_file=token_file, certificate=certificate, key=key), context
    ) as client:
        assert client.get("/healthz").status_code == 200
        assert client.post("/login", content=b"x" * 1_000_000).status_code == 413
        in_the_clear = {"Origin": str(client.base_url).rstrip("/").replace("https", "http")}
        assert client.post("/login", data={"token": TOKEN}, headers=in_the_clear).status_code == 403
        assert "Secure" in client.post("/login", data={"token": TOKEN}).headers["set-cookie"]


def test_an_address_that_is_taken_is_named(tmp_path: Path, open_client: httpx.Client) -> None:
    port = urlsplit(str(open_client.base_url)).port
    with pytest.raises(TowpathError, match="cannot listen at"), serving(tmp_path, listen_at(f"127.0.0.1:{port}")):
        pass


def test_options_that_listen_for_nothing_are_a_mistake(tmp_path: Path, token_file: Path) -> None:
    file = write_pipeline_file(tmp_path / "shop.toml", include=["shop.*"])
    for option, value in (("--token-file", str(token_file)), ("--host", "towpath.example")):
        command = [TOWPATH, "run", file, option, value]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, f"{option} belongs to --listen" in done.stderr) == (2, True)


def test_the_server_ends_with_its_threads(tmp_path: Path) -> None:
    with serving(tmp_path, listen_at("127.0.0.1:0")) as client, client.stream("GET", "/api/v1/events") as stream:
        assert next(stream.iter_lines())
        assert "server" in {thread.name for thread in threading.enumerate()}
    assert "server" not in {thread.name for thread in threading.enumerate()}


def test_too_many_that_follow_at_once_are_refused(open_client: httpx.Client) -> None:
    url = str(open_client.base_url)
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(url, "/updates")) for _ in range(MOST_CLIENTS + 20)]
        answers = [connection.recv(1 << 16).split(b"\r\n", 1)[0] for connection in connections]
        assert Counter(answers) == {b"HTTP/1.1 200 OK": MOST_CLIENTS, b"HTTP/1.1 503 Service Unavailable": 20}
        assert open_client.get("/api/v1/events").status_code == 503
        refused = open_client.get("/updates")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert refused.json() == {"error": "200 clients follow already; close a page, or try again later"}
        assert open_client.get("/api/v1/pipelines").status_code == 200
    until("place", lambda: open_client.head("/healthz") and "towpath_clients 0.0" in open_client.get("/metrics").text)


def test_too_many_connections_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 20)
    with serving(tmp_path, listen_at("127.0.0.1:0")) as client, ExitStack() as stack:
        silent = [stack.enter_context(connect(str(client.base_url), "", "")) for _ in range(20)]
        until("refusal", lambda: client.get("/healthz").status_code == 503)
        for connection in silent:
            connection.close()
        until("place", lambda: client.get("/healthz").status_code == 200)


@pytest.mark.serial
def test_who_reads_nothing_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_UNREAD_SECONDS", 1)
    with serving(tmp_path, listen_at("127.0.0.1:0")) as client, ExitStack() as stack:
        url = str(client.base_url)
        unread = stack.enter_context(connect(url, "/static/uPlot.min.js", WHOLE * 50, receive=2304))
        listening = urlsplit(url).port
        promised("end of who reads nothing", lambda: not established(listening, unread.getsockname()[1]), 20)
        assert client.get("/healthz").status_code == 200
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")] == []


def established(listening: int | None, port: int) -> bool:
    """Whether the server has the connection of a client's port."""
    ends = [(c.laddr.port, c.raddr.port) for c in psutil.Process().net_connections("tcp") if c.raddr]
    return (listening, port) in ends


def told(report: Report, words: str) -> Report:
    return replace(report, errors=(Problem(words),))


def test_a_slow_client_loses_updates_and_others_get_all(tmp_path: Path) -> None:
    """It reads nothing during 300 polls of 5 KB, far more than the kernel keeps for it, and then all."""
    dashboard, polls, path = Dashboard(), range(300), "/updates?pipeline=shop"
    with opened(pipeline_file(tmp_path)) as session:
        report = add(dashboard, session, lambda: None).last
        listening = listen_at("127.0.0.1:0")
        with (
            served(dashboard, listening, 60, launcher) as url,
            connect(url, path, receive=2304) as slow,
            connect(url, path) as lively,
        ):
            until("clients", lambda: dashboard.updates.clients == 2)
            slow.settimeout(10)
            lively.settimeout(10)
            lines = lively.makefile("rb")
            for number in polls:
                dashboard.publish(told(report, f"poll {number} {'x' * 5000}"))
                while f"poll {number} ".encode() not in lines.readline():
                    pass
            lost, seen = dashboard.updates.dropped, list[int]()
            for line in slow.makefile("rb"):
                seen += map(int, re.findall(rb"poll (\d+) ", line))
                if seen[-1:] == [polls[-1]]:
                    break
    assert lost > 100
    assert len(seen) < 200
    assert seen == sorted(set(seen))


@pytest.mark.nightly
def test_polls_and_clients_leave_nothing_behind(tmp_path: Path) -> None:
    """An hour of polls in seconds, some clients that stay and many that come and go: what stays is the history."""
    dashboard = Dashboard()
    with opened(pipeline_file(tmp_path)) as session:
        report = add(dashboard, session, lambda: None).last
        listening = listen_at("127.0.0.1:0")
        with (
            served(dashboard, listening, 60, launcher) as url,
            following(url, "/updates", 20),
        ):

            def poll(times: int) -> int:
                for number in range(times):
                    dashboard.publish(told(report, f"{number} {'x' * 2000}"))
                    if number % 10 == 0:
                        with connect(url, "/api/v1/events") as connection:
                            connection.recv(1)
                        until("end of the client", lambda: dashboard.updates.clients == 20, every=0.001)
                gc.collect()
                return tracemalloc.get_traced_memory()[0]

            tracemalloc.start()
            try:
                poll(300)
                before = poll(300)
                grown = poll(1200) - before
            finally:
                tracemalloc.stop()
    assert grown < 1200 * 400, f"{grown:,} bytes"  # of each poll, a sample
