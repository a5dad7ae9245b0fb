"""The pages as HTML. A pipeline's page is made of sections, made once for all clients and sent as they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup

from towpath.config.text import duration, size

_TEMPLATES = Environment(
    loader=PackageLoader("towpath.monitor", "templates"),
    autoescape=True,
    undefined=ChainableUndefined,  # before the first poll, most parts are None
    trim_blocks=True,
    lstrip_blocks=True,
)


def _known(show: Callable[..., str]) -> Callable[..., str]:
    """What is no number is unknown."""
    return lambda value, *options: show(value, *options) if isinstance(value, int | float) else "unknown"


def _number(value: float, unit: str = "") -> str:
    """`1,234`, `1,234 records`; a plural unit loses its s with 1."""
    text = f"{value:,.0f}"
    return f"{text} {unit.removesuffix('s') if text == '1' else unit}".rstrip()


def _time(value: float | str | datetime | None, ago: bool = True) -> str:
    """A point in time; the script of the page shows how long ago that is, where `ago`."""
    if not value:
        return "never"
    if not isinstance(value, datetime):
        value = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    at = value.astimezone(UTC)
    age = Markup(' data-at="{}"').format(round(at.timestamp(), 1)) if ago else Markup()
    return Markup('<time datetime="{}"{}>{} UTC</time>').format(
        at.isoformat(timespec="seconds"), age, at.strftime("%Y-%m-%d %H:%M:%S")
    )


def _clock(value: str) -> str:
    at = datetime.fromisoformat(value).astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), at.strftime("%H:%M:%S"))


#: State → the class that colours it. The word is always shown as well.
_MARKS = {
    **dict.fromkeys(("running", "RUNNING", "destination primary", "same", "ok", "done"), "good"),
    **dict.fromkeys(
        (
            *("failed", "FAILED", "missing", "MISSING", "unknown", "red", "held", "refused"),
            *("not the same", "differences since"),
        ),
        "bad",
    ),
}

_TEMPLATES.filters |= {
    "number": _known(_number),
    "rate": _known(lambda value: f"{value:,.0f}/s"),
    "seconds": _known(lambda value: f"{value:.1f} s" if value < 10 else duration(value)),
    "bytes": _known(lambda value: size(int(value))),
    "time": _time,
    "clock": _clock,
    "duration": duration,
    "mark": lambda state: _MARKS.get(state, "warn"),
}

#: The sections of a pipeline's page, in its order: id → title. Those without a title have none on the page.
SECTIONS: Mapping[str, str] = {
    "head": "",
    "way": "",
    "copy": "",
    "dead-letters": "Dead letters",
    "verification": "Verification",
    "ddl": "Schema changes",
    "replays": "",
    "cutover": "Cutover",
    "connectors": "Connectors",
    "sink": "Work of the sink",
    "log": "Log",
    "events": "Events",
}


def sections(context: Mapping[str, Any]) -> dict[str, str]:
    """The sections of a pipeline's page: id → HTML."""
    template = _TEMPLATES.get_template("sections.html")
    return {
        name: "".join(template.blocks[name.replace("-", "_")](template.new_context(dict(context)))) for name in SECTIONS
    }


def pipeline(context: Mapping[str, Any], parts: Mapping[str, str], visitor: Mapping[str, Any]) -> str:
    html = {id: Markup(part) for id, part in parts.items()}
    return _TEMPLATES.get_template("pipeline.html").render(**context, parts=html, titles=SECTIONS, **visitor)


def row(short: object) -> str:
    """The cells of one pipeline in the overview, which is given in short."""
    template = _TEMPLATES.get_template("sections.html")
    return "".join(template.blocks["row"](template.new_context({"s": short})))


def overview(rows: Sequence[tuple[str, str]], visitor: Mapping[str, Any]) -> str:
    """`rows`: name and cells of each pipeline."""
    marked = [(name, Markup(cells)) for name, cells in rows]
    return _TEMPLATES.get_template("overview.html").render(rows=marked, **visitor)


def login(*, wrong: bool) -> str:
    return _TEMPLATES.get_template("login.html").render(wrong=wrong, may_act=False, can_login=False, several=False)
