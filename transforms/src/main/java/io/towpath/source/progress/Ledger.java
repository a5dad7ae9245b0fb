package io.towpath.source;

import io.towpath.record.ClusterTime;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;

/**
 * What the connector's offsets hold besides Debezium's own: the phase, how far the copy of each collection is, and the cluster time of
 * every stretch of rows until the stream has passed it.
 */
final class Ledger {
    private static final String COPY = "copy";
    private static final String STREAM = "stream";

    private final Partitions partitions;
    private final Map<String, Optional<CollectionCopy>> copies = new LinkedHashMap<>();
    private boolean begun;
    private boolean streaming;
    private String selection = "";
    private ClusterTime start;
    private ClusterTime largest;
    private ClusterTime copied;
    private String warning = "";
    private ReadDocuments readDocuments = new ReadDocuments();
    private String resnapshot = "";
    private String closed = "";
    private String gap = "";

    Ledger(Partitions partitions, OffsetStorageReader reader) {
        this.partitions = partitions;
        Map<String, Object> root = reader.offset(partitions.root());
        if (root == null) return;
        begun = true;
        streaming = root.get("phase").equals(STREAM);
        selection = (String) root.get("selection");
        start = ClusterTime.parse((String) root.get("start"));
        warning = (String) root.getOrDefault("warning", "");
        readDocuments = ReadDocuments.parse((String) root.getOrDefault("read", ""));
        resnapshot = (String) root.getOrDefault("resnapshot", "");
        closed = (String) root.getOrDefault("closed", "");
        gap = (String) root.getOrDefault("gap", "");
        List<String> namespaces = BsonDocument.parse("{n: %s}".formatted(root.get("namespaces"))).getArray("n").stream()
                .map(name -> name.asString().getValue())
                .toList();
        namespaces.forEach(namespace -> copies.put(namespace, Optional.empty()));
        partitions.plans(namespaces, reader).forEach((namespace, plan) -> {
            Map<Integer, Map<String, Object>> ranges = partitions.ranges(namespace, plan.ranges(), reader);
            copies.put(namespace, Optional.of(new CollectionCopy(plan, ranges::get)));
        });
        Optional<ClusterTime> stored =
                Optional.ofNullable((String) root.get("copied")).map(ClusterTime::parse);
        if (streaming && stored.isEmpty()) return; // by a version that did not store it
        copied = Stream.concat(stored.or(() -> Optional.of(start.previous())).stream(), times())
                .max(ClusterTime::compareTo)
                .orElseThrow();
    }

    private Stream<ClusterTime> times() {
        return planned().flatMap(CollectionCopy::largestTimes);
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
        copied = now.previous();
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

    /** The resnapshot that was taken up last, by the name that it was given; empty when there was none. */
    String resnapshot() {
        return resnapshot;
    }

    /** Nothing is to be done for this one, as everything is copied for the first time. */
    void takeUp(String name) {
        resnapshot = name;
        closed = name;
    }

    /** Since when changes are missing in the log, in whose place documents are read again; empty when none are. */
    String gap() {
        return gap;
    }

    /**
     * Everything is copied anew, and the stream begins where that does.
     *
     * @param since up to when everything is captured
     */
    List<SourceRecord> beginAnew(
            String name, String newSelection, ClusterTime since, ClusterTime now, Collection<String> namespaces) {
        List<SourceRecord> records = new ArrayList<>();
        List.copyOf(copies.keySet()).forEach(namespace -> records.addAll(forget(namespace)));
        streaming = false;
        largest = null;
        warning = "";
        readDocuments = new ReadDocuments();
        resnapshot = name;
        if (gap.isEmpty()) gap = since.toString();
        begin(newSelection, now, namespaces);
        records.add(rootRecord());
        return records;
    }

    /** These are copied once more while the stream goes on. */
    List<SourceRecord> copyAgain(String name, Collection<String> namespaces) {
        List<SourceRecord> records = new ArrayList<>();
        namespaces.stream().filter(copies::containsKey).forEach(namespace -> records.addAll(forget(namespace)));
        namespaces.forEach(namespace -> copies.put(namespace, Optional.empty()));
        largest = null;
        resnapshot = name;
        records.add(rootRecord());
        return records;
    }

    /** What a resnapshot was to read and to remove is in the log: from this moment on it tells every state again. */
    void close(String name, ClusterTime moment) {
        if (!name.equals(resnapshot) || name.equals(closed)) return;
        closed = name;
        if (gap.isEmpty()) return;
        gap = "";
        if (copied == null || moment.isAfter(copied)) copied = moment;
    }

    /** @param isLater whether the document is of another moment than the event that it stands for */
    void readInstead(String namespace, byte[] key, ClusterTime moment, boolean isLater) {
        readDocuments.add(namespace, key, moment);
        if (largest != null && moment.isAfter(largest)) largest = moment;
        if (isLater && copied != null && moment.isAfter(copied)) copied = moment;
    }

    /** Whether a row or a document is remembered that holds events which the stream may still bring. */
    boolean holdsAny() {
        return !copies.isEmpty() || !readDocuments.isEmpty();
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
        return partitions.carrier(
                partitions.of(namespace),
                copy.planOffset(),
                "copy of %s: %d ranges".formatted(namespace, plan.ranges()));
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
        if (!holdsAny() || time.isAfter(largestTime())) return false;
        if (readDocuments
                .timeOf(namespace, key)
                .map(read -> !time.isAfter(read))
                .orElse(false)) return true;
        return copies.getOrDefault(namespace, Optional.empty())
                .flatMap(copy -> copy.timeOf(key))
                .map(read -> !time.isAfter(read))
                .orElse(false);
    }

    /** The largest cluster time of any row that is remembered. */
    ClusterTime largestTime() {
        if (largest == null) {
            largest = Stream.concat(times(), readDocuments.largestTime().stream())
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
        if (copied != null && page.time().isAfter(copied)) copied = page.time();
        return range.offset();
    }

    /** Forgets what the stream has passed: everything before {@code position} is out. */
    List<SourceRecord> forget(ClusterTime position) {
        if (!holdsAny()) return List.of();
        boolean isPassed = readDocuments.forget(position);
        if (isPassed) largest = null;
        List<String> passed = copies.entrySet().stream()
                .filter(entry -> entry.getValue()
                        .filter(copy -> isPassed(copy, position))
                        .isPresent())
                .map(Map.Entry::getKey)
                .toList();
        if (passed.isEmpty() && !isPassed) return List.of();
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
                    .forEach(range -> records.add(partitions.carrier(partitions.of(namespace, range), null, words)));
            records.add(partitions.carrier(partitions.of(namespace), null, words));
        });
        largest = null;
        return records;
    }

    /** The largest cluster time of everything that was ever copied: from then on the log tells every moment. Empty when not known. */
    Optional<ClusterTime> copied() {
        return Optional.ofNullable(copied);
    }

    /** Nothing was copied after this moment. */
    void copiedBefore(ClusterTime moment) {
        copied = moment;
    }

    /** What users should know while it copies; empty when nothing. */
    String warning() {
        return warning;
    }

    void warn(String words) {
        warning = words;
    }

    SourceRecord rootRecord() {
        Map<String, Object> offset = new HashMap<>();
        offset.put("phase", streaming ? STREAM : COPY);
        offset.put("selection", selection);
        offset.put("start", start.toString());
        offset.put("namespaces", namesAsJson());
        offset.put("warning", warning);
        if (!readDocuments.isEmpty()) offset.put("read", readDocuments.toString());
        if (!resnapshot.isEmpty()) offset.put("resnapshot", resnapshot);
        if (!closed.isEmpty()) offset.put("closed", closed);
        if (!gap.isEmpty()) offset.put("gap", gap);
        copied().ifPresent(time -> offset.put("copied", time.toString()));
        return partitions.carrier(partitions.root(), offset, streaming ? STREAM : COPY);
    }

    /** For a range that has nothing to emit. */
    SourceRecord rangeRecord(String namespace, int range) {
        RangeCopy copy = range(namespace, range);
        return partitions.carrier(
                partitions.of(namespace, range),
                copy.offset(),
                "copy of %s: range %d, %d rows %s".formatted(namespace, range, copy.rows(), copy.reason()));
    }

    private String namesAsJson() {
        BsonArray names =
                new BsonArray(copies.keySet().stream().map(BsonString::new).toList());
        String json = new BsonDocument("n", names).toJson();
        return json.substring(json.indexOf('['), json.lastIndexOf(']') + 1);
    }
}
