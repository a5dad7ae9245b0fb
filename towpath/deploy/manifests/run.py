"""Resources of `towpath run`: the pipeline file, a pod, and a service for its page, API and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from towpath.deploy.manifests.options import PIPELINES, SECRETS, Plan, Resource

PORT = 9300
#: The user of the image.
_USER = 1000
#: What the tool keeps (verdicts, journals) is in a volume that lives as long as the pod: everything that matters is in
#: Kafka and at the destination.
_STATE = "/var/lib/towpath"
_TOKEN = "token"


def resources(plan: Plan) -> Iterator[Resource]:
    name, selector = run_name(plan), {"matchLabels": _labels(plan)}
    yield plan.resource("ConfigMap", f"{plan.name}-pipeline", "run", data={_file(plan): plan.text})
    yield plan.resource(
        "Deployment",
        name,
        "run",
        api="apps/v1",
        spec={
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # one supervisor at a time
            "selector": selector,
            "template": {"metadata": {"labels": _labels(plan)}, "spec": _pod(plan)},
        },
    )
    # not ready: far behind; its page and metrics tell why
    service = {
        "selector": _labels(plan),
        "publishNotReadyAddresses": True,
        "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
    }
    yield plan.resource("Service", name, "run", spec=service)


def run_name(plan: Plan) -> str:
    return f"{plan.name}-run"


def is_secure(plan: Plan) -> bool:
    return bool(plan.file.run.certificate)


def token_key(plan: Plan) -> str | None:
    """The key of the token in the Secret of the tool; None where everybody may read and nobody may command."""
    if plan.file.run.read_only:
        return None
    return plan.file.run.token_file.name if plan.file.run.token_file else _TOKEN


def _labels(plan: Plan) -> dict[str, str]:
    component = {"app.kubernetes.io/component": "run"}
    return {"app.kubernetes.io/name": "towpath", "app.kubernetes.io/instance": plan.name} | component


def _file(plan: Plan) -> str:
    return f"{plan.name}.toml"


def _pod(plan: Plan) -> dict[str, Any]:
    volumes: dict[str, tuple[str, dict[str, Any]]] = {
        "pipeline": (PIPELINES, {"configMap": {"name": f"{plan.name}-pipeline"}}),
        # 0440: root and the group of the pod
        "secrets": (SECRETS, {"secret": {"secretName": plan.tool_secret, "defaultMode": 0o440, "optional": True}}),
        "workers": (
            str(plan.pipeline.secrets_file.parent),
            {"secret": {"secretName": plan.workers_secret, "defaultMode": 0o440}},
        ),
        "state": (_STATE, {"emptyDir": {}}),
        "tmp": ("/tmp", {"emptyDir": {}}),
    }
    writable = ("state", "tmp")
    container = {
        "name": "run",
        "image": plan.options.image,
        "args": _arguments(plan),
        "ports": [{"name": "http", "containerPort": PORT}],
        "livenessProbe": _probe(plan, "/healthz") | {"initialDelaySeconds": 15, "periodSeconds": 30},
        "readinessProbe": _probe(plan, "/readyz") | {"periodSeconds": 10},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": name, "mountPath": path} | ({} if name in writable else {"readOnly": True})
            for name, (path, _) in volumes.items()
        ],
    }
    if plan.environment:
        container["env"] = [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": plan.tool_secret, "key": key}}}
            for name, key in plan.environment.items()
        ]
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 60,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": name, **source} for name, (_, source) in volumes.items()],
    }


def _arguments(plan: Plan) -> list[str]:
    name, namespace = run_name(plan), plan.options.namespace
    hosts = [name, *([f"{name}.{namespace}", f"{name}.{namespace}.svc"] if namespace else [])]
    arguments = ["run", f"{PIPELINES}/{_file(plan)}", "--listen", f"0.0.0.0:{PORT}"]
    for host in hosts:
        arguments += ["--host", host]
    if not plan.file.run.read_only and not plan.file.run.token_file:
        arguments += ["--token-file", f"{SECRETS}/{_TOKEN}"]
    return arguments


def _probe(plan: Plan, path: str) -> dict[str, Any]:
    scheme = "HTTPS" if is_secure(plan) else "HTTP"
    return {"httpGet": {"path": path, "port": "http", "scheme": scheme}, "timeoutSeconds": 5}
