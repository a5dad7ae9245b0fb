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
import java.util.ArrayList;
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
    /** Of one transaction. */
    private static final long MOST_BYTES = 8 << 20;

    private final Progress progress;
    private final Rereads rereads;
    /** Of the batch, in its order: updates that do not change whether their documents are selected. */
    private final List<Update> updates = new ArrayList<>();

    private record Update(String namespace, byte[] key, ClusterTime time, SourceRecord left) {}

    /** Up to when the log has all that is selected; null where it may lack documents, or have those of another time. */
    private ClusterTime settled;
    /** Whether the batch has changes of the time {@link #settled}. */
    private boolean isTied;
    /** Whether documents of the last batch are still to be read, as of its end. */
    private boolean isOpen;

    /** @param start up to when the log has everything, if no document is pending */
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
        if (settled != null && !time.isAfter(settled)) isTied = true;
        progress.ledger().addPending(namespace, key);
    }

    /**
     * Takes an update.
     *
     * @param update before the rules
     * @param left what they leave of it; empty for nothing
     */
    void take(String namespace, byte[] key, ClusterTime time, byte[] update, Optional<SourceRecord> left) {
        boolean mayBeIn = settled == null || !time.isAfter(settled); // the document that is in the log may have it
        boolean isAside = !progress.rules().only(namespace).orElseThrow().dependsOn(update);
        if (mayBeIn || !isAside || !DriverKey.isExact(key)) take(namespace, key, time);
        else left.ifPresent(record -> updates.add(new Update(namespace, key, time, record)));
    }

    /** Whether documents are to be read before any later event is taken. */
    boolean isOpen() {
        return isOpen;
    }

    /** Documents that have changed, as of the end of a batch. All of it must be taken. */
    List<SourceRecord> read(ClusterTime end) throws InterruptedException {
        List<SourceRecord> records = takeUpdates(end);
        isOpen = false;
        while (rereads.nextChanged().isPresent()) {
            isOpen = settled != null || rereads.isPending(); // otherwise it has just been tried
            if (!isOpen) return records;
            if (bytes(records) >= MOST_BYTES) return records;
            try {
                Rereads.Changed changed = rereads.readChanged(end, before());
                records.addAll(changed.records());
                isOpen = !changed.mustWait();
            } catch (MongoException error) {
                if (ReadFault.isInterrupt(error)) return records;
                if (!ReadFault.isTransient(error)) throw error;
                progress.metrics().retried(RetryCause.of(error), ReadFault.message(error));
                LOGGER.warn("changed documents cannot be read yet: {}", ReadFault.message(error));
                Thread.sleep(PAUSE_MS);
                return records;
            }
            if (isOpen) continue;
            settled = null;
            return records;
        }
        isOpen = false;
        passed(end);
        return records;
    }

    /**
     * The updates whose documents are selected. That is asked as of the time just before the end of the batch: a transaction that ends it may go
     * on in the next one, with what selects the document, which the log does not have. What cannot be known of becomes pending.
     */
    private List<SourceRecord> takeUpdates(ClusterTime end) {
        Map<String, Map<ByteBuffer, byte[]>> keys = new LinkedHashMap<>();
        for (Update update : updates)
            if (!end.isAfter(update.time)) progress.ledger().addPending(update.namespace, update.key);
        updates.removeIf(update -> progress.ledger().rows().isPending(update.namespace, update.key));
        for (Update update : updates)
            keys.computeIfAbsent(update.namespace, name -> new LinkedHashMap<>())
                    .put(ByteBuffer.wrap(update.key), update.key);
        Map<String, Set<ByteBuffer>> selected = new HashMap<>();
        List<SourceRecord> records = new ArrayList<>();
        try {
            keys.forEach((namespace, asked) ->
                    selected.put(namespace, rereads.selected(namespace, List.copyOf(asked.values()), end.previous())));
            for (Update update : updates)
                if (selected.get(update.namespace).contains(ByteBuffer.wrap(update.key)))
                    records.add(asOf(end, update.left));
        } catch (MongoException error) {
            if (!ReadFault.isTransient(error) && !ReadFault.isUnavailable(error) && !ReadFault.isInterrupt(error))
                throw error;
            for (Update update : updates) progress.ledger().addPending(update.namespace, update.key);
        }
        updates.clear();
        progress.metrics().streamed(records.size());
        return records;
    }

    /** All of a batch has the time of its end, so that the log of a collection up to a time is one state of it. */
    private static SourceRecord asOf(ClusterTime end, SourceRecord record) {
        return new LogRecord(
                record.sourcePartition(),
                record.sourceOffset(),
                record.topic(),
                record.kafkaPartition(),
                (byte[]) record.key(),
                (byte[]) record.value(),
                TextHeaders.withTime(record.headers(), end));
    }

    /** Everything up to {@code position} is emitted. */
    void passed(ClusterTime position) {
        if (rereads.nextChanged().isPresent()) return;
        settled = position;
        isTied = false;
    }

    /** A transaction may go on in the next batch: then the log has what was selected before it, or after its first part. */
    private Set<ClusterTime> before() {
        if (settled == null) return Set.of();
        return isTied ? Set.of(settled.previous(), settled) : Set.of(settled);
    }

    private static long bytes(List<SourceRecord> records) {
        return records.stream()
                .mapToLong(record -> record.value() instanceof byte[] value ? value.length : 0)
                .sum();
    }
}
