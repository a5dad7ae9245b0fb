package io.towpath.sink;

import com.mongodb.MongoNamespace;
import com.mongodb.client.model.WriteModel;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/**
 * One write, and the records that it is made of.
 *
 * @param id the records' key: the same for all changes of one document
 * @param bytes of the document or of the update operators
 * @param mayMiss whether it is right that there may be no such document
 */
record Write(
        List<SinkRecord> records,
        MongoNamespace namespace,
        ByteBuffer id,
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

    Document document() {
        return new Document(namespace, id);
    }

    /** The first of the records. */
    SinkRecord record() {
        return records.get(0);
    }

    boolean isFolded() {
        return records.size() > 1;
    }
}
