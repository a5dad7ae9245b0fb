"""The resources of `towpath manifests` are what the APIs of Kubernetes, Strimzi and Prometheus' operator take."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.prometheus.test_prometheus_files import promtool
from towpath.cli import manifests as cli
from towpath.cli import towpath
from towpath.config import loading
from towpath.config.logins import KafkaLogin, refuse_open
from towpath.deploy import manifests as made_for
from towpath.deploy.manifests import PIPELINES, Options, Plan, Resource, as_yaml
from towpath.errors import BadPipelineFile, Refused
from towpath.log.definitions import definitions
from towpath.stack import tools

HERE = Path(__file__).parent
PAGE = (HERE.parents[2] / "docs" / "how-to" / "kubernetes.md").read_text()
OPTIONS = Options("shop", "registry.example/towpath:1", "registry.example/towpath-strimzi:1")
BUILT = replace(
    OPTIONS,
    plugin_url="https://example.org/towpath-mongodb-0.1.0.zip",
    plugin_sha512="0123456789abcdef" * 8,
    push_secret="registry",
)
#: Since 1.0 the classes of Strimzi's API need it; with an older one, those of the last version before it are checked.
STRIMZI_JAVA = 21
PASSWORD = "ver1y-s3cret"
BASE = """
name = "shop"
[source]
uri_env = "SOURCE_URI"
[destination]
uri_file = "../secrets/destination.uri"
[collections]
include = ["shop.*"]
[kafka]
bootstrap = "kafka-kafka-bootstrap:9092"
%(kafka)s
[connect]
url = "http://shop-connect-api:8083"
secrets = "/mnt/towpath"
owner = "strimzi"
%(rest)s
"""
_LOGIN = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="towpath" password="{PASSWORD}";'
CLIENT = f"""security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={_LOGIN}
ssl.truststore.type=PEM
ssl.truststore.location=%s
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As a pod has it: the pipeline file in one folder, and what is secret in another."""
    monkeypatch.setenv("SOURCE_URI", f"mongodb://towpath:{PASSWORD}@db1/?replicaSet=rs0")
    for name in ("pipeline", "secrets"):
        (tmp_path / name).mkdir()
    uri = tmp_path / "secrets" / "destination.uri"
    uri.write_text(f"mongodb://towpath:{PASSWORD}@db2/?replicaSet=rs1")
    uri.chmod(0o600)
    return tmp_path


def plan_of(folder: Path, options: Options = OPTIONS, text: str = BASE, kafka: str = "", rest: str = "") -> Plan:
    file, content = folder / "pipeline" / "shop.toml", text % {"kafka": kafka, "rest": rest}
    return Plan(loading.parse(content, file), loading.as_written(content, Path(PIPELINES, file.name)), content, options)


def resources(plan: Plan) -> list[Resource]:
    plan.refuse()
    parts = made_for.resources(plan, definitions(plan.pipeline))
    return [resource for part in parts.values() for resource in part]


def of_kind(made: list[Resource], kind: str) -> Mapping[str, Any]:
    """The spec of the only resource of a kind."""
    [resource] = [resource for resource in made if resource["kind"] == kind]
    spec: Mapping[str, Any] = resource["spec"]
    return spec


def with_login(folder: Path, more: str = "") -> Plan:
    """A pipeline that logs in to Kafka with a password and over TLS; the CA is where the workers have it."""
    ca = folder / "secrets" / "ca.pem"
    ca.write_text("")
    client = folder / "secrets" / "client.properties"
    client.write_text(CLIENT % ca + more)
    client.chmod(0o600)
    plan = plan_of(folder, kafka='client = "../secrets/client.properties"')
    settings = dict(plan.pipeline.kafka.login.settings) | {"ssl.truststore.location": "/mnt/towpath/ca.pem"}
    return replace(plan, pipeline=plan.pipeline.changed(kafka={"login": KafkaLogin(settings)}))


@dataclass(frozen=True, slots=True)
class Published:
    """The published classes of the APIs, and a Java that runs them."""

    java: Path
    folder: Path

    def run(self, *arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [self.java, "-cp", f"{self.folder}/*", *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def published(java: Path, folder: Path) -> Published:
    """Those for this Java, which Maven brings."""
    maven = [tools.maven(), "-q", "-B", "-f", HERE / "pom.xml", "process-resources", f"-Dclasses={folder}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java.parents[1]))
        tools.run("bring the classes of the APIs", maven)
    return Published(java, folder)


@pytest.fixture
def strimzi(tmp_path: Path) -> Published:
    """Of Strimzi's newest version, with the newest Java here."""
    homes = {}
    for release in Path("/usr/lib/jvm").glob("*/release"):
        if number := re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE):
            homes[int(number[1])] = release.parent
    if max(homes, default=0) < STRIMZI_JAVA:
        pytest.skip(f"Strimzi's newest classes need a JDK {STRIMZI_JAVA} below /usr/lib/jvm")
    return published(homes[max(homes)] / "bin" / "java", tmp_path / "classes")


def all_forms(folder: Path) -> list[Resource]:
    """Pipelines that together have everything that a resource may have."""
    listens = '[run]\nlisten = "0.0.0.0:9300"\n'
    pair = 'certificate = "../secrets/tls.pem"\nkey = "../secrets/tls.key"\n'
    tls = f'{listens}{pair}token_file = "../secrets/page.token"'
    plans = (
        plan_of(folder),
        plan_of(folder, replace(BUILT, namespace=None), rest=f"{listens}read_only = true"),
        plan_of(folder, rest=tls),
        plan_of(folder, text='mode = "plain"' + BASE, rest='[capture]\nwhole_documents = ["shop.a"]'),
        with_login(folder),
    )
    return [resource for plan in plans for resource in resources(plan)]


@pytest.mark.nightly
@pytest.mark.servers  # starts a JVM
def test_every_resource_fits_the_published_classes_of_its_api(folder: Path, tmp_path: Path) -> None:
    api = published(tools.java().resolve(), tmp_path / "classes")
    [pod] = re.findall(
        r"^    ```yaml\n(    apiVersion: v1\n    kind: Pod\n.*?)^    ```", PAGE, re.MULTILINE | re.DOTALL
    )
    made = all_forms(folder)
    done = api.run(HERE / "Strict.java", text=f"{as_yaml(made)}---\n{textwrap.dedent(pod)}")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(made) + 1 == 5 * 11 + 2
    misspelt = as_yaml(made[:3]).replace("groupId:", "groupID:")
    assert 'Unrecognized field "groupID"' in api.run(HERE / "Strict.java", text=misspelt).stderr


def closed(schema: Any) -> Any:
    """A schema of Kubernetes that takes no unknown field, as `kubectl apply` asks the server."""
    if isinstance(schema, list):
        return [closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {key: closed(inner) for key, inner in schema.items()}
    has_all = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    if has_all and not schema.get("x-kubernetes-preserve-unknown-fields"):
        inside["additionalProperties"] = False
    return inside


@pytest.mark.nightly
@pytest.mark.servers  # starts a JVM
def test_the_resources_of_strimzi_fit_its_custom_resource_definitions(
    strimzi: Published, folder: Path, tmp_path: Path
) -> None:
    """With what they require, and the values that they allow."""
    import jsonschema  # takes seconds, for all of its formats

    classes = {"KafkaConnect": "connect.KafkaConnect", "KafkaConnector": "connector.KafkaConnector"}
    files = [f"io.strimzi.api.kafka.model.{name}={tmp_path}/{kind}.yaml" for kind, name in classes.items()]
    done = strimzi.run("io.strimzi.crdgenerator.CrdGenerator", "--yaml", *files)
    assert done.returncode == 0, done.stderr
    schemas = {}
    for kind in classes:
        definition = yaml.safe_load((tmp_path / f"{kind}.yaml").read_text())
        [version] = [version for version in definition["spec"]["versions"] if version["name"] == "v1"]
        schemas[kind] = jsonschema.Draft202012Validator(closed(version["schema"]["openAPIV3Schema"]))
    made = [resource for resource in all_forms(folder) if resource["kind"] in schemas]
    assert len(made) == 5 * 3 + 1
    for resource in made:
        faults = [fault.message for fault in schemas[resource["kind"]].iter_errors(resource)]
        assert faults == [], resource["metadata"]["name"]

    connect = as_yaml([made[0]])
    wrong = {
        "groupId:": ("groupID:", "'groupId' is a required property"),
        "type: jmxPrometheusExporter": ("type: jmx", "'jmx' is not one of"),
        "replicas: 2": ("replicas: two", "'two' is not of type 'integer'"),
        "mountPath:": ("mountpath:", "'mountpath' was unexpected"),
    }
    for right, (written, words) in wrong.items():
        resource = yaml.safe_load(connect.replace(right, written))
        assert any(words in fault.message for fault in schemas["KafkaConnect"].iter_errors(resource)), written


def test_a_kafkaconnect_has_what_its_api_and_the_connectors_require(folder: Path) -> None:
    spec = of_kind(resources(plan_of(folder)), "KafkaConnect")
    assert spec["config"]["exactly.once.source.support"] == "enabled"
    assert spec["config"]["connector.client.config.override.policy"] == "All"
    assert spec["config"]["config.providers.file.param.allowed.paths"] == "/mnt/towpath"
    forbidden = ("group.id", "bootstrap.", "listeners", "plugin.path", "rest.", "ssl.", "sasl.", "security.")
    assert not [key for key in spec["config"] if key.startswith(forbidden) or key.endswith("storage.topic")]
    assert spec["image"] == "registry.example/towpath-strimzi:1"
    built = of_kind(resources(plan_of(folder, BUILT)), "KafkaConnect")
    [plugin] = built["build"]["plugins"]
    assert plugin["artifacts"] == [{"type": "zip", "url": BUILT.plugin_url, "sha512sum": BUILT.plugin_sha512}]
    assert "image" not in built


def test_a_reverse_pipeline_needs_workers_with_a_larger_heap(folder: Path) -> None:
    spec = of_kind(resources(plan_of(folder, replace(OPTIONS, heap=2048))), "KafkaConnect")
    assert spec["jvmOptions"] == {"-Xms": "2048m", "-Xmx": "2048m", "-XX": {"NewSize": "1024m", "MaxNewSize": "1024m"}}
    assert spec["resources"]["limits"] == {"memory": "2816Mi"}


def test_the_secret_can_have_the_file_of_the_reverse_pipeline_before_it_exists(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "Facts", lambda session: SimpleNamespace(secrets=f"of {session.pipeline.name}"))
    file = folder / "pipeline" / "shop.toml"
    file.write_text(BASE % {"kafka": "", "rest": ""})
    words = ["manifests", str(file), "--reverse"]
    assert CliRunner().invoke(towpath, [*words, "--credentials", "-"]).output == "of shop-back"
    assert "--reverse goes with --credentials" in CliRunner().invoke(towpath, words).output
    assert list(file.parent.iterdir()) == [file]


def test_a_connector_is_what_deploy_would_send(folder: Path) -> None:
    plan = plan_of(folder, rest='[capture]\nwhole_documents = ["shop.a"]')
    desired, made = definitions(plan.pipeline), resources(plan)
    specs = {r["metadata"]["name"]: r["spec"] for r in made if r["kind"] == "KafkaConnector"}
    sent = {
        name: {"connector.class": spec["class"], "tasks.max": str(spec["tasksMax"]), **spec["config"]}
        for name, spec in specs.items()
    }
    assert sent == desired
    assert len(sent) == 3
    assert yaml.safe_load(as_yaml([specs["shop-sink"]])) == specs["shop-sink"]


def test_no_resource_holds_a_secret_and_two_runs_print_the_same(folder: Path) -> None:
    plan = with_login(folder)
    text = as_yaml(resources(plan))
    assert text == as_yaml(resources(plan))
    assert PASSWORD not in text
    spec = of_kind(resources(plan), "KafkaConnect")
    assert spec["authentication"]["passwordSecret"] == {"secretName": "shop-workers", "password": "kafka.password"}
    assert spec["tls"] == {"trustedCertificates": [{"secretName": "shop-workers", "certificate": "ca.pem"}]}
    [container] = of_kind(resources(plan), "Deployment")["template"]["spec"]["containers"]
    [variable] = container["env"]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "shop-tool", "key": "SOURCE_URI"}}


def test_the_page_needs_a_token_unless_everybody_may_read(folder: Path) -> None:
    made = resources(plan_of(folder))
    [container] = of_kind(made, "Deployment")["template"]["spec"]["containers"]
    assert container["args"][-2:] == ["--token-file", "/etc/towpath/secrets/token"]
    [endpoint] = of_kind(made, "ServiceMonitor")["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "shop-tool", "key": "token"}
    made = resources(plan_of(folder, rest='[run]\nlisten = "0.0.0.0:9300"\nread_only = true'))
    [container] = of_kind(made, "Deployment")["template"]["spec"]["containers"]
    assert "--token-file" not in container["args"]
    assert "authorization" not in of_kind(made, "ServiceMonitor")["endpoints"][0]


def test_prometheus_knows_name_and_certificate_of_a_page_with_tls(folder: Path) -> None:
    def config(rest: str) -> Any:
        listens = f'[run]\nlisten = "0.0.0.0:9300"\nread_only = true\ncertificate = "../secrets/tls.pem"\n{rest}'
        [endpoint] = of_kind(resources(plan_of(folder, rest=listens)), "ServiceMonitor")["endpoints"]
        assert endpoint["scheme"] == "https"
        return endpoint["tlsConfig"]

    assert config("") == {"serverName": "shop-run"}  # the file holds the key as well
    assert config('key = "../secrets/tls.key"\nhosts = ["page.example"]') == {
        "serverName": "page.example",
        "ca": {"secret": {"name": "shop-tool", "key": "tls.pem"}},
    }


def test_the_alert_rules_are_rules(folder: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(as_yaml([dict(of_kind(resources(plan_of(folder)), "PrometheusRule"))]))
    assert "rules found" in promtool("check", "rules", rules)


def test_what_does_not_work_in_a_pod_is_refused_with_all_reasons(folder: Path) -> None:
    text = BASE.replace('uri_env = "SOURCE_URI"', f'uri = "mongodb://u:{PASSWORD}@db1/?replicaSet=rs0"')
    text = text.replace('"/mnt/towpath"', '"/srv/towpath"').replace('owner = "strimzi"', "")
    (folder / "pipeline" / "shop.toml").touch(0o600)
    with pytest.raises(Refused) as refused:
        plan_of(folder, text=text, rest='[run]\nlisten = "0.0.0.0:9300"\ntoken_file = "/home/me/token"').refuse()
    reasons = str(refused.value).split("\n")
    assert len(reasons) == 4
    assert PASSWORD not in str(refused.value)
    with pytest.raises(BadPipelineFile, match="lower-case letters"):
        plan_of(folder, text=BASE.replace('"shop"', '"Shop"'))


@pytest.mark.parametrize("name", ["Shop", "shop_1", "1shop", "shop-", "s" * 51, ""])
def test_names_that_the_options_give_fit_kubernetes(folder: Path, name: str) -> None:
    """Services of the operator have 12 characters more, and at most 63."""
    if name:
        with pytest.raises(Refused, match="cannot be the name of a KafkaConnect"):
            plan_of(folder, replace(OPTIONS, connect=name)).refuse()
    with pytest.raises(Refused, match="cannot be the name of a namespace"):
        plan_of(folder, replace(OPTIONS, namespace=f"{name}.")).refuse()
    plan_of(folder, replace(OPTIONS, connect="s" * 50, namespace="n" * 63)).refuse()


def test_workers_check_names_in_certificates_as_the_connectors_do(folder: Path) -> None:
    plan = with_login(folder, "ssl.endpoint.identification.algorithm=\n")
    assert of_kind(resources(plan), "KafkaConnect")["config"]["ssl.endpoint.identification.algorithm"] == ""
    assert "ssl.endpoint" not in str(of_kind(resources(with_login(folder)), "KafkaConnect")["config"])


def test_a_file_of_a_secret_keeps_the_name_that_it_has_in_every_pod(folder: Path) -> None:
    """Kubernetes links each file of a Secret to a folder whose name differs from pod to pod."""
    mount = folder / "mount"
    (mount / "..2026_11_23").mkdir(parents=True)
    (mount / "..2026_11_23" / "ca.pem").touch()
    (mount / "..data").symlink_to("..2026_11_23")
    (mount / "ca.pem").symlink_to("..data/ca.pem")
    client = folder / "secrets" / "client.properties"
    client.write_text(CLIENT % (mount / "ca.pem"))
    client.chmod(0o600)
    plan = plan_of(folder, kafka='client = "../secrets/client.properties"')
    assert list(plan.pipeline.kafka.login.files.values()) == [mount / "ca.pem"]
    with pytest.raises(Refused, match="has to be in /mnt/towpath"):
        plan.refuse()


def test_a_secret_on_a_read_only_mount_may_be_read_by_its_group(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes gives files of a Secret to root and to the group of the pod, on a mount that is read-only."""
    file = folder / "secrets" / "destination.uri"
    file.chmod(0o440)
    with pytest.raises(BadPipelineFile):
        refuse_open(file, "it is secret")

    class Mount:
        f_flag = 1  # ST_RDONLY

    monkeypatch.setattr("os.statvfs", lambda _: Mount)
    refuse_open(file, "it is secret")
    file.chmod(0o444)
    with pytest.raises(BadPipelineFile):
        refuse_open(file, "it is secret")


@pytest.mark.parametrize("name", ["on", "null", "y"])
def test_a_name_that_yaml_would_take_for_something_else_stays_a_name(folder: Path, name: str) -> None:
    plan = plan_of(folder, replace(OPTIONS, connect=name), text=BASE.replace('"shop"', f'"{name}"', 1))
    made = resources(plan)
    assert {one["metadata"]["labels"]["app.kubernetes.io/instance"] for one in made} == {name}
    assert of_kind(made, "KafkaConnect")["groupId"] == name
