"""What the demo tells at its end."""

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
    """Updates of the devices' documents, as they lie in the log: how many, and bytes of key and value."""

    records: int
    size: int


def compare_all(source: Store, destination: Store) -> dict[str, Comparison]:
    found = {}
    for namespace in NAMESPACES:
        database, collection = namespace.split(".", 1)
        found[namespace] = compare(source[database][collection], destination[database][collection])
    return found


def pushes(session: Session) -> Pushes:
    """Read the devices' topic from its beginning and count the updates in it."""
    topic = session.topics.all()[topic_of(session.pipeline.name, "telemetry.hours")]
    window = {place: (0, end) for place, (_, end) in session.topics.ends([topic]).items()}
    consumer = session.topics.consumer()
    records = size = 0
    try:
        for _, message in messages(consumer, window):
            found = record(message)
            if found.kind == "update":
                records, size = records + 1, size + len(found.key) + len(found.value or b"")
    finally:
        consumer.close()
    return Pushes(records, size)


def summary(comparisons: Mapping[str, Comparison], counts: Counter[str], pushed: Pushes) -> None:
    console = Console()
    changes = Table("what the writer did meanwhile", "times", box=None, padding=(0, 4, 0, 0))
    for name, count in counts.most_common():
        changes.add_row(name, f"{count:,}")
    verdicts = Table(
        "namespace", "documents", "missing", "extra", "different", "verdict", box=None, padding=(0, 4, 0, 0)
    )
    for namespace, found in comparisons.items():
        kinds = Counter(type(difference) for difference in found.differences)
        numbers = [f"{n:,}" for n in (found.compared, kinds[Missing], kinds[Extra], kinds[Different])]
        verdicts.add_row(namespace, *numbers, "same" if found.same else "NOT THE SAME")
    console.print()
    console.print(changes)
    console.print()
    console.print(verdicts)
    console.print()
    if pushed.records:
        console.print(
            f"A pushed reading travels as {pushed.size / pushed.records:,.0f} bytes, however long its array is."
        )
    if all(found.same for found in comparisons.values()):
        console.print("Both sides are the same, byte for byte: types and the order of fields included.")
    else:
        console.print("The sides differ. This should not be: please report it, with the folder's logs (--keep).")
