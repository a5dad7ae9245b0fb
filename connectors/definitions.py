"""The connectors of a pipeline: `source.json` and `sink.json`, filled in.

The JSON files hold every decision that is the same for all pipelines; `%(…)s` marks what the pipeline file decides.
No secret is in them: `${file:…}` is resolved by the Connect worker (FileConfigProvider).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from connectors.namespaces import Selection
from connectors.spec import Pipeline
from connectors.topics import TOPIC_SETTINGS, retention_settings

SOURCE = Path(__file__).parent / "source.json"
SINK = Path(__file__).parent / "sink.json"

#: Plugin classes that a Connect worker must have.
PLUGINS = (
    "io.debezium.connector.mongodb.MongoDbConnector",
    "com.mongodb.kafka.connect.MongoSinkConnector",
    "io.towpath.transform.DebeziumToRecord",
)


def _filled(file: Path, values: Mapping[str, Any]) -> dict[str, str]:
    return {key: text % values for key, text in json.loads(file.read_text()).items()}


def _source(pipeline: Pipeline, prefix: str, selection: Selection, *, whole: bool) -> dict[str, str]:
    values = {
        "name": pipeline.name,
        "secrets": pipeline.secrets,
        "capture_prefix": prefix,
        "namespace_regex": selection.namespace_regex,
        "capture_mode": "change_streams_update_full" if whole else "change_streams",
        "whole_documents": str(whole).lower(),
        "partitions": pipeline.partitions,
        "replication_factor": pipeline.replication_factor,
    }
    settings = TOPIC_SETTINGS | retention_settings(pipeline.retention_ms)
    return _filled(SOURCE, values) | {f"topic.creation.default.{key}": text for key, text in settings.items()}


def _sink(pipeline: Pipeline) -> dict[str, str]:
    values = {
        "database": pipeline.database,
        "secrets": pipeline.secrets,
        "tasks": pipeline.tasks,
        "topic_regex": pipeline.selection.topic_regex(pipeline.name),
        "rename": json.dumps(dict(pipeline.renames.by_source), sort_keys=True),
    }
    return _filled(SINK, values)


def definitions(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """Connector name → configuration, sources first."""
    found = {pipeline.source_connector: _source(pipeline, pipeline.name, pipeline.captured_by_update, whole=False)}
    if pipeline.captured_whole:
        prefix = pipeline.capture_prefixes[1]
        found[pipeline.whole_source_connector] = _source(pipeline, prefix, pipeline.captured_whole, whole=True)
    found[pipeline.sink_connector] = _sink(pipeline)
    return found
