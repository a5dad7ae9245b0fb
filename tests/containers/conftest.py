"""The images that tests of containers run on, and a stack of them."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import docker  # type: ignore[import-untyped]
import pytest

from tests.containers import built, stack
from tests.support.clock import Clock
from tests.support.pipeline import Addresses

# testcontainers' own container, which removes those that a killed run leaves, is one more image to be pulled.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")


def pytest_addoption(parser: pytest.Parser) -> None:
    options = parser.getgroup("containers", "the images on which the core runs")
    options.addoption("--mongo", metavar="IMAGE", help="of both replica sets (default: that of docker-compose.yml)")
    options.addoption("--destination-mongo", metavar="IMAGE", help="of the destination, if it has another one")
    options.addoption("--kafka", metavar="IMAGE", help="of the broker, and below the worker's (default: Dockerfile's)")
    options.addoption(
        "--connect", metavar="IMAGE", help="of the worker, with the plugin (default: Dockerfile is built)"
    )


def missing(why: str) -> None:
    """What a test needs is not there: `scripts/test --containers` fails, others skip it."""
    (pytest.fail if "TOWPATH_TEST_CONTAINERS" in os.environ else pytest.skip)(why)


@pytest.fixture(scope="session")
def engine() -> docker.DockerClient:
    try:
        client = docker.from_env()
        client.ping()
    except docker.errors.DockerException as error:
        missing(f"no Docker engine answers: {error}")
    return client


@pytest.fixture(scope="session")
def images(engine: docker.DockerClient, pytestconfig: pytest.Config) -> stack.Images:
    """Those of the options, or their defaults; the worker's is built if need be."""
    mongo, destination, kafka, connect = (
        pytestconfig.getoption(name, default=None) for name in ("mongo", "destination_mongo", "kafka", "connect")
    )
    source, kafka = mongo or built.mongo(), kafka or built.bases()["KAFKA_IMAGE"]
    connect = connect or built.build("connect", "towpath-test/core", KAFKA_IMAGE=kafka)
    return stack.Images(source, destination or source, kafka, connect)


@pytest.fixture(scope="session")
def containers(images: stack.Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[stack.Containers]:
    """The core's stack, whose source's time advances as that of one in use."""
    with stack.running(images, tmp_path_factory.mktemp("secrets")) as found, Clock(found.addresses.source):
        yield found


@pytest.fixture(scope="session")
def addresses(containers: stack.Containers) -> Addresses:
    """Pipelines of these tests are on containers."""
    return containers.addresses


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the worker's last lines with a failure."""
    report = yield
    found = getattr(item, "funcargs", {}).get("containers")
    if report.failed and found is not None:
        report.sections.append(("the worker's last lines", found.log()))
    return report
