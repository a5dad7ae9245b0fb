package io.towpath.sink;

import com.mongodb.MongoNamespace;
import com.mongodb.client.model.WriteModel;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/**
 * One write, and the records that it applies.
 *
 * @param bytes of the document or of the update operators
 * @param mayMiss whether the document may rightly not exist
 */
record Write(
        List<SinkRecord> records,
        DocumentId document,
        Kind kind,
        WriteModel<BsonDocument> model,
        int bytes,
        boolean mayMiss) {
    /** The classes that the server takes in bulk, in the order in which a wave sends them. */
    enum Kind {
        INSERT,
        CHANGE,
        DELETE
    }

    /** The identity of a document at the destination. {@code id} is the key of its records, the same for all of its changes. */
    record DocumentId(MongoNamespace namespace, ByteBuffer id) {}

    MongoNamespace namespace() {
        return document.namespace();
    }

    SinkRecord record() {
        return records.get(0);
    }

    boolean isFolded() {
        return records.size() > 1;
    }
}
