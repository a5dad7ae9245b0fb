"""The demo's summary at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from towpath.cli.demo.load import NAMESPACES, Store
from towpath.kafka.consume import messages
from towpath.log.records import record
from towpath.namespaces import topic_of
from towpath.session import Session
from verifier import Comparison, Different, Extra, Missing, compare


@dataclass(frozen=True, slots=True)
class Pushes:
    """The updates of devices' documents in the log: their number, and `size`, the bytes of their keys and values."""

    records: int
    size: int


def compare_all(source: Store, destination: Store) -> dict[str, Comparison]:
    comparisons = {}
    for namespace in NAMESPACES:
        database, collection = namespace.split(".", 1)
        comparisons[namespace] = compare(source[database][collection], destination[database][collection])
    return comparisons


def pushes(session: Session) -> Pushes:
    """Read the devices' topic from its beginning and count the updates in it."""
    topic = session.topics.all()[topic_of(session.pipeline.name, "telemetry.hours")]
    window = {place: (0, end) for place, (_, end) in session.topics.ends([topic]).items()}
    consumer = session.topics.consumer()
    records = size = 0
    try:
        for _, message in messages(consumer, window):
            change = record(message)
            if change.kind == "update":
                records, size = records + 1, size + len(change.key) + len(change.value or b"")
    finally:
        consumer.close()
    return Pushes(records, size)


def summary(comparisons: Mapping[str, Comparison], counts: Counter[str], pushed: Pushes) -> None:
    console = Console()
    changes = Table("changes by the writer", "count", box=None, padding=(0, 4, 0, 0))
    for name, count in counts.most_common():
        changes.add_row(name, f"{count:,}")
    verdicts = Table(
        "namespace", "documents", "missing", "extra", "different", "verdict", box=None, padding=(0, 4, 0, 0)
    )
    for namespace, comparison in comparisons.items():
        kinds = Counter(type(difference) for difference in comparison.differences)
        numbers = [f"{n:,}" for n in (comparison.compared, kinds[Missing], kinds[Extra], kinds[Different])]
        verdicts.add_row(namespace, *numbers, "same" if comparison.same else "NOT THE SAME")
    console.print()
    console.print(changes)
    console.print()
    console.print(verdicts)
    console.print()
    if pushed.records:
        console.print(
            f"A pushed reading takes {pushed.size / pushed.records:,.0f} bytes in the log, however long its array is."
        )
    if all(comparison.same for comparison in comparisons.values()):
        console.print("Both sides are the same, byte for byte, including types and field order.")
    else:
        console.print("The sides differ, which is a bug: please report it, with the logs in the folder (--keep).")
