"""What a deployment refuses because it would break the order of records or lose some of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from connectors.connect import Connect
from connectors.definitions import PLUGINS
from connectors.errors import NoSuchConnector, Refused
from connectors.namespaces import topic_of
from connectors.servers import ReplicaSet, Servers
from connectors.spec import Pipeline

#: Keys in the configuration of a source and of a sink connector that say which replica set it works on.
SOURCE_SET, DESTINATION_SET = "towpath.source", "towpath.destination"
_REMOVE = "`towpath remove --topics` the pipeline and deploy it again"

Configurations = Mapping[str, dict[str, str] | None]


def refuse_missing_plugins(connect: Connect) -> None:
    present = connect.plugins()
    missing = [plugin for plugin in PLUGINS if plugin not in present]
    if missing:
        raise Refused(
            f"Kafka Connect at {connect.url} lacks {', '.join(missing)}; put Towpath's plugin folder on the plugin.path"
            " of every worker and restart the workers"
        )


def refuse_second_writer(pipeline: Pipeline, servers: Servers, connect: Connect) -> None:
    """Two pipelines that write one namespace overtake each other; also what a renamed pipeline looks like."""
    targets = {pipeline.renames.destination(name) for name in servers.namespaces}
    for name in connect.names():
        config = connect.config(name) if name != pipeline.sink_connector else None
        mark = (config or {}).get(DESTINATION_SET)
        if config is None or mark is None or not ReplicaSet.parse(mark).is_same(servers.destination):
            continue
        taken = sorted(targets & _written_by(name, config, servers.namespaces))
        if taken:
            raise Refused(
                f"the connector {name} already writes {', '.join(taken[:3])} to this destination, and two pipelines on"
                " one namespace overtake each other. If you renamed the pipeline: its log and its position stay with"
                f" the old name ({name.removesuffix('-sink')}); keep that, or `towpath remove` the old pipeline first"
            )


def _written_by(sink: str, config: Mapping[str, str], namespaces: Iterable[str]) -> set[str]:
    renames, prefix = json.loads(config["towpath.rename"]), sink.removesuffix("-sink")
    topics = {namespace: topic_of(prefix, namespace) for namespace in namespaces}
    return {renames.get(ns, ns) for ns, topic in topics.items() if re.fullmatch(config["topics.regex"], topic)}


def refuse_moved_cluster(servers: Servers, present: Configurations) -> None:
    """A position in one replica set means nothing in another."""
    for name, config in present.items():
        for side, key, now in (
            ("source", SOURCE_SET, servers.source),
            ("destination", DESTINATION_SET, servers.destination),
        ):
            before = (config or {}).get(key)
            if before and not ReplicaSet.parse(before).is_same(now):
                raise Refused(
                    f"{name} was deployed with the {side} {before}, and the file now names {now}: its position means"
                    f" nothing there; set [{side}] uri back, or {_REMOVE}, or give the new pipeline a name of its own"
                )


def refuse_changed_capture(wanted: Configurations, present: Configurations, servers: Servers) -> None:
    """Between the end of one connector's capture and the beginning of another's, deletes would be lost."""
    for namespace in servers.namespaces:
        before = _captured_by(present, namespace)
        after = _captured_by(wanted, namespace)
        if before and after and before != after:
            raise Refused(
                f"{namespace} is captured by {before} and would be by {after}: a collection cannot change its way of"
                f" capture on the way; leave [capture] whole_documents as it was for it, or {_REMOVE}"
            )


def _captured_by(configurations: Configurations, namespace: str) -> str | None:
    for name, config in configurations.items():
        pattern = (config or {}).get("collection.include.list")
        if pattern is not None and re.fullmatch(pattern, namespace):
            return name
    return None


def refuse_uncopied(wanted: Configurations, present: Configurations, servers: Servers, connect: Connect) -> None:
    """Debezium copies at its first start only: what a collection taken in later holds would never be copied."""
    for namespace in sorted(servers.filled):
        after = _captured_by(wanted, namespace)
        if after is None or _captured_by(present, namespace) is not None:
            continue
        if present.get(after) is not None and _has_position(connect, after):
            raise Refused(
                f"{namespace} holds documents and was not captured by {after} when it started: they would not be"
                f" copied. Give it a pipeline of its own, or {_REMOVE}"
            )


def _has_position(connect: Connect, name: str) -> bool:
    try:
        return bool(connect.offsets(name))
    except NoSuchConnector:
        return False


def refuse_lost_whole_documents(pipeline: Pipeline, present: Configurations) -> None:
    name = pipeline.whole_source_connector
    if name not in pipeline.connectors and present.get(name) is not None:
        raise Refused(
            f"the connector {name} looks up whole documents, and the file no longer names any: a collection cannot"
            f" change its way of capture on the way; name it again in [capture] whole_documents, or {_REMOVE}"
        )


def refuse_partition_count(topic: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise Refused(
            f"the topic {topic} has {found} partitions and the file says {wanted}: with another count a document's"
            f" changes would be on two partitions, out of order; set [kafka] partitions = {found}"
        )
