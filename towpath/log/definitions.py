"""The connectors of a pipeline: `source.json` and `sink.json`, or `plain-source.json` and `plain-sink.json`, filled in.

The JSON files hold every decision that is the same for all pipelines; `%(…)s` marks what the pipeline file decides.
They hold no secrets: the Connect worker resolves `${file:…}` (FileConfigProvider).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from towpath.config import mongo_uri
from towpath.config.namespaces import Selection
from towpath.config.pipeline import Pipeline
from towpath.files import shipped
from towpath.log.topic_settings import change_settings

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
#: Of a source. Of a sink whose log is known to lack documents: "none", and updates may find no document.
COPY = "towpath.copy"


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
    capture = pipeline.capture
    values = {
        "name": pipeline.name,
        "secrets": pipeline.secrets_file,
        "capture_prefix": prefix,
        "namespace_regex": selection.namespace_regex,
        "capture_mode": "change_streams_update_full" if whole else "change_streams",
        "whole_documents": str(whole).lower(),
        "partitions": pipeline.kafka.partitions,
        "replication_factor": pipeline.kafka.replication_factor,
        "snapshot_mode": "initial" if pipeline.copy_method == "debezium" else "no_data",
        "copy": "ranges" if pipeline.copy_method == "towpath" else "none",
        "copy_tasks": capture.copy_tasks,
        "copy_threads": capture.copy_threads,
        "copy_order": capture.copy_order,
        "read_preference": capture.read_preference,
        "documents_per_second": capture.documents_per_second,
        "bytes_per_second": capture.bytes_per_second,
        "splice_cache": 0 if whole else pipeline.splice_cache,
        "request_topic": pipeline.request_topic,
        "dead_letters": pipeline.dead_letter_topic if pipeline.exactly_once else "",
        "worker_bootstrap": pipeline.worker_bootstrap,
    }
    config = _filled("source.json" if pipeline.has_own_source else "plain-source.json", values)
    config |= mongo_uri.references(pipeline.source.uri, "source", pipeline.secrets_file)
    config |= _login(pipeline)
    if pipeline.ddl.apply:
        config[DDL] = "true"
    return config | {f"topic.creation.default.{key}": text for key, text in change_settings(pipeline).items()}


def _sink(pipeline: Pipeline) -> dict[str, str]:
    log = pipeline.log
    values = {
        "name": pipeline.name,
        "database": pipeline.database,
        "secrets": pipeline.secrets_file,
        "tasks": pipeline.write.tasks,
        "topic_regex": pipeline.selection.topic_regex(pipeline.name),
        "rename": json.dumps(dict(pipeline.collections.rename), sort_keys=True),
        "write_concern": pipeline.write.concern,
        "wtimeout_ms": pipeline.write.wtimeout,
        "fold": str(pipeline.write.fold).lower(),
        "batch_records": pipeline.write.batch_records,
        "batch_bytes": pipeline.write.batch_bytes,
        "poll_records": next(n for n in range(POLL_RECORDS, 0, -1) if pipeline.write.batch_records % n == 0),
        "until": "",
        "compaction_lag_ms": log.compaction_lag if log.compact else -1,
        "delete_retention_ms": log.delete_retention if log.compact else -1,
        "worker_bootstrap": pipeline.worker_bootstrap,
        "dead_letter_topic": pipeline.dead_letter_topic,
        "replication_factor": pipeline.kafka.replication_factor,
    }
    config = _filled("sink.json" if pipeline.exactly_once else "plain-sink.json", values)
    config |= mongo_uri.references(pipeline.destination.uri, "destination", pipeline.secrets_file)
    if pipeline.exactly_once and pipeline.copy_method == "none":
        config[COPY] = "none"
    if pipeline.ddl.apply:
        config[DDL_DROP] = pipeline.ddl.drop
    return config | _login(pipeline)


def _login(pipeline: Pipeline) -> dict[str, str]:
    """Settings of a connector for all clients that Connect creates for it: setting → reference to the secrets file.

    Not the address: Connect writes the offsets of a source with an address of its own to a second topic as well, in an
    order that a transaction does not allow.
    """
    return {
        f"{client}.override.{key}": f"${{file:{pipeline.secrets_file}:kafka.{key}}}"
        for client in ("producer", "consumer", "admin")
        for key in pipeline.kafka.login.settings
    }


def definitions(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """Connector name → configuration, sources first."""
    configs = {pipeline.source_connector: _source(pipeline, pipeline.name, pipeline.captured_by_update, whole=False)}
    if pipeline.captured_whole:
        prefix = pipeline.capture_prefixes[1]
        configs[pipeline.whole_source_connector] = _source(pipeline, prefix, pipeline.captured_whole, whole=True)
    configs[pipeline.sink_connector] = _sink(pipeline)
    return configs
