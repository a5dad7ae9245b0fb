package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/**
 * What the connector's offsets hold in addition to Debezium's own: the phase, how far the copy of each collection is, and the cluster times of
 * rows until the stream has passed them.
 */
public final class Ledger {
    private final Partitions partitions;
    private final RowTimes rows;
    private final LogHistory history;
    private boolean begun;
    private boolean fresh;
    private Phase phase = Phase.COPY;
    private long round;
    private String selection = "";
    private String rules = "";
    private ClusterTime start;
    /** The time of a transaction of which the log has only a part; null if there is none. */
    private ClusterTime open;

    /** Whether documents were added since the last root offset. */
    private boolean hasNewDocuments;

    private String warning = "";

    public Ledger(Partitions partitions, OffsetStorageReader reader) {
        this.partitions = partitions;
        Map<String, Object> root = reader.offset(partitions.root());
        rows = new RowTimes(root, partitions, reader);
        history = new LogHistory(root == null ? Map.of() : root);
        if (root == null) return;
        begun = true;
        phase = phase(root);
        round = round(root);
        selection = (String) root.get("selection");
        rules = (String) root.getOrDefault("rules", "");
        start = ClusterTime.parse((String) root.get("start"));
        if (root.get("open") instanceof String time) open = ClusterTime.parse(time);
        warning = (String) root.getOrDefault("warning", "");
        rows.newTimes().forEach(history::copiedAt);
    }

    /** The number of the round that a root offset is of; offsets of a copy without rounds are of none. */
    private static long round(Map<String, Object> root) {
        return ((Number) root.getOrDefault("round", 0L)).longValue();
    }

    /** Whether the first task reads a round that is later than {@code ended}, or the initial copy is over. */
    public static boolean hasNews(long ended, Partitions partitions, OffsetStorageReader reader) {
        Map<String, Object> root = reader.offset(partitions.root());
        if (root == null) return false;
        return switch (phase(root)) {
            case COPY -> round(root) > ended;
            case CATCH_UP -> false;
            case STREAM -> true;
        };
    }

    private static Phase phase(Map<String, Object> root) {
        return Phase.parse((String) root.get("phase"));
    }

    /** Takes over what the first task has planned. Returns false when this round, or the copy, is over. */
    public boolean followFirst(OffsetStorageReader reader) {
        rows.readPlans(partitions, reader);
        // afterwards: the stream forgets ranges, and a range that is forgotten looks as if it had never begun
        Map<String, Object> root = reader.offset(partitions.root());
        // a plan may follow one in natural order that this task has never seen: then all ranges are the first task's
        rows.readAbandoned(root);
        return phase(root) == Phase.COPY && round(root) == round;
    }

    /** Takes over how far the other tasks have come: what they have committed. */
    public void followOthers(CopyShare share, OffsetStorageReader reader) {
        rows.readOthers(share, partitions, reader);
        rows.newTimes().forEach(history::copiedAt);
    }

    /** Whether anything was ever stored. */
    public boolean hasBegun() {
        return begun;
    }

    /** Whether the initial copy began in this task: no row of it was in the log before. */
    public boolean isFresh() {
        return fresh;
    }

    /** Whether the initial copy is over. */
    public boolean isStreaming() {
        return phase == Phase.STREAM;
    }

    /** Whether rows of the initial copy are read now; otherwise the stream runs. */
    public boolean isCopying() {
        return phase == Phase.COPY;
    }

    /** The number of the present or last round; no later round has a smaller one. */
    public long round() {
        return round;
    }

    /** The namespaces that the connector has captured so far, as its setting has them. */
    public String selection() {
        return selection;
    }

    /** The rules that the log's records follow, as text; empty for none. */
    public String rules() {
        return rules;
    }

    /** From now on the log's records follow these. */
    public void follow(String newRules) {
        rules = newRules;
    }

    /** Where the round begins: the stream has passed every event up to it, or begins there, and no row of the round is read before it. */
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
        fresh = true;
        phase = Phase.COPY;
        round++;
        selection = newSelection;
        start = now;
        history.copiedBefore(now.previous());
        rows.add(namespaces);
    }

    /**
     * The offsets were lost, and the log has records of an earlier capture.
     *
     * @param now when that was found
     * @param resnapshot the one that the configuration names
     */
    public void lose(String newSelection, ClusterTime now, String resnapshot) {
        begin(newSelection, now, List.of());
        beginStream();
        history.lose(resnapshot);
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
        List<SourceRecord> records = forget(rows.remembered());
        warning = "";
        rows.clearDocuments();
        history.begin(name, since);
        begin(newSelection, now, namespaces);
        records.add(rootRecord());
        return records;
    }

    /**
     * Copies these once more while the stream continues.
     *
     * @param missing whether the log lacks changes of some of them
     */
    public List<SourceRecord> copyAgain(String name, Collection<String> namespaces, ClusterTime now, boolean missing) {
        List<SourceRecord> records = new ArrayList<>();
        namespaces.stream().filter(rows.copies()::containsKey).forEach(namespace -> records.addAll(abandon(namespace)));
        rows.add(namespaces);
        if (missing) history.begin(name, now);
        else history.begin(name);
        records.add(rootRecord());
        return records;
    }

    /**
     * Collections that are others from now on, or none: their rows in the log, documents in place of events, and what is pending because of
     * them, mean nothing any more. Of one that was not read completely, the log lacks the states up to then.
     *
     * @param time since when they are others
     */
    public List<SourceRecord> gone(Collection<String> namespaces, ClusterTime time) {
        if (namespaces.isEmpty()) return List.of();
        if (namespaces.stream().anyMatch(rows::isPartial)) history.copiedAt(time);
        List<SourceRecord> records = forget(namespaces);
        rows.forgetDocuments(namespaces);
        records.add(rootRecord());
        return records;
    }

    /** The rows of a collection follow a change of it: it is copied, and yet the log has every state of it, from the copy's end on. */
    public List<SourceRecord> refill(String namespace) {
        rows.refill(namespace);
        return List.of(rootRecord());
    }

    /** Whether the log has rows of a collection that are later than {@code time}, or lacks changes of it. */
    public boolean isAhead(String namespace, ClusterTime time) {
        return rows.isAhead(namespace, time);
    }

    /**
     * A document was read in place of an event; {@link #newDocuments} has the offset.
     *
     * @param isLater whether it was read at another time than that of the event that it replaces
     */
    public void addDocument(String namespace, byte[] key, ClusterTime time, boolean isLater) {
        rows.addDocument(namespace, key, time);
        hasNewDocuments = true;
        if (isLater) history.copiedAt(time);
    }

    /** The offset of documents that were added and are in no offset yet, in the transaction of their records. */
    public Optional<SourceRecord> newDocuments() {
        return hasNewDocuments ? Optional.of(rootRecord()) : Optional.empty();
    }

    /** Whether the root offset has no room for another document that is read in place of an event. */
    public boolean isFullOfDocuments() {
        return rows.isFullOfDocuments();
    }

    /** The initial copy is read. */
    public void beginStream() {
        warning = "";
        phase = Phase.STREAM;
    }

    /** The round is read: the stream runs until it has passed what was done during it. */
    public SourceRecord catchUp() {
        phase = Phase.CATCH_UP;
        return rootRecord();
    }

    /** Whether the stream runs between two rounds, and no document waits for its re-read. */
    public boolean isCatchingUp() {
        return phase == Phase.CATCH_UP && rows.nextPending().isEmpty();
    }

    /** Begins a round. Every event up to {@code position} is passed, and no later one. */
    public SourceRecord beginRound(ClusterTime position) {
        phase = Phase.COPY;
        round++;
        start = position;
        return rootRecord();
    }

    /**
     * Whether a change must not be emitted: a row holds it or will hold it, or the document is re-read later. Afterwards, the document may be
     * {@linkplain #newPending pending}.
     */
    public boolean holds(String namespace, byte[] key, ClusterTime time) {
        return rows.holds(namespace, key, time, start, !isStreaming());
    }

    public SourceRecord plan(String namespace, RangePlan plan) {
        return partitions.planRecord(namespace, rows.plan(namespace, plan));
    }

    /** The largest cluster time of any remembered row; {@link #start} where there is none. */
    public ClusterTime largestTime() {
        return rows.largestTime().orElse(start);
    }

    /**
     * Stores whether the log ends within a transaction of the source, if that has changed.
     *
     * @param time of that transaction
     * @param last of the last event that is emitted: one that an earlier task has begun to emit is over when that is later
     */
    public Optional<SourceRecord> open(Optional<ClusterTime> time, ClusterTime last) {
        boolean goesOn = time.isEmpty() && open != null && !last.isAfter(open);
        if (goesOn || time.equals(Optional.ofNullable(open))) return Optional.empty();
        open = time.orElse(null);
        return Optional.of(rootRecord());
    }

    /** Adds rows that are about to be emitted, and returns the offset behind them. */
    public Map<String, Object> advance(Page page) {
        if (!rows.isRefilled(page.namespace())) history.copiedAt(page.time());
        return rows.advance(page).offset();
    }

    /**
     * Forgets what the stream has passed: everything before {@code position} is emitted.
     *
     * @param onlyConfirmed whether rows are remembered until they are confirmed
     */
    public List<SourceRecord> forget(ClusterTime position, boolean onlyConfirmed) {
        if (!rows.holdsAny()) return List.of();
        boolean hasPassedDocuments = rows.forgetDocuments(position);
        List<String> passed = rows.passed(position, onlyConfirmed);
        if (passed.isEmpty() && !hasPassedDocuments) return List.of();
        List<SourceRecord> records = forget(passed);
        records.add(rootRecord());
        return records;
    }

    private List<SourceRecord> forget(Collection<String> namespaces) {
        List<SourceRecord> records = new ArrayList<>();
        for (String namespace : List.copyOf(namespaces)) {
            records.addAll(rows.forgetPending(namespace, partitions));
            rows.forget(namespace).ifPresent(copy -> records.addAll(partitions.doneRecords(namespace, copy)));
        }
        return records;
    }

    /** The copy of a collection has to start again: its rows in the log, and what is pending because of them, stay. */
    public List<SourceRecord> copyAnew(String namespace) {
        List<SourceRecord> records = abandon(namespace);
        records.add(rootRecord());
        return records;
    }

    private List<SourceRecord> abandon(String namespace) {
        List<SourceRecord> records = new ArrayList<>();
        rows.abandon(namespace).ifPresent(copy -> records.addAll(partitions.doneRecords(namespace, copy)));
        return records;
    }

    /**
     * A document of a collection of which only some leave has changed, or one more than can be read in place of its event: see
     * {@link RowTimes#addPending}.
     */
    public void addPending(String namespace, byte[] key) {
        rows.addPending(namespace, key);
    }

    /** The offsets of documents that have become pending, in the transaction of the stream's offset behind their changes. */
    public List<SourceRecord> newPending() {
        List<SourceRecord> records = rows.newPending(partitions);
        if (!records.isEmpty() && !rows.pendingAlone().isEmpty()) records.add(rootRecord());
        return records;
    }

    /** Documents that were pending are about to be emitted as of {@code time}, and the log lacks states of them before that. */
    public List<SourceRecord> reread(String namespace, Collection<byte[]> keys, ClusterTime time) {
        history.copiedAt(time);
        List<SourceRecord> records = new ArrayList<>(settled(namespace, keys));
        if (records.isEmpty()) records.add(rootRecord());
        return records;
    }

    /** Documents that were pending are about to be emitted, or are not selected. */
    public List<SourceRecord> settled(String namespace, Collection<byte[]> keys) {
        Optional<SourceRecord> offset = rows.removePending(namespace, keys, partitions);
        return offset.isPresent() ? List.of(offset.get(), rootRecord()) : List.of();
    }

    /** What users should know; empty when nothing. */
    public String warning() {
        return warning;
    }

    public void warn(String message) {
        warning = message;
    }

    public SourceRecord rootRecord() {
        hasNewDocuments = false;
        Map<String, Object> root = new HashMap<>();
        root.put("phase", phase.toString());
        root.put("round", round);
        root.put("selection", selection);
        root.put("start", start.toString());
        root.put("warning", warning);
        if (!rules.isEmpty()) root.put("rules", rules);
        if (open != null) root.put("open", open.toString());
        rows.addTo(root);
        history.addTo(root);
        return partitions.offsetRecord(partitions.root(), root, "%s: round %d".formatted(phase, round));
    }

    /** The record of a range that has nothing to emit. */
    public SourceRecord rangeRecord(String namespace, int range) {
        return partitions.rangeRecord(namespace, range, rows.range(namespace, range));
    }
}
