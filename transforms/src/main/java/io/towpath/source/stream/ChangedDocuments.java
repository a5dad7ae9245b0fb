package io.towpath.source.stream;

import com.mongodb.MongoException;
import io.towpath.net.ReadFault;
import io.towpath.net.RetryCause;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.Progress;
import io.towpath.source.reread.Rereads;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.kafka.connect.source.SourceRecord;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Changes of collections of which only some documents leave. No change shows whether its document is selected, before or after it: so the
 * document is read as of the end of the batch, and is a whole document or a delete in the log, or nothing (docs/design/rules.md).
 */
final class ChangedDocuments {
    private static final Logger LOGGER = LoggerFactory.getLogger(ChangedDocuments.class);
    private static final long PAUSE_MS = 500;
    /** Of one transaction. */
    private static final long MOST_BYTES = 8 << 20;

    private final Progress progress;
    private final Rereads rereads;
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

    /** Takes a change in place of the stream; false if all documents of the collection leave. */
    boolean take(String namespace, byte[] key, ClusterTime time) {
        if (progress.rules().only(namespace).isEmpty()) return false;
        if (settled != null && !time.isAfter(settled)) isTied = true;
        progress.ledger().addPending(namespace, key);
        return true;
    }

    /** Whether documents are to be read before any later event is taken. */
    boolean isOpen() {
        return isOpen;
    }

    /** Documents that have changed, as of the end of a batch. All of it must be taken. */
    List<SourceRecord> read(ClusterTime end) throws InterruptedException {
        List<SourceRecord> records = new ArrayList<>();
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
