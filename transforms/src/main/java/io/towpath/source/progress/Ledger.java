package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/**
 * What the connector's offsets hold besides Debezium's own: the phase, how far the copy of each collection is, and the cluster times of
 * rows until the stream has passed them.
 */
public final class Ledger {
    private static final String COPY = "copy";
    private static final String STREAM = "stream";

    private final Partitions partitions;
    private final RowTimes rows;
    private final LogHistory history;
    private boolean begun;
    private boolean streaming;
    private String selection = "";
    private ClusterTime start;
    private String warning = "";

    public Ledger(Partitions partitions, OffsetStorageReader reader) {
        this.partitions = partitions;
        Map<String, Object> root = reader.offset(partitions.root());
        rows = new RowTimes(root, partitions, reader);
        history = new LogHistory(root == null ? Map.of() : root);
        if (root == null) return;
        begun = true;
        streaming = root.get("phase").equals(STREAM);
        selection = (String) root.get("selection");
        start = ClusterTime.parse((String) root.get("start"));
        warning = (String) root.getOrDefault("warning", "");
        // earlier versions did not store it; once they stream, it is unknown
        if (!streaming && history.copied().isEmpty()) history.copiedBefore(start.previous());
        rows.copyTimes().forEach(history::copiedAt);
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

    /** The copies in progress, and the times of rows that the stream has not passed. */
    public RowTimes rows() {
        return rows;
    }

    public LogHistory history() {
        return history;
    }

    public void begin(String newSelection, ClusterTime now, Collection<String> namespaces) {
        begun = true;
        selection = newSelection;
        start = now;
        history.copiedBefore(now.previous());
        rows.add(namespaces);
    }

    /** Another selection: forgets collections that are no longer in it, and copies new ones. */
    public List<SourceRecord> reselect(String newSelection, Collection<String> added, Collection<String> dropped) {
        List<SourceRecord> records = forget(dropped);
        selection = newSelection;
        rows.add(added);
        records.add(rootRecord());
        return records;
    }

    /**
     * Copies everything again, and begins the stream where that copy begins.
     *
     * @param since up to when everything is captured
     */
    public List<SourceRecord> restart(
            String name, String newSelection, ClusterTime since, ClusterTime now, Collection<String> namespaces) {
        List<SourceRecord> records = forget(rows.copies().keySet());
        streaming = false;
        warning = "";
        rows.clearDocuments();
        history.begin(name, since);
        begin(newSelection, now, namespaces);
        records.add(rootRecord());
        return records;
    }

    /** Copies these once more while the stream goes on. */
    public List<SourceRecord> copyAgain(String name, Collection<String> namespaces) {
        List<SourceRecord> records =
                forget(namespaces.stream().filter(rows.copies()::containsKey).toList());
        rows.add(namespaces);
        history.begin(name);
        records.add(rootRecord());
        return records;
    }

    /** @param isLater whether the document was read at another time than that of the event that it replaces */
    public void addDocument(String namespace, byte[] key, ClusterTime time, boolean isLater) {
        rows.addDocument(namespace, key, time);
        if (isLater) history.copiedAt(time);
    }

    public void beginStream() {
        warning = "";
        streaming = true;
        start = Stream.concat(Stream.of(start), rows.planned().flatMap(CollectionCopy::smallestTimes))
                .min(ClusterTime::compareTo)
                .orElseThrow();
    }

    public SourceRecord plan(String namespace, RangePlan plan) {
        return partitions.planRecord(namespace, rows.plan(namespace, plan));
    }

    /** The largest cluster time of any remembered row; {@link #start} where there is none. */
    public ClusterTime largestTime() {
        return rows.largestTime().orElse(start);
    }

    /** Adds rows that are about to be emitted, and returns the offset behind them. */
    public Map<String, Object> advance(Page page) {
        history.copiedAt(page.time());
        return rows.advance(page).offset();
    }

    /** Forgets what the stream has passed: everything before {@code position} is emitted. */
    public List<SourceRecord> forget(ClusterTime position) {
        if (!rows.holdsAny()) return List.of();
        boolean hasPassedDocuments = rows.forgetDocuments(position);
        List<String> passed = rows.passed(position);
        if (passed.isEmpty() && !hasPassedDocuments) return List.of();
        List<SourceRecord> records = forget(passed);
        records.add(rootRecord());
        return records;
    }

    private List<SourceRecord> forget(Collection<String> namespaces) {
        List<SourceRecord> records = new ArrayList<>();
        for (String namespace : List.copyOf(namespaces))
            rows.forget(namespace).ifPresent(copy -> records.addAll(partitions.doneRecords(namespace, copy)));
        return records;
    }

    /** What users should know; empty when nothing. */
    public String warning() {
        return warning;
    }

    public void warn(String message) {
        warning = message;
    }

    public SourceRecord rootRecord() {
        Map<String, Object> root = new HashMap<>();
        root.put("phase", streaming ? STREAM : COPY);
        root.put("selection", selection);
        root.put("start", start.toString());
        root.put("warning", warning);
        rows.addTo(root);
        history.addTo(root);
        return partitions.offsetRecord(partitions.root(), root, streaming ? STREAM : COPY);
    }

    /** The record of a range that has nothing to emit. */
    public SourceRecord rangeRecord(String namespace, int range) {
        return partitions.rangeRecord(namespace, range, rows.range(namespace, range));
    }
}
