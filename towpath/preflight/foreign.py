"""Other MongoDB connectors in the same Connect cluster, and what stock connectors do to a pipeline's namespaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from towpath.deploy.preconditions import DESTINATION_SET, SOURCE_SET
from towpath.finding import Finding, warning
from towpath.pipeline import Pipeline

Config = Mapping[str, str]

_SINKS = (
    "com.mongodb.kafka.connect.MongoSinkConnector",
    "io.debezium.connector.mongodb.MongoDbSinkConnector",
)
_SOURCES = (
    "io.debezium.connector.mongodb.MongoDbConnector",
    "com.mongodb.kafka.connect.MongoSourceConnector",
)
#: What a stock handler does with changes, by `change.data.capture.handler`.
_HANDLERS = {
    "com.mongodb.kafka.connect.sink.cdc.mongodb.ChangeStreamHandler": (
        "it passes over truncatedArrays: arrays that were shortened at the source stay long"
    ),
    "com.mongodb.kafka.connect.sink.cdc.debezium.mongodb.ChangeStreamHandler": (
        "it replaces documents from `after`, whose JSON has lost types, and fails where `after` is null"
    ),
}


def check(pipeline: Pipeline, configs: Mapping[str, Config]) -> Iterator[Finding]:
    """What other connectors (name → configuration) are traps for the pipeline."""
    for name, config in sorted(configs.items()):
        if name in (*pipeline.connectors, pipeline.whole_source_connector):
            continue
        if SOURCE_SET in config or DESTINATION_SET in config:
            continue  # another pipeline's: deploy itself refuses what collides
        if config.get("connector.class") in _SINKS:
            yield from _sink(name, config, pipeline)
        elif config.get("connector.class") in _SOURCES:
            yield from _source(name, config, pipeline)


def _sink(name: str, config: Config, pipeline: Pipeline) -> Iterator[Finding]:
    subject = f"connect {name}"
    if _reads(config, pipeline):
        yield warning(
            subject,
            f"a sink that is not Towpath's reads the pipeline's topics; their values are BSON in Towpath's own form,"
            f" and {_HANDLERS.get(config.get('change.data.capture.handler', ''), 'it does not know updates')}",
            "give it other topics, or remove it",
        )
    shared = _hosts(config.get("connection.uri", "") or config.get("mongodb.connection.string", ""))
    if shared & _hosts(pipeline.destination_uri):
        trap = _HANDLERS.get(config.get("change.data.capture.handler", ""), "")
        yield warning(
            subject,
            "a sink that is not Towpath's writes to the destination: on a namespace that both write, the two overtake"
            f" each other{', and ' + trap if trap else ''}",
            "see that it writes to no namespace of the pipeline, or remove it",
        )
    if config.get("errors.tolerance") == "all" and not config.get("errors.deadletterqueue.topic.name"):
        yield warning(
            subject,
            "errors.tolerance=all without a dead-letter topic: what it cannot write is lost without a word",
            "set errors.deadletterqueue.topic.name on that connector",
        )


def _source(name: str, config: Config, pipeline: Pipeline) -> Iterator[Finding]:
    prefix = config.get("topic.prefix", "")
    if prefix in pipeline.capture_prefixes:
        yield warning(
            f"connect {name}",
            f"a source that is not Towpath's has the topic.prefix {prefix!r}: it writes JSON to the pipeline's topics,"
            " at which the sink stops",
            "give it another topic.prefix, or remove it",
        )


def _reads(config: Config, pipeline: Pipeline) -> bool:
    """Whether a sink's topics are among the pipeline's. A regular expression is tried on the included namespaces."""
    pattern = pipeline.selection.topic_regex(pipeline.name)
    listed = [topic.strip() for topic in config.get("topics", "").split(",")]
    if any(re.fullmatch(pattern, topic) for topic in listed):
        return True
    try:
        wanted = re.compile(config.get("topics.regex", "(?!)"))
    except re.error:
        return False  # a Java expression that Python does not know
    return any(wanted.fullmatch(f"{pipeline.name}.{name}".replace("*", "x")) for name in pipeline.include)


def _hosts(uri: str) -> set[str]:
    """`host:port` of a connection string; none of one that is behind a config provider."""
    if "://" not in uri:
        return set()
    return set(re.split(r"[/?]", uri.partition("://")[2], maxsplit=1)[0].rpartition("@")[2].split(","))
