"""Resources for Prometheus' operator: what it scrapes, and the alert rules."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

import yaml

from towpath.deploy.manifests.options import Plan, Resource
from towpath.deploy.manifests.run import is_secure, run_name, token_key
from towpath.stack.prometheus import ALERTS

_API = "monitoring.coreos.com/v1"
_COMPONENT = "monitoring"


def resources(plan: Plan) -> Iterator[Resource]:
    """The jobs have the names that alerts and dashboard know. The alerts of all pipelines come once."""
    endpoint: dict[str, Any] = {"port": "http", "relabelings": _job("towpath")}
    if is_secure(plan):
        endpoint |= {"scheme": "https", "tlsConfig": _trust(plan)}
    if key := token_key(plan):
        endpoint["authorization"] = {"credentials": {"name": plan.tool_secret, "key": key}}
    run = {
        "app.kubernetes.io/name": "towpath",
        "app.kubernetes.io/instance": plan.name,
        "app.kubernetes.io/component": "run",
    }
    spec = {"selector": {"matchLabels": run}, "endpoints": [endpoint]}
    yield plan.resource("ServiceMonitor", run_name(plan), _COMPONENT, api=_API, spec=spec)
    workers = {"strimzi.io/cluster": plan.connect, "strimzi.io/kind": "KafkaConnect"}
    scraped = [{"port": "tcp-prometheus", "relabelings": _job("connect")}]
    spec = {"selector": {"matchLabels": workers}, "podMetricsEndpoints": scraped}
    yield plan.resource("PodMonitor", f"{plan.connect}-connect", _COMPONENT, api=_API, spec=spec)
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    yield plan.resource("PrometheusRule", "towpath", _COMPONENT, api=_API, spec=rules)


def _trust(plan: Plan) -> dict[str, Any]:
    """Prometheus asks a pod by its IP address, for which no certificate is made: the name in it, and whom to trust.

    It may trust the server's own certificate. A file that holds the key as well stays where it is.
    """
    run = plan.file.run
    trust: dict[str, Any] = {"serverName": run.hosts[0] if run.hosts else run_name(plan)}
    if run.certificate and run.key:
        trust["ca"] = {"secret": {"name": plan.tool_secret, "key": posixpath.basename(run.certificate)}}
    return trust


def _job(name: str) -> list[dict[str, str]]:
    return [{"targetLabel": "job", "replacement": name}]
