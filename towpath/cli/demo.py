"""`towpath demo`: all of Towpath on this machine, in a few minutes.

Its input is shaped like two real stores: mail, and sensor readings with a document per device and hour.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from bson import Int64, ObjectId
from pymongo import MongoClient
from pymongo.collection import Collection
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from towpath import stack as embedded
from towpath.checks.facts import Facts
from towpath.cli.init import places_of
from towpath.cli.options import FOLDER, flag, opened, print_tables, say
from towpath.cli.status import lag_text
from towpath.clients.connect.control import wait_running
from towpath.clients.kafka import consume
from towpath.config.loading import write_pipeline_file
from towpath.config.namespaces import topic_of
from towpath.deploy import deployment
from towpath.errors import TowpathError
from towpath.log import barrier
from towpath.log.records import record
from towpath.run.status import read_status
from towpath.session import Session
from towpath_verifier import Options, Pair, Verdict, Verification

NAMESPACES = ("mail.messages", "telemetry.hours")
DEVICES = 50
_WORDS = (
    *("canal", "lock", "barge", "towpath", "bridge", "wharf", "keeper", "rope"),
    *("horse", "boat", "water", "level", "gate", "miles", "load", "coal"),
)
_START = datetime(2026, 1, 1, tzinfo=UTC)
_LOADED_S = 12 * 3600  # simulated seconds whose readings exist before the writer begins

Store = MongoClient[dict[str, Any]]


@click.command()
@flag("--keep", help="Leave the stack and the pipeline running, and say where.")
@click.option(
    "--dir", "directory", type=FOLDER, help="Folder of the stack, a new or an earlier one; default: a temporary one."
)
@click.option("--messages", default=20_000, help="Mails at the source before the copy begins.")
@click.option("--seconds", default=20.0, help="How long the writer continues once the copy is done.")
@click.option("--seed", default=1, help="Seed of the random input.")
def demo(keep: bool, directory: Path | None, messages: int, seconds: float, seed: int) -> None:
    """Start a stack, load two stores, replicate them while they change, and compare both sides byte for byte.

    Exit codes: 0 both sides are the same at the end; 1 they are not; 2 the demo has failed.
    """
    started = time.monotonic()
    with _stack(directory, keep=keep) as running:
        file = write_pipeline_file(
            running.directory / "demo.toml", include=NAMESPACES, places=places_of(running), force=True
        )
        source: Store = MongoClient(running.source)
        destination: Store = MongoClient(running.destination)
        with source, destination:
            same = _run(file, source, destination, messages, seconds, seed)
        say(f"The whole demo took {time.monotonic() - started:.0f} s, set-up included.")
        if keep:
            say(f"Still running. Look around: scripts/towpath status {file}")
            say(f"End it: scripts/towpath stack down --dir {running.directory}")
    if not same:
        raise click.exceptions.Exit(1)


@contextmanager
def _stack(directory: Path | None, *, keep: bool) -> Iterator[embedded.Stack]:
    folder = directory or Path(tempfile.mkdtemp(prefix="towpath-demo-"))
    say(f"1/6 Starting MongoDB, Kafka and Kafka Connect in {folder}")
    try:
        yield embedded.up(embedded.options_of(folder) or embedded.StackOptions(folder), say)
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            embedded.down(folder)
            if directory is None:
                shutil.rmtree(folder, ignore_errors=True)


def _run(file: Path, source: Store, destination: Store, messages: int, seconds: float, seed: int) -> bool:
    rng = random.Random(seed)
    if any(source[name.split(".")[0]].list_collection_names() for name in NAMESPACES):
        raise TowpathError("the source holds the demo's collections already; name another folder with --dir")
    count = fill(source, rng, messages)
    say(f"2/6 Loaded {count:,} documents into {' and '.join(NAMESPACES)} at the source")
    counts, stop = Counter[str](), threading.Event()
    writer = threading.Thread(target=write, args=(source, rng, counts, stop), name="writer")
    with opened(file) as session:
        try:
            say("3/6 Deploying the connectors, while a writer keeps changing the source")
            writer.start()
            for change in deployment.plan(Facts(session)):
                say(f"    {change.description}")
                change.apply()
            wait_running(session.connect, session.pipeline.connectors, timeout=120)
            say("4/6 Copying the documents, then streaming changes")
            with progress_line() as show:
                _show_progress(session, seconds, show)
        finally:
            stop.set()
            writer.join()
        say("5/6 The writer has stopped; waiting until all its changes are applied")
        start = time.monotonic()
        barrier.wait(session, 240, lambda message: None)
        say(f"    caught up after {time.monotonic() - start:.1f} s")
        say("6/6 Comparing both sides, document by document, byte for byte")
        pairs = [Pair(name, name) for name in NAMESPACES]
        verification = Verification(session.pipeline.source.uri, session.pipeline.destination.uri, pairs, Options(1))
        list(verification)
        _print_summary(verification.verdict, counts, _push_size(session))
    return verification.verdict.clean


@contextmanager
def progress_line() -> Iterator[Callable[[str, str], None]]:
    """Shows how far something is, and its numbers: in one line of a terminal; elsewhere, a line when it is further."""
    console, before = Console(stderr=True), ""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda progress, numbers: live.update(Text(f"    {progress}; {numbers}"), refresh=True)
        return

    def show(progress: str, numbers: str) -> None:
        nonlocal before
        if progress != before:
            say(f"    {progress}; {numbers}")
        before = progress

    yield show


def _show_progress(session: Session, seconds: float, show: Callable[[str, str], None]) -> None:
    """Show the progress of the copy, and the lag, until `seconds` after the copy is done."""
    done_at: float | None = None
    while done_at is None or time.monotonic() < done_at + seconds:
        status = read_status(session)
        if status.state in ("failed", "missing"):
            failures = "; ".join(failure for connector in status.connectors for failure in connector.reasons)
            raise TowpathError(failures or f"the pipeline is {status.state}")
        if not status.copying and done_at is None:
            done_at = time.monotonic()
        copies = status.copy.collections if status.copy else ()
        progress = ", ".join(
            f"{c.namespace} {c.documents:,} of {c.estimated_documents:,}" for c in copies if c.documents
        )
        copy = f"initial copy: {progress or 'starting'}" if status.copying else "initial copy done"
        show(copy, f"lag {lag_text(status.lag)}; {status.records_per_second or 0:,.0f} records/s")
        time.sleep(1)


def _push_size(session: Session) -> float:
    """Bytes of key and value of an update in the devices' topic, on average; 0 if there is none."""
    topic = session.topics.all()[topic_of(session.pipeline.name, "telemetry.hours")]
    window = {place: (0, end) for place, (_, end) in session.topics.ends([topic]).items()}
    with closing(session.topics.consumer()) as consumer:
        changes = (record(message) for _, message in consume.messages(consumer, window))
        sizes = [len(change.key) + len(change.value or b"") for change in changes if change.kind == "update"]
    return sum(sizes) / max(1, len(sizes))


def _print_summary(verdict: Verdict, counts: Counter[str], push_size: float) -> None:
    changes = Table("changes by the writer", "count", box=None, padding=(0, 4, 0, 0))
    for name, count in counts.most_common():
        changes.add_row(name, f"{count:,}")
    columns = ("namespace", "documents", "missing", "extra", "different", "verdict")
    verdicts = Table(*columns, box=None, padding=(0, 4, 0, 0))
    for tally in verdict.tallies:
        kinds = tally.kinds
        counted = (tally.documents, kinds["missing"], kinds["extra"], kinds["different"] + kinds["order"])
        verdicts.add_row(tally.pair.source, *(f"{n:,}" for n in counted), tally.verdict.replace("not", "NOT"))
    print_tables(Group("", changes, "", verdicts, ""))
    if push_size:
        click.echo(f"A pushed reading takes {push_size:,.0f} bytes in the log, however long its array is.")
    if verdict.clean:
        click.echo("Both sides are the same, byte for byte, including types and field order.")
    else:
        click.echo("The sides differ, which is a bug: please report it, with the logs in the folder (--keep).")


def message(rng: random.Random) -> dict[str, Any]:
    """A mail of about 1 KB."""
    return {
        "_id": ObjectId(),
        "from": f"{rng.choice(_WORDS)}@example.org",
        "to": [f"{rng.choice(_WORDS)}@example.net" for _ in range(rng.randint(1, 3))],
        "subject": " ".join(rng.choices(_WORDS, k=6)),
        "received": _START + timedelta(seconds=rng.randrange(10**7)),
        "size": Int64(rng.randrange(10**6)),
        "folder": "inbox",
        "labels": [],
        "seen": False,
        "body": " ".join(rng.choices(_WORDS, k=140)),
    }


def reading(rng: random.Random, second: int) -> dict[str, Any]:
    """One reading, about 100 bytes of BSON."""
    return {
        "t": _START + timedelta(seconds=second),
        "temperature": rng.uniform(-20, 40),
        "humidity": rng.uniform(0, 1),
        "level_mm": rng.randrange(4000),
        "flow": rng.uniform(0, 9),
        "ok": True,
    }


def of_hour(device: int, second: int) -> dict[str, Any]:
    """The `_id` of the document of a device and the hour of this second."""
    return {"_id": f"device-{device:02}:{second // 3600:04}"}


def fill(store: Store, rng: random.Random, messages: int) -> int:
    """Load the documents that exist before replication starts. Returns their number."""
    store.mail.messages.insert_many([message(rng) for _ in range(messages)])
    for first in range(0, _LOADED_S, 3600):
        readings = range(first, first + 200)
        store.telemetry.hours.insert_many(
            of_hour(device, first) | {"device": device, "readings": [reading(rng, second) for second in readings]}
            for device in range(DEVICES)
        )
    return messages + DEVICES * _LOADED_S // 3600


def write(store: Store, rng: random.Random, counts: Counter[str], stop: threading.Event) -> None:
    """Make every kind of change at the source until it is stopped, and count them.

    Each of the 50 devices pushes one reading per simulated second; simulated time runs faster than the clock.
    """
    mail, hours = store.mail.messages, store.telemetry.hours
    ids: list[ObjectId] = [document["_id"] for document in mail.find({}, {"_id": 1})]
    for second in itertools.takewhile(lambda _: not stop.is_set(), itertools.count(_LOADED_S)):
        for device in range(DEVICES):
            push = {"$push": {"readings": reading(rng, second)}, "$setOnInsert": {"device": device}}
            hours.update_one(of_hour(device, second), push, upsert=True)
        counts["pushed readings"] += DEVICES
        for _ in range(20):
            counts[_change(mail, rng, ids)] += 1


def _change(mail: Collection[dict[str, Any]], rng: random.Random, ids: list[ObjectId]) -> str:
    """Change one mail, at random. Returns the name of the kind of change."""
    updates: dict[str, dict[str, Any]] = {
        "mail marked as seen": {"$set": {"seen": True}},
        "mail moved": {"$set": {"folder": rng.choice(_WORDS)}},
        "labels added": {"$addToSet": {"labels": rng.choice(_WORDS)}},
        "bodies removed": {"$unset": {"body": ""}},
    }
    kind, at = rng.choice(("new mail", *updates, "mail replaced", "mail deleted")), rng.randrange(len(ids))
    mine = {"_id": ids[at]}
    match kind:
        case "new mail":
            ids.append(mail.insert_one(message(rng)).inserted_id)
        case "mail replaced":
            mail.replace_one(mine, message(rng) | mine)
        case "mail deleted":
            mail.delete_one(mine)
            ids[at] = ids[-1]
            ids.pop()
        case _:
            mail.update_one(mine, updates[kind])
    return kind
