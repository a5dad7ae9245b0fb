"""What would lose changes or put them out of order is refused with words, and nothing is touched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import MakePipeline
from tests.support.pipeline import Pipeline, Settings, towpath

pytestmark = pytest.mark.servers


def refused(pipeline: Pipeline) -> str:
    return towpath("deploy", pipeline.write(), expect=2).stderr


@pytest.mark.nightly
def test_what_a_deployed_pipeline_cannot_become(pipeline: Pipeline) -> None:
    pipeline.source("docs").insert_one({"_id": 1})
    first = replace(pipeline, settings=Settings(include=("docs",)))
    first.deploy()
    first.wait()

    said = refused(replace(first, settings=Settings(include=("docs",), whole_documents=("docs",))))
    assert (
        f"{pipeline.name}.docs is captured by {pipeline.name}-source and would be by {pipeline.name}-source-whole"
        in said
    )

    renamed = first.write().read_text().replace(f'name = "{pipeline.name}"', f'name = "{pipeline.name}-new"', 1)
    other = pipeline.file.with_name("renamed.toml")
    other.write_text(renamed)
    other.chmod(0o600)
    said = towpath("deploy", other, expect=2).stderr
    assert f"{pipeline.name}-sink already writes {pipeline.name}.docs to this destination" in said

    swapped = replace(
        first,
        addresses=replace(
            pipeline.addresses, source=pipeline.addresses.destination, destination=pipeline.addresses.source
        ),
    )
    pipeline.destination("other").insert_one({"_id": 1})
    said = towpath("deploy", swapped.write(), "--allow-missing", expect=2).stderr
    assert "was deployed with the source" in said

    assert towpath("deploy", first.write()).stdout.strip() == f"{pipeline.name}: nothing to change"
    first.assert_same("docs", at_least=1)


@pytest.mark.nightly
def test_debezium_s_own_copy_takes_in_nothing_later(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(mode="plain", include=("docs",)))
    for name in ("docs", "later"):
        pipeline.source(name).insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    said = refused(replace(pipeline, settings=replace(pipeline.settings, include=("docs", "later"))))
    assert f"{pipeline.name}.later holds documents and was not captured" in said


def test_names_that_cannot_be_topics_or_collide(pipeline: Pipeline) -> None:
    pipeline.source("größe").insert_one({"_id": 1})
    assert "cannot be replicated: its topic would be called" in refused(pipeline)
    without = replace(pipeline, settings=Settings(exclude=("größe",)))
    pipeline.create("a.b", "a_b")
    assert "would collide" in refused(without)
    towpath("deploy", replace(pipeline, settings=Settings(exclude=("größe", "a_b"))).write(), "--dry-run")


def test_source_and_destination_are_the_same(pipeline: Pipeline) -> None:
    pipeline.source("docs").insert_one({"_id": 1})
    looped = replace(pipeline, addresses=replace(pipeline.addresses, destination=pipeline.addresses.source))
    assert "are the same replica set" in refused(looped)


def test_time_series_and_collations(pipeline: Pipeline) -> None:
    database = pipeline.source_client[pipeline.name]
    database.create_collection("series", timeseries={"timeField": "t"})
    assert f"{pipeline.name}.series is a time-series collection" in refused(pipeline)
    database.create_collection("folded", collation={"locale": "en", "strength": 2})
    settings = Settings(mode="exactly-once", exclude=("series",), partitions=1)
    assert "cannot be copied in ranges" in refused(replace(pipeline, settings=settings))
    settings = Settings(mode="plain", exclude=("series",))
    assert "has a default collation" in refused(replace(pipeline, settings=settings))
    towpath("deploy", replace(pipeline, settings=replace(settings, partitions=1)).write(), "--dry-run")


def test_a_file_that_names_another_destination_deletes_nothing(pipeline: Pipeline) -> None:
    """Neither the source, which was emptied once, nor where another pipeline writes."""
    documents = pipeline.source("docs")
    documents.insert_many([{"_id": n} for n in range(300)])
    first = replace(pipeline, settings=Settings(include=("docs",)))
    first.deploy()
    first.wait()
    towpath("verify", first.file)
    registered = pipeline.destination_client["towpath"]["writers"]
    own = registered.find_one({"_id": pipeline.name})
    assert own is not None and own["include"] == [pipeline.namespace("docs")]

    looped = replace(first, addresses=replace(pipeline.addresses, destination=pipeline.addresses.source))
    for words in DESTRUCTIVE:
        said = towpath(words[0], looped.write(), *words[1:], expect=2).stderr
        assert "that is not the destination of the deployed pipeline, and nothing was changed" in said, words
    assert (documents.count_documents({}), pipeline.destination("docs").count_documents({})) == (300, 300)
    assert pipeline.source_client["towpath"]["writers"].find_one({"_id": pipeline.name}) is None

    registered.insert_one(own | {"_id": f"{pipeline.name}x", "kafka": "another"})
    hint = f'writers.deleteOne({{_id: "{pipeline.name}x"}})'
    for words in (*DESTRUCTIVE[:-1], ("deploy",)):
        said = towpath(words[0], first.write(), *words[1:], expect=2).stderr
        assert f"is registered at the destination as a writer of {pipeline.namespace('docs')}" in said and hint in said
    registered.delete_one({"_id": f"{pipeline.name}x"})

    registered.delete_one({"_id": pipeline.name})
    assert "run `towpath deploy`" in towpath("replay", first.file, "--rebuild", "--yes", expect=2).stderr
    first.deploy()
    towpath("replay", first.file, "--rebuild", "--yes")
    first.assert_same("docs", at_least=300)


#: The last one only removes what is the pipeline's own.
DESTRUCTIVE = (
    ("replay", "--rebuild", "--yes"),
    ("repair", "--yes"),
    ("resnapshot", "--yes"),
    ("prepare",),
    ("cutover", "--dry-run"),
    ("remove", "--topics", "--yes"),
)


@pytest.mark.nightly
def test_topics_that_others_made_outlive_the_pipeline(pipeline: Pipeline) -> None:
    """Under a name that the pipeline would give. A topic that its source made while it ran goes with it."""
    pipeline.source("docs").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.source("later").insert_one({"_id": 1})
    pipeline.wait()
    kafka, foreign = AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap}), pipeline.topic("not.ours")
    kafka.create_topics([NewTopic(foreign, 1, 1)])[foreign].result(30)
    try:
        shown = towpath("remove", pipeline.file, "--topics", "--dry-run").stderr
        assert f"would remove {pipeline.topic('docs')}" in shown and f"left the topic {foreign}" in shown
        said = towpath("remove", pipeline.file, "--topics", expect=2)
        assert f"topic {pipeline.topic('later')}\n" in said.stderr
        assert "Delete these 5 topics" in said.stdout + said.stderr
        towpath("remove", pipeline.file)  # what is known of its topics stays
        assert f"left the topic {foreign}" in towpath("remove", pipeline.file, "--topics", "--yes").stderr
        left = [name for name in kafka.list_topics(timeout=30).topics if name.startswith(f"{pipeline.name}.")]
        assert left == [foreign]
        assert pipeline.destination_client["towpath"]["writers"].find_one({"_id": pipeline.name}) is None
    finally:
        kafka.delete_topics([foreign])[foreign].result(30)
