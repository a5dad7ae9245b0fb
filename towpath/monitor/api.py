"""The description of the API, made from the dataclasses that it answers with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from towpath.monitor.board import Command, History, Short
from towpath.monitor.commands import COMMANDS
from towpath.run.status.report import Report

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


_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_COMMAND = {"name": "command", "in": "path", "required": True, "schema": {"type": "string", "enum": list(COMMANDS)}}
_ONE = {"name": "pipeline", "in": "query", "required": False, "schema": {"type": "string"}, "description": "only this"}
_REFUSALS = {
    401: "a token is needed",
    403: "read-only, or sent by a page of another site",
    404: "no such pipeline or command",
    409: "the same command runs",
    503: "not ready, or too many clients",
}


@cache
def description() -> JsonSchema:
    """OpenAPI 3.1."""
    api, pipeline, text = "/api/v1", "/api/v1/pipelines/{name}", "text/plain"
    stream = "text/event-stream"
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Towpath",
            "version": "1",
            "description": "What `towpath run --listen` and `towpath monitor` serve."
            " Fields may be added at any time; none goes or changes its meaning within v1.",
        },
        "security": [{}, {"token": []}],
        "paths": {
            f"{api}/pipelines": {"get": _operation("All pipelines, in short", Pipelines, 401)},
            pipeline: {"get": _operation("Everything that the page shows", Pipeline, 401, 404, parameters=[_NAME])},
            f"{pipeline}/history": {"get": _operation("The last hour", History, 401, 404, parameters=[_NAME])},
            f"{pipeline}/{{command}}": {
                "post": {
                    **_operation("Start it", Command, 401, 403, 404, 409, status=202, parameters=[_NAME, _COMMAND]),
                    "security": [{"token": []}],
                }
            },
            f"{api}/events": {
                "get": _operation(
                    "Server-Sent Events: `pipeline` with a pipeline in short, first the present state and then at each"
                    " poll; `event` with an event of `run --json` and `pipeline`, its name",
                    stream,
                    *(401, 404, 503),
                    parameters=[_ONE],
                )
            },
            "/healthz": {"get": {**_operation("The process answers", Health), "security": []}},
            "/readyz": {"get": {**_operation("All pipelines run, and lag little", Health, 503), "security": []}},
            "/metrics": {"get": _operation("Metrics in Prometheus' text format", text, 401)},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(Pipelines, Pipeline, History, Command, Health, Error),
        },
    }


def _operation(
    summary: str,
    answer: type | str,
    *refusals: int,
    status: int = 200,
    parameters: Sequence[Mapping[str, Any]] = (),
) -> JsonSchema:
    """`answer`: what it is made from, or its media type."""
    refused = {code: {"description": _REFUSALS[code], "content": _content(Error)} for code in refusals}
    if answer is Health and 503 in refused:
        refused[503]["content"] = _content(Health)
    responses = {status: {"description": summary, "content": _content(answer)}, **refused}
    return {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {str(code): response for code, response in responses.items()},
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
