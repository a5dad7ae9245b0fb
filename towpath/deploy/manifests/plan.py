"""A pipeline as it is to run on Kubernetes: its file, what its resources are called, and what does not work there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from towpath.config import mongo_uri
from towpath.config.loading import holds_secret
from towpath.config.pipeline import KUBERNETES_NAME, Pipeline
from towpath.errors import Refused

#: Where the pods of the tool have the pipeline file, and the files of their Secret.
PIPELINES, SECRETS = "/etc/towpath/pipeline", "/etc/towpath/secrets"
#: The only folder below which Strimzi mounts volumes into workers.
_MOUNTS = "/mnt/"
_API = "-connect-api"
_NAMESPACE = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


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
        file = self.file
        named = {
            "[source] uri_file": file.source.uri_file,
            "[destination] uri_file": file.destination.uri_file,
            "[kafka] client": file.kafka.client,
            "[connect] user_file": file.connect.user_file,
            "[connect] ca": file.connect.ca,
            "[connect] certificate": file.connect.certificate,
            "[run] token_file": file.run.token_file,
            "[run] certificate": file.run.certificate,
            "[run] key": file.run.key,
        }
        yield from ((key, name) for key, name in named.items() if name)

    def _worker_files(self) -> Iterator[tuple[str, Path]]:
        for side, uri in (("source", self.pipeline.source.uri), ("destination", self.pipeline.destination.uri)):
            yield from ((f"[{side}] {option}", Path(name)) for option, name in mongo_uri.files(uri))
        yield from ((f"[kafka] client {key}", path) for key, path in self.pipeline.kafka.login.files.items())
