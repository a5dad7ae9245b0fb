package io.towpath.source;

import io.towpath.connector.LogRecord;
import io.towpath.record.SchemaChange;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.splice.SpliceTotals;
import io.towpath.source.splice.Splicer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/** The last steps of every record: splices in place of arrays, and then chunks in place of what is too large. */
final class Emission implements AutoCloseable {
    /** After these, the documents of a topic are others. */
    private static final Set<SchemaChange.Kind> ENDS_HISTORY =
            Set.of(SchemaChange.Kind.RENAME, SchemaChange.Kind.DROP, SchemaChange.Kind.REPLACE);

    private final Partitions partitions;
    private final SpliceTotals totals;
    private final Splicer splicer;
    private final LogTopics topics;
    private final RecordSizeLimit sizeLimit;
    /** Of the record before, which is known to exist. */
    private String topic = "";

    Emission(SourceSettings settings, Partitions partitions, SourceMetrics metrics, OffsetStorageReader offsets) {
        // only the first task streams
        long cacheBytes = settings.copy().share().isFirst() ? settings.spliceCacheBytes() : 0;
        this.partitions = partitions;
        this.totals = new SpliceTotals(cacheBytes > 0 ? offsets.offset(partitions.splices()) : null);
        this.splicer = new Splicer(cacheBytes, metrics, totals);
        this.topics = new LogTopics(settings);
        this.sizeLimit = new RecordSizeLimit(settings, metrics, topics);
    }

    /** What Kafka gets of one poll; null stays null. */
    List<SourceRecord> of(List<SourceRecord> records) throws InterruptedException {
        if (records == null) return null;
        List<SourceRecord> emitted = new ArrayList<>(records.size() + 1);
        for (SourceRecord record : records) {
            if (!record.topic().equals(topic)) {
                topics.require(record.topic());
                topic = record.topic();
            }
            Optional<SchemaChange> change = schemaChange(record);
            if (change.isPresent()) {
                if (ENDS_HISTORY.contains(change.get().kind())) splicer.forgetAll(record.topic());
                emitted.add(record);
                continue;
            }
            SourceRecord spliced = splicer.applyTo(record);
            if (!sizeLimit.add(spliced, emitted)) splicer.forget(spliced);
        }
        totals.dueOffset(System.nanoTime())
                .ifPresent(offset -> emitted.add(partitions.offsetRecord(partitions.splices(), offset, "splices")));
        return emitted;
    }

    /** Only schema changes choose their partition. */
    private static Optional<SchemaChange> schemaChange(SourceRecord record) {
        return record instanceof LogRecord
                        && record.kafkaPartition() != null
                        && record.key() instanceof byte[] key
                        && SchemaChange.isKey(key)
                ? Optional.of(SchemaChange.decode(key, (byte[]) record.value()))
                : Optional.empty();
    }

    @Override
    public void close() {
        topics.close();
    }
}
