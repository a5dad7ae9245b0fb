"""Reports as self-contained HTML pages, to attach to a change ticket: a template for each, in the pages' style."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from towpath.errors import TowpathError
from towpath.files import publish

_TEMPLATES = Environment(
    loader=ChoiceLoader([PackageLoader("towpath.cli.report", "."), PackageLoader("towpath.monitor", "static")]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["number"] = lambda number: f"{number:,}"
_TEMPLATES.filters["clock"] = lambda at: at.strftime("%H:%M:%S.%f")[:-3]


def page(template: str, **values: Any) -> str:
    """Render `<template>.html` of this folder with the values. Every value is escaped."""
    return _TEMPLATES.get_template(f"{template}.html").render(values)


def write(place: Path, template: str, **values: Any) -> None:
    """Write the page. Raises `TowpathError` when the file cannot be written."""
    try:
        publish(place, page(template, **values))
    except OSError as error:
        raise TowpathError(f"cannot write the report {place}: {error.strerror}; choose another path") from error
