"""Reports as self-contained HTML pages, to attach to a change ticket: a template for each, in the pages' style."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from towpath.errors import TowpathError
from towpath.files import publish

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _templates() -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # slow, and rarely needed

    templates = Environment(
        loader=ChoiceLoader([PackageLoader("towpath.cli", "pages"), PackageLoader("towpath.monitor", "static")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["number"] = lambda number: f"{number:,}"
    templates.filters["clock"] = lambda at: at.strftime("%H:%M:%S.%f")[:-3]
    return templates


def page(template: str, **values: Any) -> str:
    """Render `<template>.html` of `pages` with the values. Every value is escaped."""
    return _templates().get_template(f"{template}.html").render(values)


def write(place: Path, template: str, **values: Any) -> None:
    """Write the page. Raises `TowpathError` when the file cannot be written."""
    try:
        publish(place, page(template, **values))
    except OSError as error:
        raise TowpathError(f"cannot write the report {place}: {error.strerror}; choose another path") from error
