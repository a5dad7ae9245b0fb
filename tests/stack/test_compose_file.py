"""docker-compose.yml runs the same versions with the same settings as the embedded stack."""

from __future__ import annotations

import re
from pathlib import Path

from towpath.stack.plan import broker_properties, worker_properties
from towpath.stack.tools import version

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
WORKER = (ROOT / "connectors" / "worker.properties").read_text()

#: Where things are, which differs; and the worker's group, which only has to be one.
BROKER_PLACES = {"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"}
WORKER_PLACES = {
    "bootstrap.servers",
    "listeners",
    "rest.advertised.host.name",
    "rest.advertised.port",
    "plugin.path",
    "config.providers.file.param.allowed.paths",
    "group.id",
}


def worker_settings() -> dict[str, str]:
    """The file's settings and those that the compose file adds with `echo "key=value"`."""
    lines = [*WORKER.splitlines(), *re.findall(r'echo "([\w.]+=.*)"', COMPOSE)]
    settings = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {key: value for key, _, value in settings}


JVM = ("HEAP_OPTS", "JVM_PERFORMANCE_OPTS")


def broker_settings() -> dict[str, str]:
    """What the image makes of KAFKA_*: the name in small letters, dots for underscores (none has a dash)."""
    found = re.findall(r'^ +KAFKA_(\w+): "?(.*?)"?$', COMPOSE, re.MULTILINE)
    return {key.lower().replace("_", "."): value for key, value in found if key not in JVM}


def without(settings: dict[str, str], keys: set[str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if key not in keys}


def test_the_default_images_have_the_versions_of_the_embedded_stack() -> None:
    images = dict(re.findall(r"image: \$\{(\w+):-(.+)}", COMPOSE))
    release = ".".join(version("mongod.version").split(".")[:2])
    assert images == {
        "TOWPATH_MONGO_IMAGE": f"mongo:{release}",
        "TOWPATH_KAFKA_IMAGE": f"apache/kafka:{version('kafka.version')}",
    }


def test_every_image_can_be_replaced_from_the_environment() -> None:
    assert len(re.findall(r"^ +image: ", COMPOSE, re.MULTILINE)) == len(re.findall(r"image: \$\{TOWPATH_", COMPOSE)) > 2


def test_ports_are_published_on_127_0_0_1_only_and_are_the_same_inside() -> None:
    published = re.findall(r"^ +- 127\.0\.0\.1:(\$\{TOWPATH_\w+_PORT:-\d+}):(.+)$", COMPOSE, re.MULTILINE)
    listed = re.search(r"ports:\n((?: +- .+\n)+)", COMPOSE)
    assert listed is not None
    assert len(published) == len(listed[1].splitlines()) == 4
    assert all(outside == inside for outside, inside in published)
    assert COMPOSE.count("ports:") == 1


def test_the_broker_has_the_settings_of_the_embedded_one() -> None:
    wanted = broker_properties(Path("/data"), 9092, [9093])
    assert wanted.keys() == broker_settings().keys()
    assert without(broker_settings(), BROKER_PLACES) == without(wanted, BROKER_PLACES)


def test_the_worker_has_the_settings_of_the_embedded_ones() -> None:
    wanted = worker_properties(Path("/stack"), "127.0.0.1:9092", 8083, Path("/plugins"))
    assert wanted.keys() == worker_settings().keys()
    assert without(worker_settings(), WORKER_PLACES) == without(wanted, WORKER_PLACES)
