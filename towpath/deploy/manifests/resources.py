"""The resources: the workers and connectors for Strimzi's operator, `towpath run`, and Prometheus' operator's.

`resources.yaml.jinja` is what they look like; this module makes the values in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import javaproperties
import jinja2
import yaml

from towpath.checks.connect import least_heap
from towpath.config.logins import CA, CERTIFICATE, HOST_CHECK, KEY_PASSWORD, MECHANISM
from towpath.deploy.manifests.plan import PIPELINES, SECRETS, Plan
from towpath.errors import Refused
from towpath.log.definitions import DEFINITIONS
from towpath.stack.plan import ALERTS, WORKER_RULES

Resource = dict[str, Any]
#: The key of the password in the Secret of the workers, for a login of the workers with one.
PASSWORD = "kafka.password"
_PARTS = ("connect", "connectors", "run", "monitoring")
_TOKEN = "token"
#: Settings of a worker that a KafkaConnect has elsewhere, and those of a single broker.
_ELSEWHERE = ("group.id", *(f"{kind}.storage.topic" for kind in ("config", "offset", "status")))
_SINGLE = ("offset.storage.partitions", "status.storage.partitions")


def resources(plan: Plan, desired: Mapping[str, Mapping[str, str]]) -> dict[str, list[Resource]]:
    """All resources, by part. `desired`: the connectors with the configurations that a deployment would send."""
    text = _template().render(
        plan=plan,
        run=plan.file.run,
        pipelines=PIPELINES,
        secrets=SECRETS,
        token=_TOKEN,
        worker_rules=WORKER_RULES.read_text(encoding="utf-8"),
        alerts=yaml.safe_load(ALERTS.read_text(encoding="utf-8")),
        heap=least_heap(plan.pipeline.splice_cache),
        login=_login(plan),
        image=_image(plan),
        settings=_settings(plan),
        arguments=_arguments(plan),
        connectors={name: _connector(config) for name, config in desired.items()},
    )
    made: dict[str, list[Resource]] = {part: [] for part in _PARTS}
    for resource in yaml.safe_load_all(text):
        made[resource["metadata"]["labels"]["app.kubernetes.io/component"]].append(resource)
    return made


def _template() -> jinja2.Template:
    """Every value in it is JSON, which is YAML, or a name that has been checked."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {}  # not sorted
    environment.filters["basename"] = lambda path: Path(path).name
    return environment.get_template("resources.yaml.jinja")


def _connector(config: Mapping[str, str]) -> Resource:
    """The operator adds class and number of tasks to `config`, which may not have them."""
    own = {"name", "connector.class", "tasks.max"}
    return {
        "class": config["connector.class"],
        "tasksMax": int(config["tasks.max"]),
        "config": {key: text for key, text in config.items() if key not in own},
    }


def _settings(plan: Plan) -> dict[str, str]:
    """Those of `worker.properties`; what is stored in Kafka has as many replicas as the brokers give.

    Of the settings of TLS, Strimzi leaves this one to `config`: whether names in certificates are checked.
    """
    settings = javaproperties.loads((DEFINITIONS / "worker.properties").read_text(encoding="utf-8"))
    kept = {key: text for key, text in settings.items() if key not in (*_ELSEWHERE, *_SINGLE)}
    kept |= {key: "-1" for key in kept if key.endswith(".replication.factor")}
    client = plan.pipeline.kafka.login.settings
    kept |= {HOST_CHECK: client[HOST_CHECK]} if HOST_CHECK in client else {}
    return kept | {"config.providers.file.param.allowed.paths": plan.workers_folder}


def _image(plan: Plan) -> Resource:
    options = plan.options
    if options.plugin_url is None:
        return {"image": options.connect_image}
    output = {"type": "docker", "image": options.connect_image}
    if options.push_secret:
        output["pushSecret"] = options.push_secret
    artifact = {"type": "zip", "url": options.plugin_url, "sha512sum": options.plugin_sha512}
    return {"build": {"output": output, "plugins": [{"name": "towpath-mongodb", "artifacts": [artifact]}]}}


def _login(plan: Plan) -> Resource:
    """How the workers themselves log in to Kafka: as the connectors do, with files and a password of the Secret."""
    client, secret = plan.pipeline.kafka.login, plan.workers_secret
    login: Resource = {}
    if plan.pipeline.kafka.login.settings.get("security.protocol", "PLAINTEXT").endswith("SSL"):
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


def _arguments(plan: Plan) -> list[str]:
    name, namespace = plan.run, plan.options.namespace
    hosts = [name, *([f"{name}.{namespace}", f"{name}.{namespace}.svc"] if namespace else [])]
    arguments = ["run", f"{PIPELINES}/{plan.name}.toml", "--listen", "0.0.0.0:9300"]
    for host in hosts:
        arguments += ["--host", host]
    if not plan.file.run.read_only and not plan.file.run.token_file:
        arguments += ["--token-file", f"{SECRETS}/{_TOKEN}"]
    return arguments


class _Dumper(yaml.SafeDumper):
    """Texts of several lines are blocks; nothing is an alias."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def as_yaml(resources: Iterable[Resource]) -> str:
    """The same for the same resources; no line is folded."""
    return yaml.dump_all(
        resources, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000, explicit_start=True
    )
