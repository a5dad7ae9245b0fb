package io.towpath.source.progress;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.connector.SourcePartition;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/**
 * The source partitions of the connector's own offsets. Offsets travel with records, in their transaction; where there is no other
 * record, with a line of text in Debezium's heartbeat topic.
 *
 * @param prefix Debezium's {@code topic.prefix}, which marks its offsets too
 */
public record Partitions(String prefix) {
    /** How the names of Debezium's heartbeat topics begin. */
    public static final String HEARTBEATS = "__debezium-heartbeat.";

    private static final String TOWPATH = "towpath";
    private static final String NAMESPACE = "namespace";
    private static final String RANGE = "range";
    private static final String REQUESTS = "requests";
    private static final String DDL = "ddl";
    private static final String SCHEMA = "schema";
    private static final String SPLICES = "splices";
    private static final String PENDING = "pending";
    private static final String CHUNK = "chunk";
    private static final String TASK = "task";
    private static final String ROUND = "round";

    public Map<String, Object> root() {
        return sorted(Map.of(TOWPATH, prefix));
    }

    public Map<String, Object> of(String namespace) {
        return sorted(Map.of(TOWPATH, prefix, NAMESPACE, namespace));
    }

    public Map<String, Object> of(String namespace, int range) {
        return sorted(Map.of(TOWPATH, prefix, NAMESPACE, namespace, RANGE, (long) range));
    }

    public Map<String, Object> requests(String topic) {
        return sorted(Map.of(TOWPATH, prefix, REQUESTS, topic));
    }

    public Map<String, Object> ddl() {
        return sorted(Map.of(TOWPATH, prefix, DDL, true));
    }

    public Map<String, Object> schema() {
        return sorted(Map.of(TOWPATH, prefix, SCHEMA, true));
    }

    public Map<String, Object> splices() {
        return sorted(Map.of(TOWPATH, prefix, SPLICES, true));
    }

    private Map<String, Object> task(int task) {
        return sorted(Map.of(TOWPATH, prefix, TASK, (long) task));
    }

    /** The last round that a task has ended; 0 before the first. */
    public long ended(int task, OffsetStorageReader reader) {
        Map<String, Object> offset = reader.offset(task(task));
        return offset == null ? 0 : ((Number) offset.get(ROUND)).longValue();
    }

    /** A task has read what it reads in a round: in the transaction of its last rows of the round, or later. */
    public SourceRecord endRecord(int task, long round) {
        return offsetRecord(
                task(task), Map.of(ROUND, round), "copy: task %d has ended round %d".formatted(task, round));
    }

    Map<String, Object> pending(String namespace, int chunk) {
        return sorted(Map.of(TOWPATH, prefix, PENDING, namespace, CHUNK, (long) chunk));
    }

    /** Connect finds an offset by the bytes of its partition, in which the order of the names counts. */
    private static Map<String, Object> sorted(Map<String, Object> partition) {
        return new SourcePartition(new TreeMap<>(partition));
    }

    /** The stored plans, by namespace. */
    Map<String, RangePlan> plans(List<String> namespaces, OffsetStorageReader reader) {
        Map<String, RangePlan> plans = new HashMap<>();
        reader.offsets(namespaces.stream().map(this::of).toList()).forEach((partition, offset) -> {
            if (offset != null) plans.put((String) partition.get(NAMESPACE), RangePlan.of(offset));
        });
        return plans;
    }

    /** The stored offsets of a namespace's ranges, by range. */
    Map<Integer, Map<String, Object>> ranges(String namespace, int count, OffsetStorageReader reader) {
        Map<Integer, Map<String, Object>> ranges = new HashMap<>();
        ranges(Map.of(namespace, IntStream.range(0, count)), reader, (any, range, offset) -> ranges.put(range, offset));
        return ranges;
    }

    /** The documents of a namespace that have to be re-read. Their chunks are numbered without a gap. */
    PendingKeys pendingKeys(String namespace, OffsetStorageReader reader) {
        List<Map<String, Object>> chunks = new ArrayList<>();
        for (int count = 1; ; count = chunks.size()) {
            List<Map<String, Object>> partitions = IntStream.range(chunks.size(), chunks.size() + count)
                    .mapToObj(chunk -> pending(namespace, chunk))
                    .toList();
            Map<Map<String, Object>, Map<String, Object>> offsets = reader.offsets(partitions);
            for (Map<String, Object> partition : partitions) {
                if (offsets.get(partition) == null) return new PendingKeys(chunks);
                chunks.add(offsets.get(partition));
            }
        }
    }

    SourceRecord pendingRecord(String namespace, PendingKeys keys, int chunk) {
        String text = "copy of %s: %d documents are to be re-read".formatted(namespace, keys.size());
        return offsetRecord(pending(namespace, chunk), keys.offset(chunk), text);
    }

    /** What is stored of a range; null when nothing is. */
    interface StoredRange {
        void accept(String namespace, int range, Map<String, Object> offset);
    }

    /** Reads the stored offsets of ranges in one go: each read waits until open transactions have ended. */
    void ranges(Map<String, IntStream> wanted, OffsetStorageReader reader, StoredRange into) {
        List<Map<String, Object>> all = new ArrayList<>();
        wanted.forEach((namespace, ranges) -> ranges.forEach(range -> all.add(of(namespace, range))));
        reader.offsets(all)
                .forEach((partition, offset) -> into.accept(
                        (String) partition.get(NAMESPACE), ((Number) partition.get(RANGE)).intValue(), offset));
    }

    SourceRecord planRecord(String namespace, CollectionCopy copy) {
        String text = "copy of %s: %d %s"
                .formatted(namespace, copy.ranges().size(), copy.isNatural() ? "pieces in natural order" : "ranges");
        return offsetRecord(of(namespace), copy.plan().offset(), text);
    }

    SourceRecord rangeRecord(String namespace, int range, RangeCopy copy) {
        String text = "copy of %s: range %d, %d rows %s".formatted(namespace, range, copy.rows(), copy.reason());
        return offsetRecord(of(namespace, range), copy.offset(), text);
    }

    /** Forgets the offsets of a copy. */
    List<SourceRecord> doneRecords(String namespace, CollectionCopy copy) {
        String text = "copy of %s: done".formatted(namespace);
        List<SourceRecord> records = new ArrayList<>();
        for (int range = 0; range < copy.ranges().size(); range++)
            records.add(offsetRecord(of(namespace, range), null, text));
        records.add(offsetRecord(of(namespace), null, text));
        return records;
    }

    /** A record that exists for its offset only; null forgets the offset. */
    public SourceRecord offsetRecord(Map<String, ?> partition, Map<String, Object> offset, String text) {
        return new SourceRecord(
                partition,
                offset,
                HEARTBEATS + prefix,
                null,
                Schema.OPTIONAL_BYTES_SCHEMA,
                null,
                Schema.OPTIONAL_BYTES_SCHEMA,
                text.getBytes(UTF_8));
    }
}
