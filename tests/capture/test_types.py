"""Documents of every BSON type arrive byte for byte, however they came to be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.conftest import MakePipeline
from tests.support import bsonbytes as b
from tests.support import corpus, raw
from tests.support.batches import BATCHES
from tests.support.corpus import Specimen
from tests.support.pipeline import Pipeline, Settings

pytestmark = pytest.mark.servers


LARGE = [corpus.large("large"), corpus.large_text("large text"), corpus.large("large zeros", fill=b"\0")]
COLLECTIONS = {"typed": corpus.DOCUMENTS, "odd": corpus.ODD_NAMES, "large": LARGE}
EVERYTHING = sum(map(len, COLLECTIONS.values()))


def insert_all(pipeline: Pipeline, specimens: Mapping[str, list[Specimen]]) -> None:
    for collection, documents in specimens.items():
        for specimen in documents:
            raw.insert(pipeline.source(collection), specimen)


def assert_stored(pipeline: Pipeline, specimens: Mapping[str, list[Specimen]]) -> None:
    """The source holds what the corpus says: a driver that repairs what it writes would hide what is to be tested."""
    for collection, documents in specimens.items():
        for specimen in documents:
            stored = raw.read_one(pipeline.source(collection), specimen)
            assert stored == specimen.document, f"the source does not hold {specimen.name!r} as it was written"


def stale(specimen: Specimen) -> Specimen:
    """Another document of the same `_id`."""
    identity = b.field(specimen.document, "_id").value
    return Specimen(specimen.name, b.document(("_id", identity), ("old", b.string("x")), ("n", b.int32(0))))


NAMED = [specimen for specimen in corpus.DOCUMENTS if specimen.name in corpus.VALUES]
REPLACED = {f"replaced_{name}": documents for name, documents in COLLECTIONS.items()}
#: What is there before the first copy.
COPIED = {
    **COLLECTIONS,
    **{name: [stale(one) for one in documents] for name, documents in REPLACED.items()},
    "set": [Specimen(one.name, corpus.document_of(one.name, b.NULL)) for one in NAMED],
    "set_new": [stale(specimen) for specimen in NAMED],
    "set_large": LARGE[:1] + [stale(specimen) for specimen in LARGE[1:]],
    "raw_copied": corpus.RAW_DOCUMENTS,
    "raw_replaced": list(map(stale, corpus.RAW_DOCUMENTS)),
}


@pytest.fixture(scope="module")
def shared(make_shared_pipeline: MakePipeline) -> Pipeline:
    """A pipeline that has copied `COPIED`; each test changes its own collections."""
    pipeline = make_shared_pipeline(Settings(write=BATCHES["huge"]))
    insert_all(pipeline, COPIED)
    pipeline.create("raw_streamed")
    pipeline.deploy()
    pipeline.wait()
    return pipeline


def test_every_document_of_the_copy_arrives_byte_for_byte(shared: Pipeline) -> None:
    assert_stored(shared, COLLECTIONS)
    shared.assert_same(*COLLECTIONS, at_least=EVERYTHING)


def test_every_document_of_the_stream_arrives_byte_for_byte(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(write=BATCHES["tiny"]))
    pipeline.create(*COLLECTIONS)
    pipeline.deploy()
    pipeline.wait()
    insert_all(pipeline, COLLECTIONS)
    pipeline.wait()
    assert_stored(pipeline, COLLECTIONS)
    pipeline.assert_same(*COLLECTIONS, at_least=EVERYTHING)


@pytest.mark.nightly
def test_replaced_documents_arrive_byte_for_byte(shared: Pipeline) -> None:
    replace_all(shared, REPLACED)
    shared.wait()
    assert_stored(shared, REPLACED)
    shared.assert_same(*REPLACED, at_least=EVERYTHING)


def replace_all(pipeline: Pipeline, specimens: Mapping[str, list[Specimen]]) -> None:
    for collection, documents in specimens.items():
        for specimen in documents:
            raw.replace(pipeline.source(collection), specimen)


def test_values_set_by_updates_arrive_byte_for_byte(shared: Pipeline) -> None:
    """As new fields, in place of old ones, inside objects and arrays, and 15.9 MB of them at once."""
    for one in NAMED:
        value = corpus.VALUES[one.name]
        paths = ("v", "in.z", "in.a", "list.0", "list.2")
        raw.set_fields(shared.source("set"), one, dict.fromkeys(paths, value))
        raw.set_fields(shared.source("set_new"), one, {"v": value, "in": b.embedded(("new", value))})
    raw.set_fields(shared.source("set_large"), LARGE[0], {"n": b.int64(2), "new": b.int32(1)})
    for specimen in LARGE[1:]:
        fields = {field.name.decode(): field.value for field in b.elements(specimen.document)}
        raw.set_fields(shared.source("set_large"), specimen, {"n": fields["n"], **_bulk(fields)})
    shared.wait()
    assert_stored(shared, {"set": NAMED})
    shared.assert_same("set", "set_new", "set_large", at_least=2 * len(NAMED) + len(LARGE))


def test_documents_that_no_driver_writes_arrive_byte_for_byte(shared: Pipeline) -> None:
    """Names twice, options out of order, strings that are no text: copied, streamed and replaced."""
    collections = dict.fromkeys(("raw_copied", "raw_streamed", "raw_replaced"), corpus.RAW_DOCUMENTS)
    insert_all(shared, {"raw_streamed": corpus.RAW_DOCUMENTS})
    replace_all(shared, {"raw_replaced": corpus.RAW_DOCUMENTS})
    shared.wait()
    assert_stored(shared, collections)
    shared.assert_same(*collections, at_least=3 * len(corpus.RAW_DOCUMENTS))


def _bulk(fields: dict[str, b.Value]) -> dict[str, b.Value]:
    return {name: fields[name] for name in ("blob", "rows") if name in fields}
