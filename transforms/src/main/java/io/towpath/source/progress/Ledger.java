package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;

/**
 * What the connector's offsets hold besides Debezium's own: the phase, how far the copy of each collection is, and the cluster times of
 * rows until the stream has passed them.
 */
public final class Ledger {
    private static final String COPY = "copy";
    private static final String STREAM = "stream";

    private final Partitions partitions;
    private final RowTimes rows = new RowTimes();
    private boolean begun;
    private boolean streaming;
    private String selection = "";
    private ClusterTime start;
    private ClusterTime copied;
    private String warning = "";
    private String resnapshot = "";
    private String closed = "";
    private String gap = "";

    public Ledger(Partitions partitions, OffsetStorageReader reader) {
        this.partitions = partitions;
        Map<String, Object> root = reader.offset(partitions.root());
        if (root == null) return;
        begun = true;
        streaming = root.get("phase").equals(STREAM);
        selection = (String) root.get("selection");
        start = ClusterTime.parse((String) root.get("start"));
        warning = (String) root.getOrDefault("warning", "");
        resnapshot = (String) root.getOrDefault("resnapshot", "");
        closed = (String) root.getOrDefault("closed", "");
        gap = (String) root.getOrDefault("gap", "");
        List<String> namespaces = BsonDocument.parse("{n: %s}".formatted(root.get("namespaces"))).getArray("n").stream()
                .map(name -> name.asString().getValue())
                .toList();
        rows.restore(namespaces, (String) root.getOrDefault("read", ""), partitions, reader);
        Optional<ClusterTime> stored =
                Optional.ofNullable((String) root.get("copied")).map(ClusterTime::parse);
        if (streaming && stored.isEmpty()) return; // written by a version that did not store it
        copied = Stream.concat(stored.or(() -> Optional.of(start.previous())).stream(), rows.copyTimes())
                .max(ClusterTime::compareTo)
                .orElseThrow();
    }

    /** Whether anything was ever stored. */
    public boolean hasBegun() {
        return begun;
    }

    public boolean isStreaming() {
        return streaming;
    }

    /** The namespaces that the connector has captured so far, as its setting has them. */
    public String selection() {
        return selection;
    }

    /** Where the stream begins: no row was read before it. */
    public ClusterTime start() {
        return start;
    }

    /** The copies under way, and the times of rows that the stream has not passed. */
    public RowTimes rows() {
        return rows;
    }

    public void begin(String newSelection, ClusterTime now, Collection<String> namespaces) {
        begun = true;
        selection = newSelection;
        start = now;
        copied = now.previous();
        rows.add(namespaces);
    }

    /** Another selection: forgets collections that are no longer in it, and copies new ones. */
    public List<SourceRecord> reselect(String newSelection, Collection<String> added, Collection<String> dropped) {
        List<SourceRecord> records = new ArrayList<>();
        dropped.forEach(namespace -> records.addAll(forget(namespace)));
        selection = newSelection;
        rows.add(added);
        records.add(rootRecord());
        return records;
    }

    /** The name of the latest resnapshot; empty when there was none. */
    public String resnapshot() {
        return resnapshot;
    }

    /** Marks a resnapshot as done, as everything is copied for the first time. */
    public void skipResnapshot(String name) {
        resnapshot = name;
        closed = name;
    }

    /** Since when changes are missing in the log, in whose place documents are re-read; empty when none are. */
    public String gap() {
        return gap;
    }

    /**
     * Copies everything again, and begins the stream where that copy begins.
     *
     * @param since up to when everything is captured
     */
    public List<SourceRecord> restart(
            String name, String newSelection, ClusterTime since, ClusterTime now, Collection<String> namespaces) {
        List<SourceRecord> records = new ArrayList<>();
        List.copyOf(rows.copies().keySet()).forEach(namespace -> records.addAll(forget(namespace)));
        streaming = false;
        warning = "";
        rows.clearDocuments();
        resnapshot = name;
        if (gap.isEmpty()) gap = since.toString();
        begin(newSelection, now, namespaces);
        records.add(rootRecord());
        return records;
    }

    /** Copies these once more while the stream goes on. */
    public List<SourceRecord> copyAgain(String name, Collection<String> namespaces) {
        List<SourceRecord> records = new ArrayList<>();
        namespaces.stream().filter(rows.copies()::containsKey).forEach(namespace -> records.addAll(forget(namespace)));
        rows.add(namespaces);
        resnapshot = name;
        records.add(rootRecord());
        return records;
    }

    /** The log holds all that a resnapshot had to read and to remove: from this time on every state is in it again. */
    public void close(String name, ClusterTime time) {
        if (!name.equals(resnapshot) || name.equals(closed)) return;
        closed = name;
        if (gap.isEmpty()) return;
        gap = "";
        if (copied == null || time.isAfter(copied)) copied = time;
    }

    /** @param isLater whether the document was read at another time than that of the event that it replaces */
    public void addDocument(String namespace, byte[] key, ClusterTime time, boolean isLater) {
        rows.addDocument(namespace, key, time);
        if (isLater && copied != null && time.isAfter(copied)) copied = time;
    }

    public void beginStream() {
        warning = "";
        streaming = true;
        start = Stream.concat(Stream.of(start), rows.planned().flatMap(CollectionCopy::smallestTimes))
                .min(ClusterTime::compareTo)
                .orElseThrow();
    }

    public SourceRecord plan(String namespace, RangePlan plan) {
        return partitions.offsetRecord(
                partitions.of(namespace),
                rows.plan(namespace, plan).planOffset(),
                "copy of %s: %d ranges".formatted(namespace, plan.ranges()));
    }

    /** The largest cluster time of any remembered row; {@link #start} where there is none. */
    public ClusterTime largestTime() {
        return rows.largestTime().orElse(start);
    }

    /** Adds rows that are about to be emitted, and returns the offset behind them. */
    public Map<String, Object> advance(Page page) {
        if (copied != null && page.time().isAfter(copied)) copied = page.time();
        return rows.advance(page).offset();
    }

    /** Forgets what the stream has passed: everything before {@code position} is out. */
    public List<SourceRecord> forget(ClusterTime position) {
        if (!rows.holdsAny()) return List.of();
        boolean hasPassedDocuments = rows.forgetDocuments(position);
        List<String> passed = rows.passed(position);
        if (passed.isEmpty() && !hasPassedDocuments) return List.of();
        List<SourceRecord> records = new ArrayList<>();
        passed.forEach(namespace -> records.addAll(forget(namespace)));
        records.add(rootRecord());
        return records;
    }

    private List<SourceRecord> forget(String namespace) {
        List<SourceRecord> records = new ArrayList<>();
        String text = "copy of %s: done".formatted(namespace);
        rows.forget(namespace).ifPresent(copy -> {
            for (int range = 0; range < copy.ranges().size(); range++)
                records.add(partitions.offsetRecord(partitions.of(namespace, range), null, text));
            records.add(partitions.offsetRecord(partitions.of(namespace), null, text));
        });
        return records;
    }

    /** The largest cluster time of everything that was ever copied: from then on the log has every state. Empty when unknown. */
    public Optional<ClusterTime> copied() {
        return Optional.ofNullable(copied);
    }

    /** Nothing was copied after this time. */
    public void copiedBefore(ClusterTime time) {
        copied = time;
    }

    /** What users should know; empty when nothing. */
    public String warning() {
        return warning;
    }

    public void warn(String message) {
        warning = message;
    }

    public SourceRecord rootRecord() {
        Map<String, Object> offset = new HashMap<>();
        offset.put("phase", streaming ? STREAM : COPY);
        offset.put("selection", selection);
        offset.put("start", start.toString());
        offset.put("namespaces", namespacesAsJson());
        offset.put("warning", warning);
        if (!rows.documents().isEmpty()) offset.put("read", rows.documents());
        if (!resnapshot.isEmpty()) offset.put("resnapshot", resnapshot);
        if (!closed.isEmpty()) offset.put("closed", closed);
        if (!gap.isEmpty()) offset.put("gap", gap);
        copied().ifPresent(time -> offset.put("copied", time.toString()));
        return partitions.offsetRecord(partitions.root(), offset, streaming ? STREAM : COPY);
    }

    /** The record of a range that has nothing to emit. */
    public SourceRecord rangeRecord(String namespace, int range) {
        RangeCopy copy = rows.range(namespace, range);
        return partitions.offsetRecord(
                partitions.of(namespace, range),
                copy.offset(),
                "copy of %s: range %d, %d rows %s".formatted(namespace, range, copy.rows(), copy.reason()));
    }

    private String namespacesAsJson() {
        BsonArray names = new BsonArray(
                rows.copies().keySet().stream().map(BsonString::new).toList());
        String json = new BsonDocument("n", names).toJson();
        return json.substring(json.indexOf('['), json.lastIndexOf(']') + 1);
    }
}
