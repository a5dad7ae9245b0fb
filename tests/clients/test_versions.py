"""The table of versions says what the tests run."""

from __future__ import annotations

import pytest

from tests.servers.pairs import PAIRS
from towpath.clients.mongo.versions import SERIES, series, short
from towpath.stack import tools


def test_what_is_called_tested_is_a_source_and_a_destination_of_the_tests() -> None:
    sources, destinations = (
        {short(tuple(map(int, v.split(".")))) for v in side} for side in zip(*_pairs(), strict=True)
    )
    tested = {one.name for one in SERIES if one.support == "tested"}
    assert sources == destinations == tested
    words = " ".join(one.words for one in SERIES if one.support == "tested")
    assert all(version in words for pair in _pairs() for version in pair)
    assert tools.version("mongod.version") in words


def _pairs() -> list[tuple[str, str]]:
    return [(pair.source, pair.destination) for pair in PAIRS]


@pytest.mark.parametrize(
    ("version", "support"),
    [((3, 6), "not supported"), ((5, 0), "tested"), ((5, 3), "expected"), ((7, 3), "expected"), ((9, 0), "expected")],
)
def test_the_support_of_other_versions(version: tuple[int, ...], support: str) -> None:
    assert series(version).support == support
