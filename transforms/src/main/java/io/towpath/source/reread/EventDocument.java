package io.towpath.source.reread;

import com.mongodb.MongoException;
import io.towpath.debezium.EventKey;
import io.towpath.net.ReadFault;
import io.towpath.net.RetryCause;
import io.towpath.record.ClusterTime;
import io.towpath.source.copy.DriverKey;
import io.towpath.source.copy.Rows;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.ddl.SchemaCapture;
import io.towpath.source.progress.Progress;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.RawBsonDocument;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Documents in place of events that are too large, or whose paths are ambiguous: each as of its event, or, where the source no longer holds that state, as of now. It
 * includes the document's events up to then, so the stream drops these.
 *
 * @param schema null unless schema changes are captured; not closed by this
 */
public record EventDocument(Progress progress, SnapshotReads reads, SchemaCapture schema) {
    private static final Logger LOGGER = LoggerFactory.getLogger(EventDocument.class);

    /**
     * The records in place of Debezium's, which has the offset; none where the document is to be re-read later, as too many others are
     * remembered, or its name is that of a capped collection by now; empty when the read has to be retried.
     */
    public Optional<List<SourceRecord>> of(SourceRecord record, EventKey event) throws InterruptedException {
        if (!DriverKey.isExact(event.key())) {
            throw new ConnectException(
                    "a change of %s %s is too large for a change stream, or changes a field whose name holds a dot, and the document cannot be read by its _id, which no driver sends unchanged. Remove the document, or exclude the collection"
                            .formatted(event.namespace(), new RawBsonDocument(event.key()).toJson()));
        }
        if (progress.ledger().isFullOfDocuments()) return later(event);
        try {
            return read(record, event, Optional.of(event.time()));
        } catch (MongoException error) {
            if (!ReadFault.isAboutTime(error)) return retry(error);
        }
        try {
            return read(record, event, Optional.empty());
        } catch (MongoException error) {
            return ReadFault.isOfACapped(error) ? later(event) : retry(error);
        }
    }

    /** Its changes wait until it is re-read, or its collection is gone. */
    private Optional<List<SourceRecord>> later(EventKey event) {
        progress.ledger().addPending(event.namespace(), event.key());
        progress.metrics().dropped();
        return Optional.of(List.of());
    }

    private Optional<List<SourceRecord>> retry(MongoException error) {
        if (!ReadFault.isTransient(error)) throw error;
        progress.metrics().retried(RetryCause.of(error), ReadFault.message(error));
        LOGGER.warn("a document cannot be read in place of an event yet: {}", ReadFault.message(error));
        return Optional.empty();
    }

    private Optional<List<SourceRecord>> read(SourceRecord record, EventKey event, Optional<ClusterTime> eventTime)
            throws InterruptedException {
        // always explicit: a member that lags would read the state before the event, and one without the collection
        // reports no time
        ClusterTime time = eventTime.orElseGet(reads.source()::now);
        RereadAnswer answer =
                RereadAnswer.read(new RereadRequest(-1, event.namespace(), List.of(event.key()), ""), 0, time, reads);
        Rows rows = new Rows(progress, event.namespace(), record.sourcePartition(), record.sourceOffset());
        // what else was found by the key follows in the stream
        byte[] document = answer.documents().get(ByteBuffer.wrap(event.key()));
        List<byte[]> found = document == null ? List.of() : List.of(document);
        // a schema change that is still to come decides about the documents of a collection that is gone
        Optional<Boolean> isKept = schema != null && answer.documents().isEmpty()
                ? schema.mayBeGone(event.namespace())
                : Optional.of(false);
        if (isKept.isEmpty()) return Optional.empty();
        List<SourceRecord> records = rows.records(found, isKept.get() ? List.of() : answer.gone(), time);
        if (records.isEmpty()) {
            Map<String, Object> offset = new HashMap<>(record.sourceOffset());
            records.add(
                    progress.partitions().offsetRecord(record.sourcePartition(), offset, "left to a schema change"));
        }
        progress.ledger().addDocument(event.namespace(), event.key(), time, eventTime.isEmpty());
        progress.metrics().oversized();
        if (event.isOversized())
            LOGGER.warn(
                    "{} {} was read as of {} in place of a change that is too large for a change stream",
                    event.namespace(),
                    new RawBsonDocument(event.key()).toJson(),
                    time);
        return Optional.of(records);
    }
}
