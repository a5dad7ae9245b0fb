"""Servers that a test needs in addition to the stack: mongods, and a Connect worker without plugins."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import tenacity
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.support import rest
from towpath.stack import parts


def free_port() -> int:
    """A port on 127.0.0.1 on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def mongod(directory: Path, *options: str, program: Path | None = None) -> Iterator[str]:
    """A separate mongod, with a small cache; yields its `host:port` once it answers."""
    port, place = free_port(), directory / "mongod"
    place.mkdir(parents=True)
    command = [
        str(program or parts.mongod(print)),
        "--dbpath",
        str(place),
        "--port",
        str(port),
        "--bind_ip",
        "127.0.0.1",
    ]
    command += ["--setParameter", "periodicNoopIntervalSecs=1"]  # as in the stack: `wait` would take ten times as long
    with (place / "log").open("w") as log:
        running = subprocess.Popen([*command, "--wiredTigerCacheSizeGB", "0.25", *options], stdout=log, stderr=log)
    try:
        with MongoClient[dict[str, Any]](f"mongodb://127.0.0.1:{port}/?directConnection=true") as client:
            client.admin.command("hello")
        yield f"127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait(30)


@contextmanager
def replica_set(directory: Path, *options: str, program: Path | None = None) -> Iterator[str]:
    """A replica set of one with options of mongod's; yields its `host:port`."""
    with mongod(directory, "--replSet", "guarded", *options, program=program) as address:
        with MongoClient[dict[str, Any]](f"mongodb://{address}/?directConnection=true") as client:
            client.admin.command("replSetInitiate", {"_id": "guarded", "members": [{"_id": 0, "host": address}]})
        yield address


@contextmanager
def mongod_with_users(directory: Path, users: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    """A replica set of one that knows these users and their roles, and `root`; every password is `secret`."""
    key = directory / "key"
    key.write_text("a2V5" * 8)
    key.chmod(0o600)
    with replica_set(directory, "--keyFile", str(key)) as address:
        with MongoClient[dict[str, Any]](f"mongodb://{address}/?directConnection=true") as client:
            _once_primary(client, {"createUser": "root", "pwd": "secret", "roles": ["root"]})
        with MongoClient[dict[str, Any]](f"mongodb://root:secret@{address}/?directConnection=true") as client:
            for name, roles in users.items():
                client.admin.command("createUser", name, pwd="secret", roles=roles)
        yield address


@tenacity.retry(retry=tenacity.retry_if_exception_type(PyMongoError), stop=tenacity.stop_after_delay(30), reraise=True)
def _once_primary(client: MongoClient[dict[str, Any]], command: dict[str, Any]) -> None:
    client.admin.command(command)


@contextmanager
def connect_without_plugins(directory: Path, bootstrap: str) -> Iterator[str]:
    """A standalone Connect worker that has nothing but what Kafka ships; yields its URL once it answers."""
    (directory / "plugins").mkdir()
    with standalone_connect(directory, bootstrap, directory / "plugins") as url:
        yield url


@contextmanager
def standalone_connect(
    directory: Path, bootstrap: str, plugins: Path, *options: str, heap_mb: int = 256, settings: str = ""
) -> Iterator[str]:
    """A standalone Connect worker with these plugins, options of its JVM and further settings; yields its URL."""
    settings += (
        f"plugin.path={plugins}\nplugin.discovery=service_load\noffset.storage.file.filename={directory / 'offsets'}\n"
    )
    with _worker("Standalone", directory, bootstrap, settings, *options, heap_mb=heap_mb) as url:
        yield url


@contextmanager
def distributed_connect(directory: Path, bootstrap: str, settings: str) -> Iterator[str]:
    """A distributed Connect worker with the settings that every one needs, and these; yields its URL."""
    group = f"others-{free_port()}"
    kinds = ("config", "offset", "status")
    settings += f"\ngroup.id={group}\n" + "".join(
        f"{kind}.storage.topic={group}-{kind}\n{kind}.storage.replication.factor=1\n" for kind in kinds
    )
    with _worker("Distributed", directory, bootstrap, settings, heap_mb=1024) as url:
        yield url


@contextmanager
def _worker(kind: str, directory: Path, bootstrap: str, settings: str, *options: str, heap_mb: int) -> Iterator[str]:
    found, url = parts.parts(print), f"http://127.0.0.1:{free_port()}"
    properties = directory / "worker.properties"
    properties.write_text(
        f"bootstrap.servers={bootstrap}\nlisteners={url}\n"
        "key.converter=org.apache.kafka.connect.converters.ByteArrayConverter\n"
        "value.converter=org.apache.kafka.connect.converters.ByteArrayConverter\n"
        f"{settings}"
    )
    main = f"org.apache.kafka.connect.cli.Connect{kind}"
    with (directory / "worker.log").open("w") as log:
        command = [str(found.java), f"-Xmx{heap_mb}m", *options, "-cp", f"{found.libs}/*", main, str(properties)]
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _once_answering(url)
        yield url
    finally:
        running.kill()
        running.wait(30)


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(httpx.HTTPError),  # 404 while it starts
    wait=tenacity.wait_fixed(0.2),
    stop=tenacity.stop_after_delay(60),
    reraise=True,
)
def _once_answering(url: str) -> None:
    rest.get(f"{url}/connector-plugins", timeout=10).raise_for_status()
