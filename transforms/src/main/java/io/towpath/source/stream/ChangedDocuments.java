package io.towpath.source.stream;

import com.mongodb.MongoException;
import io.towpath.connector.LogRecord;
import io.towpath.connector.TextHeaders;
import io.towpath.net.ReadFault;
import io.towpath.net.RetryCause;
import io.towpath.record.ClusterTime;
import io.towpath.source.copy.DriverKey;
import io.towpath.source.progress.Progress;
import io.towpath.source.reread.Rereads;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.connect.source.SourceRecord;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Changes of collections of which only some documents leave. No change shows whether its document is selected, before or after it. So the
 * document is read as of the end of the batch, and is a whole document or a delete in the log, or nothing. An update that leaves the
 * fields alone on which the filter depends is emitted as it is, if its document is selected then (docs/design/rules.md).
 */
final class ChangedDocuments {
    private static final Logger LOGGER = LoggerFactory.getLogger(ChangedDocuments.class);
    private static final long PAUSE_MS = 500;
    private static final long PAUSE_NS = Duration.ofSeconds(1).toNanos();
    /** Of one transaction. */
    private static final long MOST_BYTES = 8 << 20;

    private final Progress progress;
    private final Rereads rereads;
    /** Of the batch, in its order: updates that do not change whether their documents are selected. */
    private final List<Update> updates = new ArrayList<>();

    private record Update(String namespace, byte[] key, SourceRecord left) {}

    /** Up to when the log has all that is selected, of the collections that are not in {@link #unknown}. */
    private ClusterTime settled;
    /** Collections of which documents wait to be read since an earlier batch: the log may have those of another time, or lack them. */
    private Set<String> unknown = Set.of();
    /** When these of them are to be tried again. */
    private final Map<String, Long> due = new HashMap<>();
    /** Whether the batch has changes of the time {@link #settled}. */
    private boolean isTied;
    /** Whether documents of the last batch are still to be read, as of its end. */
    private boolean isOpen;

    /** @param start up to when the log has everything of collections of which no document is pending */
    ChangedDocuments(Progress progress, Rereads rereads, ClusterTime start) {
        this.progress = progress;
        this.rereads = rereads;
        passed(start);
    }

    /** Whether changes of a collection are to be taken here. */
    boolean isOf(String namespace) {
        return progress.rules().only(namespace).isPresent();
    }

    /** Takes a change whose document is to be read. */
    void take(String namespace, byte[] key, ClusterTime time) {
        if (!time.isAfter(settled)) isTied = true;
        progress.ledger().addPending(namespace, key);
    }

    /**
     * Takes an update.
     *
     * @param update before the rules
     * @param left what they leave of it; empty for nothing
     */
    void take(String namespace, byte[] key, ClusterTime time, byte[] update, Optional<SourceRecord> left) {
        // the document that is in the log may have it, and what follows it in the transaction
        boolean mayBeIn = !time.isAfter(settled);
        boolean isAside = !progress.rules().only(namespace).orElseThrow().dependsOn(update);
        if (mayBeIn || !isAside || !DriverKey.isExact(key)) take(namespace, key, time);
        else left.ifPresent(record -> updates.add(new Update(namespace, key, record)));
    }

    /** Whether documents are to be read before any later event is taken. */
    boolean isOpen() {
        return isOpen;
    }

    /** Documents that have changed, as of the end of a batch. All of it must be taken. */
    List<SourceRecord> read(ClusterTime end) throws InterruptedException {
        List<SourceRecord> records = takeUpdates(end);
        isOpen = false;
        for (Optional<String> next = next(); next.isPresent(); next = next()) {
            String namespace = next.get();
            isOpen = true;
            if (bytes(records) >= MOST_BYTES) return records;
            try {
                Optional<List<SourceRecord>> read = rereads.readChanged(namespace, end, before(namespace));
                read.ifPresent(records::addAll);
                if (read.isPresent()) continue;
                due.put(namespace, System.nanoTime() + PAUSE_NS);
            } catch (MongoException error) {
                if (ReadFault.isInterrupt(error)) return records;
                if (!ReadFault.isTransient(error)) throw error;
                progress.metrics().retried(RetryCause.of(error), ReadFault.message(error));
                LOGGER.warn("changed documents cannot be read yet: {}", ReadFault.message(error));
                Thread.sleep(PAUSE_MS);
                return records;
            }
        }
        isOpen = false;
        passed(end);
        return records;
    }

    /** A collection of which changed documents can be read now. */
    private Optional<String> next() {
        long now = System.nanoTime();
        due.values().removeIf(time -> now - time >= 0);
        return rereads.changed().stream()
                .filter(namespace -> !due.containsKey(namespace))
                .findFirst();
    }

    /**
     * The updates whose documents are selected. That is asked as of the time just before the end of the batch: a transaction that ends it may go
     * on in the next one, with what selects the document, which the log does not have. What cannot be known of becomes pending.
     */
    private List<SourceRecord> takeUpdates(ClusterTime end) throws InterruptedException {
        Map<String, Map<ByteBuffer, byte[]>> keys = new LinkedHashMap<>();
        updates.removeIf(update -> progress.ledger().rows().isPending(update.namespace, update.key));
        for (Update update : updates)
            keys.computeIfAbsent(update.namespace, name -> new LinkedHashMap<>())
                    .put(ByteBuffer.wrap(update.key), update.key);
        Map<String, Set<ByteBuffer>> selected = new HashMap<>();
        for (var asked : keys.entrySet())
            selected.put(
                    asked.getKey(), selected(asked.getKey(), asked.getValue().values(), end));
        List<SourceRecord> records = new ArrayList<>();
        for (Update update : updates)
            if (selected.get(update.namespace).contains(ByteBuffer.wrap(update.key)))
                records.add(asOf(end, update.left));
        updates.clear();
        progress.metrics().streamed(records.size());
        return records;
    }

    /** Where it cannot be known, none is, and all become pending. */
    private Set<ByteBuffer> selected(String namespace, Collection<byte[]> keys, ClusterTime end)
            throws InterruptedException {
        try {
            Optional<Set<ByteBuffer>> selected = rereads.selected(namespace, List.copyOf(keys), end.previous());
            if (selected.isPresent()) return selected.get();
        } catch (MongoException error) {
            if (!ReadFault.isTransient(error) && !ReadFault.isInterrupt(error)) throw error;
        }
        for (byte[] key : keys) progress.ledger().addPending(namespace, key);
        return Set.of();
    }

    /** All of a batch has the time of its end, so that the log of a collection up to a time is one state of it. */
    private static SourceRecord asOf(ClusterTime end, SourceRecord record) {
        return LogRecord.with(record, TextHeaders.withTime(record.headers(), end));
    }

    /** Everything up to {@code position} is emitted. */
    void passed(ClusterTime position) {
        unknown = Set.copyOf(rereads.changed());
        settled = position;
        isTied = false;
    }

    /** A transaction may go on in the next batch: then the log has what was selected before it, or after its first part. */
    private Set<ClusterTime> before(String namespace) {
        if (unknown.contains(namespace)) return Set.of();
        return isTied ? Set.of(settled.previous(), settled) : Set.of(settled);
    }

    private static long bytes(List<SourceRecord> records) {
        return records.stream()
                .mapToLong(record -> record.value() instanceof byte[] value ? value.length : 0)
                .sum();
    }
}
