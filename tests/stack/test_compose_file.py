"""docker-compose.yml runs the same versions with the same settings as the embedded stack."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from towpath.config.loading import COMPOSE as COMPOSE_PLACES
from towpath.stack.plan import broker_properties, worker_properties
from towpath.stack.tools import version

ROOT = Path(__file__).parents[2]
#: Without the digests, which a release puts behind the tags.
COMPOSE, DOCKERFILE = (
    re.sub("@sha256:[0-9a-f]{64}", "", (ROOT / name).read_text(encoding="utf-8"))
    for name in ("docker-compose.yml", "Dockerfile")
)
WORKER = (ROOT / "connectors" / "worker.properties").read_text()

START = (ROOT / "release" / "connect").read_text()

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
#: As the official images have them, and the stand-ins of tests/containers.
DECLARED_VOLUMES = {
    "mongo": {"/data/db", "/data/configdb"},
    "kafka": {"/etc/kafka/secrets", "/var/lib/kafka/data", "/mnt/shared/config"},
}


def section(service: str) -> str:
    """The lines of one service, with those that it shares with others."""
    found = re.search(rf"^  {service}:(?: &\w+)?\n((?:    .*\n|\n)+)", COMPOSE, re.MULTILINE)
    assert found is not None
    shared = re.search(r"^x-mongod:.*\n((?:  .*\n)+)", COMPOSE, re.MULTILINE)
    assert shared is not None
    return found[1] + (shared[1] if "*mongod" in found[1] else "")


def environment(prefix: str) -> dict[str, str]:
    """What an image makes of PREFIX_*: the name in small letters, dots for underscores (none has a dash)."""
    found = re.findall(rf'^ +{prefix}_(\w+): "?(.*?)"?$', COMPOSE, re.MULTILINE)
    return {key.lower().replace("_", "."): value for key, value in found if key not in JVM}


def worker_settings() -> dict[str, str]:
    """The file's settings, those that the image adds with `echo "key=value"`, and those of the compose file."""
    lines = [*WORKER.splitlines(), *re.findall(r'echo "([\w.]+=.*)"', START)]
    settings = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {key: value for key, _, value in settings} | environment("CONNECT")


JVM = ("HEAP_OPTS", "JVM_PERFORMANCE_OPTS", "OPTS")


def without(settings: dict[str, str], keys: set[str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if key not in keys}


def test_the_default_images_have_the_versions_of_the_embedded_stack_and_none_floats() -> None:
    images = dict(re.findall(r"image: \$\{(\w+):-(.+)}", COMPOSE))
    built = {"TOWPATH_CONNECT_IMAGE": "towpath-connect", "TOWPATH_IMAGE": "towpath"}
    monitors = {
        "TOWPATH_PROMETHEUS_IMAGE": f"prom/prometheus:v{version('prometheus.version')}",
        "TOWPATH_GRAFANA_IMAGE": f"grafana/grafana:{version('grafana.version')}",
    }
    assert images.keys() == {"TOWPATH_MONGO_IMAGE", "TOWPATH_KAFKA_IMAGE"} | built.keys() | monitors.keys()
    assert (built | monitors).items() <= images.items()
    major, minor, _ = version("mongod.version").split(".")
    assert re.fullmatch(rf"mongo:{major}\.{minor}\.\d+", images["TOWPATH_MONGO_IMAGE"])
    assert images["TOWPATH_KAFKA_IMAGE"] == f"apache/kafka:{version('kafka.version')}"
    assert f"ARG KAFKA_IMAGE={images['TOWPATH_KAFKA_IMAGE']}\n" in DOCKERFILE
    assert re.search(r"^ARG PYTHON_IMAGE=python:\d+\.\d+\.\d+-", DOCKERFILE, re.MULTILINE)
    assert re.search(rf"^ARG STRIMZI_IMAGE=strimzi/kafka:\S+-kafka-{version('kafka.version')}$", DOCKERFILE, re.M)
    bases = {"${PYTHON_IMAGE}", "${KAFKA_IMAGE}", "${STRIMZI_IMAGE}"}
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == bases


def test_services_are_on_an_ordinary_network_which_outlives_each_of_them() -> None:
    assert "network_mode" not in COMPOSE


def test_a_worker_without_the_plugin_ends_at_once_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "towpath").mkdir()
    settings = {"CONNECT_BOOTSTRAP_SERVERS": "kafka:9092", "CONNECT_PLUGIN_PATH": f"/nowhere,{tmp_path}"}
    command, environment = [ROOT / "release" / "connect"], os.environ | settings
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"there is no towpath-transforms-*.jar below /nowhere,{tmp_path}: ")


def test_every_image_can_be_replaced_from_the_environment() -> None:
    assert len(re.findall(r"^ +image: ", COMPOSE, re.MULTILINE)) == len(re.findall(r"image: \$\{TOWPATH_", COMPOSE)) > 2


def test_ports_are_published_on_127_0_0_1_only() -> None:
    published = re.findall(r"^ +- 127\.0\.0\.1:\$\{TOWPATH_\w+_PORT:-(\d+)}:(\d+)$", COMPOSE, re.MULTILINE)
    assert len(published) == len(re.findall(r"ports:\n +- .+\n(?! +-)", COMPOSE)) == COMPOSE.count("ports:") == 6
    assert all(outside == inside for outside, inside in published)


def test_a_worker_has_no_capability_and_is_reached_by_the_services_only() -> None:
    worker, tool = section("connect"), section("towpath")
    assert "cap_drop: [ALL]" in worker and "cap_add" not in COMPOSE and "user: root" not in COMPOSE
    assert "ports:" not in worker
    [user] = re.findall(r"^    user: .+$", tool, re.MULTILINE)
    assert user in worker, "the secrets file of the one can be read by the other"


@pytest.mark.parametrize("service", ["source", "destination", "kafka", "connect"])
def test_a_service_comes_back_is_checked_and_leaves_no_volume_without_a_name(service: str) -> None:
    lines = section(service)
    assert "restart: unless-stopped" in lines
    assert "healthcheck:" in lines
    mounted = set(re.findall(r"^ +- \w+:(/[\w/]+)", lines, re.MULTILINE))
    tmpfs = re.search(r"tmpfs: \[(.*)\]", lines)
    assert tmpfs is not None
    declared = DECLARED_VOLUMES["mongo" if service in ("source", "destination") else "kafka"]
    assert declared <= mounted | set(tmpfs[1].split(", "))


@pytest.mark.parametrize("service", ["run", "prometheus", "grafana"])
def test_a_service_of_a_profile_comes_back_as_well(service: str) -> None:
    assert "restart: unless-stopped" in section(service)


def test_init_fills_in_the_addresses_of_the_services() -> None:
    services = re.findall(r"^  (\w+):\n    (?:<<|image)", COMPOSE, re.MULTILINE)
    addresses = [COMPOSE_PLACES.source, COMPOSE_PLACES.destination, COMPOSE_PLACES.bootstrap, COMPOSE_PLACES.connect]
    found = [re.search(r"(?:\w+://)?(\w+):(\d+)", address) for address in addresses]
    assert [match[1] for match in found if match] == services[:4]
    for match in found:
        assert match is not None
        assert re.search(rf'[:"]{match[2]}"?\]?\n', section(match[1]))
    (allowed,) = re.findall(r"allowed\.paths=(.*)\"", START)
    assert COMPOSE_PLACES.secrets is not None
    assert Path(allowed) in Path(COMPOSE_PLACES.secrets).parents
    assert all("- towpath:/var/lib/towpath" in section(service) for service in ("connect", "towpath"))


def test_the_broker_has_the_settings_of_the_embedded_one() -> None:
    wanted = broker_properties(Path("/data"), 9092, [9093])
    assert wanted.keys() == environment("KAFKA").keys()
    assert without(environment("KAFKA"), BROKER_PLACES) == without(wanted, BROKER_PLACES)


def test_the_worker_has_the_settings_of_the_embedded_ones() -> None:
    wanted = worker_properties(Path("/stack/secrets"), "127.0.0.1:9092", 8083, Path("/plugins"))
    assert wanted.keys() == worker_settings().keys()
    assert without(worker_settings(), WORKER_PLACES) == without(wanted, WORKER_PLACES)
