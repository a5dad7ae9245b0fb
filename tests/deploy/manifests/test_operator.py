"""Connectors that an operator owns: `deploy` and `check` compare them, and nothing fights with the operator.

The connectors are put over REST in the form in which Strimzi's operator puts a KafkaConnector.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import javaproperties
import pytest
import yaml

from tests.support import rest
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath

pytestmark = pytest.mark.servers
MOUNT = "/mnt/towpath"
PARTS = ("connect", "connectors", "run", "monitoring")


def config_url(pipeline: Pipeline, connector: str) -> str:
    return f"{pipeline.addresses.connect}/connectors/{pipeline.name}-{connector}/config"


def as_operator(pipeline: Pipeline, manifests: str) -> None:
    """Put the connectors as the operator does: the settings of a KafkaConnector, with its name, class and tasks."""
    found = [one for one in yaml.safe_load_all(manifests) if one["kind"] == "KafkaConnector"]
    assert len(found) == 2
    for resource in found:
        spec, name = resource["spec"], resource["metadata"]["name"]
        fixed = {"name": name, "connector.class": spec["class"], "tasks.max": spec["tasksMax"]}
        text = json.dumps(spec["config"] | fixed).replace(MOUNT, str(pipeline.addresses.secrets))
        httpx.put(
            f"{pipeline.addresses.connect}/connectors/{name}/config", json=json.loads(text), timeout=90
        ).raise_for_status()


@contextmanager
def supervised(pipeline: Pipeline) -> Iterator[None]:
    """`towpath run`, which begins before there are connectors, and waits for them."""
    command = [TOWPATH, "run", pipeline.file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            assert "waiting until the operator has made it" in running.stdout.readline()
            yield
            assert any("is running" in line for line in running.stdout)
        finally:
            running.terminate()
            said = running.communicate(timeout=60)[0]
    assert running.returncode == 0, said


@pytest.mark.nightly
def test_connectors_of_an_operator_are_compared_and_left_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.source("docs").insert_one({"_id": 1})
    owned = replace(pipeline, settings=Settings(connect={"owner": "strimzi"}))
    mounted = replace(owned, file=tmp_path / "mounted.toml", addresses=replace(owned.addresses, secrets=Path(MOUNT)))
    name, secrets = pipeline.name, pipeline.addresses.secrets / f"{pipeline.name}.properties"
    assert (
        f"the Secret {name}-workers has to have {name}.properties" in towpath("check", owned.write(), expect=1).stdout
    )
    assert "set it to a folder below /mnt" in towpath("manifests", owned.file, expect=2).stderr
    assert "--plugin-sha512 go together" in towpath("manifests", owned.file, "--plugin", "https://x", expect=2).stderr
    towpath("manifests", owned.file, "--credentials", secrets)
    assert towpath("manifests", owned.file, "--credentials", "-").stdout == secrets.read_text()
    reverse = javaproperties.loads(towpath("manifests", owned.file, "--reverse", "--credentials", "-").stdout)
    assert reverse["source.uri"] == javaproperties.loads(secrets.read_text())["destination.uri"]
    assert secrets.stat().st_mode & 0o777 == 0o600
    assert "there is no connector" in towpath("check", owned.file).stdout
    done = towpath("deploy", owned.file, "--json", expect=1)
    answer = json.loads(done.stdout)
    assert answer["differences"] == [f"there is no connector {name}-{kind}" for kind in ("source", "sink")]
    assert f"create topic {name}.requests" in answer["changes"]
    with supervised(owned):
        printed = towpath("manifests", mounted.write()).stdout
        towpath("manifests", mounted.file, "--output", tmp_path / "parts")
        parts = [(tmp_path / "parts" / f"{part}.yaml").read_text() for part in PARTS]
        assert "".join(parts) == printed
        as_operator(owned, printed)
        pipeline.source("docs").insert_one({"_id": 2})
        owned.wait()
    pipeline.assert_same("docs", at_least=2)
    assert json.loads(towpath("deploy", owned.file, "--json").stdout) == {
        "v": 1,
        "dry_run": False,
        "changes": [],
        "differences": [],
        "waiting": {},
    }
    assert "nothing to change: everything matches the file" in towpath("check", owned.file).stdout

    config = rest.get(config_url(owned, "sink")).json()
    by_hand = config | {"towpath.batch.records": "4321"}
    httpx.put(config_url(owned, "sink"), json=by_hand, timeout=90).raise_for_status()
    difference = f"connector {name}-sink differs from the file (towpath.batch.records)"
    for command in ("deploy", "check"):
        done = towpath(command, owned.file, expect=1)
        assert difference in done.stdout + done.stderr
        assert "kubectl apply -f - -l app.kubernetes.io/component=connectors" in done.stdout + done.stderr
        assert "4321" not in done.stdout + done.stderr
    assert rest.get(config_url(owned, "sink")).json() == by_hand
    secrets.write_text(secrets.read_text() + "# another\n")
    done = towpath("deploy", owned.file, "--dry-run", expect=1)
    assert f"{secrets} does not hold what the workers need" in done.stderr
    towpath("restart", owned.file, "--all")

    refusals = {
        ("pause",): '{"spec":{"state":"paused"}}',
        ("resume",): f"kubectl patch kafkaconnector/{name}-sink --type merge",
        ("resnapshot", "--yes"): 'set [connect] owner = "towpath"',
        ("replay", "--rebuild", "--yes"): 'set [connect] owner = "towpath"',
        ("cutover",): 'set [connect] owner = "towpath"',
        ("remove",): f"kubectl delete kafkaconnector/{name}-source kafkaconnector/{name}-sink",
        ("remove", "--topics", "--yes"): '{"spec":{"state":"stopped"}}',
    }
    for (command, *options), words in refusals.items():
        assert words in towpath(command, owned.file, *options, expect=2).stderr
    assert rest.get(config_url(owned, "sink")).json() == by_hand


@pytest.mark.nightly
def test_an_operator_takes_over_what_a_resnapshot_has_set_and_the_log_goes_once_it_has_stopped_the_connectors(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.source("docs").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    towpath("resnapshot", pipeline.file, "--yes")
    owned = replace(pipeline, settings=Settings(connect={"owner": "strimzi"}))
    mounted = replace(owned, file=tmp_path / "mounted.toml", addresses=replace(owned.addresses, secrets=Path(MOUNT)))
    source = rest.get(config_url(owned, "source")).json()
    as_operator(owned, towpath("manifests", mounted.write()).stdout)
    assert rest.get(config_url(owned, "source")).json() == source
    assert "towpath.resnapshot" in source
    connectors = f"{pipeline.addresses.connect}/connectors"
    assert "nothing to change" in towpath("deploy", owned.write()).stdout
    for kind in ("source", "sink"):
        httpx.put(f"{connectors}/{pipeline.name}-{kind}/stop", timeout=90).raise_for_status()
    done = towpath("remove", owned.file, "--topics", "--yes")
    assert f"next: kubectl delete kafkaconnector/{pipeline.name}-source" in done.stderr
    for kind in ("source", "sink"):
        assert rest.get(f"{connectors}/{pipeline.name}-{kind}/status").json()["connector"]["state"] == "STOPPED"
        assert rest.get(f"{connectors}/{pipeline.name}-{kind}/offsets").json() == {"offsets": []}
