"""Resources for Strimzi's operator: a Connect cluster, the connectors, and who may use its REST API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from towpath.checks.connect import least_heap
from towpath.clients.kafka.client import CA, CERTIFICATE, HOST_CHECK, KEY_PASSWORD, MECHANISM, properties
from towpath.deploy import configs as definitions
from towpath.deploy.manifests.options import Plan, Resource
from towpath.errors import Refused
from towpath.stack.plan import WORKER_RULES

#: The version of Strimzi's API; Strimzi 0.49 and later serve it.
API = "kafka.strimzi.io/v1"
#: The key of the password in the Secret of the workers, for a login of the workers with one.
PASSWORD = "kafka.password"
_CLUSTER = "strimzi.io/cluster"
_PORT = 8083
_WORKERS = 2
_VOLUME = "towpath"
_BESIDES_HEAP_MB = 768
#: Settings of a worker that a KafkaConnect has elsewhere, and those of a single broker.
_ELSEWHERE = ("group.id", *(f"{kind}.storage.topic" for kind in ("config", "offset", "status")))
_SINGLE = ("offset.storage.partitions", "status.storage.partitions")


def cluster(plan: Plan) -> Iterator[Resource]:
    """The workers, and what they need."""
    metrics = {"workers.yaml": WORKER_RULES.read_text(encoding="utf-8")}
    yield plan.resource("ConfigMap", f"{plan.connect}-metrics", "connect", data=metrics)
    yield plan.resource("NetworkPolicy", f"{plan.name}-rest", "connect", api="networking.k8s.io/v1", spec=_access(plan))
    yield _connect(plan)


def connectors(plan: Plan, desired: Mapping[str, Mapping[str, str]]) -> Iterator[Resource]:
    """`desired`: the connectors with the configurations that a deployment would send."""
    for name, config in desired.items():
        yield _connector(plan, name, config)


def _connector(plan: Plan, name: str, config: Mapping[str, str]) -> Resource:
    """A KafkaConnector. The operator adds class and number of tasks to `config`, which may not have them."""
    own = {"name", "connector.class", "tasks.max"}
    spec = {
        "class": config["connector.class"],
        "tasksMax": int(config["tasks.max"]),
        "config": {key: text for key, text in config.items() if key not in own},
    }
    return plan.resource("KafkaConnector", name, "connectors", api=API, labels={_CLUSTER: plan.connect}, spec=spec)


def _connect(plan: Plan) -> Resource:
    pipeline, name = plan.pipeline, plan.connect
    heap = least_heap(pipeline.splice_cache)
    spec: dict[str, Any] = {
        "replicas": _WORKERS,
        "bootstrapServers": pipeline.worker_bootstrap,
        "groupId": name,
        "configStorageTopic": f"{name}-configs",
        "offsetStorageTopic": f"{name}-offsets",
        "statusStorageTopic": f"{name}-status",
        **_login(plan),
        **_image(plan),
        "config": _settings(plan),
        "resources": {
            "requests": {"cpu": "500m", "memory": f"{heap + _BESIDES_HEAP_MB}Mi"},
            "limits": {"memory": f"{heap + _BESIDES_HEAP_MB}Mi"},
        },
        # half for new objects: most of what a worker allocates lives as long as one batch
        "jvmOptions": {
            "-Xms": f"{heap}m",
            "-Xmx": f"{heap}m",
            "-XX": {"NewSize": f"{heap // 2}m", "MaxNewSize": f"{heap // 2}m"},
        },
        "metricsConfig": {
            "type": "jmxPrometheusExporter",
            "valueFrom": {"configMapKeyRef": {"name": f"{name}-metrics", "key": "workers.yaml"}},
        },
        "template": {
            "pod": {"volumes": [{"name": _VOLUME, "secret": {"secretName": plan.workers_secret}}]},
            "connectContainer": {"volumeMounts": [{"name": _VOLUME, "mountPath": str(pipeline.secrets.parent)}]},
        },
    }
    resource = plan.resource("KafkaConnect", name, "connect", api=API, spec=spec)
    resource["metadata"]["annotations"] = {"strimzi.io/use-connector-resources": "true"}
    return resource


def _settings(plan: Plan) -> dict[str, str]:
    """Those of `worker.properties`; what is stored in Kafka has as many replicas as the brokers give.

    Of the settings of TLS, Strimzi leaves this one to `config`: whether names in certificates are checked.
    """
    file = definitions.DEFINITIONS / "worker.properties"
    settings = properties(file.read_text(encoding="utf-8"))
    kept = {key: text for key, text in settings.items() if key not in (*_ELSEWHERE, *_SINGLE)}
    kept |= {key: "-1" for key in kept if key.endswith(".replication.factor")}
    client = plan.pipeline.kafka_client.settings
    kept |= {HOST_CHECK: client[HOST_CHECK]} if HOST_CHECK in client else {}
    return kept | {"config.providers.file.param.allowed.paths": str(plan.pipeline.secrets.parent)}


def _image(plan: Plan) -> dict[str, Any]:
    options, archive = plan.options, plan.options.plugin
    if archive is None:
        return {"image": options.connect_image}
    output = {"type": "docker", "image": options.connect_image}
    if archive.push_secret:
        output["pushSecret"] = archive.push_secret
    artifact = {"type": "zip", "url": archive.url, "sha512sum": archive.sha512}
    return {"build": {"output": output, "plugins": [{"name": "towpath-mongodb", "artifacts": [artifact]}]}}


def _login(plan: Plan) -> dict[str, Any]:
    """How the workers themselves log in to Kafka: as the connectors do, with files and a password of the Secret."""
    client, secret = plan.pipeline.kafka_client, plan.workers_secret
    login: dict[str, Any] = {}
    if plan.pipeline.kafka_client.settings.get("security.protocol", "PLAINTEXT").endswith("SSL"):
        trusted = [{"secretName": secret, "certificate": client.files[CA].name}] if CA in client.files else []
        login["tls"] = {"trustedCertificates": trusted}
    if client.user:
        login["authentication"] = {
            "type": client.settings[MECHANISM].lower(),
            "username": client.user[0],
            "passwordSecret": {"secretName": secret, "password": PASSWORD},
        }
    elif CERTIFICATE in client.files:
        if KEY_PASSWORD in client.settings:
            raise Refused(
                "[kafka] client names an encrypted key, which Strimzi does not read",
                "write the key without a password; the Secret protects it",
            )
        name = client.files[CERTIFICATE].name
        pair = {"secretName": secret, "certificate": name, "key": name}
        login["authentication"] = {"type": "tls", "certificateAndKey": pair}
    return login


def _access(plan: Plan) -> dict[str, Any]:
    """Strimzi lets only its operator and the workers use the REST API; the pods of the tool need it as well."""
    workers = {_CLUSTER: plan.connect, "strimzi.io/kind": "KafkaConnect", "strimzi.io/name": f"{plan.connect}-connect"}
    tool = {"app.kubernetes.io/name": "towpath", "app.kubernetes.io/instance": plan.name}
    rule = {"from": [{"podSelector": {"matchLabels": tool}}], "ports": [{"protocol": "TCP", "port": _PORT}]}
    return {"podSelector": {"matchLabels": workers}, "policyTypes": ["Ingress"], "ingress": [rule]}
