"""The corpus holds what it says, and the bytes are read as they were written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import bsonbytes as b
from tests.support import corpus

EVERYTHING = corpus.DOCUMENTS + corpus.RAW_DOCUMENTS + corpus.ODD_NAMES


def test_every_type_of_bson_occurs_as_a_value() -> None:
    assert {value.type for value in corpus.VALUES.values()} == set(b.Type)


def test_every_type_that_an_identity_may_have_occurs() -> None:
    refused = {b.Type.ARRAY, b.Type.REGEX, b.Type.UNDEFINED}
    assert {value.type for value in corpus.IDENTITIES.values()} == set(b.Type) - refused


def test_names_and_identities_are_unique() -> None:
    assert len({specimen.name for specimen in EVERYTHING}) == len(EVERYTHING)
    assert len({specimen.identity for specimen in EVERYTHING}) == len(EVERYTHING)


@pytest.mark.parametrize("specimen", EVERYTHING, ids=lambda specimen: specimen.name)
def test_elements_give_the_document_back(specimen: corpus.Specimen) -> None:
    body = b"".join(
        bytes([element.type]) + element.name + b"\0" + element.payload for element in b.elements(specimen.document)
    )
    assert specimen.document[4:-1] == body


@pytest.mark.parametrize("make", [corpus.large, corpus.large_text])
def test_large_documents_have_the_size_asked_for(make: Callable[[str, float], corpus.Specimen]) -> None:
    assert len(make("big", 15.9).document) == int(15.9 * 1024 * 1024)
