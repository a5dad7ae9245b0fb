"""Two replica sets, a Kafka broker and a Connect worker in containers, each of a given image.

All of them are on the host's network and listen on 127.0.0.1 only. So the members of a replica set, the broker and the
worker have the same addresses for each other and for the tests, which needs Linux. They have the settings of the
embedded stack.

They are plain containers of testcontainers. Its class for MongoDB creates a user, whom a replica set takes only with a
key file; its class for Kafka starts the scripts of Confluent's images; and both publish their ports on all addresses.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testcontainers.core.container import DockerContainer
from testcontainers.core.waiting_utils import WaitStrategy, WaitStrategyTarget

from tests.support.pipeline import Addresses
from towpath.stack import ready
from towpath.stack.plan import broker_properties, mongod_command
from towpath.stack.processes import HOST, Kind, Process, free_ports

_READY_S = 180


@dataclass(frozen=True, slots=True)
class Images:
    """What the containers are made from."""

    source: str
    destination: str
    kafka: str
    connect: str


class Answers(WaitStrategy):
    """Waits until a service is ready. Fails at once if its container has ended."""

    def __init__(self, name: str, check: ready.Check) -> None:
        super().__init__()
        self._name, self._check = name, check

    def wait_until_ready(self, container: WaitStrategyTarget) -> None:
        end = time.monotonic() + _READY_S
        while why := self._check():
            container.reload()
            if container.status == "exited" or time.monotonic() > end:
                raise TimeoutError(f"{self._name} is not ready, its container is {container.status}: {why}")
            time.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Containers:
    """A running stack."""

    images: Images
    addresses: Addresses
    worker: DockerContainer
    answers: Answers
    """Of the worker."""

    def kill_the_worker(self) -> None:
        """Kill it, and start it again."""
        container = self.worker.get_wrapped_container()
        container.kill()
        assert container.wait(timeout=30)["StatusCode"] == 128 + signal.SIGKILL
        container.start()
        self.answers.wait_until_ready(self.worker)

    def third(self) -> AbstractContextManager[str]:
        """A third replica set, of the destination's image: its URI."""
        return replica_set(self.images.destination, "third")

    def log(self) -> str:
        """The worker's last lines."""
        return self.worker.get_wrapped_container().logs(tail=100).decode(errors="replace")


@contextmanager
def running(images: Images, secrets: Path) -> Iterator[Containers]:
    """A stack for the time of a `with`. `secrets` is the folder that the worker may read."""
    with (
        replica_set(images.source, "source") as source,
        replica_set(images.destination, "destination") as destination,
        broker(images.kafka) as bootstrap,
    ):
        (port,) = free_ports(1)
        url, answers = f"http://{HOST}:{port}", Answers("connect", _check("connect", port))
        settings = {
            "CONNECT_BOOTSTRAP_SERVERS": bootstrap,
            "CONNECT_LISTENERS": url,
            "CONNECT_REST_ADVERTISED_HOST_NAME": HOST,
            "CONNECT_REST_ADVERTISED_PORT": str(port),
            "CONNECT_CONFIG_PROVIDERS_FILE_PARAM_ALLOWED_PATHS": str(secrets),
            "LOG_DIR": "/tmp/logs",  # the image's own folder belongs to the image's user
            "KAFKA_HEAP_OPTS": "-Xmx1g -Xmn512m",
            "KAFKA_JVM_PERFORMANCE_OPTS": "-server -XX:+UseSerialGC",
        }
        volumes = [(str(secrets), str(secrets), "ro")]
        owner = {"user": f"{os.getuid()}:{os.getgid()}", "cap_drop": ["ALL"]}  # the only one who can read the secrets
        with _container(images.connect, answers, env=settings, volumes=volumes, **owner) as worker:
            yield Containers(images, Addresses(source, destination, bootstrap, url, secrets), worker, answers)


@contextmanager
def replica_set(image: str, name: str) -> Iterator[str]:
    """A replica set of one node: its URI."""
    (port,) = free_ports(1)
    command = [*mongod_command(Path("mongod"), Path("/data/db"), port, 0.5), "--replSet", name, "--oplogSize", "1024"]
    with _container(image, Answers(name, ready.replica_set_check(name, [port])), command=command):
        yield f"mongodb://{HOST}:{port}/?replicaSet={name}"


@contextmanager
def broker(image: str) -> Iterator[str]:
    """A broker that is its own controller (KRaft): its address."""
    port, controller = free_ports(2)
    properties = broker_properties(Path("/var/lib/kafka/data"), port, [controller])
    settings = {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in properties.items()}
    settings["KAFKA_HEAP_OPTS"] = "-Xmx768m"
    with _container(image, Answers("kafka", _check("kafka", port)), env=settings):
        yield f"{HOST}:{port}"


def _container(image: str, answers: Answers, **options: Any) -> DockerContainer:
    """Removed with its volumes at the end of a `with`, also if it does not get ready."""
    return DockerContainer(image, network_mode="host", **options).waiting_for(answers)


def _check(kind: Kind, port: int) -> ready.Check:
    return ready.check_for(Process(kind, kind, (), port, Path(os.devnull)))
