package io.towpath.sink;

import com.mongodb.MongoNamespace;
import io.towpath.fold.Steps;
import io.towpath.record.Change;
import java.nio.ByteBuffer;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/**
 * What one record says of a document at the destination.
 *
 * @param id the record's key: the same for all changes of one document
 * @param filter finds the document
 * @param steps of an update; null for other changes
 * @param isNew whether the document is not at the destination yet, as far as the topic can tell
 */
record RecordedChange(
        SinkRecord record,
        MongoNamespace namespace,
        ByteBuffer id,
        BsonDocument filter,
        Change change,
        Steps steps,
        boolean isNew) {
    Document document() {
        return new Document(namespace, id);
    }

    /** Whether the change is one write as it is. */
    boolean isOneWrite() {
        return steps == null || steps.areOperators();
    }

    /** The record's value; null for a delete. */
    byte[] value() {
        return (byte[]) record.value();
    }
}
