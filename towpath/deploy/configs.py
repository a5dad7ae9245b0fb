"""The connectors of a pipeline: `source.json` and `sink.json`, or `plain-source.json` and `plain-sink.json`, filled in.

The JSON files hold every decision that is the same for all pipelines; `%(…)s` marks what the pipeline file decides.
They hold no secrets: the Connect worker resolves `${file:…}` (FileConfigProvider).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from towpath.clients.mongo import uri as mongo_uri
from towpath.config.namespaces import Selection
from towpath.config.pipeline import Pipeline
from towpath.config.topic_settings import change_settings
from towpath.files import shipped

#: Only the number of records bounds a poll, and a record can have 16 MB: so many fit into a worker's heap.
#: A transaction takes full polls until its batch is full, so this is lowered to a divisor of `batch_records`.
POLL_RECORDS = 4

#: Settings of a source and of a sink, only for pipelines with `[ddl]`: others keep the configuration that they have.
DDL, DDL_DROP = "towpath.ddl", "towpath.ddl.drop"
#: Of a sink that applies the log from its beginning: it creates collections again, and holds nothing.
DDL_REPLAY = "towpath.ddl.replay"
#: Topic → an offset in each of its partitions, from which on the sink stops there at the next schema change.
DDL_ENDS = "towpath.ddl.ends"

#: What Connect runs, and what people may post with curl.
DEFINITIONS = shipped("connectors")


def plugins(pipeline: Pipeline) -> tuple[str, ...]:
    """The plugin classes that a Connect worker needs for the connectors of a pipeline, each once."""
    classes = (
        text
        for config in definitions(pipeline).values()
        for key, text in config.items()
        if key == "connector.class" or re.fullmatch(r"transforms\.\w+\.type", key)
    )
    return tuple(dict.fromkeys(classes))


def _filled(file: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {key: text % values for key, text in json.loads((DEFINITIONS / file).read_text(encoding="utf-8")).items()}


def _source(pipeline: Pipeline, prefix: str, selection: Selection, *, whole: bool) -> dict[str, str]:
    copy = pipeline.copy
    values = {
        "name": pipeline.name,
        "secrets": pipeline.secrets,
        "capture_prefix": prefix,
        "namespace_regex": selection.namespace_regex,
        "capture_mode": "change_streams_update_full" if whole else "change_streams",
        "whole_documents": str(whole).lower(),
        "partitions": pipeline.partitions,
        "replication_factor": pipeline.replication_factor,
        "snapshot_mode": "initial" if copy.method == "debezium" else "no_data",
        "copy": "ranges" if copy.method == "towpath" else "none",
        "copy_tasks": copy.tasks,
        "copy_threads": copy.threads,
        "copy_order": copy.order,
        "read_preference": copy.read_preference,
        "documents_per_second": copy.documents_per_second,
        "bytes_per_second": copy.bytes_per_second,
        "splice_cache": 0 if whole else pipeline.splice_cache,
        "request_topic": pipeline.request_topic,
        "dead_letters": pipeline.dead_letter_topic if pipeline.exactly_once else "",
        "worker_bootstrap": pipeline.worker_bootstrap,
    }
    config = _filled("source.json" if pipeline.has_own_source else "plain-source.json", values)
    config |= mongo_uri.references(pipeline.source_uri, "source", pipeline.secrets)
    config |= pipeline.kafka_client.references(pipeline.secrets)
    if pipeline.ddl:
        config[DDL] = "true"
    return config | {f"topic.creation.default.{key}": text for key, text in change_settings(pipeline).items()}


def _sink(pipeline: Pipeline) -> dict[str, str]:
    compaction = pipeline.compaction
    values = {
        "name": pipeline.name,
        "database": pipeline.database,
        "secrets": pipeline.secrets,
        "tasks": pipeline.tasks,
        "topic_regex": pipeline.selection.topic_regex(pipeline.name),
        "rename": json.dumps(dict(pipeline.renames.by_source), sort_keys=True),
        "write_concern": pipeline.write_concern,
        "wtimeout_ms": pipeline.wtimeout_ms,
        "fold": str(pipeline.fold).lower(),
        "batch_records": pipeline.batch_records,
        "batch_bytes": pipeline.batch_bytes,
        "poll_records": next(n for n in range(POLL_RECORDS, 0, -1) if pipeline.batch_records % n == 0),
        "until": "",
        "compaction_lag_ms": compaction.lag_ms if compaction else -1,
        "delete_retention_ms": compaction.delete_retention_ms if compaction else -1,
        "worker_bootstrap": pipeline.worker_bootstrap,
        "dead_letter_topic": pipeline.dead_letter_topic,
        "replication_factor": pipeline.replication_factor,
    }
    config = _filled("sink.json" if pipeline.exactly_once else "plain-sink.json", values)
    config |= mongo_uri.references(pipeline.destination_uri, "destination", pipeline.secrets)
    if pipeline.ddl:
        config[DDL_DROP] = pipeline.ddl.drop
    return config | pipeline.kafka_client.references(pipeline.secrets)


def definitions(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """Connector name → configuration, sources first."""
    configs = {pipeline.source_connector: _source(pipeline, pipeline.name, pipeline.captured_by_update, whole=False)}
    if pipeline.captured_whole:
        prefix = pipeline.capture_prefixes[1]
        configs[pipeline.whole_source_connector] = _source(pipeline, prefix, pipeline.captured_whole, whole=True)
    configs[pipeline.sink_connector] = _sink(pipeline)
    return configs
