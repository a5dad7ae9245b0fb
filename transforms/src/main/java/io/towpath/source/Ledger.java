package io.towpath.source;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.ClusterTime;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;

/**
 * What the connector's offsets hold besides Debezium's own: the phase, how far the copy of each collection is, and the cluster time of
 * every stretch of rows until the stream has passed it. Offsets travel with records, in their transaction; where there is no record to
 * carry one, a line of text in Debezium's heartbeat topic does.
 */
final class Ledger {
    private static final String TOWPATH = "towpath";
    private static final String NAMESPACE = "namespace";
    private static final String RANGE = "range";
    private static final String COPY = "copy";
    private static final String STREAM = "stream";

    private final String prefix;
    private final Map<String, Optional<CollectionCopy>> copies = new LinkedHashMap<>();
    private boolean begun;
    private boolean streaming;
    private String selection = "";
    private ClusterTime start;
    private ClusterTime largest;
    private String warning = "";

    /**
     * @param prefix Debezium's {@code topic.prefix}, which marks its offsets too
     * @param reader the connector's offsets
     */
    Ledger(String prefix, OffsetStorageReader reader) {
        this.prefix = prefix;
        Map<String, Object> root = reader.offset(root());
        if (root == null) return;
        begun = true;
        streaming = root.get("phase").equals(STREAM);
        selection = (String) root.get("selection");
        start = ClusterTime.parse((String) root.get("start"));
        List<String> namespaces = BsonDocument.parse("{n: %s}".formatted(root.get("namespaces"))).getArray("n").stream()
                .map(name -> name.asString().getValue())
                .toList();
        namespaces.forEach(namespace -> copies.put(namespace, Optional.empty()));
        Map<Map<String, Object>, Map<String, Object>> plans =
                reader.offsets(namespaces.stream().map(this::partition).toList());
        plans.forEach((partition, offset) -> {
            if (offset != null)
                copies.put((String) partition.get(NAMESPACE), Optional.of(restored(partition, offset, reader)));
        });
    }

    private CollectionCopy restored(
            Map<String, Object> partition, Map<String, Object> offset, OffsetStorageReader reader) {
        String namespace = (String) partition.get(NAMESPACE);
        RangePlan plan = CollectionCopy.plan(offset);
        Map<Map<String, Object>, Map<String, Object>> found = reader.offsets(IntStream.range(0, plan.ranges())
                .mapToObj(range -> partition(namespace, range))
                .toList());
        Map<Long, Map<String, Object>> byRange = new HashMap<>();
        found.forEach((key, value) -> byRange.put(((Number) key.get(RANGE)).longValue(), value));
        return new CollectionCopy(plan, range -> byRange.get((long) range));
    }

    /** Whether anything was ever stored. */
    boolean hasBegun() {
        return begun;
    }

    boolean isStreaming() {
        return streaming;
    }

    /** The namespaces that the connector took in so far, as its setting has them. */
    String selection() {
        return selection;
    }

    /** Where the stream begins: no row was read before it. */
    ClusterTime start() {
        return start;
    }

    void begin(String newSelection, ClusterTime now, Collection<String> namespaces) {
        begun = true;
        selection = newSelection;
        start = now;
        namespaces.forEach(namespace -> copies.put(namespace, Optional.empty()));
    }

    /** Another selection: what is no longer in it is forgotten, what is new is to be copied. */
    List<SourceRecord> reselect(String newSelection, Collection<String> added, Collection<String> dropped) {
        List<SourceRecord> records = new ArrayList<>();
        dropped.forEach(namespace -> records.addAll(forget(namespace)));
        selection = newSelection;
        added.forEach(namespace -> copies.put(namespace, Optional.empty()));
        records.add(rootRecord());
        return records;
    }

    void beginStream() {
        warning = "";
        streaming = true;
        start = Stream.concat(Stream.of(start), planned().flatMap(CollectionCopy::smallestTimes))
                .min(ClusterTime::compareTo)
                .orElseThrow();
    }

    /** Every collection whose copy is under way or whose times are still needed; empty where it is not cut into ranges yet. */
    Map<String, Optional<CollectionCopy>> copies() {
        return copies;
    }

    Stream<CollectionCopy> planned() {
        return copies.values().stream().flatMap(Optional::stream);
    }

    SourceRecord plan(String namespace, RangePlan plan) {
        CollectionCopy copy = new CollectionCopy(plan);
        copies.put(namespace, Optional.of(copy));
        return carrier(
                partition(namespace), copy.planOffset(), "copy of %s: %d ranges".formatted(namespace, plan.ranges()));
    }

    RangeCopy range(String namespace, int range) {
        return copies.get(namespace).orElseThrow().range(range);
    }

    boolean isCopied() {
        return copies.values().stream()
                .allMatch(copy -> copy.isPresent() && copy.get().isDone());
    }

    /** Whether the row of an {@code _id} holds a change already. */
    boolean holds(String namespace, byte[] key, ClusterTime time) {
        if (copies.isEmpty() || time.isAfter(largestTime())) return false;
        return copies.getOrDefault(namespace, Optional.empty())
                .flatMap(copy -> copy.timeOf(key))
                .map(read -> !time.isAfter(read))
                .orElse(false);
    }

    /** The largest cluster time of any row that is remembered. */
    ClusterTime largestTime() {
        if (largest == null) {
            largest = planned()
                    .flatMap(CollectionCopy::largestTimes)
                    .max(ClusterTime::compareTo)
                    .orElse(start);
        }
        return largest;
    }

    /** Takes in rows that are about to be emitted, with the offset that says so. */
    Map<String, Object> advance(Page page) {
        RangeCopy range = range(page.namespace(), page.range());
        range.advance(page);
        if (largest != null && page.time().isAfter(largest)) largest = page.time();
        return range.offset();
    }

    /** Forgets what the stream has passed: everything before {@code position} is out. */
    List<SourceRecord> forget(ClusterTime position) {
        if (copies.isEmpty()) return List.of();
        List<String> passed = copies.entrySet().stream()
                .filter(entry -> entry.getValue()
                        .filter(copy -> isPassed(copy, position))
                        .isPresent())
                .map(Map.Entry::getKey)
                .toList();
        if (passed.isEmpty()) return List.of();
        List<SourceRecord> records = new ArrayList<>();
        passed.forEach(namespace -> records.addAll(forget(namespace)));
        records.add(rootRecord());
        return records;
    }

    private static boolean isPassed(CollectionCopy copy, ClusterTime position) {
        return copy.isDone() && copy.largestTimes().allMatch(position::isAfter);
    }

    private List<SourceRecord> forget(String namespace) {
        List<SourceRecord> records = new ArrayList<>();
        String words = "copy of %s: done".formatted(namespace);
        copies.remove(namespace).ifPresent(copy -> {
            IntStream.range(0, copy.ranges().size())
                    .forEach(range -> records.add(carrier(partition(namespace, range), null, words)));
            records.add(carrier(partition(namespace), null, words));
        });
        largest = null;
        return records;
    }

    /** What users should know while it copies; empty when nothing. */
    String warning() {
        return warning;
    }

    void warn(String words) {
        warning = words;
    }

    SourceRecord rootRecord() {
        Map<String, Object> offset = Map.of(
                "phase",
                streaming ? STREAM : COPY,
                "selection",
                selection,
                "start",
                start.toString(),
                "namespaces",
                namesAsJson());
        return carrier(root(), offset, streaming ? STREAM : COPY);
    }

    /** For a range that has nothing to emit. */
    SourceRecord rangeRecord(String namespace, int range) {
        RangeCopy copy = range(namespace, range);
        return carrier(
                partition(namespace, range),
                copy.offset(),
                "copy of %s: range %d, %d rows %s".formatted(namespace, range, copy.rows(), copy.reason()));
    }

    Map<String, Object> partition(String namespace) {
        return sorted(Map.of(TOWPATH, prefix, NAMESPACE, namespace));
    }

    Map<String, Object> partition(String namespace, int range) {
        return sorted(Map.of(TOWPATH, prefix, NAMESPACE, namespace, RANGE, (long) range));
    }

    Map<String, Object> root() {
        return sorted(Map.of(TOWPATH, prefix));
    }

    /** Connect finds an offset by the bytes of its partition, in which the order of the names counts. */
    private static Map<String, Object> sorted(Map<String, Object> partition) {
        return new TreeMap<>(partition);
    }

    /** A record that is there for its offset only; null forgets the offset. */
    SourceRecord carrier(Map<String, ?> partition, Map<String, Object> offset, String words) {
        return new SourceRecord(
                partition,
                offset,
                "__debezium-heartbeat." + prefix,
                null,
                Schema.OPTIONAL_BYTES_SCHEMA,
                null,
                Schema.OPTIONAL_BYTES_SCHEMA,
                words.getBytes(UTF_8));
    }

    private String namesAsJson() {
        BsonArray names =
                new BsonArray(copies.keySet().stream().map(BsonString::new).toList());
        String json = new BsonDocument("n", names).toJson();
        return json.substring(json.indexOf('['), json.lastIndexOf(']') + 1);
    }
}
