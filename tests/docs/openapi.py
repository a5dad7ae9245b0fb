"""The page of the API, from the OpenAPI description that the server returns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from towpath.monitor import api

_SCHEMA = "#/components/schemas/"


def page() -> str:
    """Each request with its answers, then the fields of all objects that answers contain."""
    described = api.description()
    requests = [
        part
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        for part in _request(f"{method.upper()} {path}", operation)
    ]
    schemas = [part for name, schema in described["components"]["schemas"].items() for part in _object(name, schema)]
    return "\n\n".join(["## Requests", *requests, "## Objects", *schemas]) + "\n"


def _request(name: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield f"{operation['summary']}."
    for parameter in operation["parameters"]:
        if values := parameter["schema"].get("enum"):
            yield f"`{parameter['name']}`: {', '.join(f'`{value}`' for value in values)}."
    if operation.get("security"):
        yield "Needs the token."
    answers = sorted(operation["responses"].items())
    rows = [f"| {code} | {_answer(answer)} | {_phrase(answer, operation['summary'])} |" for code, answer in answers]
    yield "\n".join(["| status | answer | |", "|---|---|---|", *rows])


def _phrase(answer: Mapping[str, Any], summary: str) -> str:
    """What a refusal means; nothing for what the summary has said."""
    return "" if answer["description"] == summary else str(answer["description"])


def _answer(answer: Mapping[str, Any]) -> str:
    ((media_type, content),) = answer["content"].items()
    return _type(content["schema"]) if media_type == "application/json" else f"`{media_type}`"


def _object(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if words := schema.get("description"):
        yield _line(words).removesuffix(".") + "."
    rows = [f"| `{key}` | {_type(value)} | {_meaning(value)} |" for key, value in schema["properties"].items()]
    yield "\n".join(["| field | type | |", "|---|---|---|", *rows])


def _meaning(value: Mapping[str, Any]) -> str:
    if values := value.get("enum"):
        return ", ".join(f"`{one}`" for one in values)
    return _line(value.get("description", "")).replace("|", "\\|")


def _type(schema: Mapping[str, Any]) -> str:
    """The type in words, with a link to each object in it."""
    if name := schema.get("$ref", "").removeprefix(_SCHEMA):
        return f"[{name}](#{name.lower()})"
    if kinds := schema.get("anyOf"):
        return " or ".join(map(_type, kinds))
    if "items" in schema:
        return re.sub("^array of array", "array of arrays", f"array of {_type(schema['items'])}")
    if isinstance(values := schema.get("additionalProperties"), dict):
        return f"object: name → {_type(values)}"
    return str(schema.get("type", "any"))


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
