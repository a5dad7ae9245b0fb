"""Faults in the plugin: each a small replacement in one Java file, and where in a soak it has to be noticed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from towpath.stack import export_plugins, tools

ROOT = Path(__file__).parents[2]
_SOURCES = Path("transforms", "src", "main", "java", "io", "towpath")
_JAR = "towpath-transforms-*.jar"


@dataclass(frozen=True, slots=True)
class Planted:
    name: str
    file: str
    """Within `io/towpath`."""
    right: str
    """Occurs once in the file."""
    wrong: str
    pair: tuple[str, str]
    """The fault of a soak that strikes, and the state in which."""

    def applied_to(self, text: str) -> str:
        """Raises `ValueError` where the place is not in the text any more, or there are several."""
        if (count := text.count(self.right)) != 1:
            raise ValueError(f"{self.name}: {self.file} has this {count} times, not once: {self.right}")
        return text.replace(self.right, self.wrong)

    def build(self, folder: Path) -> Path:
        """A folder for Connect's `plugin.path`, with the fault: made in `folder`. Raises as `export_plugins` does."""
        copy, plugins = folder / "sources", folder / "plugins"
        shutil.copytree(tools.VERSIONS_POM.parent, copy / "towpath" / "stack" / "versions")
        shutil.copytree(ROOT / "transforms" / "src" / "main", copy / "transforms" / "src" / "main")
        pom = Path(shutil.copy(ROOT / "transforms" / "pom.xml", copy / "transforms"))
        place = copy / _SOURCES / self.file
        place.write_text(self.applied_to(place.read_text(encoding="utf-8")), encoding="utf-8")
        options = ("--quiet", "--batch-mode", "-DskipTests", "-Dspotless.check.skip=true", "--file", pom)
        tools.run(f"build a plugin in which {self.name}", [tools.maven(), *options, "package"])
        export_plugins(plugins, print)
        (right,) = (plugins / "towpath").glob(_JAR)
        (wrong,) = (jar for jar in (copy / "transforms" / "target").glob(_JAR) if jar.name == right.name)
        shutil.copy(wrong, right)
        return plugins


_STREAM = "worker-kill", "streaming"
_REREAD = "worker-kill", "reading again"

PLANTED = (
    Planted(
        "an event at the very time of its row is not in the row",
        "source/progress/RowTimes.java",
        ".map(read -> !time.isAfter(read))",
        ".map(read -> read.isAfter(time))",
        ("worker-kill", "copy"),
    ),
    Planted(
        "that a row was read is forgotten",
        "source/progress/RowTimes.java",
        ".flatMap(copy -> copy.timeOf(key))\n                    .map(",
        ".flatMap(copy -> Optional.<ClusterTime>empty())\n                    .map(",
        ("worker-kill", "catch-up after a round"),
    ),
    Planted(
        "a document that changes while it is read in natural order is not read again",
        "source/progress/RowTimes.java",
        "if (time.isAfter(times.get().first()) && time.isAfter(start)) addPending(namespace, key);",
        "",
        ("worker-kill", "pending in natural order"),
    ),
    Planted(
        "pending documents are forgotten by a restart",
        "source/stream/Streaming.java",
        "into.addAll(ledger.newPending());",
        "",
        ("worker-kill", "pending in natural order"),
    ),
    Planted(
        "the events of a poll are swapped",
        "source/stream/Streaming.java",
        "into.addAll(records.get());",
        "into.addAll(0, records.get());",
        _STREAM,
    ),
    Planted(
        "an update is emitted beside the document that has it",
        "source/stream/ChangedDocuments.java",
        "updates.removeIf(update -> progress.ledger().rows().isPending(update.namespace, update.key));",
        "",
        _STREAM,
    ),
    Planted(
        "a transaction of the source is not kept together",
        "debezium/WholeTransactions.java",
        "if (isOfTransaction(record)) end = index;",
        "",
        _STREAM,
    ),
    Planted(
        "a re-read is later than the stream",
        "source/reread/Rereads.java",
        "RereadAnswer.read(request, index, time, reads)",
        "RereadAnswer.read(request, index, reads.source().now(), reads)",
        _REREAD,
    ),
    Planted(
        "a splice has another length than its array",
        "source/splice/DocumentArrays.java",
        "before.get().elements.length(), replacements",
        "before.get().elements.length() + 1, replacements",
        _STREAM,
    ),
    Planted(
        "a splice removes one element too few",
        "source/splice/ArraySplice.java",
        "new Splice.Edit(replacement.at(), replacement.deleted(), inserted)",
        "new Splice.Edit(replacement.at(), Math.max(0, replacement.deleted() - 1), inserted)",
        _STREAM,
    ),
    Planted(
        "the key does not decide the partition",
        "connector/KeyPartitioner.java",
        "Utils.murmur2(chosen)",
        "Utils.murmur2(valueBytes == null ? chosen : valueBytes)",
        _STREAM,
    ),
    Planted(
        "every chunk of a value is the first one",
        "source/RecordSizeLimit.java",
        "chunks.chunk(value, number)",
        "chunks.chunk(value, 0)",
        _STREAM,
    ),
    Planted(
        "a value in chunks is skipped",
        "sink/WritePlan.java",
        "|| ChunkedRecords.isChunk(record)) continue;",
        "|| ChunkedRecords.isChunk(record) || ChunkedRecords.original(record) != record) continue;",
        _STREAM,
    ),
    Planted(
        "equal _ids have several keys",
        "record/CanonicalNumber.java",
        "if (value == Math.rint(value) && value >= -TWO_TO_63 && value < TWO_TO_63) return ofLong((long) value);",
        "",
        _STREAM,
    ),
    Planted(
        "the position skips a record",
        "sink/Transaction.java",
        "record.kafkaOffset() + 1",
        "record.kafkaOffset() + 2",
        _STREAM,
    ),
    Planted(
        "a batch is applied twice",
        "sink/Transaction.java",
        "for (List<Waves.Bulk> wave : waves) {",
        "for (List<Waves.Bulk> wave : java.util.stream.Stream.concat(waves.stream(), waves.stream()).toList()) {",
        _STREAM,
    ),
    Planted(
        "the position is not written in the transaction of the batch",
        "sink/Offsets.java",
        "store.collection().bulkWrite(session, updates)",
        "store.collection().bulkWrite(updates)",
        ("destination-primary-kill", "transaction"),
    ),
    Planted(
        "a position is moved without a look at its epoch and its offset",
        "sink/OffsetStore.java",
        "return and(owned(partition, position), eq(OffsetDocument.OFFSET, position.offset()));",
        "return OffsetDocument.filter(pipeline, partition);",
        ("worker-of-three-stop", "streaming"),
    ),
    Planted(
        "folding drops an unset",
        "fold/Container.java",
        "case UNSET -> at.remove(name);",
        "case UNSET -> {}",
        _REREAD,
    ),
    Planted(
        "a schema change does not wait for all partitions",
        "sink/Barriers.java",
        "new Arrival(barrier, arrived, partitions.size(), makes)",
        "new Arrival(barrier, arrived, arrived, makes)",
        ("worker-kill", "drop first arrived"),
    ),
)
