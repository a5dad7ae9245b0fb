"""The description of the API, and whether answers are as it says, at every depth."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator

from tests.support import schema

API = json.loads((resources.files("towpath.monitor") / "openapi.json").read_text())
#: Their fields are those of `towpath run --json`, by kind.
EVENT = "Event"


def refuse(value: Any, name: str) -> None:
    """Fail where an answer is not as the component of that name: also on a field that is not described."""
    components = closed(API["components"])
    components["schemas"][EVENT].pop("additionalProperties")
    described = {"$ref": f"#/components/schemas/{name}", "components": components}
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
