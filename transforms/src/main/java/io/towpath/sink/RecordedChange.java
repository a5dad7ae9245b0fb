package io.towpath.sink;

import com.mongodb.MongoNamespace;
import io.towpath.fold.Steps;
import io.towpath.record.Change;
import java.nio.ByteBuffer;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/**
 * What one record says about a document at the destination.
 *
 * @param id the record's key: the same for all changes of one document
 * @param filter matches the document
 * @param steps of an update; null for other changes
 * @param isNew whether, by the topic, the document is not at the destination yet
 */
record RecordedChange(
        SinkRecord record,
        MongoNamespace namespace,
        ByteBuffer id,
        BsonDocument filter,
        Change change,
        Steps steps,
        boolean isNew) {
    DocumentId document() {
        return new DocumentId(namespace, id);
    }

    /** Whether the change is a single write by itself. */
    boolean isOneWrite() {
        return steps == null || steps.areOperators();
    }

    /** The record's value; null for a delete. */
    byte[] value() {
        return (byte[]) record.value();
    }
}
