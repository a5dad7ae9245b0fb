"""Documents of every BSON type arrive byte for byte, however they came to be."""

from __future__ import annotations

from enum import Enum

import pytest

from tests.conftest import MakePipeline
from tests.support import bsonbytes as b
from tests.support import corpus, raw
from tests.support.batches import BATCHES
from tests.support.corpus import Specimen
from tests.support.pipeline import Pipeline, Settings

pytestmark = pytest.mark.servers


class Phase(Enum):
    """Whether documents are there before the first copy or come while the pipeline streams."""

    SNAPSHOT = "snapshot"
    STREAMING = "streaming"


LARGE = [corpus.large("large"), corpus.large_text("large text"), corpus.large("large zeros", fill=b"\0")]
COLLECTIONS = {"typed": corpus.DOCUMENTS, "odd": corpus.ODD_NAMES, "large": LARGE}
EVERYTHING = sum(map(len, COLLECTIONS.values()))


def insert_all(pipeline: Pipeline, specimens: dict[str, list[Specimen]]) -> None:
    for collection, documents in specimens.items():
        for specimen in documents:
            raw.insert(pipeline.source(collection), specimen)


def assert_stored(pipeline: Pipeline, specimens: dict[str, list[Specimen]]) -> None:
    """The source holds what the corpus says: a driver that mends what it writes would hide what is to be tested."""
    for collection, documents in specimens.items():
        for specimen in documents:
            stored = raw.read_one(pipeline.source(collection), specimen)
            assert stored == specimen.document, f"the source does not hold {specimen.name!r} as it was written"


@pytest.mark.parametrize(("phase", "size"), [(Phase.SNAPSHOT, "huge"), (Phase.STREAMING, "tiny")])
def test_every_document_arrives_byte_for_byte(make_pipeline: MakePipeline, phase: Phase, size: str) -> None:
    pipeline = make_pipeline(Settings(write=BATCHES[size]))
    if phase is Phase.SNAPSHOT:
        insert_all(pipeline, COLLECTIONS)
        pipeline.deploy()
    else:
        pipeline.create(*COLLECTIONS)
        pipeline.deploy()
        pipeline.wait()
        insert_all(pipeline, COLLECTIONS)
    pipeline.wait()
    assert_stored(pipeline, COLLECTIONS)
    pipeline.assert_same(*COLLECTIONS, at_least=EVERYTHING)


def stale(specimen: Specimen) -> Specimen:
    """Another document of the same `_id`."""
    identity = b.field(specimen.document, "_id").value
    return Specimen(specimen.name, b.document(("_id", identity), ("old", b.string("x")), ("n", b.int32(0))))


def test_replaced_documents_arrive_byte_for_byte(pipeline: Pipeline) -> None:
    insert_all(pipeline, {name: [stale(one) for one in documents] for name, documents in COLLECTIONS.items()})
    pipeline.deploy()
    pipeline.wait()
    for collection, documents in COLLECTIONS.items():
        for specimen in documents:
            raw.replace(pipeline.source(collection), specimen)
    pipeline.wait()
    assert_stored(pipeline, COLLECTIONS)
    pipeline.assert_same(*COLLECTIONS, at_least=EVERYTHING)


def test_values_set_by_updates_arrive_byte_for_byte(pipeline: Pipeline) -> None:
    """As new fields, in place of old ones, inside objects and arrays, and 15.9 MB of them at once."""
    named = [specimen for specimen in corpus.DOCUMENTS if specimen.name in corpus.VALUES]
    insert_all(pipeline, {"typed": [Specimen(one.name, corpus.document_of(one.name, b.NULL)) for one in named]})
    insert_all(pipeline, {"new": [stale(specimen) for specimen in named]})
    insert_all(pipeline, {"large": LARGE[:1] + [stale(specimen) for specimen in LARGE[1:]]})
    pipeline.deploy()
    pipeline.wait()
    for one in named:
        value = corpus.VALUES[one.name]
        paths = ("v", "in.z", "in.a", "list.0", "list.2")
        raw.set_fields(pipeline.source("typed"), one, dict.fromkeys(paths, value))
        raw.set_fields(pipeline.source("new"), one, {"v": value, "in": b.embedded(("new", value))})
    raw.set_fields(pipeline.source("large"), LARGE[0], {"n": b.int64(2), "new": b.int32(1)})
    for specimen in LARGE[1:]:
        fields = {field.name.decode(): field.value for field in b.elements(specimen.document)}
        raw.set_fields(pipeline.source("large"), specimen, {"n": fields["n"], **_bulk(fields)})
    pipeline.wait()
    assert_stored(pipeline, {"typed": named})
    pipeline.assert_same("typed", "new", "large", at_least=2 * len(named) + len(LARGE))


def test_documents_that_no_driver_writes_arrive_byte_for_byte(pipeline: Pipeline) -> None:
    """Names twice, options out of order, strings that are no text: copied, streamed and replaced."""
    collections = {"copied": corpus.RAW_DOCUMENTS, "streamed": corpus.RAW_DOCUMENTS, "replaced": corpus.RAW_DOCUMENTS}
    insert_all(pipeline, {"copied": corpus.RAW_DOCUMENTS})
    insert_all(pipeline, {"replaced": list(map(stale, corpus.RAW_DOCUMENTS))})
    pipeline.create("streamed")
    pipeline.deploy()
    pipeline.wait()
    insert_all(pipeline, {"streamed": corpus.RAW_DOCUMENTS})
    for specimen in corpus.RAW_DOCUMENTS:
        raw.replace(pipeline.source("replaced"), specimen)
    pipeline.wait()
    assert_stored(pipeline, collections)
    pipeline.assert_same(*collections, at_least=3 * len(corpus.RAW_DOCUMENTS))


def _bulk(fields: dict[str, b.Value]) -> dict[str, b.Value]:
    return {name: fields[name] for name in ("blob", "rows") if name in fields}
