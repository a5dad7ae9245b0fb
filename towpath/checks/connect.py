"""Kafka Connect: which workers, which plugins, what they have against the connectors, who else is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connectors.connect import Connect
from connectors.definitions import PLUGINS, definitions
from connectors.errors import ConnectError, ConnectorsError, Refused
from connectors.refusals import refuse_missing_plugins
from connectors.spec import Pipeline
from connectors.topics import Topics
from towpath.checks import foreign
from towpath.checks.finding import Finding, error, ok, refusal, warning

_SUBJECT = "connect"
_EXACTLY_ONCE = "exactly.once.support"
_URIS = ("mongodb.connection.string", "connection.uri")


def is_deployed(connect: Connect, pipeline: Pipeline) -> bool:
    """Whether the pipeline's sink is there; False as well when that cannot be found out."""
    try:
        return connect.config(pipeline.sink_connector) is not None
    except ConnectError:
        return False


def check(pipeline: Pipeline, connect: Connect, topics: Topics) -> Iterator[Finding]:
    try:
        yield ok(_SUBJECT, f"{connect.url}: Kafka Connect {connect.version()}")
        yield from _same_kafka(connect, topics)
        plugins = connect.plugins()
        try:
            refuse_missing_plugins(connect)
        except Refused as refused:
            yield refusal(_SUBJECT, refused)
        else:
            versions = ", ".join(f"{name.rsplit('.', 1)[-1]} {plugins[name]}" for name in PLUGINS)
            yield ok(_SUBJECT, f"the worker that answered has {versions}")
            yield from _validated(pipeline, connect)
        configs = {name: connect.config(name) or {} for name in connect.names()}
        yield from foreign.check(pipeline, configs)
    except ConnectorsError as failure:
        yield refusal(_SUBJECT, failure)


def _same_kafka(connect: Connect, topics: Topics) -> Iterator[Finding]:
    theirs = connect.kafka_cluster()
    try:
        ours = topics.cluster()
    except ConnectorsError:
        return  # that Kafka is out of reach is a finding of its own
    if theirs != ours:
        yield error(
            _SUBJECT,
            f"its workers work with the Kafka cluster {theirs}, and [kafka] bootstrap leads to {ours}: topics would be"
            " made in one and looked for in the other",
            "name in [kafka] bootstrap the brokers that are in the workers' bootstrap.servers",
        )


def _validated(pipeline: Pipeline, connect: Connect) -> Iterator[Finding]:
    """Have Connect validate both definitions as `deploy` would put them. That leaves nothing behind.

    It shows whether the worker resolves `${file:…}` (a reference left as it is cannot be a URI), and, by asking for
    it, whether the worker has exactly-once support for sources.
    """
    for name, config in definitions(pipeline).items():
        asked = config if name == pipeline.sink_connector else config | {_EXACTLY_ONCE: "required"}
        try:
            yield from judged(name, connect.errors(name, asked), pipeline)
        except ConnectError as failure:
            if "Could not read properties" not in str(failure):
                raise
            yield _unread(name, pipeline)


def judged(name: str, errors: Mapping[str, list[str]], pipeline: Pipeline) -> Iterator[Finding]:
    """What the answer to a validation means: `errors` is setting → messages."""
    subject = f"{_SUBJECT} {name}"
    for key, messages in errors.items():
        if key == _EXACTLY_ONCE:
            yield warning(
                subject,
                "the workers have no exactly-once support for sources: what was captured shortly before a worker died"
                " is captured again, and repeated in the log",
                "set exactly.once.source.support=enabled on every worker (first `preparing` on all, then `enabled`)",
            )
        elif key in _URIS and not _resolved(messages):
            yield error(
                subject,
                f"the worker did not resolve ${{file:{pipeline.secrets}:…}}: {messages[0]}",
                "give every worker config.providers=file with"
                " config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider, and if"
                f" config.providers.file.param.allowed.paths is set, {pipeline.secrets.parent} in it",
            )
        else:
            yield error(subject, f"{key}: {messages[0]}", "deploy would stop with these words; correct what they name")
    if not any(key != _EXACTLY_ONCE for key in errors):
        yield ok(subject, "validated by Kafka Connect, which resolves the URI and reaches the cluster with it")


def _resolved(messages: list[str]) -> bool:
    """Whether a complaint about a URI is not that it is no URI."""
    return not any("must start with" in message or "${file:" in message for message in messages)


def _unread(name: str, pipeline: Pipeline) -> Finding:
    subject = f"{_SUBJECT} {name}"
    if not pipeline.secrets.exists():
        return ok(subject, f"the worker resolves ${{file:…}}; {pipeline.secrets} is not there yet, deploy writes it")
    return error(
        subject,
        f"the worker cannot read {pipeline.secrets}, which is on this machine",
        "let the user that the worker runs as read it; if workers run on other machines, copy it to each, or name a"
        " folder that they share with [connect] secrets",
    )
