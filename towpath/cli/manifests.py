"""`towpath manifests`"""

from __future__ import annotations

from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import click

from towpath.checks.facts import Facts
from towpath.cli.options import FOLDER, flag, opened, pipeline_argument, say
from towpath.config import loading
from towpath.cutover.reverse_pipeline import checked_reverse_file, opened_reverse
from towpath.deploy.manifests import PIPELINES, Options, Plan, as_yaml, resources
from towpath.errors import ConnectUnreachable
from towpath.files import file_errors, replacing
from towpath.store import credentials

_VERSION = version("towpath")


@click.command()
@pipeline_argument
@click.option("--namespace", help="Namespace of the resources; default: where they are applied.")
@click.option("--image", default=f"towpath:{_VERSION}", help="Image of the tool.")
@click.option(
    "--connect-image",
    default=f"towpath-strimzi:{_VERSION}",
    help="Image of the workers: Strimzi's with the plugin. With --plugin: where Strimzi pushes what it builds.",
)
@click.option("--plugin", metavar="URL", help="Let Strimzi build the image, with the plugin archive at this URL.")
@click.option("--plugin-sha512", metavar="SUM", help="Checksum of the archive (sha512sum).")
@click.option("--push-secret", metavar="SECRET", help="Secret with the login for the registry of --connect-image.")
@click.option(
    "--connect", "connect_name", metavar="NAME", help="Name of the KafkaConnect; default: from [connect] url."
)
@click.option(
    "--heap",
    metavar="MB",
    type=click.IntRange(min=1024),
    help="Heap of each worker, in MB: 2048 for a pipeline with its reverse pipeline. Default: what PIPELINE alone"
    " needs.",
)
@click.option("--output", type=FOLDER, help="Write a file for each part into this folder, and print nothing.")
@click.option(
    "--credentials",
    "credentials_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Only write the file with URIs and passwords for the workers, to put it into their Secret; - prints it.",
)
@flag("--reverse", "of_reverse", help="With --credentials: that of the reverse pipeline, which a cutover needs.")
def manifests(
    file: Path,
    namespace: str | None,
    image: str,
    connect_image: str,
    plugin: str | None,
    plugin_sha512: str | None,
    push_secret: str | None,
    connect_name: str | None,
    heap: int | None,
    output: Path | None,
    credentials_file: Path | None,
    of_reverse: bool,
) -> None:
    """Print PIPELINE as resources of Kubernetes, in YAML, for Strimzi's operator.

    Run it where both clusters can be reached, and again after each change of the file; then apply what it prints. It
    prints a KafkaConnect, the KafkaConnectors with the configurations that `deploy` would send, `towpath run` with its
    page, and what Prometheus' operator needs. Topics are not among them: `deploy` creates them. No resource holds a
    secret: they name the Secrets that you create.

    Exit codes: 0 printed or written; 2 it cannot be done.
    """
    if bool(plugin) != bool(plugin_sha512) or (push_secret and not plugin):
        raise click.UsageError("--plugin and --plugin-sha512 go together, and --push-secret goes with them")
    if of_reverse and credentials_file is None:
        raise click.UsageError("--reverse goes with --credentials")
    with ExitStack() as stack:
        session = stack.enter_context(opened(file))
        name = session.pipeline.name
        if of_reverse:
            session = stack.enter_context(opened_reverse(session, checked_reverse_file(file)))
        facts = Facts(session)
        if str(credentials_file) == "-":
            click.echo(facts.secrets, nl=False)
            return
        if credentials_file is not None:
            credentials.write(credentials_file, facts.secrets)
            secret = f"the Secret {name}-workers"
            say(f"wrote {credentials_file}, which only you can read; it belongs into {secret}")
            return
        text = file.read_text(encoding="utf-8")
        options = Options(namespace, image, connect_image, plugin, plugin_sha512, push_secret, connect_name, heap)
        plan = Plan(session.pipeline, loading.as_written(text, Path(PIPELINES, file.name)), text, options)
        plan.refuse()
        _read_connect(facts)
        parts = resources(plan, facts.desired)
    if output is None:
        click.echo(as_yaml(resource for part in parts.values() for resource in part), nl=False)
        return
    with file_errors(f"write to {output}"):
        output.mkdir(parents=True, exist_ok=True)
        for name, part in parts.items():
            with replacing(output / f"{name}.yaml") as stream:
                stream.write(as_yaml(part))
    say(f"wrote {', '.join(f'{name}.yaml' for name in parts)} to {output}")


def _read_connect(facts: Facts) -> None:
    """If nothing answers for Connect, the connectors are those of a first deployment: none is in a resnapshot.

    Kafka is not asked: it may be out of reach from here.
    """
    connect, names = facts.connect, (*facts.pipeline.connectors, facts.pipeline.whole_source_connector)
    try:
        facts.deployed = {name: connect.config(name) for name in names}
    except ConnectUnreachable as error:
        if error.status is not None:  # something else answers at the URL
            raise
        say(f"no worker answers at {connect.url} yet: these are the connectors of a first deployment")
        facts.deployed = dict.fromkeys(names)
