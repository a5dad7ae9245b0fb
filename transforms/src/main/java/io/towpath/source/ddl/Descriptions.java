package io.towpath.source.ddl;

import io.towpath.debezium.SourceCluster;
import io.towpath.record.ClusterTime;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import io.towpath.source.progress.Ledger;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Predicate;
import org.apache.kafka.connect.source.SourceRecord;

/** Describes what exists before the first change that is emitted: collections and views, with their indexes. */
final class Descriptions {
    private final SourceCluster source;
    private final Predicate<String> selection;
    private final TopicPartitions partitions;
    private final Ledger ledger;
    private final SchemaOffset state;
    private final SchemaRecords records;
    private int catalogs;

    Descriptions(
            SourceCluster source,
            Predicate<String> selection,
            TopicPartitions partitions,
            Ledger ledger,
            SchemaOffset state,
            SchemaRecords records) {
        this.source = source;
        this.selection = selection;
        this.partitions = partitions;
        this.ledger = ledger;
        this.state = state;
        this.records = records;
    }

    /**
     * What existed when the stream begins. Nothing shows what a collection was that is gone, and its changes would come: then the stream
     * begins later. Empty when it has to be called again.
     */
    Optional<List<SourceRecord>> beforeCopy() throws InterruptedException {
        ClusterTime start = ledger.start();
        Catalog catalog = Catalog.read(source, selection, false);
        try (SchemaStream since = new SchemaStream(source, start, event -> event.concerns(selection))) {
            boolean isRead = since.readUpTo(source.now());
            if ((!isRead || since.hasRemovals()) && ++catalogs < Catalog.MOST_READS) {
                ledger.begin(ledger.selection(), source.now(), source.comparableNamespaces(selection));
                return Optional.empty();
            }
            catalogs = 0;
            return Optional.of(describe(catalog.before(since.events()).entries(selection), start, false));
        }
    }

    /** What existed of newly selected namespaces, while everything else is described. */
    List<SourceRecord> beforeCopy(Predicate<String> described) throws InterruptedException {
        return describe(Catalog.read(source, described, false).entries(described), ledger.start(), false);
    }

    /** What exists, as of the stream's position. Empty when it has to be called again. */
    Optional<List<SourceRecord>> asOf(SchemaStream stream, Predicate<String> described, ClusterTime position)
            throws InterruptedException {
        ClusterTime before = source.now();
        Catalog catalog = Catalog.read(source, selection, true);
        if (!stream.readUpTo(source.now())) return Optional.empty();
        if (stream.hasRenamesSince(before) && ++catalogs < Catalog.MOST_READS) return Optional.empty();
        return Optional.of(describe(catalog.before(stream.events()).entries(described), position, true));
    }

    private List<SourceRecord> describe(List<Catalog.Entry> entries, ClusterTime time, boolean isStreaming)
            throws InterruptedException {
        long now = System.currentTimeMillis();
        List<SchemaChange> changes = new ArrayList<>();
        for (Catalog.Entry entry : entries) {
            changes.add(new SchemaChange(
                    SchemaRecords.id(time, now, entry.namespace()),
                    Kind.CREATE,
                    entry.namespace(),
                    "",
                    entry.isView(),
                    entry.options(),
                    entry.indexes(),
                    true,
                    partitions.of(entry.namespace(), "")));
        }
        state.begin();
        if (isStreaming) state.passed(time);
        state.views().removeIf(selection.negate());
        entries.stream().filter(Catalog.Entry::isView).forEach(view -> state.views()
                .add(view.namespace()));
        state.openRefills().stream()
                .filter(refill -> !selection.test(refill.namespace()))
                .forEach(refill -> state.closeRefills(refill.namespace(), time));
        List<SourceRecord> described = new ArrayList<>();
        Map<String, Object> offset = state.offset();
        changes.forEach(change -> described.addAll(records.of(change, time, now, offset)));
        described.add(records.offset("schema changes: %d descriptions".formatted(changes.size())));
        return described;
    }
}
