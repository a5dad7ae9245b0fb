"""`towpath topics`"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json, say
from towpath.config.pipeline import Pipeline
from towpath.config.text import first_few
from towpath.errors import TowpathError
from towpath.log.definitions import POLICY, is_compacted, plain_settings, topic_groups

if TYPE_CHECKING:
    from towpath.checks.facts import Facts

_SHOWN = 3  # topics


@dataclass(frozen=True, slots=True)
class _Topic:
    """`replication_factor` -1: the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


@click.command()
@pipeline_argument
@flag("--reverse", "of_reverse", help="Print those of the reverse pipeline, which a cutover needs.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("kafka-topics", "strimzi", "terraform")),
    default="kafka-topics",
    help="Commands of Kafka's own tool, KafkaTopics of Strimzi (YAML), or Terraform's JSON for confluentinc/confluent.",
)
@click.option("--cluster", metavar="NAME", default="KAFKA", help="Name of Strimzi's Kafka, for its label.")
@json_option
def topics(file: Path, of_reverse: bool, form: str, cluster: str, as_json: bool) -> None:
    """Print the topics that PIPELINE needs, for Kafka clusters where `deploy` may not create them.

    Set `[kafka] topics = "exist"`, create what is printed, then run `check` and `deploy`, which compare. The topics are
    those of the source's collections, the pipeline's topics that exist in Kafka, and those of collections that the file
    names without a `*`: name one there to create its topic before the collection. The reverse pipeline has the
    destination's collections: create its topics once the initial copy is done, and before the cutover. It changes
    nothing.

    With [log] compact, topics with records have cleanup.policy=delete until `towpath compact` has protected them:
    standard error names these.

    Exit codes: 0 printed; 2 the side with the collections does not answer, or the file cannot be read. If Kafka does
    not answer, standard error says what is left out.
    """
    from towpath.checks.destination import missing_privileges_named  # slow
    from towpath.checks.facts import Facts
    from towpath.cutover.reverse_pipeline import checked_reverse_file, opened_reverse

    with ExitStack() as stack:
        session = stack.enter_context(opened(file))
        if of_reverse:
            session = stack.enter_context(opened_reverse(session, checked_reverse_file(file)))
        pipeline, facts = session.pipeline, Facts(session)
        with missing_privileges_named(session):
            namespaces = facts.namespaces
        found = needed(pipeline, namespaces, *_in_kafka(facts))
    if as_json:
        print_json({"topics": [asdict(topic) for topic in found]})
    elif form == "strimzi":
        click.echo(strimzi(found, cluster), nl=False)
    else:
        print_as: Callable[[Pipeline, Iterable[_Topic]], str] = commands if form == "kafka-topics" else terraform
        click.echo(print_as(pipeline, found))


def _in_kafka(facts: Facts) -> tuple[Collection[str], Collection[str] | None]:
    """The change topics that exist, and those that must not be compacted yet: None for all, if that is not known."""
    from towpath.history.compaction import protected  # slow

    pipeline, existing = facts.pipeline, None
    unprotected: set[str] | None = set()
    try:
        existing = [topic.name for topic in facts.log]
        if pipeline.log.compact:
            held = {topic.name for topic in facts.uncompacted}
            unprotected = held - protected(pipeline, facts.topics, facts.uncompacted)
    except TowpathError as error:
        unprotected = None
        missing = "topics of collections that are gone are missing here; " if existing is None else ""
        policy = f"all change topics have {POLICY}=delete here; " if pipeline.log.compact else ""
        say(f"{error.sentence}: {missing}{policy}print again when Kafka answers")
    if unprotected:
        say(
            f"{POLICY}=delete, as their records are not protected yet: {first_few(sorted(unprotected), _SHOWN)}; apply"
            f" this, start `towpath compact {facts.session.file}` (or `run`), leave it running, and print again after"
            " its first pass"
        )
    return existing or (), unprotected


def needed(
    pipeline: Pipeline,
    namespaces: Iterable[str],
    existing: Iterable[str] = (),
    unprotected: Collection[str] | None = (),
) -> list[_Topic]:
    """Every topic of a pipeline that replicates these namespaces of the source, and those that its file names.

    `existing`, `unprotected`: see `_in_kafka`.
    """
    factor, later = pipeline.kafka.replication_factor, {POLICY: plain_settings(pipeline)[POLICY]}
    named = (name for name in pipeline.collections.include if "*" not in name and pipeline.selection.matches(name))

    def settings(name: str, wanted: Mapping[str, str]) -> Mapping[str, str]:
        must_wait = is_compacted(wanted) and (unprotected is None or name in unprotected)
        return {**wanted, **later} if must_wait else wanted

    return [
        _Topic(name, group.partitions, factor, settings(name, group.settings))
        for group in topic_groups(pipeline, {*namespaces, *named}, existing)
        for name in group.names
    ]


def commands(pipeline: Pipeline, topics: Iterable[_Topic]) -> str:
    client = ["--command-config", str(pipeline.kafka.client)] if pipeline.kafka.client else []
    begin = ["kafka-topics.sh", "--bootstrap-server", pipeline.kafka.bootstrap, *client, "--create", "--if-not-exists"]
    lines = []
    for topic in topics:
        words = [*begin, "--topic", topic.name, "--partitions", str(topic.partitions)]
        if topic.replication_factor > 0:
            words += ["--replication-factor", str(topic.replication_factor)]
        for key, text in topic.settings.items():
            words += ["--config", f"{key}={text}"]
        lines.append(shlex.join(words))
    return "\n".join(lines)


def terraform(pipeline: Pipeline, topics: Iterable[_Topic]) -> str:
    """JSON, as a file `*.tf.json`. Cluster and login belong to the provider's configuration."""
    resources = {
        _identifier(topic.name, "_"): {
            "topic_name": topic.name,
            "partitions_count": topic.partitions,
            "config": dict(topic.settings),
        }
        for topic in topics
    }
    return json.dumps({"resource": {"confluent_kafka_topic": resources}}, indent=2)


def strimzi(topics: Iterable[_Topic], cluster: str) -> str:
    from towpath.deploy.manifests import as_yaml  # slow

    return as_yaml(_resource(topic, cluster) for topic in topics)


def _resource(topic: _Topic, cluster: str) -> dict[str, Any]:
    replicas = {"replicas": topic.replication_factor} if topic.replication_factor > 0 else {}
    name = _identifier(topic.name, "-")
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaTopic",
        "metadata": {"name": name, "labels": {"strimzi.io/cluster": cluster}},
        "spec": {
            "topicName": topic.name,
            "partitions": topic.partitions,
            **replicas,
            "config": dict(topic.settings),
        },
    }


def _identifier(topic: str, separator: str) -> str:
    """A name for a topic of lower-case letters, digits and `separator`, different for each topic."""
    text = re.sub(r"[^a-z0-9]+", separator, topic.lower()).strip(separator)
    return f"{text[:200]}{separator}{hashlib.sha256(topic.encode()).hexdigest()[:8]}"
