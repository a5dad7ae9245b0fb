"""Kafka Connect: workers, plugins, what they report about the connectors, and other MongoDB connectors there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from towpath.checks.facts import Facts
from towpath.checks.rule import Finding, Rule, about, error, ok, rules, warning
from towpath.clients.connect.rest import code_of
from towpath.config.pipeline import Pipeline
from towpath.errors import Unresolved
from towpath.log.definitions import DESTINATION_SET, SOURCE_SET, definitions, plugins
from towpath.store import credentials

SUBJECT = "connect"
_EXACTLY_ONCE = "exactly.once.support"
_SOURCE = "io.towpath.source.MongoSource"
_HEAP = "towpath.worker.heap"
_HEAP_CODE = "TWP-WORKER-HEAP"
#: Of a worker that takes documents of 16 MB, and has a splice cache of up to the default's size.
_LEAST_HEAP_MB = 1024
_USUAL_CACHE_MB = 64


def workers(facts: Facts) -> Iterator[Finding]:
    yield ok(f"{facts.connect.url}: Kafka Connect {facts.worker[0]}")
    yield from exposed(facts.pipeline)


def same_kafka(facts: Facts) -> Iterator[Finding]:
    """The workers use the brokers at [kafka] bootstrap."""
    _, theirs = facts.worker
    if theirs != facts.kafka_cluster:
        yield error(
            f"its workers use the Kafka cluster {theirs}, but [kafka] bootstrap leads to {facts.kafka_cluster}:"
            " topics would be created in one and expected in the other",
            "set [kafka] bootstrap to the brokers in the workers' bootstrap.servers",
        )


def present_plugins(facts: Facts) -> Iterator[Finding]:
    missing = [plugin for plugin in plugins(facts.pipeline) if plugin not in facts.plugins]
    if missing:
        yield error(
            f"Kafka Connect at {facts.connect.url} lacks {', '.join(missing)}",
            "put Towpath's plugin folder on the plugin.path of every worker and restart the workers",
        )


def connectors(facts: Facts) -> Iterator[Finding]:
    """Connect accepts the connectors, and the worker has memory for them."""
    if any(present_plugins(facts)):
        return
    versions = [f"{name.rsplit('.', 1)[-1]} {facts.plugins[name]}" for name in plugins(facts.pipeline)]
    yield ok(f"the worker that answered has the plugins {', '.join(versions)}")
    if facts.pipeline.has_own_source:
        yield from heap(facts.connect.recommended(_SOURCE, _HEAP), facts.pipeline.splice_cache)
    yield from _validated(facts)


def least_heap(splice_cache: int) -> int:
    """In MB, for a worker of a pipeline with a splice cache of so many bytes."""
    return _LEAST_HEAP_MB + max(0, splice_cache // 2**20 - _USUAL_CACHE_MB)


def heap(values: Sequence[str], splice_cache: int) -> Iterator[Finding]:
    """Judge the heap of the worker that answered: `heap=…` and `new=…` (what new objects can get of it), in bytes.

    An earlier version of the plugin, and a JVM other than HotSpot, give no values: then there is no finding.
    """
    sizes = {name: int(size) // 2**20 for name, _, size in (value.partition("=") for value in values)}
    if not sizes:
        return
    heap, new = sizes["heap"], min(sizes["new"], sizes["heap"])  # a collector without a limit reports a huge one
    found = f"the worker that answered has a heap of {heap:,} MB, {new:,} MB of it for new objects"
    needed = least_heap(splice_cache)
    least = max(heap, needed)
    advice = f'KAFKA_HEAP_OPTS="-Xmx{least}m -Xmn{least // 2}m" on every worker, and restart them'
    if heap < needed:
        yield warning(
            f"{found}: documents of up to 16 MB and [capture] splice_cache need a heap of {needed:,} MB, so a task may"
            " run out of memory",
            advice,
            code=_HEAP_CODE,
        )
    elif 3 * new <= heap:
        yield warning(
            f"{found}: most of what a worker allocates lives as long as one batch, and with a third of the heap or less"
            " the collector copies those records again and again",
            advice,
            code=_HEAP_CODE,
        )
    else:
        yield ok(found)


def exposed(pipeline: Pipeline) -> Iterator[Finding]:
    """Warn about a REST API that other machines can reach without authentication or encryption."""
    url, login = urlsplit(pipeline.connect.url), pipeline.connect.login
    host = url.hostname or ""
    with suppress(ValueError):
        if host == "localhost" or ip_address(host).is_loopback:
            return
    if not login.user and not login.certificate:
        yield warning(
            f"its REST API at {host} has no authentication: anyone who reaches it can make the workers read any file"
            " that they have access to, including the one with the URIs",
            "make sure that the cluster enforces the NetworkPolicies that guard it (docs/how-to/kubernetes.md#secrets)"
            if pipeline.has_operator
            else "let it listen on loopback only, or require a password or a certificate (docs/how-to/secure.md)",
        )
    elif url.scheme == "http":
        yield warning(
            f"the password for its REST API goes to {host} over the network unencrypted",
            "let it listen with https (listeners=https://…), and set [connect] url to an https:// address",
        )


def _validated(facts: Facts) -> Iterator[Finding]:
    """Have Connect validate the definitions that `deploy` would use. This changes nothing.

    It shows whether the worker resolves `${file:…}` (an unresolved reference is not a URI), and whether it has
    exactly-once support for sources, which the validated source requires. Connectors of a cluster that does not
    answer, or refuses the login, are left out: the workers would try to reach it for half a minute or more.
    """
    pipeline, silent = facts.pipeline, facts.unreachable.keys() & {"source", "destination"}
    if not silent and pipeline.secrets_file.exists() and credentials.differs(pipeline.secrets_file, facts.secrets):
        yield warning(
            f"{pipeline.secrets_file} and the pipeline file hold different URIs, so the connectors were not validated",
            "run `towpath manifests PIPELINE --credentials FILE`, write its output into the Secret of the workers, and"
            " restart the connectors"
            if pipeline.has_operator
            else "run `towpath deploy`, which rewrites the former and restarts the connectors",
        )
        return
    for name, config in definitions(pipeline).items():
        is_sink = name == pipeline.sink_connector
        if ("destination" if is_sink else "source") in silent:
            continue
        checked = config if is_sink else config | {_EXACTLY_ONCE: "required"}
        try:
            found = [*validated(facts.connect.errors(name, checked), pipeline)]
        except Unresolved:
            found = [_unread(pipeline)]
        yield from about(f"{SUBJECT} {name}", found)


def validated(errors: Mapping[str, list[str]], pipeline: Pipeline) -> Iterator[Finding]:
    """The findings from the answer to a validation. `errors`: setting → messages."""
    overrides = [key for key in errors if ".override." in key and not code_of(errors[key][0])]
    if overrides:
        yield error(
            f"the workers do not allow a connector to set {', '.join(overrides)}: {errors[overrides[0]][0]}",
            "set connector.client.config.override.policy=All on every worker",
        )
    enable = "set exactly.once.source.support=enabled on every worker (first `preparing` on all, then `enabled`)"
    for key, (message, *_) in errors.items():
        if key == _EXACTLY_ONCE and pipeline.has_own_source:
            yield error(
                "the workers have no exactly-once support for sources, which Towpath's source requires",
                f'{enable}, or use mode = "plain" with copy = "debezium"',
            )
        elif key == _EXACTLY_ONCE:
            yield warning(
                "the workers have no exactly-once support for sources: what was captured shortly before a worker is"
                " killed is captured again and appears twice in the log",
                enable,
            )
        elif credentials.is_unresolved(key, message):
            yield error(
                f"the worker finds no URI through ${{file:{pipeline.secrets_file}:…}}: {message}",
                credentials.advice(pipeline.secrets_file),
            )
        elif key not in overrides:
            advice = f"correct {key}; deploy would stop with the same message"
            yield error(f"{key}: {message}", advice, where=key, code=code_of(message))
    if not any(key != _EXACTLY_ONCE for key in errors):
        yield ok("Kafka Connect validated it, resolved the URI and reached the cluster")


def _unread(pipeline: Pipeline) -> Finding:
    if pipeline.has_operator:
        return error(
            f"the worker cannot read {pipeline.secrets_file}",
            f"the Secret {pipeline.name}-workers has to have {pipeline.secrets_file.name}, and to be mounted at"
            f" {pipeline.secrets_file.parent} in the workers (docs/how-to/kubernetes.md)",
        )
    if not pipeline.secrets_file.exists():
        return ok(
            f"the worker resolves ${{file:…}}; {pipeline.secrets_file} does not exist yet, deploy writes it",
        )
    return error(
        f"the worker cannot read {pipeline.secrets_file}, which exists on this machine",
        "make it readable for the user that runs the worker; if workers run on other machines, copy it to each, or set"
        " [connect] secrets to a folder that they share",
    )


_SINKS = "com.mongodb.kafka.connect.MongoSinkConnector", "io.debezium.connector.mongodb.MongoDbSinkConnector"
_SOURCES = "io.debezium.connector.mongodb.MongoDbConnector", "com.mongodb.kafka.connect.MongoSourceConnector"
#: What a stock handler does wrong with changes, by `change.data.capture.handler`.
_HANDLERS = {
    "com.mongodb.kafka.connect.sink.cdc.mongodb.ChangeStreamHandler": (
        "it ignores truncatedArrays: arrays that were shortened at the source stay long"
    ),
    "com.mongodb.kafka.connect.sink.cdc.debezium.mongodb.ChangeStreamHandler": (
        "it replaces documents from `after`, whose JSON has lost types, and fails where `after` is null"
    ),
}


def others(pipeline: Pipeline, configs: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Warn about other connectors (name → configuration) that interfere with the pipeline.

    Those of another pipeline are not among them: the preconditions of `deploy` check these.
    """
    ours = (*pipeline.connectors, pipeline.whole_source_connector)
    for name, config in sorted(configs.items()):
        plugin, prefix = config.get("connector.class"), config.get("topic.prefix", "")
        if name in ours or SOURCE_SET in config or DESTINATION_SET in config:
            continue
        if plugin in _SINKS:
            yield from about(f"{SUBJECT} {name}", _sink(config, pipeline))
        elif plugin in _SOURCES and prefix in pipeline.capture_prefixes:
            yield warning(
                f"a source that is not Towpath's has the topic.prefix {prefix!r}: it writes JSON to the pipeline's"
                " topics, which stops the sink",
                "set another topic.prefix for it, or remove it",
                about=f"{SUBJECT} {name}",
            )


def _sink(config: Mapping[str, str], pipeline: Pipeline) -> Iterator[Finding]:
    trap = _HANDLERS.get(config.get("change.data.capture.handler", ""), "")
    if _reads(config, pipeline):
        yield warning(
            f"a sink that is not Towpath's reads the pipeline's topics; their values are BSON in Towpath's own format,"
            f" and {trap or 'it does not support updates'}",
            "let it read other topics, or remove it",
        )
    shared = _hosts(config.get("connection.uri", "") or config.get("mongodb.connection.string", ""))
    if shared & _hosts(pipeline.destination.uri):
        yield warning(
            "a sink that is not Towpath's writes to the destination: in a namespace that both write, the two overwrite"
            f" each other's changes{', and ' + trap if trap else ''}",
            "make sure that it writes to no namespace of the pipeline, or remove it",
        )
    if config.get("errors.tolerance") == "all" and not config.get("errors.deadletterqueue.topic.name"):
        yield warning(
            "errors.tolerance=all without a dead-letter topic: records that it cannot write are lost silently",
            "set errors.deadletterqueue.topic.name on that connector",
        )


def _reads(config: Mapping[str, str], pipeline: Pipeline) -> bool:
    """Whether a sink reads topics of the pipeline. A `topics.regex` is matched with the included namespaces."""
    if any(pipeline.is_change_topic(topic.strip()) for topic in config.get("topics", "").split(",")):
        return True
    try:
        expression = re.compile(config.get("topics.regex", "(?!)"))
    except re.error:
        return False  # a Java expression that Python does not know
    return any(
        expression.fullmatch(f"{pipeline.name}.{name}".replace("*", "x")) for name in pipeline.collections.include
    )


def _hosts(uri: str) -> set[str]:
    """Each `host:port` of a connection string; empty for a reference to a config provider."""
    if "://" not in uri:
        return set()
    return set(re.split(r"[/?]", uri.partition("://")[2], maxsplit=1)[0].rpartition("@")[2].split(","))


RULES = (
    Rule(SUBJECT, workers, required=False),
    *rules(SUBJECT, same_kafka, present_plugins),
    Rule(SUBJECT, connectors, required=False),
    Rule(SUBJECT, lambda facts: others(facts.pipeline, facts.configurations), required=False),
)
