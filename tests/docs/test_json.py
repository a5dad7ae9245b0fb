"""`docs/json.md` describes exactly the events of `towpath/config/events.py`, and every command that has `--json`."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import click
import pytest
from pydantic import TypeAdapter

from tests.support.schema import complaints, page
from towpath.checks.rule import Finding
from towpath.cli import towpath
from towpath.config import events
from towpath.config.events import BadLine, CutoverNote, Difference, Event, Gate, Note, Pass, RunEnd, TimedEvent, parse

FOUND = (Difference, events.Definition)  # by verify, which tells no time
KINDS = list(dict.fromkeys(kind for kinds in events.BY_COMMAND.values() for kind in kinds))
DIFFERENCE = Difference(
    namespace="a.b", destination_namespace="a.c", id={"_id": "ü"}, id_bson="00", kind="extra", paths=[("n", None, "1")]
)
PASS = Pass(
    records=1,
    asked=2,
    arrived=3,
    unreadable=4,
    dirty=5,
    oldest_seconds=None,
    partitions=6,
    switched_on=["a"],
    ready=["b"],
    seconds=7.5,
)
END = RunEnd(
    words="w",
    state=None,
    restarts={"sink": 1},
    dead_letters=0,
    repaired=0,
    ddl=[],
    schema_changes=[],
    verify={},
    exit=0,
)
SAMPLES = [
    ("verify", DIFFERENCE),
    ("run", replace(DIFFERENCE, words="differs", at=datetime(2026, 11, 22, 1, 2, 3, 456000, UTC))),
    ("compact", PASS),
    ("run", END),
    ("run", Note(event="unreachable", about="status", words="no answer")),
    ("cutover", CutoverNote(event="end", words="done")),
    ("cutover", Gate(words="", findings=[Finding("ok", "lag", "0 s").as_json()])),
]


def words(schema: dict[str, Any]) -> str:
    """A type of JSON schema as the page has it."""
    if "anyOf" in schema:
        return " or ".join(words(one) for one in schema["anyOf"])
    return str(schema.get("type", "any"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_kind_is_described_with_all_its_fields_and_no_others(kind: type[Event]) -> None:
    shared = ("v", "event", "at", "words") if issubclass(kind, TimedEvent) and kind not in FOUND else ("v", "event")
    schema = TypeAdapter(kind).json_schema()["properties"]
    types = {}
    for one in fields(kind):
        if one.name not in shared:
            shown = words(schema[one.name])
            types[one.name] = (True, shown.removesuffix(" or null")) if one.default is None else (False, shown)
    names, table = page()[kind.__name__]
    assert {name: row for name, row in table.items() if "." not in name and "[" not in name} == types
    assert names == events.names(kind)


def test_the_page_describes_no_kind_that_is_gone() -> None:
    commands = {name for name in page() if name.islower()}
    assert page().keys() - commands == {kind.__name__ for kind in KINDS}


def test_every_command_with_json_is_described() -> None:
    context = click.Context(towpath)
    commands = {name: towpath.get_command(context, name) for name in towpath.list_commands(context)}
    having = {name for name, one in commands.items() if one and any("--json" in option.opts for option in one.params)}
    assert having - {"resnapshot"} | {"stack"} == {name for name in page() if name.islower()}


@pytest.mark.parametrize(("command", "sample"), SAMPLES)
def test_an_event_is_read_as_it_was_written(command: str, sample: Event) -> None:
    assert sample.line.endswith("}\n")
    found = parse(sample.line)
    assert found is not None
    assert (type(found), found.line) == (type(sample), sample.line)
    assert type(found) in events.BY_COMMAND[command]


def test_half_a_pair_of_surrogates_is_a_line_too() -> None:
    line = Note(event="problem", words="\ud800 ü").line
    assert json.loads(line.encode())["words"] == "\ud800 ü"
    assert "ü" in Note(event="problem", words="ü").line


def test_what_is_optional_is_left_out() -> None:
    assert "about" not in Note(event="deploy", words="w").as_json()
    assert PASS.as_json()["oldest_seconds"] is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "null",
        "[1]",
        "[" * 100_000,
        "{}",
        '{"v": 1}',
        '{"event": 5}',
        '{"event": "pass"}',
        PASS.line[:-3],
        PASS.line.replace("7.5", '"x"'),
    ],
)
def test_what_is_no_event_or_half_of_one_is_refused(line: str) -> None:
    with pytest.raises(BadLine):
        parse(line)


@pytest.mark.parametrize(
    "line", ['{"event": "sung"}', '{"v": 2, "event": "sung", "by": 1}', '{"v": 2, "event": "pass"}']
)
def test_what_a_newer_version_prints_is_passed_over(line: str) -> None:
    assert parse(line) is None


def test_fields_of_a_newer_version_are_passed_over() -> None:
    assert parse(PASS.line.replace('"records"', '"new": [], "records"')) == PASS


def test_the_page_is_held_against_lines() -> None:
    good = {"v": 1, "dry_run": True, "changes": [], "differences": [], "waiting": {}}
    assert list(complaints("deploy", good)) == []
    assert list(complaints("deploy", good | {"more": 1})) == ["more is not described"]
    assert list(complaints("deploy", good | {"changes": 1})) == ["changes is not array: 1"]
    assert list(complaints("deploy", {"v": 1, "dry_run": True, "differences": [], "waiting": {}})) == [
        "changes is not there"
    ]
    gate = Gate(words="", findings=[Finding("ok", "lag", "0 s").as_json()]).as_json()
    line = gate | {"at": "2026-11-22T00:00:00.000+00:00", "findings": [{"subject": "lag", "level": 1, "finding": ""}]}
    assert list(complaints("cutover", line)) == [
        "findings[].level is not string: 1",
        "findings[].advice is not there",
        "findings[].where is not there",
        "findings[].code is not there",
    ]
