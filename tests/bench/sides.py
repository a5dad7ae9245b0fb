"""The pipelines that are compared: Towpath's own connectors, and the stock ones that mode "plain" is made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import stack as embedded
from connectors.connect import Connect
from connectors.deploy import Change, Deployment
from connectors.lifecycle import remove
from connectors.servers import look
from towpath.opened import Opened, opened

DATABASE, COLLECTION = "bench", "documents"
NAMESPACE = f"{DATABASE}.{COLLECTION}"
#: Side → the mode of its pipeline.
SIDES = {"towpath": "exactly-once", "stock": "plain"}


def write_file(stack: embedded.Stack, name: str, side: str, threads: int) -> Path:
    """The pipeline file of one run."""
    own = [f"copy_threads = {threads}"] if side == "towpath" else []
    lines = [
        f"name = {json.dumps(name)}",
        f"mode = {json.dumps(SIDES[side])}",
        f"source.uri = {json.dumps(stack.source)}",
        f"destination.uri = {json.dumps(stack.destination)}",
        f"collections.include = {json.dumps([NAMESPACE])}",
        f"kafka.bootstrap = {json.dumps(stack.bootstrap)}",
        f"connect.url = {json.dumps(stack.connect)}",
        f"connect.secrets = {json.dumps(str(stack.directory.resolve() / 'secrets'))}",
        "[capture]",
        *own,
    ]
    file = stack.directory / f"{name}.toml"
    file.write_text("\n".join([*lines, ""]))
    file.chmod(0o600)
    return file


@contextmanager
def pipeline(stack: embedded.Stack, name: str, side: str, threads: int) -> Iterator[Opened]:
    """A pipeline of one run, not deployed; removed at the end, its log included."""
    with opened(write_file(stack, name, side, threads)) as it:
        try:
            yield it
        finally:
            remove(it.pipeline, it.connect, it.topics, log=True, say=lambda words: None)


def prepared(it: Opened) -> dict[str, Change]:
    """Do what `towpath deploy` does before the connectors; what makes each of them, by its name."""
    makers = {}
    for change in Deployment(it.pipeline, look(it.pipeline), it.connect, it.topics).plan():
        name = change.words.removeprefix("create connector ")
        if name in it.pipeline.connectors:
            makers[name] = change
        else:
            change.apply()
    return makers


def is_state(connect: Connect, name: str, state: str) -> bool:
    """Whether the connector and all of its tasks are in that state."""
    found = connect.status(name)
    return found.state == state and bool(found.tasks) and all(task.state == state for task in found.tasks)
