"""A pipeline as resources of Kubernetes: for Strimzi's operator, for `towpath run`, and for Prometheus' operator.

`manifests.yaml.jinja` is what they look like; this module makes the values in it, and says what does not work there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import javaproperties
import jinja2
import yaml

from towpath.checks.connect import least_heap
from towpath.config import mongo_uri
from towpath.config.loading import holds_secret
from towpath.config.logins import CA, CERTIFICATE, HOST_CHECK, KEY_PASSWORD, MECHANISM
from towpath.config.pipeline import KUBERNETES_NAME, Pipeline, Section
from towpath.errors import Refused
from towpath.log.definitions import DEFINITIONS
from towpath.stack.plan import ALERTS, WORKER_RULES

Resource = dict[str, Any]
#: Where the pods of the tool have the pipeline file, and the files of their Secret.
PIPELINES, SECRETS = "/etc/towpath/pipeline", "/etc/towpath/secrets"
#: The only folder below which Strimzi mounts volumes into workers.
_MOUNTS = "/mnt/"
_API = "-connect-api"
_NAMESPACE = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
#: The key of the password in the Secret of the workers, for a login of the workers with one.
PASSWORD = "kafka.password"
_PARTS = ("connect", "connectors", "run", "monitoring")
_TOKEN = "token"
#: Settings of a worker that a KafkaConnect has elsewhere, and those of a single broker.
_ELSEWHERE = ("group.id", *(f"{kind}.storage.topic" for kind in ("config", "offset", "status")))
_SINGLE = ("offset.storage.partitions", "status.storage.partitions")


@dataclass(frozen=True, slots=True)
class Options:
    """`image` is that of the tool, `connect_image` that of the workers, `connect` the name of the KafkaConnect.

    With `plugin_url`, Strimzi downloads the plugin archive, builds an image of the workers with it, and pushes that as
    `connect_image`, with the login in `push_secret`.
    """

    namespace: str | None
    image: str
    connect_image: str
    plugin_url: str | None = None
    plugin_sha512: str | None = None
    push_secret: str | None = None
    connect: str | None = None
    heap: int | None = None
    """Of each worker, in MB."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline, and what the resources are called."""

    pipeline: Pipeline
    file: Pipeline
    """As it is read below `PIPELINES`, in a pod, without what is in other files."""
    text: str
    options: Options

    @property
    def name(self) -> str:
        return self.pipeline.name

    @property
    def connect(self) -> str:
        """The KafkaConnect: Strimzi's service of its REST API is `NAME-connect-api`."""
        host = (urlsplit(self.pipeline.connect.url).hostname or "").partition(".")[0]
        return self.options.connect or (host.removesuffix(_API) if host.endswith(_API) else self.name)

    @property
    def workers_secret(self) -> str:
        """The Secret with what the workers read, mounted at the folder of [connect] secrets in all pods."""
        return f"{self.name}-workers"

    @property
    def tool_secret(self) -> str:
        """The Secret with what only the tool reads."""
        return f"{self.name}-tool"

    @property
    def run(self) -> str:
        """Deployment and Service of `towpath run`."""
        return f"{self.name}-run"

    @property
    def workers_folder(self) -> str:
        """Where all pods have the Secret of the workers."""
        return str(self.pipeline.secrets_file.parent)

    @property
    def environment(self) -> list[str]:
        """The variables of URIs, which are keys of the Secret of the tool."""
        names = (side.uri_env for side in (self.file.source, self.file.destination))
        return list(dict.fromkeys(name for name in names if name))

    def refuse(self) -> None:
        """Raise `Refused` for a file that does not work in a pod, with all reasons."""
        if reasons := list(self._reasons()):
            raise Refused("\n".join(reasons))

    def _reasons(self) -> Iterator[str]:
        if not self.pipeline.has_operator:
            yield '[connect] owner is "towpath": set it to "strimzi", or deploy would fight with the operator'
        if not re.fullmatch(KUBERNETES_NAME, self.connect):
            yield (
                f"{self.connect!r} cannot be the name of a KafkaConnect: at most 50 lower-case letters, digits and -, a"
                " letter first, no - at the end"
            )
        namespace = self.options.namespace
        if namespace is not None and not re.fullmatch(_NAMESPACE, namespace):
            yield (
                f"{namespace!r} cannot be the name of a namespace: at most 63 lower-case letters, digits and -, no - at"
                " either end"
            )
        for side, cluster in (("source", self.file.source), ("destination", self.file.destination)):
            if cluster.uri and holds_secret(cluster.uri):
                yield (
                    f"[{side}] uri holds a password, and the pipeline file goes into a ConfigMap: write the URI into"
                    f" the Secret {self.tool_secret}, and name it with uri_file or uri_env"
                )
        workers = self.workers_folder
        if not self.file.connect.secrets or not workers.startswith(_MOUNTS):
            yield (
                f"[connect] secrets is {workers}: set it to a folder below /mnt, such as /mnt/towpath, where Strimzi"
                " mounts what the workers read"
            )
        for key, file in self._files():
            if str(file.parent) not in (SECRETS, workers):
                yield (
                    f"{key} = {file}: a pod has files of the pipeline in {SECRETS} (from the Secret {self.tool_secret};"
                    f" from the pipeline file ../secrets/…) and in {workers} (from {self.workers_secret})"
                )
        for key, path in self._worker_files():
            if path.parent != self.pipeline.secrets_file.parent:
                yield f"{key} = {path}: the workers also read it, so it has to be in {workers}"

    def _files(self) -> Iterator[tuple[str, Path]]:
        """What the pipeline file names, except the folder of the workers' files."""
        sections = ((name, section) for name, section in self.file if isinstance(section, Section))
        for name, section in sections:
            paths = ((key, value) for key, value in section if isinstance(value, Path) and key != "secrets")
            yield from ((f"[{name}] {key}", path) for key, path in paths)

    def _worker_files(self) -> Iterator[tuple[str, Path]]:
        for side, uri in (("source", self.pipeline.source.uri), ("destination", self.pipeline.destination.uri)):
            yield from ((f"[{side}] {option}", Path(name)) for option, name in mongo_uri.files(uri))
        yield from ((f"[kafka] client {key}", path) for key, path in self.pipeline.kafka.login.files.items())


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
        heap=plan.options.heap or least_heap(plan.pipeline.splice_cache),
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
    return environment.get_template("manifests.yaml.jinja")


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
    if client.tokens:
        raise Refused(
            "[kafka] client logs in with OAUTHBEARER, which `towpath manifests` does not write for Strimzi's workers",
            "use SCRAM or certificates; or write the KafkaConnect yourself, and only apply the other resources",
        )
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
