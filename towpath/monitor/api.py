"""The description of the API, made from the dataclasses that it answers with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from towpath.monitor.commands import COMMANDS
from towpath.monitor.dashboard import Command, History, Short
from towpath.run.report import Report

JsonSchema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pipelines:
    """All pipelines, in short."""

    pipelines: tuple[Short, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Report):
    """Everything that the page shows."""

    events: Sequence[Mapping[str, Any]]
    """Those of `run --json`."""
    commands: Sequence[Command]


@dataclass(frozen=True, slots=True)
class Health:
    status: str


@dataclass(frozen=True, slots=True)
class Error:
    """Why a request was refused."""

    error: str


class _Schema(GenerateJsonSchema):
    """Every field is in every answer."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return True


_INFO = {
    "title": "Towpath",
    "version": "1",
    "description": "What `towpath run --listen` and `towpath monitor` serve. Fields may be added at any time; none goes"
    " or changes its meaning within v1.",
}
_EVENTS = (
    "Server-Sent Events: `pipeline` with a pipeline in short, first the present state and then at each poll; `event`"
    " with an event of `run --json` and `pipeline`, its name. `?pipeline=NAME` for one"
)
_PIPELINE = "/api/v1/pipelines/{name}"
#: Path → what it is about, what its answer is made from (or its media type), and the statuses of refusals.
_READ: Mapping[str, tuple[str, type | str, tuple[int, ...]]] = {
    "/api/v1/pipelines": ("All pipelines, in short", Pipelines, (401,)),
    _PIPELINE: ("Everything that the page shows", Pipeline, (401, 404)),
    f"{_PIPELINE}/history": ("The last hour", History, (401, 404)),
    "/api/v1/events": (_EVENTS, "text/event-stream", (401, 404, 503)),
    "/healthz": ("The process answers", Health, ()),
    "/readyz": ("Whether all pipelines run or are cut over, and lag little; 503 if not", Health, ()),
    "/metrics": ("Metrics in Prometheus' text format", "text/plain", (401,)),
}


@cache
def description() -> JsonSchema:
    """OpenAPI 3.1."""
    paths = {path: {"get": _operation(path, *read)} for path, read in _READ.items()}
    paths["/readyz"]["get"]["responses"]["503"] = paths["/readyz"]["get"]["responses"]["200"]
    start = f"{_PIPELINE}/{{command}}"
    operation = _operation(start, "Start it; `commands` of the pipeline has its end", Command, (401, 403, 404, 409))
    operation["parameters"][1]["schema"]["enum"] = list(COMMANDS)
    operation["responses"]["202"] = operation["responses"].pop("200")
    paths[start] = {"post": operation | {"security": [{"token": []}]}}
    schemas = _schemas(Pipelines, Pipeline, History, Command, Health, Error)
    components = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}, "schemas": schemas}
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": components,
    }


def _operation(path: str, summary: str, answer: type | str, refusals: Sequence[int]) -> JsonSchema:
    names = re.findall(r"{(\w+)}", path)
    responses = {"200": {"description": summary, "content": _content(answer)}}
    responses |= {str(code): {"description": HTTPStatus(code).phrase, "content": _content(Error)} for code in refusals}
    return {
        "summary": summary,
        "parameters": [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names],
        "responses": responses,
    }


def _content(answer: type | str) -> JsonSchema:
    if isinstance(answer, str):
        return {answer: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{answer.__name__}"}}}


def _schemas(*answers: type) -> JsonSchema:
    mode: JsonSchemaMode = "serialization"
    inputs: list[Any] = [(answer, mode, TypeAdapter(answer)) for answer in answers]
    _, described = TypeAdapter.json_schemas(
        inputs, ref_template="#/components/schemas/{model}", schema_generator=_Schema
    )
    schemas: JsonSchema = described["$defs"]
    return schemas
