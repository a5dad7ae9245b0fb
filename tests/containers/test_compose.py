"""The same pipeline on containers: with the images of docker-compose.yml, or those that the environment names."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]
import httpx
import pytest
import tenacity
from pymongo import MongoClient, UpdateOne
from testcontainers.compose import DockerCompose

from tests.support import oracle, rest
from tests.support.awaited import until
from tests.support.raw import Documents
from tests.support.servers import free_port

pytestmark = [
    pytest.mark.containers,
    pytest.mark.servers,
    pytest.mark.timeout(1200),
]  # the images may have to be pulled

ROOT = Path(__file__).parents[2]
CHECKED = {"source", "destination", "kafka", "connect"}
DOCUMENTS = 300


def compose_command() -> list[str]:
    """Compose of either generation: `docker compose`, or `docker-compose` 1.29. Empty where there is none."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and not subprocess.run([*command, "version"], capture_output=True).returncode:
            return command
    return []


class Compose(DockerCompose):
    """With the command that is there."""

    @cached_property
    def compose_command_property(self) -> list[str]:
        return compose_command()


@pytest.fixture(scope="module")
def engine() -> docker.DockerClient:
    try:
        client = docker.from_env()
        client.ping()
    except docker.errors.DockerException as error:
        pytest.skip(f"no Docker engine answers: {error}")
    if not compose_command():
        pytest.skip("a Docker engine answers, but there is neither `docker compose` nor `docker-compose`")
    return client


class Containers:
    """The containers of one compose project, by the name of their service."""

    def __init__(self, engine: docker.DockerClient, project: str) -> None:
        self._engine, self._project = engine, project

    def __getitem__(self, service: str) -> Any:
        return self._all()[service]

    def _all(self) -> dict[str, Any]:
        label = f"com.docker.compose.project={self._project}"
        found = self._engine.containers.list(all=True, filters={"label": label})
        return {container.labels["com.docker.compose.service"]: container for container in found}

    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(LookupError),
        wait=tenacity.wait_fixed(1),
        stop=tenacity.stop_after_delay(180),
        reraise=True,
    )
    def wait_until_healthy(self) -> None:
        """Every service answers its check; fails with the last lines of the one that ended."""
        found = self._all()
        for service, container in found.items():
            words = container.logs(tail=30).decode(errors="replace") if container.status == "exited" else ""
            assert container.status != "exited", f"{service} has ended:\n{words}"
        health = {service: container.health for service, container in found.items() if service in CHECKED}
        if health != dict.fromkeys(CHECKED, "healthy"):
            raise LookupError(f"not all services are healthy: {health}")

    def end(self, service: str) -> None:
        """End its process, as if by itself; then wait until the restart policy has brought it back."""
        before = self[service].attrs["State"]["StartedAt"]
        self[service].exec_run(["bash", "-c", "kill -TERM 1"])
        until(f"a restart of {service}", lambda: self[service].attrs["State"]["StartedAt"] != before)
        self.wait_until_healthy()

    def volumes(self) -> set[str]:
        """The names of all volumes that containers use, those without a name included."""
        mounts = (mount for container in self._all().values() for mount in container.attrs["Mounts"])
        return {mount["Name"] for mount in mounts if mount["Type"] == "volume"}


@dataclass(frozen=True, slots=True)
class Site:
    """The services of one compose project, and the URIs of both clusters for this machine."""

    project: str
    containers: Containers
    source: str
    destination: str
    page: str

    def compose(self, *arguments: str) -> str:
        """Run compose; returns all that it prints."""
        command = [*compose_command(), *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def fetched(self, url: str) -> str:
        """What a service answers inside."""
        program = f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=30).read().decode())"
        answer = self.containers["run"].exec_run(["/opt/towpath/bin/python", "-c", program])
        return str(answer.output.decode())

    def towpath(self, *arguments: str) -> str:
        """Run the tool in a container of its own; returns all that it prints."""
        return self.compose("run", "--rm", "-T", "towpath", *arguments)


@pytest.fixture(scope="module")
def site(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The compose file brought up with ports of its own; down with its volumes at the end, however that comes."""
    project = f"towpath-test-{secrets.token_hex(4)}"
    source, destination, kafka, connect, page = (str(free_port()) for _ in range(5))
    environment = {
        "COMPOSE_PROJECT_NAME": project,
        "TOWPATH_FILES": str(tmp_path_factory.mktemp("compose")),
        "TOWPATH_USER": f"{os.getuid()}:{os.getgid()}",
        "TOWPATH_SOURCE_PORT": source,
        "TOWPATH_DESTINATION_PORT": destination,
        "TOWPATH_KAFKA_PORT": kafka,
        "TOWPATH_CONNECT_PORT": connect,
        "TOWPATH_LISTEN_PORT": page,
        "TOWPATH_PIPELINE": "shop.toml",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with Compose(ROOT, wait=False):
            containers = Containers(engine, project)
            containers.wait_until_healthy()
            source, destination = (
                f"mongodb://127.0.0.1:{port}/?directConnection=true" for port in (source, destination)
            )
            site = Site(project, containers, source, destination, f"http://127.0.0.1:{page}")
            try:
                yield site
            finally:
                site.compose("--profile", "run", "rm", "--stop", "--force", "run")


def ready(page: str) -> bool:
    """Whether the page is served and its pipeline runs."""
    try:
        return rest.get(f"{page}/readyz").is_success and "shop" in rest.get(page, follow_redirects=True).text
    except httpx.TransportError:
        return False


def push(documents: Documents, value: float) -> None:
    """Append a reading to the array of every document."""
    documents.bulk_write([UpdateOne({"_id": n}, {"$push": {"readings": value}}) for n in range(DOCUMENTS)])


def test_both_sides_are_equal_also_after_services_were_killed_and_restarted(site: Site) -> None:
    """The commands are those of docs/how-to/containers.md."""
    with MongoClient[dict[str, Any]](site.source) as source:
        devices = source.get_database("shop").get_collection("devices")
        devices.insert_many([{"_id": n, "name": f"device {n}", "readings": [0.5]} for n in range(DOCUMENTS)])
        site.compose("--profile", "run", "up", "-d")
        until("a pipeline that runs", lambda: ready(site.page))
        assert "0 errors" in site.towpath("check", "shop.toml")
        assert "kafka_connect_worker_tasks" in site.fetched("http://connect:9404/metrics")
        push(devices, 1.5)
        devices.insert_one({"_id": "large", "readings": [], "filling": bytes(15_900_000)})
        _assert_same(site, DOCUMENTS + 1)

        push(devices, 2.5)
        site.containers["connect"].kill()
        push(devices, 3.5)
        assert site.containers["connect"].status == "exited"
        devices.delete_many({"_id": {"$gte": DOCUMENTS - 10}})
        devices.insert_many([{"_id": f"new {n}", "readings": []} for n in range(20)])
        devices.update_many({"_id": {"$type": "string"}}, {"$push": {"readings": 4.5}})
        site.containers["connect"].start()
        site.containers.wait_until_healthy()
        _assert_same(site, DOCUMENTS + 11)
        assert devices.find_one({"_id": 0}) == {"_id": 0, "name": "device 0", "readings": [0.5, 1.5, 2.5, 3.5]}

        for service in sorted(CHECKED):
            site.containers.end(service)
            devices.insert_one({"_id": service, "readings": []})
        site.containers.end("run")  # with status 0, as when the machine restarts
        until("the page of the service that has come back", lambda: ready(site.page))
        _assert_same(site, DOCUMENTS + 15)
    assert "same" in site.towpath("verify", "shop.toml")
    named = {f"{site.project}_{name}" for name in ("source", "destination", "kafka", "towpath")}
    assert site.containers.volumes() == named


def _assert_same(site: Site, at_least: int) -> None:
    site.towpath("wait", "shop.toml", "--timeout", "180")
    oracle.assert_same(site.source, site.destination, ["shop.devices"], at_least=at_least)
