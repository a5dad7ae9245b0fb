package io.towpath.source.ddl;

import io.towpath.connector.LogRecord;
import io.towpath.connector.TextHeaders;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.record.SchemaChange;
import io.towpath.source.progress.Progress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.source.SourceRecord;

/** Makes the records of schema changes, and those that store only the offset. */
final class SchemaRecords {
    /** How often the position is stored while nothing changes. */
    private static final long STORED_NS = Duration.ofSeconds(30).toNanos();

    private final Progress progress;
    private final SchemaOffset state;
    private long storedNs = System.nanoTime();

    SchemaRecords(Progress progress, SchemaOffset state) {
        this.progress = progress;
        this.state = state;
    }

    /** The id of what is no event of the source: the wall clock distinguishes it from events of the same time. */
    static String id(ClusterTime time, long nowMs, String namespace) {
        return "%s/%d/%s".formatted(time, nowMs, namespace);
    }

    /** A change, in every partition of its topics. */
    List<SourceRecord> of(SchemaChange change, ClusterTime time, long atMs, Map<String, Object> offset) {
        Headers headers = TextHeaders.of(new RecordHeaders(SchemaChange.OPERATION, time, atMs));
        Map<String, Object> partition = progress.partitions().schema();
        byte[] key = change.key();
        byte[] value = change.value();
        List<SourceRecord> records = new ArrayList<>();
        new TreeMap<>(change.partitions()).forEach((topic, count) -> {
            for (int number = 0; number < count; number++)
                records.add(new LogRecord(partition, offset, topic, number, key, value, headers));
        });
        return records;
    }

    SourceRecord offset(String text) {
        storedNs = System.nanoTime();
        return progress.partitions().offsetRecord(progress.partitions().schema(), state.offset(), text);
    }

    boolean isOffsetDue() {
        return System.nanoTime() - storedNs >= STORED_NS;
    }
}
