package io.towpath.sink;

import io.towpath.fold.Steps;
import io.towpath.record.Change;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/**
 * What one record says about a document at the destination.
 *
 * @param filter matches the document
 * @param steps of an update; null for other changes
 * @param isNew whether, by the topic, the document is not at the destination yet
 */
record RecordedChange(
        SinkRecord record, Write.DocumentId document, BsonDocument filter, Change change, Steps steps, boolean isNew) {
    /** Whether the change is a single write by itself. */
    boolean isOneWrite() {
        return steps == null || steps.areOperators();
    }

    /** The record's value; null for a delete. */
    byte[] value() {
        return (byte[]) record.value();
    }
}
