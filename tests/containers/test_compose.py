"""The same pipeline on containers: with the images of docker-compose.yml, or those that the environment names."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]
import pytest
import tenacity
from pymongo import MongoClient, UpdateOne
from testcontainers.compose import DockerCompose

from tests.support.pipeline import Addresses, Pipeline
from tests.support.raw import Documents
from tests.support.servers import free_port
from towpath.stack import export_plugins

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


@pytest.fixture(scope="module")
def project() -> str:
    return f"towpath-test-{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def addresses(
    engine: docker.DockerClient, project: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Addresses]:
    """The compose file brought up with ports of its own; down with its volumes at the end, however that comes."""
    folder = tmp_path_factory.mktemp("compose")
    uris = folder / ".towpath" / "secrets"
    uris.mkdir(parents=True)
    source, destination, kafka, connect = (str(free_port()) for _ in range(4))
    export_plugins(folder / "plugins", print)
    environment = {
        "COMPOSE_PROJECT_NAME": project,
        "PWD": str(folder),
        "TOWPATH_PLUGINS": str(folder / "plugins"),
        "TOWPATH_SOURCE_PORT": source,
        "TOWPATH_DESTINATION_PORT": destination,
        "TOWPATH_KAFKA_PORT": kafka,
        "TOWPATH_CONNECT_PORT": connect,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.delenv("TOWPATH_SECRETS", raising=False)
        with Compose(ROOT, wait=False):
            Containers(engine, project).wait_until_healthy()
            yield Addresses(
                f"mongodb://127.0.0.1:{source}/?replicaSet=source",
                f"mongodb://127.0.0.1:{destination}/?replicaSet=destination",
                f"127.0.0.1:{kafka}",
                f"http://127.0.0.1:{connect}",
                uris,
            )


@pytest.fixture
def containers(engine: docker.DockerClient, project: str) -> Containers:
    return Containers(engine, project)


def push(documents: Documents, value: float) -> None:
    """Append a reading to the array of every document."""
    documents.bulk_write([UpdateOne({"_id": n}, {"$push": {"readings": value}}) for n in range(DOCUMENTS)])


def test_both_sides_are_equal_also_after_connect_was_killed(
    addresses: Addresses, containers: Containers, tmp_path: Path
) -> None:
    with (
        MongoClient[dict[str, Any]](addresses.source) as source,
        MongoClient[dict[str, Any]](addresses.destination) as destination,
    ):
        pipeline = Pipeline("yard", tmp_path / "yard.toml", addresses, source, destination)
        devices = pipeline.source("devices")
        devices.insert_many([{"_id": n, "name": f"device {n}", "readings": [0.5]} for n in range(DOCUMENTS)])
        pipeline.deploy()
        push(devices, 1.5)
        devices.insert_one({"_id": "large", "readings": [], "filling": bytes(15_900_000)})
        pipeline.wait()
        pipeline.assert_same("devices", at_least=DOCUMENTS + 1)

        push(devices, 2.5)
        containers["connect"].kill()
        push(devices, 3.5)
        assert containers["connect"].status == "exited"
        devices.delete_many({"_id": {"$gte": DOCUMENTS - 10}})
        devices.insert_many([{"_id": f"new {n}", "readings": []} for n in range(20)])
        devices.update_many({"_id": {"$type": "string"}}, {"$push": {"readings": 4.5}})
        containers["connect"].start()
        containers.wait_until_healthy()
        pipeline.wait()
        pipeline.assert_same("devices", at_least=DOCUMENTS + 11)
        assert devices.find_one({"_id": 0}) == {"_id": 0, "name": "device 0", "readings": [0.5, 1.5, 2.5, 3.5]}
