"""The description of the API, and whether answers are as it says, at every depth."""

from __future__ import annotations

import re
from typing import Any

import httpx

from tests.support import schema
from towpath.monitor.api import description

API = description()
#: Refusals before any address is served; those of Starlette and uvicorn are plain text.
_REFUSALS = (400, 405, 413, 503)


def refuse_answer(answer: httpx.Response) -> None:
    """Fail where an answer of the API is not as described for its address and status: a hook of an HTTP client."""
    path, method = answer.request.url.path, answer.request.method.lower()
    found = (methods[method] for template, methods in API["paths"].items() if method in methods and _is(path, template))
    described = next(found, None)
    if described is None:  # a page
        return
    status = str(answer.status_code)
    kind = answer.headers["content-type"].partition(";")[0]
    if answer.status_code in _REFUSALS and kind == "text/plain":
        return
    assert status in described["responses"] or answer.status_code in _REFUSALS, f"{method} {path}: {status}"
    content = described["responses"][status]["content"] if status in described["responses"] else _ERROR
    assert kind in content
    if "application/json" in content:
        answer.read()
        _refuse(answer.json(), content["application/json"]["schema"])


_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


def _is(path: str, template: str) -> bool:
    return re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path) is not None


def refuse(value: Any, name: str) -> None:
    """Fail where an answer is not as the component of that name: also on a field that is not described."""
    _refuse(value, {"$ref": f"#/components/schemas/{name}"})


def _refuse(value: Any, schema_of_it: dict[str, Any]) -> None:
    from jsonschema import Draft202012Validator  # takes seconds to import, which few tests need

    described = {**schema_of_it, "components": closed(API["components"])}
    errors = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(described).iter_errors(value)]
    assert not errors, errors
    for event in value.get("events", ()):
        assert not list(schema.complaints("run", event)), event


def closed(value: Any) -> Any:
    """A description in which objects have only the fields that it names: clients have to accept further ones."""
    if isinstance(value, list):
        return [closed(each) for each in value]
    if not isinstance(value, dict):
        return value
    further = {"additionalProperties": False} if isinstance(value.get("properties"), dict) else {}
    return further | {key: closed(each) for key, each in value.items()}


def vague(value: Any, path: str = "") -> list[str]:
    """Where a description has objects without saying what is in them."""
    if isinstance(value, list):
        return [found for number, each in enumerate(value) for found in vague(each, f"{path}[{number}]")]
    if not isinstance(value, dict):
        return []
    is_object = "object" in (value.get("type") if isinstance(value.get("type"), list) else [value.get("type")])
    own = [path] if is_object and not {"properties", "additionalProperties"} & value.keys() else []
    return own + [found for key, each in value.items() for found in vague(each, f"{path}.{key}")]
