"""The pipeline of docker-compose.yml, by the commands of docs/how-to/containers.md, on images built from this checkout.

COMPOSE_FILE may add tests/containers/images/stand-ins.yaml, where no image can be pulled: `scripts/test --containers`.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import docker  # type: ignore[import-untyped]
import httpx
import pytest
import tenacity
from pymongo import MongoClient, UpdateOne
from testcontainers.compose import DockerCompose

from tests.containers import built
from tests.containers.conftest import missing
from tests.support import oracle, rest
from tests.support.awaited import until
from tests.support.raw import Documents
from tests.support.servers import free_port

pytestmark = [
    pytest.mark.containers,
    pytest.mark.servers,
    pytest.mark.timeout(1200),
]  # the images may have to be pulled and built

PAGE = (built.ROOT / "docs" / "how-to" / "containers.md").read_text()
CHECKED = {"source", "destination", "kafka", "connect"}
DOCUMENTS = 1000


def compose_command() -> str:
    """Compose of either generation: `docker compose`, or `docker-compose` 1.29. Empty where there is none."""
    for command in ("docker compose", "docker-compose"):
        words = command.split()
        if shutil.which(words[0]) and not subprocess.run([*words, "version"], capture_output=True).returncode:
            return command
    return ""


def on_the_page(block: int) -> list[str]:
    """The commands of a `console` block, for the compose that is there: the older lacks --wait and wants a terminal."""
    text = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[block]
    commands: list[str] = re.findall(r"^\$ (.+)$", text, re.MULTILINE)
    if (found := compose_command()) == "docker-compose":
        commands = [re.sub(r"(compose (?:exec|run)) ", r"\1 -T ", line.replace(" --wait", "")) for line in commands]
    return [line.replace("docker compose", found) for line in commands]


def shell(*commands: str) -> str:
    """Run commands in one shell, until one fails; returns all that they print."""
    script = "\n".join(["shopt -s expand_aliases", *commands])
    words = ["bash", "-euc", script]
    done = subprocess.run(words, cwd=built.ROOT, text=True, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 0, f"{script}\nended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


class Compose(DockerCompose):
    """With the command that is there."""

    @cached_property
    def compose_command_property(self) -> list[str]:
        return compose_command().split()


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
        """End its process, as if it failed; then wait until the restart policy has brought it back."""
        before = self[service].attrs["State"]["StartedAt"]
        self[service].exec_run(["bash", "-c", "kill -TERM 1"])
        until(f"a restart of {service}", lambda: self[service].attrs["State"]["StartedAt"] != before)
        self.wait_until_healthy()

    def services(self) -> set[str]:
        return set(self._all())

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

    def fetched(self, url: str) -> str:
        """What a service answers inside."""
        program = f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=30).read().decode())"
        answer = self.containers["run"].exec_run(["/opt/towpath/bin/python", "-c", program])
        return str(answer.output.decode())

    def towpath(self, arguments: str) -> str:
        """Run the tool in a separate container; returns all that it prints."""
        return shell(f"{compose_command()} run --rm -T towpath {arguments}")


@pytest.fixture(scope="module")
def site(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The compose file brought up with its own ports; down with its volumes at the end, however that comes."""
    if not compose_command():
        missing("a Docker engine answers, but there is neither `docker compose` nor `docker-compose`")
    project = f"towpath-test-{secrets.token_hex(4)}"
    source, destination, kafka, page = (str(free_port()) for _ in range(4))
    environment = {
        "COMPOSE_PROJECT_NAME": project,
        "TOWPATH_FILES": str(tmp_path_factory.mktemp("compose")),
        "TOWPATH_USER": f"{os.getuid()}:{os.getgid()}",
        "TOWPATH_SOURCE_PORT": source,
        "TOWPATH_DESTINATION_PORT": destination,
        "TOWPATH_KAFKA_PORT": kafka,
        "TOWPATH_LISTEN_PORT": page,
        "TOWPATH_PIPELINE": "shop.toml",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with Compose(built.ROOT, build=True, wait=compose_command() == "docker compose"):
            containers = Containers(engine, project)
            containers.wait_until_healthy()
            source, destination = (
                f"mongodb://127.0.0.1:{port}/?directConnection=true" for port in (source, destination)
            )
            try:
                yield Site(project, containers, source, destination, f"http://127.0.0.1:{page}")
            finally:
                shell(f"{compose_command()} --profile monitor down --volumes")


def ready(page: str) -> bool:
    """Whether the page is served and its pipeline runs."""
    try:
        return rest.get(f"{page}/readyz").is_success and "shop" in rest.get(page, follow_redirects=True).text
    except httpx.TransportError:
        return False


def push(orders: Documents, line: float) -> None:
    """Append to the array of every document."""
    orders.bulk_write([UpdateOne({"_id": n}, {"$push": {"lines": line}}) for n in range(DOCUMENTS)])


def test_both_sides_are_equal_also_after_services_were_killed_and_restarted(site: Site) -> None:
    with MongoClient[dict[str, Any]](site.source) as source:
        up, insert, run = on_the_page(0)
        assert "up -d --build" in up  # as Compose has done
        alias, wait, verify, down = on_the_page(1)
        shell(insert, run)
        until("a pipeline that runs", lambda: ready(site.page))
        assert "same" in shell(alias, wait, verify)
        assert "0 errors" in site.towpath("check shop.toml")
        assert "kafka_connect_worker_tasks" in site.fetched("http://connect:9404/metrics")
        worker = site.containers["connect"].attrs
        assert not worker["HostConfig"]["PortBindings"] and not worker["HostConfig"]["CapAdd"]
        assert "CapEff:\t0000000000000000" in shell_in(site.containers["connect"], "grep CapEff /proc/1/status")
        orders = source.get_database("shop").get_collection("orders")
        push(orders, 1.5)
        orders.insert_one({"_id": "large", "lines": [], "filling": bytes(15_900_000)})
        _assert_same(site, DOCUMENTS + 1)

        push(orders, 2.5)
        site.containers["connect"].kill()
        push(orders, 3.5)
        assert site.containers["connect"].status == "exited"
        orders.delete_many({"_id": {"$gte": DOCUMENTS - 10}})
        orders.insert_many([{"_id": f"new {n}", "lines": []} for n in range(20)])
        orders.update_many({"_id": {"$type": "string"}}, {"$push": {"lines": 4.5}})
        site.containers["connect"].start()
        site.containers.wait_until_healthy()
        _assert_same(site, DOCUMENTS + 11)
        assert orders.find_one({"_id": 0}) == {"_id": 0, "lines": [1, 1.5, 2.5, 3.5]}

        for service in sorted(CHECKED):
            site.containers.end(service)
            orders.insert_one({"_id": service, "lines": []})
        site.containers.end("run")  # with status 0, as when the machine restarts
        until("the page of the service that has come back", lambda: ready(site.page))
        _assert_same(site, DOCUMENTS + 15)
    assert "same" in site.towpath("verify shop.toml")
    named = {f"{site.project}_{name}" for name in ("source", "destination", "kafka", "towpath")}
    assert site.containers.volumes() == named
    shell(down)
    assert site.containers.services() == set()


def shell_in(container: Any, command: str) -> str:
    return str(container.exec_run(["bash", "-c", command]).output.decode())


def _assert_same(site: Site, at_least: int) -> None:
    site.towpath("wait shop.toml --timeout 180")
    oracle.assert_same(site.source, site.destination, ["shop.orders"], at_least=at_least)


def test_the_image_for_strimzi_has_the_plugin_where_its_workers_look(engine: docker.DockerClient) -> None:
    # Kafka's image has Kafka at the same place as Strimzi's
    name = built.build("strimzi", "towpath-test/strimzi", STRIMZI_IMAGE=built.bases()["KAFKA_IMAGE"])
    listed = shell(f"docker run --rm {name} ls -R /opt/kafka/plugins/")
    for jar in ("towpath-transforms", "debezium-connector-mongodb", "mongo-kafka-connect"):
        assert re.search(rf"^{jar}-\d.*jar$", listed, re.MULTILINE), listed
