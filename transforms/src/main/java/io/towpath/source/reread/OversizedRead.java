package io.towpath.source;

import com.mongodb.MongoException;
import com.mongodb.client.ClientSession;
import io.towpath.record.ClusterTime;
import io.towpath.transform.OversizedEvent;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Documents in place of events that are too large: each as it was when the event was made, or, where the source no longer holds that, as
 * it is now. What the stream tells of it up to that moment is in it, and is dropped.
 */
final class ReadInstead {
    private static final Logger LOGGER = LoggerFactory.getLogger(ReadInstead.class);

    private final SourceCluster source;
    private final Ledger ledger;
    private final SourceSettings settings;
    private final SourceMetrics metrics;

    ReadInstead(SourceCluster source, Ledger ledger, SourceSettings settings, SourceMetrics metrics) {
        this.source = source;
        this.ledger = ledger;
        this.settings = settings;
        this.metrics = metrics;
    }

    /** What comes in place of a record of Debezium's, which gives the offset; empty when it has to be tried again. */
    Optional<List<SourceRecord>> of(SourceRecord record, OversizedEvent event) {
        if (!Carried.asItIs(event.key())) {
            throw new ConnectException(
                    "%s %s was changed by more than a change stream can tell, and cannot be read by its _id, which no driver sends as it is. Remove the document, or exclude the collection"
                            .formatted(event.namespace(), new RawBsonDocument(event.key()).toJson()));
        }
        try {
            return Optional.of(read(record, event, Optional.of(event.time())));
        } catch (MongoException error) {
            if (!ReadFault.isAboutTime(error)) return later(error);
        }
        try {
            return Optional.of(read(record, event, Optional.empty()));
        } catch (MongoException error) {
            return later(error);
        }
    }

    private Optional<List<SourceRecord>> later(MongoException error) {
        if (!ReadFault.passes(error)) throw error;
        metrics.retried(ReadFault.words(error));
        LOGGER.warn("a document cannot be read in place of an event yet: {}", ReadFault.words(error));
        return Optional.empty();
    }

    private List<SourceRecord> read(SourceRecord record, OversizedEvent event, Optional<ClusterTime> asked) {
        List<byte[]> documents = new ArrayList<>();
        // told in any case: a member that is behind reads what was before the event, and one without the collection
        // says no time
        ClusterTime moment = asked.orElseGet(source::now);
        try (ClientSession session = source.snapshot(moment)) {
            BsonDocument only = new BsonDocument("_id", new RawBsonDocument(event.key()).get("_id"));
            source.documents(event.namespace(), session, only).into(documents);
        }
        List<SourceRecord> records = new ArrayList<>();
        Rows rows = new Rows(settings.name(), event.namespace(), asPartition(record), asOffset(record));
        rows.documents(documents, moment, records);
        if (documents.isEmpty()) rows.gone(List.of(event.key()), moment, records);
        ledger.readInstead(event.namespace(), event.key(), moment, asked.isEmpty());
        records.add(ledger.rootRecord());
        metrics.oversized();
        LOGGER.warn(
                "{} {} was read as of {} in place of a change that is too large for a change stream",
                event.namespace(),
                new RawBsonDocument(event.key()).toJson(),
                moment);
        return records;
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> asPartition(SourceRecord record) {
        return (Map<String, Object>) record.sourcePartition();
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> asOffset(SourceRecord record) {
        return (Map<String, Object>) record.sourceOffset();
    }
}
