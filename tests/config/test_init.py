"""`towpath init`: whatever it is given, the file that it writes can be read and says just that; else it writes none."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.support.fuzz import cases, told
from towpath.cli.init import places_of
from towpath.config.loading import _as_toml, read, write_pipeline_file
from towpath.errors import TowpathError
from towpath.stack import Stack, StackOptions

ODD = [
    '"',
    "\\",
    "'",
    "\n",
    "\t",
    "\x00",
    "\x7f",
    "\x1b",
    "é",
    "\u2028",
    "😀",
    "%s",
    "%(name)s",
    '"""',
    "#",
    "]",
    "\ud800",
    "*",
]
STACK = Stack(
    options=StackOptions(Path("/")),
    ports={},
    processes={},
    source="mongodb://h:1/",
    destination="mongodb://h:2/",
    bootstrap="h:3",
    connect_urls=("http://h:4",),
)


def odd(random: Random, text: str) -> str:
    """The text with odd characters somewhere in it."""
    for _ in range(max(0, random.randrange(-9, 3))):
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice(ODD) + text[at:]
    return text


def test_what_is_written_can_be_read_and_says_the_same(tmp_path: Path) -> None:
    outcomes = Counter[str]()
    for case, random in cases("init", 1000):
        file = tmp_path / f"{random.randrange(10**9)}.toml"
        include = [odd(random, text) for text in random.sample(["shop.*", "a.b", "audit.log"], 2)]
        exclude = [odd(random, "shop.tmp*")] * random.randrange(2)
        stack = replace(
            STACK,
            options=StackOptions(tmp_path / odd(random, "folder").translate({0: None, 0xD800: None})),
            source=odd(random, "mongodb://h:1/?appName=shop"),
            destination=odd(random, "mongodb://h:2/?appName=shop"),
            bootstrap=odd(random, "h:3"),
        )
        name = odd(random, "shop")
        try:
            write_pipeline_file(file, include=include, exclude=exclude, name=name, places=places_of(stack))
        except TowpathError:
            assert not list(tmp_path.iterdir()), case
            outcomes["refused"] += 1
            continue
        found = read(file)
        assert (found.name, list(found.collections.include), list(found.collections.exclude)) == (
            name,
            include,
            exclude,
        ), case
        assert (found.source.uri, found.destination.uri) == (stack.source, stack.destination), case
        assert (found.kafka.bootstrap, found.secrets_file.parent) == (stack.bootstrap, stack.directory / "secrets"), (
            case
        )
        assert [one.name for one in tmp_path.iterdir()] == [file.name], case
        file.unlink()
        outcomes["written"] += 1
    told("init", outcomes)
    assert min(outcomes["written"], outcomes["refused"]) > 100


def test_every_character_is_escaped_as_toml_has_it() -> None:
    text = "".join(map(chr, [*range(0x2100), 0x1F600, 0x10FFFF]))
    assert tomllib.loads(f"text = {_as_toml(text)}\nlist = {_as_toml([text, ''])}") == {
        "text": text,
        "list": [text, ""],
    }


def test_a_file_that_is_there_stays_unless_it_is_forced(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("mine")
    with pytest.raises(TowpathError, match="exists already; pass --force"):
        write_pipeline_file(file, include=["shop.*"])
    with pytest.raises(
        TowpathError, match=r"(?s)no pipeline file was written: .*shop.toml.*is not a namespace pattern"
    ):
        write_pipeline_file(file, include=["shop"], force=True)
    assert file.read_text() == "mine"
    assert read(write_pipeline_file(file, include=["shop.*"], force=True)).collections.include == ("shop.*",)
    assert file.stat().st_mode & 0o777 == 0o600
